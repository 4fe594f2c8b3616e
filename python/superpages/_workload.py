"""Workloads as users give them: names, paths, arrays of addresses and generators of such."""

from __future__ import annotations

import array
import os
from typing import Any

from . import _given


def streams(workload, writes, words, up_to_cut):
    """What is run: a name, the path of a trace, or the accesses, of each workload."""
    workload, writes = _column(workload), _column(writes)
    is_array = hasattr(workload, "__array_interface__") or isinstance(workload, (array.array, memoryview))
    named = isinstance(workload, (str, os.PathLike)) or (
        isinstance(workload, (list, tuple)) and all(isinstance(each, (str, os.PathLike)) for each in workload)
    )
    if named and (words["name"], words["bytes"], words["instructions"]) != ("accesses", 8, 1):
        raise TypeError("instructions, access_bytes, name: go with arrays of addresses, not with workloads that have a name")
    words["instructions"] = _given.whole("instructions", words["instructions"], 2**32 - 1)
    words["bytes"] = _given.whole("access_bytes", words["bytes"], 2**20)
    if writes is not None and not is_array:
        raise TypeError("writes: goes with one array of addresses; a generator yields pairs (addresses, writes)")
    if isinstance(workload, (list, tuple)) and all(isinstance(each, (str, os.PathLike)) for each in workload):
        if not workload:
            raise ValueError("workload: an empty list; expected workloads or traces")
        return [_stream(each, up_to_cut) for each in workload]
    if isinstance(workload, (str, os.PathLike)):
        return [_stream(workload, up_to_cut)]
    if is_array:
        pieces = [(workload, writes)]
    elif isinstance(workload, (list, tuple)) and any(isinstance(each, (str, bytes, int, float, os.PathLike)) for each in workload):
        other = next(each for each in workload if not isinstance(each, (str, os.PathLike)))
        expected = "names and paths in a list, or an array of addresses, as numpy.array([...], numpy.uint64)"
        raise _given.wrong("workload", expected, other)
    elif hasattr(workload, "__iter__") and not isinstance(workload, (bytes, dict)):
        pieces = workload
    else:
        raise _given.wrong("workload", "a name, a path, an array of addresses or a generator of them", workload)
    return [{"pieces": (_piece(piece) for piece in pieces), **words}]


def _stream(workload, up_to_cut):
    if isinstance(workload, str) and not workload.endswith(".sp"):
        return workload
    return os.fspath(workload), up_to_cut


def _column(given):
    """What a column of pandas or polars, or an array of pyarrow, holds; anything else as it is."""
    if hasattr(given, "mask") and hasattr(given, "compressed"):
        raise ValueError("a masked array: give what counts, as .compressed()")
    if not hasattr(given, "to_numpy"):
        return given
    try:
        values = given.to_numpy(zero_copy_only=False)
    except TypeError:
        values = given.to_numpy()
    if values.ndim != 1:
        raise ValueError(f"a table of {values.ndim} dimensions: give one column")
    return values


def _piece(piece: Any):
    """Addresses and writes, as memory of 64-bit numbers and of bytes."""
    writes: Any = None
    if isinstance(piece, tuple) and len(piece) == 2:
        piece, writes = piece[0], _column(piece[1])
    addresses: Any = _column(piece)
    if isinstance(addresses, (list, range)):
        try:
            addresses = array.array("Q", addresses)
        except OverflowError:
            raise ValueError("addresses: expected whole numbers from 0 to 2^64 - 1") from None
    whole = {"i": "int64", "u": "uint64"}.get(getattr(getattr(addresses, "dtype", None), "kind", ""))
    if whole:  # of any width, and any order of bytes
        addresses = addresses.astype(whole, copy=False)
    dimensions = getattr(addresses, "ndim", 1)
    if dimensions != 1:
        raise ValueError(f"addresses: an array of {dimensions} dimensions; expected one, as .ravel() gives")
    if writes is None or writes is False:
        return addresses, None
    if writes is True:
        return addresses, b"\1" * len(addresses)
    if isinstance(writes, (list, tuple)):
        writes = bytes(bool(write) for write in writes)
    try:
        view = memoryview(writes)
    except TypeError:
        raise _given.wrong("writes", "as many truths as there are addresses, or one for all", writes) from None
    if view.ndim != 1:
        raise ValueError(f"writes: an array of {view.ndim} dimensions; expected one, as .ravel() gives")
    return addresses, memoryview(view.tobytes()) if view.format == "?" else view
