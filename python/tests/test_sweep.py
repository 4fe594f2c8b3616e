"""Sweeps, recordings and papers' figures from Python: the rows of the command."""

import json
import shutil

import pytest

import superpage

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
    rows = superpage.sweep(SPEC, tmp_path / "ours")
    assert rows.to_parquet() == theirs == (tmp_path / "ours" / "rows.parquet").read_bytes()
    assert superpage.sweep(file).to_parquet() == theirs
    # What is there is not run again, and the command goes on where Python was.
    shutil.rmtree(tmp_path / "ours" / "cells")
    assert superpage.sweep(SPEC, tmp_path / "ours", shard="1/2") is None
    command("sweep", file, "-o", tmp_path / "ours", "--shard", "2/2")
    assert (tmp_path / "ours" / "rows.parquet").read_bytes() == theirs


class Quiet(superpage.Policy):
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

    rows = superpage.sweep(spec(Quiet()), tmp_path / "own")
    assert rows.column("policy") == ["base", "thp", "reservation:preempt=off", "quiet"] * 2
    assert rows.column("error") == [None] * 8
    assert superpage.sweep(spec(Quiet()), tmp_path / "own").to_parquet() == rows.to_parquet()
    # Another policy of the same name is another sweep.
    with pytest.raises(ValueError, match="rows of both are not mixed"):
        superpage.sweep(spec(Quiet(fails=True)), tmp_path / "own")
    with pytest.warns(UserWarning, match="LookupError: not today"):
        failed = superpage.sweep(spec(Quiet(fails=True)))
    errors = failed.column("error")
    assert [error is None for error in errors] == [True, True, True, False] * 2
    assert failed.column("cycles")[:3] == rows.column("cycles")[:3]


def test_errors_of_sweeps(tmp_path):
    with pytest.raises(ValueError, match="unknown axis|shoes"):
        superpage.sweep({"sweep": {"name": "x"}, "axes": {"workload": ["matrix"], "shoes": [1]}})
    with pytest.raises(ValueError, match="shard: 3/2"):
        superpage.sweep(SPEC, tmp_path / "a", shard="3/2")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine").write_text("kept")
    with pytest.raises(ValueError, match="which is no sweep's"):
        superpage.sweep(SPEC, tmp_path / "b")
    with pytest.raises(OSError):
        superpage.sweep(tmp_path / "none.toml")


def test_reproduce_is_that_of_the_command(command, root):
    rows = superpage.reproduce("dougan99/idle")
    assert rows.to_json().encode() == command("reproduce", "dougan99/idle", "--format", "json")
    assert "paper_value" in rows.keys and "dougan99/idle" in superpage.experiments()
    with pytest.raises(ValueError, match="nonsense"):
        superpage.reproduce("nonsense")


@pytest.mark.skipif(shutil.which("qemu-x86_64") is None, reason="needs qemu-user: apt install qemu-user")
def test_a_program_is_recorded(tmp_path):
    trace = superpage.record(["true"], tmp_path / "true.sp")
    info = superpage.trace_info(trace)
    assert json.dumps(info).count("true") and superpage.simulate(trace, machines="zen5")[0]["references"] > 1000
    with pytest.raises(RuntimeError, match="ended with status 1"):
        superpage.record("false", tmp_path / "false.sp")
    assert superpage.simulate(tmp_path / "false.sp", machines="zen5")[0]["complete"]
    with pytest.raises(ValueError):
        superpage.record(["no-such-program"], tmp_path / "no.sp")
    assert not (tmp_path / "no.sp").exists()


def test_names_are_those_of_the_command(command):
    text = command("sim", "--help").decode()
    assert all(name in text for name in [*superpage.machines(), *superpage.overlays(), *superpage.policies(), *superpage.workloads()])
    assert superpage.workloads()["matrix"]["parameters"]["n"]
