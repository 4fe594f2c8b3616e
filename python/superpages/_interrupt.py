"""Ctrl-C for a policy that does not return."""

from __future__ import annotations

import ctypes


def interrupt(threads):
    """Raises `KeyboardInterrupt` in what these threads run in Python, by their numbers; in one that runs nothing there, when it next does."""
    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    for thread in threads:
        raise_in(ctypes.c_ulong(thread), ctypes.py_object(KeyboardInterrupt))
