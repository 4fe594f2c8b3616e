"""Who looks on while simulations run."""

from __future__ import annotations

import inspect

from . import _given

KINDS = (
    "map", "unmap", "protect", "discard", "grow", "remap", "fork", "exec", "exit", "mark", "fault", "promote", "demote", "sample",
)  # fmt: skip
"""The kinds of events; an observer may have a method for each."""


def callbacks(observe, every) -> dict:
    """The functions to call, by kinds of events."""
    if observe is None:
        return {}
    expected = f"a function f(event), or an object with methods of {', '.join(KINDS)}"
    if inspect.isclass(observe):
        raise _given.wrong("observe", f"{expected}, not a class:", observe)
    methods = {kind: getattr(observe, kind) for kind in KINDS if callable(getattr(observe, kind, None))}
    if callable(observe) and not methods:
        return dict.fromkeys(KINDS, observe)
    own = [name for name, item in _given.public(type(observe)).items() if callable(item)]
    _given.refuse_near(f"observe: {type(observe).__name__}", own, KINDS)
    if not methods:
        raise _given.wrong("observe", expected, observe)
    if "sample" in methods and every is None:
        raise ValueError('observe: sample needs every=, as every="1ms" or every="10M" instructions')
    return methods
