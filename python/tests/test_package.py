"""The package as it is installed: its two halves, and threads that call into Python."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import threading

import superpages
from superpages import _built, _native

# Of what the native module offers: python python/tests/test_package.py prints it.
OFFERED = "3ea9b01ff836f1a0"


def offered():
    """A digest of the names and signatures that the native module has."""
    said = []
    for name, what in sorted(vars(_native).items()):
        if isinstance(what, type):
            said += [f"{name}.{key} {getattr(member, '__text_signature__', None)}" for key, member in sorted(vars(what).items()) if key[0] != "_"]
        elif callable(what):
            said.append(f"{name} {what.__text_signature__}")
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:16]


def test_a_change_of_the_native_module_changes_its_number():
    problem = "what the native module offers has changed: raise INTERFACE in python/src/lib.rs and python/superpages/_built.py, and write this digest above"
    assert (_built.INTERFACE, offered()) == (5, OFFERED), problem


def test_files_of_different_versions_are_told(tmp_path):
    home = pathlib.Path(superpages.__file__).parent
    copy = tmp_path / "superpages"
    shutil.copytree(home, copy, ignore=shutil.ignore_patterns("*.so", "__pycache__"))

    def imported():
        done = subprocess.run([sys.executable, "-c", "import superpages"], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
        assert done.returncode == 1
        return done.stderr.splitlines()[-1]

    assert "its native module cannot be loaded" in imported() and "pip install ./python" in imported()
    (copy / "_native.py").write_text("__version__ = '0.1.0'\n")
    assert "_native.py is of another version than the Python files beside it: reinstall the package" in imported()


def test_a_thread_that_simulates_is_one_thread_to_python():
    class Told(superpages.Policy):
        interval, calls, most = None, 0, 0

        def missed(self, space, page, level):
            # A thread that Python does not know has a new dictionary at each call.
            local.calls = getattr(local, "calls", 0) + 1
            self.calls, self.most = self.calls + 1, max(self.most, local.calls)

    class Local(threading.local):
        def __repr__(self):  # for the sweep, which tells policies apart by what they name
            return "Local()"

    local = Local()
    Told.__deepcopy__ = lambda self, memo: self
    for threads in (1, None):
        told = Told()
        superpages.simulate("touch:bytes=4M", machines="zen5", policies=told, threads=threads)
        assert told.calls > 1000 and told.most >= told.calls / (threads or os.cpu_count())
    told = Told()
    superpages.sweep({"sweep": {"name": "one"}, "axes": {"workload": "touch:bytes=4M", "machine": "zen5", "policy": told}})
    assert told.calls == told.most > 1000


if __name__ == "__main__":
    print(offered())
