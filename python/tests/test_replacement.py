"""Replacements in Python have the rows of those in Rust."""

import numpy
import pytest

import superpages

MACHINE = "zen5:tlb.L1 DTLB.entries=16,tlb.L2 DTLB.entries=64"


class OwnLru(superpages.Replacement):
    def __init__(self, sets, ways):
        self.uses = [[] for _ in range(sets)]

    def touch(self, set, way, page, access):
        self.invalidate(set, way)
        self.uses[set].append(way)

    def victim(self, set, page, access):
        return self.uses[set][0]

    def invalidate(self, set, way):
        if way in self.uses[set]:
            self.uses[set].remove(way)

    def flush(self):
        self.uses = [[] for _ in self.uses]


class OwnSrrip(superpages.Replacement):
    """As crates/mmu/src/tlb/replacement/srrip.rs."""

    def __init__(self, sets, ways):
        self.predicted = [[3] * ways for _ in range(sets)]

    def touch(self, set, way, page, access):
        self.predicted[set][way] = 0

    def fill(self, set, way, page, access):
        self.predicted[set][way] = 2

    def victim(self, set, page, access):
        while 3 not in self.predicted[set]:
            self.predicted[set] = [each + 1 for each in self.predicted[set]]
        return self.predicted[set].index(3)

    def flush(self):
        self.predicted = [[3] * len(each) for each in self.predicted]


def rows(workload, machine, **more):
    rows = superpages.simulate(workload, machines=machine, policies=["base", "thp", "reservation"], **more)
    return [{key: value for key, value in row.items() if key not in ("machine", "assumed")} for row in rows]


@pytest.mark.parametrize("workload", ["zipf:bytes=8M,references=20K", "random:bytes=16M,references=10K+matrix:n=40"])
@pytest.mark.parametrize(("kind", "name"), [(OwnLru, "lru"), (OwnSrrip, "srrip")])
def test_a_replacement_counts_as_that_in_rust(workload, kind, name):
    expected = rows(workload, f"{MACHINE},tlb.L2 DTLB.replacement={name}")
    assert rows(workload, MACHINE, replacements={"L2 DTLB": kind}) == expected
    assert expected[0]["tlb_misses"] > 1000
    assert rows(workload, MACHINE, replacements={"L2 DTLB": kind}, threads=2) == expected


def test_it_sees_pages_and_kinds_of_access():
    seen = []

    class Watches(OwnLru):
        def fill(self, set, way, page, access):
            seen.append((page, access))
            super().fill(set, way, page, access)

    addresses = numpy.arange(0x1000000, 0x1000000 + 40 * 4096, 4096, dtype="u8")
    superpages.simulate(addresses, machines=MACHINE, policies="base", replacements={"L1 DTLB": Watches})
    assert (0x1000, "read") in seen and len({page for page, _ in seen}) == 40


def test_its_faults_end_the_call_and_say_where():
    class Far(OwnLru):
        def victim(self, set, page, access):
            return 99

    class Raises(OwnLru):
        def touch(self, set, way, page, access):
            raise LookupError("nothing here")

    def call(kind):
        superpages.simulate("zipf:bytes=8M,references=20K", machines=MACHINE, replacements={"L2 DTLB": kind})

    with pytest.raises(ValueError, match="victim: expected a way from 0 to [0-9]+, not 99"):
        call(Far)
    with pytest.raises(LookupError, match="nothing here"):
        call(Raises)
    with pytest.raises(ValueError, match="replacements: zen5: tlb: there is no L7; take one of L1 DTLB, L1 ITLB, L2 DTLB"):
        superpages.simulate("matrix:n=9", machines="zen5", replacements={"L7": OwnLru})
    with pytest.raises(ValueError, match="zen5: tlb: replacement policy lru is built in; name this one otherwise"):
        superpages.simulate("matrix:n=9", machines="zen5", replacements={"L2 DTLB": type("Lru", (OwnLru,), {})})
    with pytest.raises(TypeError, match="it needs victim"):
        superpages.simulate("matrix:n=9", replacements={"L2 DTLB": type("Empty", (superpages.Replacement,), {})})
    with pytest.raises(TypeError, match="replacements: expected a class made from superpages.Replacement, not 'lru'"):
        superpages.simulate("matrix:n=9", replacements={"L2 DTLB": "lru"})
    with pytest.raises(TypeError, match="superpages looks for touch, not for tuch"):
        misspelt = type("Tuch", (superpages.Replacement,), {"tuch": OwnLru.touch, "victim": OwnLru.victim})
        superpages.simulate("matrix:n=9", replacements={"L2 DTLB": misspelt})
