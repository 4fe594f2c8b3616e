"""Policies in Python."""

from __future__ import annotations

import json
import math
from typing import Any

from . import _given
from ._native import System

CALLED = ("tick", "faulted", "missed", "gone")
"""The methods that a simulation calls while it runs; it asks for ``result`` at the end."""


def result(policy) -> str | None:
    """What a policy says at the end that it has found out, as JSON; `None` where it has no ``result``."""
    if not hasattr(policy, "result"):
        return None
    said = policy.result()
    if not isinstance(said, dict):
        raise _given.wrong("result", "a dict", said)
    return json.dumps(_plain(said), allow_nan=False)


def _plain(value):
    """A value as JSON has it: arrays are lists, numbers that are none are None, and what JSON has not is what it prints as."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset, range)):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy's
        return _plain(value.tolist())
    return repr(value)


def refuse_misspelt(name, kind):
    """Refuses a class whose names nobody looks for: it would run as its answers alone."""
    own = _given.public(kind, (Policy, object))
    methods = {given for given, item in own.items() if callable(item)}
    _given.refuse_near(f"policy {name}", methods, (*CALLED, "result"))
    _given.refuse_near(f"policy {name}", own.keys() - methods, ("name", "answers", "interval"))
    unheard = methods - {*CALLED, "result"}
    if unheard and not methods & set(CALLED):
        raise TypeError(f"policy {name}: nobody calls {', '.join(sorted(unheard))}; expected one of {', '.join(CALLED)}")


def told_apart(policy) -> str:
    """What a policy does, as text: the sources of its class, of those that it inherits from and of the functions that these name, with the
    values that they name, its answers and its attributes."""
    import dis
    import inspect

    _, answers, chosen = policy
    said: dict[str, str] = {}

    def source(what):
        try:
            return inspect.getsource(what)
        except (OSError, TypeError):
            raise ValueError(
                f"policy {policy[0]}: the source of {what.__name__} cannot be read, so a sweep cannot tell it from others: "
                "define it in a file or a notebook"
            ) from None

    def value(name, item):
        if inspect.ismodule(item) or inspect.isbuiltin(item) or getattr(item, "__module__", None) in ("builtins", "superpage"):
            return
        if inspect.isclass(item):
            return of_class(item)
        if inspect.isfunction(item):
            return function(item)
        text = f"{item.dtype} {item.shape} {item.tobytes()!r}" if hasattr(item, "tobytes") else repr(item)
        if " at 0x" in text:
            raise ValueError(
                f"policy {policy[0]}: a sweep cannot tell {name} from others, since it prints as {text}: give its class a __repr__"
            )
        said[name] = text

    def function(item):
        name = f"{item.__module__}.{item.__qualname__}"
        if name in said or item.__module__.partition(".")[0] == "superpage":
            return
        said[name] = source(item)
        named = dict(zip(item.__code__.co_freevars, (cell.cell_contents for cell in item.__closure__ or ())))
        codes = [item.__code__]
        for code in codes:
            codes += filter(inspect.iscode, code.co_consts)
            loaded = (step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL")
            named |= {word: item.__globals__[word] for word in loaded if word in item.__globals__}
        for word, of in sorted(named.items()):
            value(f"{name}: {word}", of)

    def of_class(item):
        name = f"{item.__module__}.{item.__qualname__}"
        if name in said or item in (object, Policy):
            return
        said[name] = source(item)
        for base in item.__bases__:
            value(name, base)
        for word, of in sorted(vars(item).items()):
            if inspect.isfunction(of):
                function(of)
            elif not word.startswith("__") and not inspect.isdatadescriptor(of):
                value(f"{name}.{word}", of)

    of_class(type(chosen))
    for word, of in sorted(vars(chosen).items()):
        value(f"self.{word}", of)
    return "\n".join([*said.values(), answers, *said])


class Policy:
    """A policy of your own: answers for the fault path, and `tick`, which is called from time to time and sees and changes memory.

    It runs through the same seam as a policy in Rust, with the same counts. Each simulation works on its own deep copy of the object.

    >>> import superpages
    >>> class Hot(superpages.Policy):
    ...     '''Regions most of which was accessed since the last scan become superpages.'''
    ...     interval = 1e-3
    ...     def tick(self, now, system):
    ...         half = system.sizes[1] // system.sizes[0] / 2
    ...         for space in system.spaces():
    ...             hot = [region for region in system.scan(space, 1) if not region.superpage
    ...                    and (system.accessed(space, 1, region) or 0) >= half]
    ...             system.promote(space, 1, hot)
    >>> superpages.simulate("zipf:bytes=16M,references=20K", policies=["thp", Hot()]).column("policy")
    ['base', 'thp', 'hot']

    A class may also have ``faulted(space, page, level)``, called for each fault that was resolved, ``missed(space, page, level)``, for each
    miss in the TLBs (slow: misses are many), and ``gone(space)``, for each address space that ends. Each may return a time in nanoseconds, at
    which `tick` is then called next. With ``result()``, called at the end, its row has the dict that this returns as ``policy_result``: what
    the policy has counted and found out, from this process or another, also in sweeps. A name that is nearly one of these, such as ``tik``, is refused, and so is a class with methods none of which
    is called. An exception ends the simulation under this policy: its row has the traceback as ``error``, and the
    others go on.
    """

    name: str | None = None
    """What rows call it; otherwise the class's name in lower case."""

    answers: dict[str, Any] | str = {}
    """What the fault path does, as differences from ``base``: ``{"from": "reservation", "preempt": "off"}``; `superpages.policy_help` lists all."""

    interval: float | None = 1.0
    """Seconds of modelled time between two calls of `tick`; `None`: only when a call has returned a time."""

    def tick(self, now: int, system: System) -> int | None:
        """Does what the policy does outside faults.

        Parameters
        ----------
        now : int
            The modelled time in nanoseconds.
        system : System
            What the policy may see and do; it is there only during the call.

        Returns
        -------
        int or None
            When to be called next, in nanoseconds; `None`: after `interval`.
        """
