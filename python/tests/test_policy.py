"""Policies in Python: those of the tutorial in both languages, what they see, and how they fail."""

import collections
import json
import pickle

import numpy as np
import pytest

import superpages

WORKLOAD = "random:bytes=256M,references=100K,populate=no"


class Hot(superpages.Policy):
    """The policy of docs/policy-tutorial.md: regions most of which was accessed since the last scan become superpages."""

    def __init__(self, share=0.5, interval=1.0):
        self.share, self.interval = share, interval

    def tick(self, now, system):
        least = self.share * (system.sizes[1] // system.sizes[0])
        for space in system.spaces():
            hot = []
            for region in system.scan(space, 1):
                if region.superpage:
                    continue
                accessed = system.accessed(space, 1, region)
                # If accesses are not known, populated pages count instead.
                if (region.populated if accessed is None else accessed) >= least:
                    hot.append(region)
            system.promote(space, 1, hot)


@pytest.mark.parametrize("share", ["0.02", "0.5"])
def test_the_same_policy_in_both_languages_has_the_same_rows(hot, share):
    rust = hot("zen5", WORKLOAD, share, "1ms")
    python = superpages.simulate(WORKLOAD, machines="zen5", policies=Hot(float(share), 1e-3))
    assert python.to_json().encode() == rust
    assert python[1]["promotions"] > 0 or share != "0.02"


def test_each_simulation_has_its_own_copy():
    class Count(superpages.Policy):
        interval = 1e-3
        seen = 0

        def tick(self, now, system):
            self.seen += 1
            assert now >= (self.seen - 1) * 1_000_000 or self.seen == 1

    counted = Count()
    rows = superpages.simulate(WORKLOAD, machines=["zen5", "golden-cove", "zen4"], policies=counted)
    assert counted.seen == 0 and rows.column("error") == [None] * 6
    # A policy that does nothing costs nothing and changes nothing.
    assert rows.column("speedup") == [1.0] * 6


def test_answers_are_differences_from_any_policy():
    class Like(superpages.Policy):
        answers = {"from": "reservation", "preempt": "off"}

    class Thp(superpages.Policy):
        answers = "thp"

    own = superpages.simulate(WORKLOAD, machines="zen5", policies=[Like, Thp])
    built_in = superpages.simulate(WORKLOAD, machines="zen5", policies=["reservation:preempt=off", "thp"])
    assert own.column("policy") == ["base", "like", "thp"]
    different = {"policy", "trace_digest"}
    for ours, theirs in zip(json.loads(own.to_json()), json.loads(built_in.to_json())):
        assert {k: v for k, v in ours.items() if k not in different} == {k: v for k, v in theirs.items() if k not in different}


def test_events_are_told():
    class Told(superpages.Policy):
        interval = None

        def __init__(self):
            self.counts = [0, 0, 0]

        def faulted(self, space, page, level):
            self.counts[0] += 1
            return 0  # tick is called next

        def missed(self, space, page, level):
            self.counts[1] += 1

        def gone(self, space):
            self.counts[2] += 1

        def tick(self, now, system):
            told.append(list(self.counts))

    told = []
    rows = superpages.simulate("touch:bytes=1M", machines="zen5", policies=Told)
    faults, misses = rows[1]["faults"], rows[1]["tlb_misses"]
    assert told[-1][0] == faults >= 256 and told[-1][1] <= misses
    assert told[-1][1] >= misses - 1


def test_an_exception_is_the_row_s_error_and_the_others_go_on():
    class Bad(superpages.Policy):
        interval = 1e-3

        def tick(self, now, system):
            if now > 5e6:
                raise KeyError("the reason")

    rows = superpages.simulate(WORKLOAD, machines="zen5", policies=["thp", Bad, "reservation"])
    errors = dict(zip(rows.column("policy"), rows.column("error")))
    assert errors["thp"] is errors["reservation"] is errors["base"] is None
    assert errors["bad"].startswith("policy bad: Traceback") and "KeyError: 'the reason'" in errors["bad"]
    assert "in tick" in errors["bad"] and not rows[2]["complete"]


def test_a_system_is_there_only_during_a_call():
    kept = []

    class Keeper(superpages.Policy):
        interval = 1e-3

        def tick(self, now, system):
            kept.append(system)
            with pytest.raises(ValueError, match="level 9: expected 0 to"):
                system.scan(0, 9)
            with pytest.raises(ValueError, match="base pages cannot be promoted to"):
                system.promote(0, 0, [])
            with pytest.raises(ValueError, match="expected either, in-place or by-copying"):
                system.promote(0, 1, [], how="maybe")
            assert system.scan(99, 1) == [] and system.now == now

    Keeper.__deepcopy__ = lambda self, memo: self
    assert superpages.simulate(WORKLOAD, machines="zen5", policies=Keeper).column("error") == [None, None]
    with pytest.raises(RuntimeError, match="only during a call of tick"):
        kept[0].spaces()


def test_what_is_no_policy_is_told():
    class Twice(superpages.Policy):
        name = "thp"

    with pytest.raises(TypeError, match="two policies are called thp"):
        superpages.simulate(WORKLOAD, policies=["thp", Twice])

    class Misspelt(superpages.Policy):
        def tik(self, now, system):
            pass

    with pytest.raises(TypeError, match="policy misspelt: superpages looks for tick, not for tik: was that meant"):
        superpages.simulate(WORKLOAD, policies=Misspelt)

    class Unheard(superpages.Policy):
        def on_fault(self, space, page, level):
            pass

    with pytest.raises(TypeError, match="policy unheard: nobody calls on_fault; expected one of tick, faulted"):
        superpages.simulate(WORKLOAD, policies=Unheard)

    class Helped(superpages.Policy):
        def ticks(self):
            return 1

        def tick(self, now, system):
            self.ticks()

    assert superpages.simulate(WORKLOAD, machines="zen5", policies=Helped).column("error") == [None, None]

    class Never(superpages.Policy):
        interval = -1

    error = superpages.simulate(WORKLOAD, machines="zen5", policies=Never)[1]["error"]
    assert "interval: expected seconds above 0" in error

    class Wrong(superpages.Policy):
        answers = {"from": "reservation", "nonsense": 1}

    with pytest.raises(ValueError, match="no parameter `nonsense`"):
        superpages.simulate(WORKLOAD, policies=Wrong)


class Counts(superpages.Policy):
    """Counts, and says at the end what it has counted."""

    interval = 1e-3

    def __init__(self):
        self.faults = collections.Counter()
        self.ticks = 0

    def faulted(self, space, page, level):
        self.faults[level] += 1

    def tick(self, now, system):
        self.ticks += 1

    def result(self):
        return {"ticks": self.ticks, "faults": self.faults, "mean": np.float64(0.5), "pages": np.arange(3), "none": float("nan"), "of": {1}}


def test_what_a_policy_has_found_out_comes_back_with_its_row():
    counted = Counts()
    rows = superpages.simulate(WORKLOAD, machines=["zen5", "zen4"], policies=counted)
    assert counted.ticks == 0, "each simulation has its own copy"
    for row in rows:
        found = row["policy_result"]
        if row["policy"] == "base":
            assert found is None
            continue
        assert found["faults"] == {"0": row["faults"]} and found["ticks"] > 1
        assert (found["mean"], found["pages"], found["none"], found["of"]) == (0.5, [0, 1, 2], None, [1])
    assert json.loads(rows.column("policy_result")[1]) == rows[1]["policy_result"]
    # From another process, and from the cells of a sweep.
    assert pickle.loads(pickle.dumps(rows))[1] == rows[1]
    swept = superpages.sweep({"sweep": {"name": "one"}, "axes": {"workload": WORKLOAD, "machine": "zen5", "policy": Counts}})
    assert swept[1]["policy_result"] == rows[1]["policy_result"]


def test_a_result_that_is_none_is_the_row_s_error():
    class Says(superpages.Policy):
        def tick(self, now, system):
            pass

        def result(self):
            return self.what()

    for what, error in [(lambda: [1], "TypeError: result: expected a dict, not [1] (list)"), (lambda: 1 // 0, "ZeroDivisionError")]:
        says = Says()
        says.what = what
        row = superpages.simulate(WORKLOAD, machines="zen5", policies=says)[1]
        assert error in row["error"] and row["policy_result"] is None and not row["complete"]


def test_methods_that_nearly_are_known_are_refused():
    for given, near in [("Tick", "tick"), ("tick_", "tick"), ("fault", "faulted"), ("miss", "missed"), ("results", "result"), ("misses", "missed")]:
        methods = {given: lambda self, *given: None}
        if near != "tick":
            methods["tick"] = methods[given]
        kind = type("Mine", (superpages.Policy,), methods)
        with pytest.raises(TypeError, match=f"policy mine: superpages looks for {near}, not for {given}: was that meant?"):
            superpages.simulate(WORKLOAD, policies=kind)
    # What is no method is not taken for one.
    kind = type("Mine", (superpages.Policy,), {"misses": 0, "tick": lambda self, now, system: None})
    assert superpages.simulate(WORKLOAD, machines="zen5", policies=kind).column("error") == [None, None]
    with pytest.raises(TypeError, match="superpages looks for interval, not for intervall"):
        superpages.simulate(WORKLOAD, policies=type("Mine", (superpages.Policy,), {"intervall": 1, "tick": lambda self, now, system: None}))
