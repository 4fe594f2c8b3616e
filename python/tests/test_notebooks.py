"""The notebooks run, and the tables that they print are those in their files. To run them and keep what they show, with superpage installed:

    python python/tests/test_notebooks.py [NAME.ipynb...]

The outputs of a cell with the tag `varies` (times, and what was recorded on the spot) may be different each time, and pictures are not compared.
"""

import pathlib
import re
import sys
import time

import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "notebooks"
NAMES = sorted(path.name for path in FOLDER.glob("*.ipynb"))
VARIES = "varies"


def run(name):
    """A notebook before and after it was run. An exception in a cell is raised here."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    before, after = (nbformat.read(FOLDER / name, as_version=4) for _ in range(2))
    nbclient.NotebookClient(after, timeout=1200, kernel_name="python3", record_timing=False, resources={"metadata": {"path": str(FOLDER)}}).execute()
    return before, after


def text(cell):
    """What a cell prints and shows as text, without what a terminal's width or an object's address does to it."""
    shown = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs if output.get("name") != "stderr"]
    return re.sub(r"[ \t]+", " ", re.sub(r"0x[0-9a-f]+", "0x", "\n".join(filter(None, shown))))


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_and_its_tables_are_those_kept(name):
    before, after = run(name)
    for place, (kept, made) in enumerate(zip(before.cells, after.cells)):
        if made.cell_type == "code" and VARIES not in made.metadata.get("tags", []):
            assert text(made) == text(kept), f"{name}, cell {place}: {made.source[:200]}"


def keep(name):
    """Runs a notebook and writes it with its outputs: nothing in it depends on who ran it, where and when."""
    import nbformat

    begun = time.perf_counter()
    _, after = run(name)
    after.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}, "language_info": {"name": "python"}}
    for cell in after.cells:
        if cell.cell_type == "code":  # without the places where progress was shown
            cell.outputs = [output for output in cell.outputs if output.get("data") != {"text/plain": ""}]
        cell.metadata = {"tags": cell.metadata["tags"]} if "tags" in cell.metadata else {}
    nbformat.write(after, FOLDER / name)
    print(f"{name}: {time.perf_counter() - begun:.0f} s, {(FOLDER / name).stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    for chosen in sys.argv[1:] or NAMES:
        keep(pathlib.Path(chosen).name)
