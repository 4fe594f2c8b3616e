"""Rows that go from one process to another."""

import concurrent.futures
import copy
import multiprocessing
import pickle

import pytest

import superpages


def test_rows_are_pickled():
    rows = superpages.simulate(["touch:bytes=64K", "matrix:n=60"], machines=["zen5", "zen5+nested"], policies=["thp", "reservation"], contiguity=True)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(rows, protocol))
        assert isinstance(again, superpages.Rows) and len(again) == len(rows) == 12
        assert (again.to_json(), again.to_parquet(), str(again)) == (rows.to_json(), rows.to_parquet(), str(rows))
    swept = superpages.sweep({"sweep": {"name": "small"}, "axes": {"workload": "touch:bytes=64K", "machine": "zen5", "policy": "thp"}})
    assert pickle.loads(pickle.dumps(swept)).to_parquet() == swept.to_parquet()
    assert copy.deepcopy(rows).to_json() == rows.to_json()
    with pytest.raises(ValueError, match="rows that were pickled: "):
        superpages.Rows(rows.to_parquet()[:-1])
    with pytest.raises(TypeError, match="rows of papers cannot be pickled: keep what to_parquet"):
        pickle.dumps(superpages.reproduce("navarro02/figure1"))


def test_rows_come_back_from_other_processes():
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        there = pool.submit(superpages.simulate, "touch:bytes=64K", machines="zen5", policies="thp").result()
    assert there.to_json() == superpages.simulate("touch:bytes=64K", machines="zen5", policies="thp").to_json()
