"""Sweeps on Dask workers: the rows of the command, whatever happens to workers."""

import os
import shutil
import signal
import subprocess
import sys
import time
import warnings

import pytest

import superpages

distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install 'superpages[dask]'")
import superpages.dask  # noqa: E402

SPEC = {
    "sweep": {"name": "small"},
    "axes": {
        "workload": ["matrix:n=60", "tree:nodes=2000,operations=500"],
        "machine": "zen5",
        "policy": ["thp", "reservation", "freebsd"],
        "memory": "64M",
        "fragment": 0.5,
        "seed": list(range(5)),
    },
}


@pytest.fixture(scope="module")
def client():
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster:
        with distributed.Client(cluster) as client:
            yield client


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The bytes of the rows of `SPEC`."""
    folder = tmp_path_factory.mktemp("expected") / "sweep"
    superpages.sweep(SPEC, folder)
    return (folder / "rows.parquet").read_bytes()


def cells(folder):
    return {file.name: file.stat().st_mtime_ns for file in (folder / "cells").glob("*.parquet")}


def traced(path, **axes):
    return {"sweep": {"name": "traced"}, "axes": {"trace": str(path), "machine": "zen5", "policy": ["thp", "reservation"], **axes}}


def test_rows_are_those_of_the_command_to_the_byte(client, command, expected, tmp_path):
    file = tmp_path / "small.toml"
    file.write_text(superpages._toml(SPEC))
    command("sweep", file, "-o", tmp_path / "command")
    told = []
    rows = superpages.dask.sweep(client, file, tmp_path / "dask", progress=lambda done, of: told.append((done, of)))
    assert (tmp_path / "dask" / "rows.parquet").read_bytes() == (tmp_path / "command" / "rows.parquet").read_bytes() == expected
    assert rows.to_parquet() == expected
    assert told[0] == (0, 40) and told[-1] == (40, 40) and told == sorted(told)
    assert superpages.dask.sweep(client, SPEC).to_parquet() == expected
    assert not [
        name for names in client.run(lambda dask_worker: list(dask_worker.plugins)).values() for name in names if "superpage" in name
    ]


def test_a_killed_worker_changes_nothing(client, expected, tmp_path):
    pids = list(client.run(os.getpid).values())

    def kill(done, of):
        if done >= 5 and len(pids) == 2:
            os.kill(pids.pop(), signal.SIGKILL)

    rows = superpages.dask.sweep(client, SPEC, tmp_path / "dask", progress=kill)
    assert len(pids) == 1 and rows.to_parquet() == expected
    client.wait_for_workers(2, timeout=120)


def test_an_answer_outlives_its_worker(client, expected, monkeypatch):
    """What has come back is kept, also where Dask has lost it since and runs the task once more."""
    pids, lost = client.run(os.getpid), []
    own = superpages.dask._Run.wait

    def wait(run):
        came = own(run)
        if came and not lost:
            future, answer = came[0]
            os.kill(pids[answer.worker], signal.SIGKILL)
            until = time.monotonic() + 60
            while future.status == "finished" and time.monotonic() < until:
                time.sleep(0.01)
            lost.append(future.status)
        return came

    monkeypatch.setattr(superpages.dask._Run, "wait", wait)
    assert superpages.dask.sweep(client, SPEC).to_parquet() == expected
    assert lost and lost[0] != "finished"
    client.wait_for_workers(2, timeout=120)


def test_it_goes_on_where_it_was_ended(client, expected, tmp_path):
    class Enough(Exception):
        pass

    def enough(done, of):
        if done >= 10:
            raise Enough

    with pytest.raises(Enough) as ended:
        superpages.dask.sweep(client, SPEC, tmp_path, progress=enough)
    then = cells(tmp_path)
    assert 10 <= len(then) < 40 and not (tmp_path / "rows.parquet").exists()
    # The folder is free, though the traceback is still there.
    assert ended.tb is not None
    assert superpages.dask.sweep(client, SPEC, tmp_path).to_parquet() == expected
    assert then.items() <= cells(tmp_path).items()
    # With nothing to do it needs no cluster.
    assert superpages.dask.sweep(None, SPEC, tmp_path).to_parquet() == expected


def test_it_goes_on_where_others_ended(client, expected, tmp_path):
    assert superpages.sweep(SPEC, tmp_path, shard="2/3") is None
    then = cells(tmp_path)
    assert superpages.dask.sweep(client, SPEC, tmp_path).to_parquet() == expected
    assert then.items() <= cells(tmp_path).items()


def test_ctrl_c_leaves_whole_cells(expected, tmp_path):
    file = tmp_path / "small.toml"
    file.write_text(superpages._toml(SPEC))
    script = (
        "import os, signal, superpages.dask\n"
        "if __name__ == '__main__':\n"
        f"    ends = lambda done, of: done >= 10 and os.killpg(0, signal.SIGINT)\n"
        f"    superpages.dask.sweep(None, {str(file)!r}, {str(tmp_path / 'dask')!r}, progress=ends)\n"
    )
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run([sys.executable, tmp_path / "script.py"], start_new_session=True, capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGINT and done.stderr.rstrip().endswith("KeyboardInterrupt"), done.stderr
    then = cells(tmp_path / "dask")
    assert 10 <= len(then) < 40
    assert superpages.sweep(SPEC, tmp_path / "dask").to_parquet() == expected
    assert then.items() <= cells(tmp_path / "dask").items()


def test_traces_go_by_path_and_by_content(client, root, tmp_path, monkeypatch):
    shutil.copy(root / "corpus" / "gzip.sp", tmp_path / "mine.sp")
    monkeypatch.chdir(tmp_path)
    spec = traced("mine.sp")
    spec["suites"], spec["sweep"]["suites"] = {"more": {"trace": ["mine.sp"], "workload": ["touch"]}}, ["more"]
    spec["axes"]["trace"] = ["./mine.sp"]
    expected = superpages.sweep(spec).to_parquet()
    sent = lambda: client.run(lambda dask_worker: [name for name in os.listdir(dask_worker.local_directory) if name.endswith(".sp")])  # noqa: E731
    seen = []
    for send in (None, False, True):
        rows = superpages.dask.sweep(client, spec, send=send, progress=lambda done, of: seen.append((send, sent())))
        assert rows.to_parquet() == expected
    assert all(len(names) == (1 if send else 0) for send, by_worker in seen for names in by_worker.values())
    assert not any(sent().values())


def test_a_trace_that_workers_do_not_have_is_sent(client, root, tmp_path, monkeypatch):
    trace = tmp_path / "mine.sp"
    shutil.copy(root / "corpus" / "gzip.sp", trace)
    spec = traced(trace, workload="touch")
    expected = superpages.sweep(spec).to_parquet()
    missing = lambda away: client.run(lambda: setattr(superpages.dask, "_digest", (lambda path: "") if away else superpages.dask._own))  # noqa: E731
    client.run(lambda: setattr(superpages.dask, "_own", superpages.dask._digest))
    missing(True)
    try:
        assert superpages.dask.sweep(client, spec).to_parquet() == expected
        with pytest.raises(ValueError, match="mine.sp: a worker does not find it, and send=False"):
            superpages.dask.sweep(client, spec, send=False)
    finally:
        missing(False)


def test_a_cell_that_fails_is_rows_with_the_same_error(client):
    axes = {"workload": ["touch:bytes=64K", "touch:bytes=64M"], "machine": "zen5", "policy": ["thp", "reservation"]}
    spec = {"sweep": {"name": "short"}, "axes": {**axes, "memory": "16M", "swap": "0"}}
    with pytest.warns(UserWarning, match="no frame is left"):
        expected = superpages.sweep(spec).to_parquet()
    for send in (False, True):
        with pytest.warns(UserWarning, match="no frame is left"):
            rows = superpages.dask.sweep(client, spec, send=send)
        assert sum(error is not None for error in rows.column("error")) == 3
        assert rows.to_parquet() == expected


def test_a_worker_with_other_files_is_refused(client, tmp_path):
    mine = tmp_path / "mine.toml"
    text = superpages.machine_text("zen5")
    mine.write_text(text)
    spec = {**SPEC, "axes": {**SPEC["axes"], "machine": str(mine)}}
    change = lambda done, of: mine.write_text(text.replace("fault = 1500", "fault = 1501"))  # noqa: E731
    with pytest.warns(UserWarning, match="its machine files, policy files or superpage are others"):
        with pytest.raises(ValueError, match="worker tcp://.* cannot run cells of this sweep"):
            superpages.dask.sweep(client, spec, tmp_path / "dask", progress=change)
    assert not cells(tmp_path / "dask")


def test_a_worker_of_another_version_is_left_out(client, expected, tmp_path):
    other, *_ = client.nthreads()
    client.run(lambda: setattr(superpages.dask, "__version__", "0.0.1"), workers=[other])
    try:
        with pytest.warns(UserWarning, match=f"worker {other} cannot run cells of this sweep: it has superpage 0.0.1"):
            assert superpages.dask.sweep(client, SPEC).to_parquet() == expected
    finally:
        client.run(lambda: setattr(superpages.dask, "__version__", superpages.__version__))


def test_what_raises_on_workers_is_told_and_the_rest_is_kept(client, expected, tmp_path):
    def break_cells():
        class Plan(object):
            def __init__(self, *words):
                self.plan = superpages.dask._own.Plan(*words)
                self.cells = self.plan.cells

            def run_cells(self, places):
                if 7 in places:
                    raise MemoryError("no room for 7")
                return self.plan.run_cells(places)

        class Native:
            pass

        Native.Plan = Plan
        superpages.dask._own, superpages.dask._native = superpages.dask._native, Native

    def mend():
        superpages.dask._native = superpages.dask._own

    client.run(break_cells)
    try:
        with pytest.raises(
            RuntimeError, match="1 of 40 cells did not run: cell [0-9a-f]{32}: worker tcp://.*: no room for 7; the others are in"
        ):
            superpages.dask.sweep(client, SPEC, tmp_path, retries=1)
    finally:
        client.run(mend)
    assert len(cells(tmp_path)) == 39
    assert superpages.dask.sweep(client, SPEC, tmp_path).to_parquet() == expected


def test_what_cannot_be_kept_ends_the_sweep(client, tmp_path):
    def full(done, of):
        if done == 0:
            shutil.rmtree(tmp_path / "dask" / "cells")

    with pytest.raises(OSError, match="cells"):
        superpages.dask.sweep(client, SPEC, tmp_path / "dask", progress=full)


def test_what_is_wrong_is_told_before_anything_runs(client):
    with pytest.raises(ValueError, match="axes.polic: there is no such axis"):
        superpages.dask.sweep(client, {"sweep": {"name": "x"}, "axes": {"polic": "thp", "workload": "touch"}})
    with pytest.raises(OSError, match="nowhere.toml"):
        superpages.dask.sweep(client, "nowhere.toml")


def test_dask_is_imported_by_who_needs_it():
    def python(code):
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert python("import sys, superpages; assert not {'dask', 'distributed'} & set(sys.modules)").returncode == 0
    done = python("import sys; sys.modules['distributed'] = None\nimport superpages.dask")
    assert done.stderr.splitlines()[-1] == "ImportError: superpages.dask needs Dask: pip install 'superpages[dask]'"


def test_tasks_end_together():
    """As the scheduler sees it: with cells of any length, no thread waits long for the last."""
    for threads, number in [(1, 1), (2, 100), (7, 1000), (64, 100)]:
        names = [("", place // 50) for place in range(number)]
        queue = superpages.dask._Queue(names, list(range(number)))
        ends, seen = [0.0] * threads, []
        while queue:
            passes = queue.take(threads)
            assert all(1 <= len(places) <= 8 and len({names[place][1] for place in places}) == 1 for places in passes)
            first = min(range(threads), key=ends.__getitem__)
            for places in passes:
                seen += places
                ends[first] += len(places)
                queue.learn(places[0], len(places), float(len(places)))
        assert seen == list(range(number))
        assert max(ends) - min(ends) <= max(8, number / threads) and max(ends) <= number / threads + 8
