"""What the tests share: the command, whose rows those of the package must equal, and examples of it."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILT = pathlib.Path(os.environ.get("SUPERPAGE_BUILT", ROOT / "target" / "debug"))


def run(*words, status=0):
    done = subprocess.run([str(word) for word in words], capture_output=True, cwd=ROOT)
    assert done.returncode == status, done.stderr.decode()
    return done.stdout


@pytest.fixture(scope="session")
def command():
    """Runs `superpage` with arguments; returns its standard output."""
    path = BUILT / "superpage"
    assert path.exists(), f"{path}: build it (cargo build), or name its folder by SUPERPAGE_BUILT"
    return lambda *words, status=0: run(path, *words, status=status)


@pytest.fixture(scope="session")
def hot():
    """Runs the example `hot` of superpage-sim; returns its standard output."""
    path = BUILT / "examples" / "hot"
    assert path.exists(), f"{path}: build it (cargo build --examples -p superpage-sim)"
    return lambda *words: run(path, *words)


@pytest.fixture
def root(monkeypatch):
    """The project's folder, which is also the current one."""
    monkeypatch.chdir(ROOT)
    return ROOT
