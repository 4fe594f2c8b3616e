"""The package's types, and a file of typical use, as pyright reads them."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

import superpages

HERE = pathlib.Path(__file__).resolve().parent


def test_pyright_has_nothing_to_say():
    package = pathlib.Path(superpages.__file__).parent
    words = ["--outputjson", "--pythonpath", sys.executable, str(package), str(HERE / "typical.py")]
    # It reads the package where it was imported from.
    said = subprocess.run([sys.executable, "-m", "pyright", *words], capture_output=True, text=True, cwd=package.parent)
    try:
        found = json.loads(said.stdout)["generalDiagnostics"]
    except ValueError:
        why = "pyright cannot run: it comes from the network when it first runs, and needs node"
        if skipped := os.environ.get("SUPERPAGE_SKIPPED"):
            with open(skipped, "a") as file:
                file.write(f"python/tests/test_types.py: {why}\n")
        pytest.skip(f"{why}: {said.stderr[-300:]}")
    wrong = [f"{each['file']}:{each['range']['start']['line'] + 1}: {each['message']}" for each in found if each["severity"] == "error"]
    assert not wrong, "\n".join(wrong)
