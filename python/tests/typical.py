"""Typical use, for a type checker: test_types.py has pyright read it, and nobody runs it."""

import collections
from pathlib import Path
from typing import assert_type

import numpy as np

import superpages


class Hot(superpages.Policy):
    answers = {"from": "reservation", "preempt": "off"}

    def __init__(self, share: float = 0.5) -> None:
        self.share, self.interval, self.promoted = share, 1e-3, 0

    def tick(self, now: int, system: superpages.System) -> int | None:
        for space in system.spaces():
            hot = [region for region in system.scan(space, 1) if (system.accessed(space, 1, region) or 0) > self.share]
            self.promoted += system.promote(space, 1, hot).count("promoted")

    def result(self) -> dict[str, int]:
        return {"promoted": self.promoted}


class Untyped(superpages.Policy):
    def tick(self, now, system):
        return now + 1000


class Look:
    def __init__(self) -> None:
        self.faults: collections.Counter[str] = collections.Counter()

    def fault(self, event: superpages.Event) -> None:
        self.faults[event.policy] += event.bytes


def told(event: superpages.Event) -> None:
    print(event.kind, event.seconds, event.detail)


addresses = np.arange(1000, dtype=np.uint64)
policies = ["thp", {"from": "reservation", "preempt": False}, Hot(0.5), Untyped]
rows = superpages.simulate(addresses, writes=addresses % 2 == 0, machines=["zen5", {"from": "zen5"}], policies=policies, observe=Look())
assert_type(rows, superpages.Rows)
assert_type(rows.keys, list[str])
superpages.simulate("zipf", machines="zen5", policies=Hot, observe=told, every="1ms")
superpages.simulate([Path("a.sp"), "b.sp"], sizes=["64K", 1 << 21], memory=1 << 30)
superpages.simulate((addresses for _ in range(2)), progress=lambda done, of: None)
trace = superpages.write_trace("mine.sp", addresses, writes=True)
assert_type(trace, Path)
shares = [each["share"] for each in superpages.misses(trace, machine="zen5")]
swept = superpages.sweep({"sweep": {"name": "one"}, "axes": {"workload": "touch", "policy": Hot}})
if swept is not None:
    print(swept[0]["policy_result"], swept.to_parquet())
