"""Simulations: the rows of the command, and whatever a workload, a machine and a policy can be."""

import array
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import tomllib

import numpy as np
import pytest

import superpages

RANDOM = "random:bytes=64M,references=200K"


def misses(rows):
    return {row["policy"]: row["tlb_misses"] for row in rows}


def test_rows_are_those_of_the_command_to_the_byte(command, root):
    words = ["sim", RANDOM, "-m", "zen5", "-m", "golden-cove+coalescing", "-p", "thp", "-p", "reservation:preempt=off"]
    words += ["--memory", "128M", "--fragment", "0.25", "--seed", "7"]
    rows = superpages.simulate(
        RANDOM,
        machines=["zen5", "golden-cove+coalescing"],
        policies=["thp", {"from": "reservation", "preempt": False}],
        memory="128M",
        fragment=0.25,
        seed=7,
    )
    assert len(rows) == 6
    for form, ours in [("json", rows.to_json().encode()), ("csv", rows.to_csv().encode()), ("parquet", rows.to_parquet())]:
        assert ours == command(*words, "--format", form), form


def test_traces_and_lists_are_those_of_the_command(command, root):
    trace = "corpus/gzip.sp"
    rows = superpages.simulate(trace, machines="zen5", policies="thp")
    assert rows.to_json().encode() == command("sim", "--trace", trace, "-m", "zen5", "-p", "thp", "--format", "json")
    assert superpages.simulate(pathlib.Path(trace), machines="zen5", policies="thp").to_json() == rows.to_json()
    both = superpages.simulate([trace, "matrix:n=60"], machines="zen5", policies="thp")
    assert len(both) == 4 and json.loads(both.to_json())[:2] == json.loads(rows.to_json())
    assert superpages.trace_info(trace) == json.loads(command("trace", "info", trace, "--format", "json"))


def test_any_number_of_threads_gives_the_same_rows():
    one = superpages.simulate(RANDOM, machines=["zen5", "zen4"], policies=["thp", "promote"], threads=1)
    two = superpages.simulate(RANDOM, machines=["zen5", "zen4"], policies=["thp", "promote"], threads=2)
    assert one.to_json() == two.to_json()


def test_cores_are_those_of_the_command(command, root):
    words = ["sim", RANDOM, "-m", "zen5", "-p", "thp", "--cores", "4", "--quantum", "20K", "--migrate"]
    rows = superpages.simulate(RANDOM, machines="zen5", policies="thp", cores=4, quantum=20_000, migrate=True)
    assert rows.to_json().encode() == command(*words, "--format", "json")
    assert rows.column("most_cores") == [4, 4] and rows.column("cores") == [1, 1]
    raises(ValueError, "cores: expected a whole number from 1 to 4096", cores=0)
    raises(ValueError, "quantum: expected a whole number from 1", cores=2, quantum=0)
    raises(ValueError, "it has 1 core, not 2", machines="alpha-21264", cores=2)


def test_machines_are_names_or_dicts():
    names = superpages.simulate(RANDOM, machines="zen5:costs.fault=9000", policies="thp")
    dicts = superpages.simulate(RANDOM, machines={"from": "zen5", "costs": {"fault": 9000}}, policies="thp")
    assert names.column("cycles") == dicts.column("cycles")
    assert dicts.column("machine") == ["zen5+dict"] * 2
    # A whole machine file as a dict.
    whole = tomllib.loads(superpages.machine_text("zen5"))
    assert (
        superpages.simulate(RANDOM, machines=whole, policies="thp").to_json()
        == superpages.simulate(RANDOM, machines="zen5", policies="thp").to_json()
    )


def test_arrays_and_generators_are_one_stream():
    random = np.random.default_rng(5)
    addresses = random.integers(0, 1 << 26, 100_000, dtype=np.uint64) & ~np.uint64(7)
    writes = random.random(len(addresses)) < 0.3
    forms = [
        lambda: superpages.simulate(addresses, writes=writes, machines="zen5", policies="thp"),
        lambda: superpages.simulate(addresses.astype(np.int64), writes=writes.tolist(), machines="zen5", policies="thp"),
        lambda: superpages.simulate(array.array("Q", addresses.tolist()), writes=writes, machines="zen5", policies="thp"),
        lambda: superpages.simulate(
            ((addresses[i : i + 999], writes[i : i + 999]) for i in range(0, len(addresses), 999)), machines="zen5", policies="thp"
        ),
        # Strides.
        lambda: superpages.simulate(np.repeat(addresses, 2)[::2], writes=np.repeat(writes, 2)[::2], machines="zen5", policies="thp"),
    ]
    texts = {form().to_json() for form in forms}
    assert len(texts) == 1
    row = json.loads(texts.pop())[0]
    assert row["references"] == len(addresses) and row["workload"] == "accesses"
    assert row["pages"]["4K"] == len(np.unique(addresses >> np.uint64(12)))


def brute_force(pages, entries):
    """Misses of a fully associative TLB with LRU."""
    recent, count = [], 0
    for page in pages:
        if page in recent:
            recent.remove(page)
        else:
            count += 1
            recent = recent[-(entries - 1) :]
        recent.append(page)
    return count


@pytest.mark.parametrize("entries", [4, 16])
def test_misses_of_an_array_are_those_of_brute_force(entries):
    addresses = np.random.default_rng(3).integers(0, 40 << 13, 3000, dtype=np.uint64)
    machine = tomllib.loads(superpages.machine_text("alpha-21264"))
    for tlb in machine["tlb"]:
        tlb |= {"entries": entries, "replacement": "lru"}
    machine["walk-cache"] = []  # else pages of the page table take entries too
    rows = superpages.simulate(addresses, machines=machine, policies="base", access_bytes=1)
    assert rows[0]["dtlb_misses"] == brute_force((addresses >> np.uint64(13)).tolist(), entries)


def test_arrow_is_read_by_others():
    rows = superpages.simulate(RANDOM, machines="zen5", policies=["thp", "reservation"])
    import pyarrow

    table = pyarrow.table(rows)
    assert table.column_names == rows.keys and table.num_rows == 3
    # A difference of counts may be negative.
    assert table["tlb_misses"].type == pyarrow.int64()
    for key in rows.keys:
        assert table[key].to_pylist() == rows.column(key), key
    parsed = json.loads(rows.to_json())
    assert [row["speedup"] for row in parsed] == table["speedup"].to_pylist()
    assert [json.loads(pages) for pages in table["pages"].to_pylist()] == [row["pages"] for row in parsed]
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame.from_arrow(rows)
    assert list(frame.columns) == rows.keys and frame["tlb_misses"].tolist() == rows.column("tlb_misses")


def test_rows_are_shown():
    rows = superpages.simulate(RANDOM, machines="zen5", policies="thp")
    assert "TLB misses" in str(rows) and "2 simulations" in repr(rows)
    assert rows[-1]["policy"] == "thp" and rows[0] == rows[-2]
    assert "<table>" in rows._repr_html_() and "thp" in rows._repr_html_()
    with pytest.raises(IndexError, match="row 2 of 2"):
        rows[2]
    with pytest.raises(KeyError, match="rows have workload, machine"):
        rows.column("nonsense")
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    assert [bar.get_height() for bar in rows.plot().patches] == rows.column("speedup")


def raises(kind, part, **keywords):
    workload = keywords.pop("workload", "matrix:n=50")
    with pytest.raises(kind) as caught:
        superpages.simulate(workload, **keywords)
    assert part in str(caught.value), str(caught.value)


def test_errors_are_sentences():
    raises(ValueError, "no such workload; expected one of matrix", workload="nope")
    raises(OSError, "none.sp", workload="none.sp")
    raises(ValueError, "built-in", machines="zen99")
    raises(ValueError, "unknown field `fualt`", machines={"from": "zen5", "costs": {"fualt": 3}})
    raises(ValueError, "no policy is named `nope`", policies="nope")
    raises(ValueError, 'a dict needs "from"', policies={"preempt": False})
    raises(ValueError, "memory: expected digits", memory="3x")
    raises(ValueError, "fragment", fragment=1.5)
    raises(ValueError, "threads: expected a whole number from 1 to 1024", threads=0)
    raises(ValueError, "64-bit whole numbers", workload=np.array([1.5]))
    raises(ValueError, "one is negative", workload=np.array([-1]))
    raises(ValueError, "2 of them for 3 addresses", workload=np.array([1, 2, 3]), writes=[True, False])
    raises(ValueError, "accesses: has no access", workload=np.array([], dtype=np.uint64))
    raises(ValueError, "an empty list", workload=[])
    raises(RuntimeError, "from the generator", workload=broken())


class Column:
    """As a column of pandas or polars."""

    def __init__(self, values):
        self.values = values

    def to_numpy(self):
        return self.values


def test_columns_are_arrays():
    addresses, writes = np.arange(0, 1 << 20, 4096, dtype=np.uint64), np.arange(256) % 2 == 0
    simulated = [
        superpages.simulate(column(addresses), writes=column(writes), machines="zen5").to_json()
        for column in (lambda values: values, Column)
    ]
    assert simulated[0] == simulated[1]
    raises(ValueError, "give one column", workload=Column(np.zeros((2, 2), np.uint64)))
    raises(ValueError, "as .compressed()", workload=np.ma.array([1, 2, 3], mask=True))


def broken():
    yield np.array([1, 2, 3])
    raise RuntimeError("from the generator")


def test_progress_is_told_and_its_exception_ends_the_run():
    told = []
    superpages.simulate("random:bytes=256M,references=1M", machines="zen5", progress=lambda done, of: told.append(done))
    assert told == sorted(told) and told[-1] > 0

    def stop(done, of):
        raise InterruptedError("enough")

    with pytest.raises(InterruptedError, match="enough"):
        superpages.simulate("random:bytes=256M,references=1000M", machines="zen5", progress=stop)


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_ends_a_simulation():
    code = "import superpages; print('begun', flush=True); superpages.simulate('random:bytes=256M,references=100000M')"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout.readline() == b"begun\n"
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert b"KeyboardInterrupt" in err and child.returncode != 0


INTERRUPTED = {
    "an array": "superpages.simulate(addresses, machines='zen5')",
    "a tick that does not return": "superpages.simulate('touch:bytes=4M', machines='zen5', policies=Endless())",
    "one in a sweep": "superpages.sweep({'sweep': {'name': 'one'}, 'axes': {'workload': 'touch:bytes=4M', 'machine': 'zen5', 'policy': Endless()}}, FOLDER)",
}


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("what", INTERRUPTED)
def test_ctrl_c_ends(what, tmp_path):
    code = f"""
import numpy, superpages, time
FOLDER = {str(tmp_path / "sweep")!r}
class Endless(superpages.Policy):
    interval = 1e-5
    def tick(self, now, system):
        print("begun", flush=True)
        while True:
            pass
if {what == "an array"}:
    addresses = numpy.arange(1 << 26, dtype=numpy.uint64) % numpy.uint64(1 << 22)
    addresses <<= 12
    print("begun", flush=True)
{INTERRUPTED[what]}
"""
    (tmp_path / "script.py").write_text(code)
    child = subprocess.Popen([sys.executable, tmp_path / "script.py"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout.readline() == b"begun\n"
    time.sleep(1)
    assert child.poll() is None
    child.send_signal(signal.SIGINT)
    begun = time.monotonic()
    _, err = child.communicate(timeout=60)
    assert b"KeyboardInterrupt" in err and child.returncode != 0, err
    assert time.monotonic() - begun < 30
    # What was ended is none of the cells.
    kept = [file.name for file in tmp_path.glob("sweep/cells/*.parquet")]
    assert len(kept) <= 1, kept


def test_the_interpreter_is_free_while_it_simulates():
    import threading

    ticks, done = [], threading.Event()

    def count():
        while not done.wait(0.01):
            ticks.append(1)

    thread = threading.Thread(target=count)
    thread.start()
    before = len(ticks)
    superpages.simulate("random:bytes=256M,references=3M", machines="zen5", policies="thp", progress=False)
    after = len(ticks)
    done.set()
    thread.join()
    assert after > before + 3
