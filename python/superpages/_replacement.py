"""Replacement policies of TLBs in Python."""

from __future__ import annotations

import inspect
import re

from . import _given

CALLED = ("touch", "fill", "victim", "invalidate", "flush")


class Replacement:
    """A replacement policy of your own for a TLB, for trials: which entry of a set goes.

    `simulate` takes the class, by the name of a TLB. Each TLB of each simulation has its own object of it, made with the numbers of sets and
    ways. Vacant ways are filled first, the lowest before others. A second use of an entry in a row may be left out, since streams are made
    of runs.

    >>> import superpages
    >>> class Fifo(superpages.Replacement):
    ...     '''The entry that was filled first goes.'''
    ...     def __init__(self, sets, ways):
    ...         self.filled = [[] for _ in range(sets)]
    ...     def fill(self, set, way, page, access):
    ...         self.filled[set].append(way)
    ...     def victim(self, set, page, access):
    ...         return self.filled[set].pop(0)
    ...     def invalidate(self, set, way):
    ...         self.filled[set].remove(way)
    ...     def flush(self):
    ...         self.filled = [[] for _ in self.filled]
    >>> rows = superpages.simulate("zipf:bytes=16M,references=5K", machines="zen5", replacements={"L2 DTLB": Fifo})
    >>> rows.column("machine")[0]
    'zen5:tlb.L2 DTLB.replacement=fifo'

    Each use is a call into Python: some hundred nanoseconds. An exception ends the call of `simulate`.
    """

    def __init__(self, sets: int, ways: int) -> None:
        """The state of a TLB of so many sets of so many ways, all of them vacant."""

    def touch(self, set: int, way: int, page: int, access: str | None) -> None:
        """An entry was used: of the page of this number, in units of its size, by a ``"read"``, ``"write"`` or ``"execute"``; `None` if the
        hardware used it for itself."""

    def fill(self, set: int, way: int, page: int, access: str | None) -> None:
        """A way was filled: a vacant one, or the one that `victim` has chosen. Otherwise it counts as a use."""
        self.touch(set, way, page, access)

    def victim(self, set: int, page: int, access: str | None) -> int:
        """Chooses the way of a set without a vacant one that the page takes."""
        raise NotImplementedError(f"{type(self).__name__}: a replacement policy needs victim(set, page, access)")

    def invalidate(self, set: int, way: int) -> None:
        """A way became vacant."""

    def flush(self) -> None:
        """All ways became vacant."""


def given(replacements) -> list[tuple[str, str, type[Replacement]]]:
    """Names of TLBs, with the classes and what rows call these."""
    if not isinstance(replacements, dict):
        raise _given.wrong("replacements", 'a dict of names of TLBs and classes, as {"L2 DTLB": Fifo}', replacements)
    return [(_given.text("replacements", tlb), *_class(kind)) for tlb, kind in replacements.items()]


def _class(kind) -> tuple[str, type[Replacement]]:
    if not (inspect.isclass(kind) and issubclass(kind, Replacement)):
        raise _given.wrong("replacements", "a class made from superpages.Replacement", kind)
    name = re.sub("[^a-z0-9-]", "-", kind.__name__.lower())
    own = [name for name, item in _given.public(kind, (Replacement, object)).items() if callable(item)]
    _given.refuse_near(f"replacement {name}", own, CALLED)
    if kind.victim is Replacement.victim:
        raise TypeError(f"replacement {name}: it needs victim(set, page, access)")
    return name, kind
