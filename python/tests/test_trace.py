"""Arrays as traces, odd arrays, files that are missing, and misses by mapping."""

import errno
import json

import numpy as np
import pytest

import superpages

ADDRESSES = np.random.default_rng(7).integers(0, 1 << 26, 50_000, dtype=np.uint64) + np.uint64(1 << 40)
WRITES = ADDRESSES % 3 == 0


def rows(workload, **more):
    made = json.loads(superpages.simulate(workload, machines=["zen5", "golden-cove"], policies=["thp", "reservation"], **more).to_json())
    return [{key: value for key, value in row.items() if key != "trace_digest"} for row in made]


@pytest.mark.parametrize("more", [{}, {"name": "mine", "instructions": 3, "access_bytes": 64}])
def test_an_array_that_is_written_has_the_rows_of_the_array(tmp_path, more):
    path = superpages.write_trace(tmp_path / "mine.sp", ADDRESSES, writes=WRITES, **more)
    assert rows(path) == rows(str(path)) == rows(ADDRESSES, writes=WRITES, **more)
    info = superpages.trace_info(path)
    assert info["workload"] == more.get("name", "accesses")
    pieces = ((ADDRESSES[i : i + 999], WRITES[i : i + 999]) for i in range(0, len(ADDRESSES), 999))
    assert rows(superpages.write_trace(tmp_path / "pieces.sp", pieces, **more)) == rows(path)
    lines = superpages.write_trace(tmp_path / "lines.sp", ADDRESSES, writes=WRITES, lines=True, **more)
    assert rows(lines, lines=True) == rows(ADDRESSES, writes=WRITES, lines=True, **more)


def test_odd_arrays_work_or_are_told(tmp_path):
    small = ADDRESSES[:1000]
    expected = rows(small)
    assert rows((small - np.uint64(1 << 40)).astype(np.uint32)) == rows(small - np.uint64(1 << 40))
    assert rows(small.astype(">u8")) == expected
    assert rows(small, writes=True) == rows(small, writes=np.ones(1000, bool)) != expected
    assert rows(small, writes=False) == expected
    for wrong, said in [
        (small.reshape(10, 100), "addresses: an array of 2 dimensions; expected one, as .ravel"),
        (np.uint64(7).reshape(()), "addresses: an array of 0 dimensions"),
        (small.astype(float), "addresses: expected an array of 64-bit whole numbers"),
        (np.array([2**64]), "addresses: expected an array of 64-bit whole numbers"),
        (np.array([-1]), "addresses: one is negative"),
    ]:
        with pytest.raises(ValueError, match=said):
            superpages.simulate(wrong)
        with pytest.raises(ValueError, match=said):
            superpages.write_trace(tmp_path / "wrong.sp", wrong)
    with pytest.raises(ValueError, match="addresses: expected whole numbers from 0 to 2.64 - 1"):
        superpages.simulate(iter([[2**64]]))
    with pytest.raises(ValueError, match="writes: 3 of them for 1000 addresses"):
        superpages.simulate(small, writes=[True] * 3)
    with pytest.raises(ValueError, match="writes: an array of 2 dimensions"):
        superpages.simulate(small, writes=np.ones((10, 100), bool))
    with pytest.raises(TypeError, match="writes: expected as many truths as there are addresses, or one for all, not 3"):
        superpages.simulate(small, writes=3)
    with pytest.raises(TypeError, match="addresses: expected an array of addresses or a generator of them, not 'zipf'"):
        superpages.write_trace(tmp_path / "wrong.sp", "zipf")
    assert not (tmp_path / "wrong.sp").exists()


@pytest.mark.parametrize("bits", [47, 48, 52, 56, 57, 60, 63, 64])
def test_addresses_of_any_width(bits):
    high = np.array([4096, (1 << bits) - 4096, (1 << bits) - 8], dtype=np.uint64)
    for machine in ("zen5", "golden-cove"):
        made = superpages.simulate(high, machines=machine, policies="thp")
        assert made[0]["references"] == 3 and made.column("error") == [None, None]


def test_a_missing_file_is_one(tmp_path):
    missing = tmp_path / "missing.sp"
    for call in [
        lambda: superpages.simulate(missing),
        lambda: superpages.simulate(str(missing)),
        lambda: superpages.misses(missing),
        lambda: superpages.trace_info(missing),
    ]:
        with pytest.raises(FileNotFoundError) as caught:
            call()
        assert caught.value.filename == str(missing) and caught.value.errno == errno.ENOENT and str(missing) in str(caught.value)
    with pytest.raises(FileNotFoundError, match="folder"):
        superpages.write_trace(tmp_path / "folder" / "mine.sp", ADDRESSES)
    file = str(tmp_path / "missing.toml")
    axes = {"workload": "touch:bytes=64K", "policy": "thp"}
    for call in [
        lambda: superpages.simulate("touch", machines=file),
        lambda: superpages.simulate("touch", machines=f"zen5+{file}:costs.fault=1"),
        lambda: superpages.simulate("touch", machines={"from": file}),
        lambda: superpages.simulate("touch", policies=f"{file}:preempt=off"),
        lambda: superpages.simulate("touch", policies={"from": file}),
        lambda: superpages.simulate("touch", host_policies=file),
        lambda: superpages.machine_text(file),
        lambda: superpages.reproduce(file),
        lambda: superpages.sweep(file),
        lambda: superpages.sweep({"sweep": {"name": "one"}, "axes": {**axes, "machine": file}}),
    ]:
        with pytest.raises(FileNotFoundError) as caught:
            call()
        assert caught.value.filename == file
    with pytest.raises(ValueError, match="there is no built-in"):
        superpages.simulate("touch", machines="zen55")


def test_misses_by_mapping():
    hot, cold = 1 << 40, 2 << 40
    random = np.random.default_rng(1)
    pages = random.integers(0, 1 << 14, 40_000, dtype=np.uint64)
    near = random.integers(0, 16, 40_000, dtype=np.uint64)
    addresses = np.stack([(pages << np.uint64(12)) + np.uint64(hot), (near << np.uint64(12)) + np.uint64(cold)]).T.ravel()
    found = superpages.misses(addresses, machine="zen5")
    row = superpages.simulate(addresses, machines="zen5", policies="base")[0]
    assert sum(each["misses"] for each in found) == row["tlb_misses"]
    assert sum(each["share"] for each in found) == pytest.approx(1)
    assert found == sorted(found, key=lambda each: -each["misses"])
    assert found[0]["address"] >= hot and found[0]["share"] > 0.9
    assert {each["address"] >> 40 for each in found} == {1, 2}
    assert found[-1]["missed_pages"] == 16 or found[-1]["address"] < cold
    under = superpages.misses(addresses, machine="zen5", policy="thp")
    assert sum(each["misses"] for each in under) < row["tlb_misses"]


def test_misses_of_a_recorded_program(root):
    path = root / "corpus" / "whole" / "cc1.sp"
    found = superpages.misses(path, machine="zen5")
    row = superpages.simulate(path, machines="zen5", policies="base")[0]
    assert sum(each["misses"] for each in found) == row["tlb_misses"]
    assert all(each["bytes"] for each in found), "all lies in mappings, the heap too"
    with pytest.raises(TypeError, match="workload: expected one workload or trace"):
        superpages.misses([path])
    with pytest.raises(RuntimeError, match="memory"):
        superpages.misses("random:bytes=64M,references=100K", machine="zen5", policy="base", memory="16M")
