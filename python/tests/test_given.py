"""What is given in place of what is expected: one sentence, in words of users."""

import pathlib

import numpy as np
import pytest

import superpages

SPEC = {"sweep": {"name": "small"}, "axes": {"workload": "touch:bytes=64K", "machine": "zen5", "policy": "thp"}}


def refuses(call, said, kind=TypeError):
    with pytest.raises(kind) as caught:
        call()
    text = str(caught.value)
    assert text.startswith(said), text
    assert "\n" not in text and not any(word in text for word in ("PyString", "PyInt", "Place", "What", "Words", "extract", "Mapping"))


@pytest.mark.parametrize(
    "given, said",
    [
        ({"workload": 3}, "workload: expected a name, a path, an array of addresses or a generator of them, not 3 (int)"),
        ({"workload": b"touch"}, "workload: expected a name, a path, an array of addresses or a generator of them, not b'touch' (bytes)"),
        ({"workload": ["touch", 3]}, "workload: expected names and paths in a list, or an array of addresses"),
        ({"workload": [4096, 8192]}, "workload: expected names and paths in a list, or an array of addresses"),
        ({"machines": 3}, "machines: expected a name, the path of a file, or a dict, not 3 (int)"),
        ({"machines": [None]}, "machines: expected a name, the path of a file, or a dict, not None (NoneType)"),
        ({"machines": {"from": 3}}, "machines: from: expected the name of a machine, or the path of a file, not 3 (int)"),
        ({"policies": 3}, "policies: expected a name, the path of a file, a dict, or an object of a superpages.Policy, not 3 (int)"),
        ({"policies": {"from": 3}}, "policies: from: expected the name of a policy, or the path of a file, not 3 (int)"),
        ({"policies": {"from": "thp", "parameters": 3}}, "policies: parameters: expected a dict, not 3 (int)"),
        ({"host_policies": 3}, "host_policies: expected a name, the path of a file, or a dict, not 3 (int)"),
        ({"kernels": 3}, "kernels: expected the name of a kernel's model with its switches, not 3 (int)"),
        ({"memory": [1]}, 'memory: expected bytes, as "512M" or a whole number, not [1] (list)'),
        ({"memory": 1e9}, 'memory: expected bytes, as "512M" or a whole number, not 1000000000.0 (float)'),
        ({"sizes": [None]}, 'sizes: expected bytes, as "512M" or a whole number, not None (NoneType)'),
        ({"fragment": [1]}, 'fragment: expected a number from 0 to 1, or text as "2M:0.5", not [1] (list)'),
        ({"seed": "x"}, "seed: expected a whole number from 0 to 18446744073709551615, not 'x' (str)"),
        ({"seed": 0.5}, "seed: expected a whole number from 0 to 18446744073709551615, not 0.5 (float)"),
        ({"files": True}, "files: expected warm or cold, not True (bool)"),
        ({"digest": 1}, "digest: expected fast or sha-1, not 1 (int)"),
        ({"lines": "yes"}, "lines: expected True or False, not 'yes' (str)"),
        ({"up_to_cut": 1}, "up_to_cut: expected True or False, not 1 (int)"),
        ({"threads": "2"}, "threads: expected a whole number from 1 to 1024, not '2' (str)"),
        ({"name": 3}, "name: expected text, not 3 (int)"),
        ({"workload": np.arange(9), "access_bytes": 0.5}, "access_bytes: expected a whole number from 0 to 1048576, not 0.5 (float)"),
        ({"progress": "yes"}, "progress: expected True, False, None or a function f(done, of), not 'yes' (str)"),
    ],
)
def test_simulate(given, said):
    refuses(lambda: superpages.simulate(**{"workload": "touch:bytes=64K"} | given), said)


def test_numbers_out_of_range_are_values():
    refuses(lambda: superpages.simulate("touch", seed=-1), "seed: expected a whole number from 0 to 18446744073709551615, not -1 (int)", ValueError)
    refuses(lambda: superpages.simulate("touch", threads=0), "threads: expected a whole number from 1 to 1024, not 0 (int)", ValueError)
    refuses(lambda: superpages.sweep(SPEC, jobs=0), "jobs: expected a whole number from 1 to 1024, not 0 (int)", ValueError)


def test_sweep(tmp_path):
    axes = lambda **more: {**SPEC, "axes": {**SPEC["axes"], **more}}  # noqa: E731
    refuses(lambda: superpages.sweep(3), "spec: expected the path of a sweep's file, or a dict with its keys, not 3 (int)")
    refuses(lambda: superpages.sweep({**SPEC, "axes": 3}), "spec: axes: expected a dict, not 3 (int)")
    refuses(lambda: superpages.sweep(axes(machine=3)), "axes.machine: expected a name, the path of a file, or a dict, not 3 (int)")
    refuses(lambda: superpages.sweep(axes(policy=[3])), "axes.policy: expected a name, the path of a file, a dict, or an object of")
    refuses(lambda: superpages.sweep(axes(memory=object)), "memory: expected text, a number, a truth, a list or a dict, not type")
    refuses(lambda: superpages.sweep(SPEC, 3), "output: expected the path of a folder, not 3 (int)")
    refuses(lambda: superpages.sweep(SPEC, jobs="2"), "jobs: expected a whole number from 1 to 1024, not '2' (str)")
    refuses(lambda: superpages.sweep(SPEC, tmp_path, shard=3), 'shard: expected text as "3/8", not 3 (int)')


def test_record_and_others(tmp_path):
    trace = tmp_path / "true.sp"
    refuses(lambda: superpages.record(3, trace), "command: expected a program and its arguments, as text or a list of texts, not 3 (int)")
    refuses(lambda: superpages.record(["true", 3], trace), "command: expected a program and its arguments, as text or a list of texts, not 3 (int)")
    refuses(lambda: superpages.record([], trace), "command: expected a program and its arguments", ValueError)
    refuses(lambda: superpages.record("true", 3), "output: expected the path of the trace, not 3 (int)")
    refuses(lambda: superpages.record("true", trace, lines=1), "lines: expected True or False, not 1 (int)")
    refuses(lambda: superpages.record("true", trace, sample=3), "sample: expected text as of superpage record --sample, not 3 (int)")
    refuses(lambda: superpages.record("true", trace, seed="x"), "seed: expected a whole number from 0")
    refuses(lambda: superpages.record("true", trace, cwd=3), "cwd: expected the path of a folder, not 3 (int)")
    refuses(lambda: superpages.record("true", trace, stdout=[]), "stdout: expected a path or subprocess.DEVNULL, not [] (list)")
    refuses(lambda: superpages.record("true", trace, check=0), "check: expected True or False, not 0 (int)")
    refuses(lambda: superpages.trace_info(3), "path: expected the path of a trace, not 3 (int)")
    refuses(lambda: superpages.machine_text(3), "machines: expected a name, the path of a file, or a dict, not 3 (int)")
    refuses(lambda: superpages.reproduce(3), "names: expected the name of a paper, of an experiment, or the path of an experiment file, not 3")
    refuses(lambda: superpages.reproduce("dougan99/idle", corpus=3), "corpus: expected the path of a folder, not 3 (int)")
    refuses(lambda: superpages.reproduce("dougan99/idle", long=3), "long: expected True or False, not 3 (int)")
    assert not trace.exists()


def test_numbers_and_truths_of_numpy_are_taken():
    rows = superpages.simulate(
        "touch:bytes=64K", machines="zen5", memory=np.int64(1 << 26), seed=np.uint8(3), fragment=np.float64(0.5), parts=np.bool_(False), sizes=np.int64(1 << 21)
    )
    assert rows.to_json() == superpages.simulate("touch:bytes=64K", machines="zen5", memory=1 << 26, seed=3, fragment=0.5, sizes=["2M"]).to_json()
    path = pathlib.Path("nowhere.sp")
    with pytest.raises(OSError, match="nowhere.sp"):
        superpages.simulate(path)


def test_what_a_policy_answers():
    class Told(superpages.Policy):
        interval = 1e-4

        def tick(self, now, system):
            return self.answer(system)

    def error(answer, **attributes):
        policy = Told()
        policy.answer = answer
        vars(policy).update(attributes)
        (said,) = [row["error"] for row in superpages.simulate("random:bytes=8M,references=20K", machines="zen5", policies=policy) if row["error"]]
        return said.splitlines()[-1]

    assert error(lambda system: "soon") == "policy told: TypeError: tick: expected None or a time in whole nanoseconds, not 'soon' (str)"
    said = error(lambda system: system.demote(0, 1, "here"))
    assert "expected a region of a scan, or its number, not here" in said and "Place" not in said
    assert error(None, interval="soon").endswith("ValueError: interval: expected seconds above 0, or None, not soon")
