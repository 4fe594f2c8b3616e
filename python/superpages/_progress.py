"""Progress of long calls."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from . import _given


class _Output:
    """An output of a notebook that is written over, and empty in the end: a widget would stay in the file, without its bar."""

    def __init__(self):
        from IPython.display import display

        self.handle: Any = display({"text/plain": ""}, raw=True, display_id=True)

    def write(self, text):
        self.handle.update({"text/plain": text.strip()}, raw=True)

    def flush(self):
        pass


def _in_notebook() -> bool:
    """Whether this runs in a kernel of IPython's."""
    import sys

    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return hasattr(shell, "kernel")


@contextlib.contextmanager
def watched(progress, unit):
    """A function of what is done and of how much (0: not known), or `None`."""
    progress = _given.progress(progress)
    if progress is False:
        yield None
        return
    if callable(progress):
        yield progress
        return
    if progress is None:
        # Where it is installed, and somebody looks.
        import importlib.util
        import sys

        shown = sys.stderr is not None and sys.stderr.isatty() or _in_notebook()
        if not shown or importlib.util.find_spec("tqdm") is None:
            yield None
            return
    bar, began = None, time.monotonic()

    def show(done, of):
        nonlocal bar
        if bar is None:
            if time.monotonic() - began < 1:
                return
            from tqdm import tqdm

            place: dict[str, Any] = {"file": _Output(), "ncols": 80} if _in_notebook() else {}
            bar = tqdm(total=of or None, unit=f" {unit}", unit_scale=True, leave=False, **place)
        if of and bar.total != of:
            bar.reset(total=of)
        bar.update(max(0, done - bar.n))

    try:
        yield show
    finally:
        if bar is not None:
            bar.close()
