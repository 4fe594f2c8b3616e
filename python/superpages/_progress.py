"""Progress of long calls."""

from __future__ import annotations

import contextlib
import time

from . import _given


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

        shown = sys.stderr is not None and sys.stderr.isatty() or "ipykernel" in sys.modules
        if not shown or importlib.util.find_spec("tqdm") is None:
            yield None
            return
    bar, began = None, time.monotonic()

    def show(done, of):
        nonlocal bar
        if bar is None:
            if time.monotonic() - began < 1:
                return
            import warnings

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # notebooks without widgets
                from tqdm.auto import tqdm
            bar = tqdm(total=of or None, unit=f" {unit}", unit_scale=True, leave=False)
        if of and bar.total != of:
            bar.reset(total=of)
        bar.update(max(0, done - bar.n))

    try:
        yield show
    finally:
        if bar is not None:
            bar.close()
