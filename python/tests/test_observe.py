"""Who looks on while simulations run: what is seen is what rows count, and nothing else changes."""

import collections
import json

import pytest

import superpages

WORKLOAD = "random:bytes=64M,references=100K,populate=no"
POLICIES = ["thp", "reservation", "promote", "mthp"]


def plain(rows):
    return [{key: value for key, value in row.items() if key != "series"} for row in json.loads(rows.to_json())]


def test_an_observer_changes_no_row_and_sees_what_rows_count():
    seen = collections.defaultdict(collections.Counter)

    def look(event):
        seen[event.machine, event.policy][event.kind] += 1
        assert event.workload == WORKLOAD and event.seconds >= 0

    run = {"machines": ["zen5", "golden-cove", "alpha-21264"], "policies": POLICIES}
    rows = superpages.simulate(WORKLOAD, **run, observe=look)
    assert rows.to_json() == superpages.simulate(WORKLOAD, **run).to_json()
    assert len(seen) == len(rows)
    for row in rows:
        counts = seen[row["machine"], row["policy"]]
        assert [counts[kind] for kind in ("fault", "promote", "demote")] == [row[key] for key in ("faults", "promotions", "demotions")], row["policy"]
        assert counts["map"] > 0 and counts["exit"] <= 1


@pytest.mark.parametrize("trace", ["gzip", "whole/cc1"])
def test_of_a_recorded_program_too(trace, root):
    path = root / "corpus" / f"{trace}.sp"
    counts = collections.Counter()

    class Counted:
        def fault(self, event):
            counts[event.policy, "faults"] += 1

        def promote(self, event):
            counts[event.policy, "promotions"] += 1
            assert event.address % event.bytes == 0 and event.detail in ("in-place", "whole")

        def demote(self, event):
            counts[event.policy, "demotions"] += 1
            assert event.detail < event.bytes

    rows = superpages.simulate(path, machines="zen5", policies=POLICIES, observe=Counted())
    for row in rows:
        for key in ("faults", "promotions", "demotions"):
            assert counts[row["policy"], key] == row[key], (row["policy"], key)


def test_what_an_event_says():
    events = []
    superpages.simulate("touch:bytes=4M", machines="zen5", policies="thp", observe=events.append)
    events = [event for event in events if event.policy == "thp"]
    assert {event.space for event in events} == {0}
    mapped = next(event for event in events if event.kind == "map" and event.bytes >= 4 << 20)
    fault = next(event for event in events if event.kind == "fault")
    assert mapped.address <= fault.address < mapped.address + mapped.bytes
    assert mapped.detail == "anonymous" and fault.detail == "zero" and fault.bytes in (4096, 2 << 20)
    assert [event.seconds for event in events] == sorted(event.seconds for event in events)
    assert repr(fault).startswith("Event(kind=\"fault\", seconds=") and "detail='zero'" in repr(fault)
    with pytest.raises(AttributeError):
        fault.kind = "mine"


def test_samples_are_the_series_of_rows():
    class Kept:
        def __init__(self):
            self.samples = []

        def sample(self, event):
            self.samples.append(event.detail)

    kept = Kept()
    rows = superpages.simulate(WORKLOAD, machines="zen5", policies="base", every="100us", observe=kept)
    assert kept.samples == rows[0]["series"] and len(kept.samples) > 3
    with pytest.raises(ValueError, match="observe: sample needs every="):
        superpages.simulate(WORKLOAD, observe=Kept())


def test_an_observer_that_raises_ends_the_call():
    def look(event):
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        superpages.simulate(WORKLOAD, machines=["zen5", "zen4"], policies=POLICIES, observe=look)


def test_what_is_no_observer_is_told():
    class Misspelt:
        def promoted(self, event):
            pass

    with pytest.raises(TypeError, match="observe: Misspelt: superpages looks for promote, not for promoted: was that meant"):
        superpages.simulate(WORKLOAD, observe=Misspelt())
    for wrong in (3, object(), Misspelt):
        with pytest.raises(TypeError, match=r"observe: expected a function f\(event\), or an object with methods of map"):
            superpages.simulate(WORKLOAD, observe=wrong)
