"""Policies in Python."""

from __future__ import annotations


class Policy:
    """A policy of your own: answers for the fault path, and `tick`, which is called from time to time and sees and changes memory.

    It runs through the same seam as a policy in Rust, with the same counts. Each simulation works on its own deep copy of the object.

    >>> class Hot(superpages.Policy):
    ...     '''Regions most of which was accessed since the last scan become superpages.'''
    ...     interval = 1e-3
    ...     def tick(self, now, system):
    ...         half = system.sizes[1] // system.sizes[0] / 2
    ...         for space in system.spaces():
    ...             hot = [region for region in system.scan(space, 1) if not region.superpage
    ...                    and (system.accessed(space, 1, region) or 0) >= half]
    ...             system.promote(space, 1, hot)
    >>> superpages.simulate("zipf", policies=["thp", Hot()])

    A class may also have ``faulted(space, page, level)``, called for each fault that was resolved, ``missed(space, page, level)``, for each
    miss in the TLBs (slow: misses are many), and ``gone(space)``, for each address space that ends. Each may return a time in nanoseconds, at
    which `tick` is then called next. A name that is nearly one of these, such as ``tik``, is refused, and so is a class with methods none of which
    is called. An exception ends the simulation under this policy: its row has the traceback as ``error``, and the
    others go on.
    """

    name: str | None = None
    """What rows call it; otherwise the class's name in lower case."""

    answers: dict | str = {}
    """What the fault path does, as differences from ``base``: ``{"from": "reservation", "preempt": "off"}``; `superpages.policy_help` lists all."""

    interval: float | None = 1.0
    """Seconds of modelled time between two calls of `tick`; `None`: only when a call has returned a time."""

    def tick(self, now, system):
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
