"""Progress: what a notebook keeps of it, and where it is shown."""

import pytest

from superpages import _progress

CELL = """
import time
from superpages import _progress
shown = []
write = _progress._Output.write
_progress._Output.write = lambda self, text: (shown.append(text), write(self, text))
with _progress.watched(None, "runs") as bar:
    for done in range(4):
        bar(done, 4)
        time.sleep(0.5)
assert any("runs/s" in text for text in shown), shown
"""


def test_a_notebook_keeps_no_bar_that_is_dead(tmp_path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("tqdm")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = notebook.cells[0].outputs
    assert [output.get("data") for output in outputs] == [{"text/plain": ""}], outputs


def test_a_function_gets_it_all():
    seen = []
    with _progress.watched(lambda done, of: seen.append((done, of)), "runs") as bar:
        bar(1, 2)
    assert seen == [(1, 2)]
    with _progress.watched(False, "runs") as bar:
        assert bar is None
