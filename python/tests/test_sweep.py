"""Sweeps, recordings and papers' figures from Python: the rows of the command."""

import json
import shutil
import subprocess
import tomllib

import pytest

import superpages

SPEC = {
    "sweep": {"name": "small", "zip": [["memory", "fragment"]]},
    "axes": {
        "workload": ["matrix:n=60", "tree:nodes=2000,operations=500"],
        "machine": ["zen5", "golden-cove"],
        "policy": ["thp", "reservation"],
        "memory": ["32M", "64M"],
        "fragment": [0, 0.5],
        "set": {"costs.fault": [900, 2000]},
    },
}
TEXT = """
[sweep]
name = "small"
zip = [["memory", "fragment"]]
[axes]
workload = ["matrix:n=60", "tree:nodes=2000,operations=500"]
machine = ["zen5", "golden-cove"]
policy = ["thp", "reservation"]
memory = ["32M", "64M"]
fragment = [0, 0.5]
set."costs.fault" = [900, 2000]
"""


def test_a_sweep_is_that_of_the_command_to_the_byte(command, tmp_path):
    file = tmp_path / "small.toml"
    file.write_text(TEXT)
    command("sweep", file, "-o", tmp_path / "theirs")
    theirs = (tmp_path / "theirs" / "rows.parquet").read_bytes()
    rows = superpages.sweep(SPEC, tmp_path / "ours")
    assert rows.to_parquet() == theirs == (tmp_path / "ours" / "rows.parquet").read_bytes()
    assert superpages.sweep(file).to_parquet() == theirs
    # What is there is not run again, and the command goes on where Python was.
    shutil.rmtree(tmp_path / "ours" / "cells")
    assert superpages.sweep(SPEC, tmp_path / "ours", shard="1/2") is None
    command("sweep", file, "-o", tmp_path / "ours", "--shard", "2/2")
    assert (tmp_path / "ours" / "rows.parquet").read_bytes() == theirs


def test_numbers_of_cores_are_an_axis(tmp_path):
    def spec(**axes):
        common = {"workload": "tree:nodes=2000,operations=500", "machine": "zen5", "policy": "thp", "memory": "64M"}
        return {"sweep": {"name": "cores"}, "axes": common | axes}

    rows = superpages.sweep(spec(cores=["none", 1, 4]), tmp_path / "cores")
    expected = [
        superpages.simulate("tree:nodes=2000,operations=500", machines="zen5", policies="thp", memory="64M", **given)
        for given in [{}, {"cores": 1}, {"cores": 4}]
    ]
    for key in ["most_cores", "quantum", "cores", "cycles", "tlb_misses", "shootdowns", "elapsed_seconds"]:
        assert rows.column(key) == [value for some in expected for value in some.column(key)], key
    turns = superpages.sweep(spec(cores=2, quantum=["20K", 30_000]))
    assert turns.column("quantum") == [20_000, 20_000, 30_000, 30_000]
    for axes, why in [
        ({"quantum": 5}, "give axes.cores"),
        ({"cores": 0}, "a number from 1 to 4096"),
        ({"cores": 2, "machine": "alpha-21264"}, "it has 1 core, not 2"),
    ]:
        with pytest.raises(ValueError, match=why):
            superpages.sweep(spec(**axes))


class Quiet(superpages.Policy):
    """Does nothing, or fails."""

    interval = 1e-4

    def __init__(self, fails=False):
        self.fails = fails

    def tick(self, now, system):
        if self.fails:
            raise LookupError("not today")


def test_policies_in_python_are_swept_and_one_that_fails_is_its_rows_alone(tmp_path):
    def spec(policy):
        axes = {
            "workload": ["matrix:n=100"],
            "machine": ["zen5"],
            "memory": ["32M", "64M"],
            "policy": ["thp", {"from": "reservation", "preempt": False}, policy],
        }
        return {"sweep": {"name": "own"}, "axes": axes}

    rows = superpages.sweep(spec(Quiet()), tmp_path / "own")
    assert rows.column("policy") == ["base", "thp", "reservation:preempt=off", "quiet"] * 2
    assert rows.column("error") == [None] * 8
    assert superpages.sweep(spec(Quiet()), tmp_path / "own").to_parquet() == rows.to_parquet()
    # Another policy of the same name is another sweep.
    with pytest.raises(ValueError, match="rows of both are not mixed"):
        superpages.sweep(spec(Quiet(fails=True)), tmp_path / "own")
    with pytest.warns(UserWarning, match="LookupError: not today"):
        failed = superpages.sweep(spec(Quiet(fails=True)))
    errors = failed.column("error")
    assert [error is None for error in errors] == [True, True, True, False] * 2
    assert failed.column("cycles")[:3] == rows.column("cycles")[:3]


def test_machines_of_sweeps_are_names_or_dicts():
    dear = {"from": "zen5", "costs": {"fault": 9000}}
    whole = tomllib.loads(superpages.machine_text("golden-cove"))
    spec = {
        "sweep": {"name": "dicts"},
        "axes": {"workload": ["matrix:n=60"], "policy": "thp", "machine": ["zen4", dear | {"name": "dear"}, dear, whole]},
    }
    swept = superpages.sweep(spec)
    assert swept.column("machine") == [name for name in ("zen4", "zen5+dear", "zen5+dict", "golden-cove") for _ in range(2)]
    alone = superpages.simulate("matrix:n=60", machines=["zen4", dear | {"name": "dear"}, dear, whole], policies="thp")
    assert swept.to_json() == alone.to_json()
    # Values are set in them too, and a folder tells one dict from another.
    spec["axes"] |= {"machine": [dear], "set": {"costs.fault": [9000, 10000]}}
    assert superpages.sweep(spec).column("machine")[::2] == ["zen5+dict:costs.fault=9000", "zen5+dict:costs.fault=10000"]


def test_policies_of_hosts_are_an_axis():
    hosts = ["thp", {"from": "reservation", "preempt": False}]
    axes = {"workload": "matrix:n=60", "machine": "zen5+nested", "policy": "thp", "memory": "64M", "host-policy": hosts}
    swept = superpages.sweep({"sweep": {"name": "hosts"}, "axes": axes})
    alone = superpages.simulate("matrix:n=60", machines="zen5+nested", policies="thp", memory="64M", host_policies=hosts)
    assert swept.column("host_policy") == [host for host in ("base", "thp", "reservation:preempt=off") for _ in range(2)]
    assert swept.to_json() == alone.to_json()


def test_a_folder_of_another_build_is_told(tmp_path):
    spec = {"sweep": {"name": "one"}, "axes": {"workload": "touch:bytes=64K", "machine": "zen5", "policy": "thp"}}
    rows = superpages.sweep(spec, tmp_path)
    manifest = json.loads((tmp_path / "sweep.json").read_text())
    (tmp_path / "sweep.json").write_text(json.dumps(manifest | {"build": "0123456789abcdef"}))
    with pytest.warns(UserWarning, match="was begun by another build of superpage"):
        assert superpages.sweep(spec, tmp_path).to_parquet() == rows.to_parquet()


def test_errors_of_sweeps(tmp_path):
    with pytest.raises(ValueError, match="unknown axis|shoes"):
        superpages.sweep({"sweep": {"name": "x"}, "axes": {"workload": ["matrix"], "shoes": [1]}})
    with pytest.raises(ValueError, match="shard: 3/2"):
        superpages.sweep(SPEC, tmp_path / "a", shard="3/2")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine").write_text("kept")
    with pytest.raises(ValueError, match="which no sweep wrote"):
        superpages.sweep(SPEC, tmp_path / "b")
    with pytest.raises(OSError):
        superpages.sweep(tmp_path / "none.toml")


def test_reproduce_is_that_of_the_command(command, root):
    rows = superpages.reproduce("dougan99/idle")
    assert rows.to_json().encode() == command("reproduce", "dougan99/idle", "--format", "json")
    assert "paper_value" in rows.keys and "dougan99/idle" in superpages.experiments()
    with pytest.raises(ValueError, match="nonsense"):
        superpages.reproduce("nonsense")


def test_figures_of_papers_have_their_points(root):
    rows = superpages.reproduce("navarro02/figure1")
    (figure,) = rows.figures
    assert figure["experiment"] == "navarro02/figure1" and figure["x"] == "year"
    names = {series["name"]: series for series in figure["series"]}
    assert len(names["workstations of the paper"]["y"]) == len(names["workstations of the paper"]["x"]) == 18
    assert superpages.simulate("touch:bytes=64K", machines="zen5").figures == []


def test_without_qemu_recording_says_how_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(FileNotFoundError, match="not installed: recording needs QEMU.*apt install qemu-user"):
        superpages.record("/bin/ls", tmp_path / "ls.sp")
    assert not (tmp_path / "ls.sp").exists()


needs_qemu = pytest.mark.skipif(shutil.which("qemu-x86_64") is None, reason="needs qemu-user: apt install qemu-user")


@needs_qemu
def test_a_program_runs_in_its_folder_and_its_output_goes_where_it_is_sent(tmp_path):
    (tmp_path / "folder").mkdir()
    program = tmp_path / "folder" / "list"
    program.write_text("#!/bin/sh\npwd\n")
    program.chmod(0o755)
    superpages.record("./list", tmp_path / "list.sp", cwd=tmp_path / "folder", stdout=tmp_path / "printed")
    assert (tmp_path / "printed").read_text() == f"{tmp_path / 'folder'}\n"
    superpages.record(["echo", "hidden"], tmp_path / "echo.sp", stdout=subprocess.DEVNULL)
    with pytest.raises(ValueError, match="nowhere: expected a folder"):
        superpages.record("true", tmp_path / "true.sp", cwd=tmp_path / "nowhere")
    with pytest.raises(ValueError, match="stdout: expected a path"):
        superpages.record("true", tmp_path / "true.sp", stdout=subprocess.PIPE)


@needs_qemu
def test_a_program_is_recorded(tmp_path):
    trace = superpages.record(["true"], tmp_path / "true.sp")
    info = superpages.trace_info(trace)
    assert "true" in info["workload"] and superpages.simulate(trace, machines="zen5")[0]["references"] > 1000
    with pytest.raises(RuntimeError, match="ended with status 1"):
        superpages.record("false", tmp_path / "false.sp")
    assert superpages.simulate(tmp_path / "false.sp", machines="zen5")[0]["complete"]
    with pytest.raises(ValueError):
        superpages.record(["no-such-program"], tmp_path / "no.sp")
    assert not (tmp_path / "no.sp").exists()


def test_names_are_those_of_the_command(command):
    text = command("sim", "--help").decode()
    assert all(name in text for name in [*superpages.machines(), *superpages.overlays(), *superpages.policies(), *superpages.workloads()])
    assert superpages.workloads()["matrix"]["parameters"]["n"]


class Inherited(superpages.Policy):
    share = 0.5

    def tick(self, now, system):
        return helper()


def helper():
    return LIMIT


LIMIT = 3


def test_policies_that_do_something_else_are_told_apart(monkeypatch):
    def made(given):
        class Own(Inherited):
            def tick(self, now, system):
                return given

        return superpages._told_apart(superpages._policy(Own()))

    first = made(0.2)
    assert made(0.2) == first != made(0.9)
    monkeypatch.setattr(Inherited, "share", 0.9)
    assert made(0.2) != first
    monkeypatch.undo()
    assert made(0.2) == first
    monkeypatch.setitem(globals(), "LIMIT", 4)
    assert made(0.2) != first

    class Unknown(superpages.Policy):
        def __init__(self):
            self.other = object()

    with pytest.raises(ValueError, match="cannot tell self.other from others"):
        superpages._told_apart(superpages._policy(Unknown()))


def test_numbers_and_texts_of_a_dict_are_toml():
    said = {"text": "\N{GRINNING FACE}\x7f\n", "numbers": [1, 0.5, 1e-9]}
    assert tomllib.loads(superpages._toml(said)) == said
    numpy = pytest.importorskip("numpy")
    assert tomllib.loads(superpages._toml({"shares": numpy.linspace(0, 1, 3), "one": numpy.float64(0.5)})) == {"shares": [0, 0.5, 1], "one": 0.5}
