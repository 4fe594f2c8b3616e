"""Memory pages of several sizes: what superpages do for programs, as data frames.

>>> import superpages
>>> rows = superpages.simulate("random:bytes=64M,references=100K", machines="zen5", policies=["thp", "reservation"])
>>> rows.column("policy")         # print(rows) shows the command's table
['base', 'thp', 'reservation']
>>> rows[1]["tlb_misses"] < rows[0]["tlb_misses"]
True
>>> import pyarrow                # or pandas, polars, duckdb: none of them is needed
>>> pyarrow.table(rows).num_rows
3

A row is one simulation, with the keys of ``superpage sim --format json`` (docs/rows.md says what each is, and its unit). Same input, same
rows, to the byte, as the command's.
"""

from __future__ import annotations

import json as _json
import os as _os
import pathlib as _pathlib
import shlex as _shlex
import warnings as _warnings
from collections.abc import Callable as _Callable
from collections.abc import Iterable as _Iterable
from collections.abc import Sequence as _Sequence
from typing import Any as _Any

from . import _built as _built  # first: whether the rest can be used
from . import _given, _native, _observe, _replacement
from ._given import listed as _list
from ._given import optional as _optional
from ._native import Event, Region, Rows, System
from ._native import __version__ as __version__
from ._policy import Policy
from ._policy import refuse_misspelt as _refuse_misspelt
from ._policy import told_apart as _told_apart
from ._progress import watched as _watched
from ._replacement import Replacement
from ._toml import toml as _toml
from ._workload import streams as _streams

_Progress = bool | _Callable[[int, int], object] | None
_Machine = str | _os.PathLike[str] | dict[str, _Any]
_Policy = str | _os.PathLike[str] | dict[str, _Any] | Policy | type[Policy]
# The last two: an array of addresses, or a generator of them.
_Observer = _Callable[[Event], object] | object
_Workload = str | _os.PathLike[str] | _Any | _Iterable[_Any]

__all__ = [
    "Event",
    "Policy",
    "Region",
    "Replacement",
    "Rows",
    "System",
    "experiments",
    "machine_text",
    "machines",
    "misses",
    "overlays",
    "policies",
    "policy_help",
    "record",
    "reproduce",
    "simulate",
    "sweep",
    "trace_info",
    "workloads",
    "write_trace",
]


def machines() -> list[str]:
    """The names of the built-in machines, for ``simulate(machines=...)``."""
    return _native.machines()


def overlays() -> list[str]:
    """The names of the hardware proposals that can be laid over a machine, as in ``"zen5+coalescing"``."""
    return _native.overlays()


def policies() -> dict[str, str]:
    """The policies that can be simulated, each with a line that says what it does. `policy_help` has their parameters."""
    return dict(_native.policies())


def policy_help() -> str:
    """All policies with their parameters, as ``superpage sim --help`` prints them."""
    return _native.policy_help()


def workloads() -> dict[str, dict]:
    """The built-in workloads: for each what it does (``help``), and its parameters with their defaults (``parameters``)."""
    return {name: {"help": text, "parameters": dict(parameters)} for name, text, parameters in _native.workloads()}


def machine_text(machine: _Machine) -> str:
    """The machine file (TOML) of a machine as `simulate` takes it, with its overlays and values."""
    return _native.machine_text(_machine(machine))


def experiments() -> dict[str, str]:
    """The experiments that `reproduce` runs: full name, as ``"navarro02/table3"``, and title."""
    return dict(_native.experiments())


def trace_info(path: str | _os.PathLike[str]) -> dict[str, _Any]:
    """What a trace holds: the dict that ``superpage trace info --format json`` prints."""
    return _json.loads(_native.trace_info(_given.path("path", path, "the path of a trace")))


def simulate(
    workload: _Workload | _Sequence[str | _os.PathLike[str]],
    *,
    machines: _Machine | _Sequence[_Machine] = "golden-cove",
    policies: _Policy | _Sequence[_Policy] = "reservation",
    memory: str | int | None = None,
    swap: str | int | None = None,
    sizes: _Sequence[str | int] | None = None,
    fragment: float | str = 0,
    seed: int = 0,
    files: str = "warm",
    digest: str = "fast",
    background: str | None = None,
    time_scale: int = 1,
    host_policies: str | _Sequence[str] = (),
    kernels: str | _Sequence[str] = (),
    parts: bool = False,
    contiguity: bool = False,
    lines: bool = False,
    every: str | None = None,
    cores: int | None = None,
    quantum: int = 10_000_000,
    migrate: bool = False,
    writes: _Any = None,
    instructions: int = 1,
    access_bytes: int = 8,
    name: str = "accesses",
    up_to_cut: bool = False,
    replacements: dict[str, type[Replacement]] | None = None,
    observe: _Observer | None = None,
    threads: int | None = None,
    progress: _Progress = None,
) -> Rows:
    """Simulates a workload or a trace on machines, under policies; ``base`` is always among these, and rows are compared with it.

    Parameters
    ----------
    workload
        One of these, or a list of the first three:

        - a built-in workload with its parameters: ``"tree:nodes=20K"`` (see `workloads`);
        - the path of a trace: a string that ends in ``.sp``, or any ``os.PathLike``;
        - a mix of workloads: ``"matrix+sequential"`` at once, ``"matrix;sequential"`` one after the other;
        - an array of addresses in bytes, of 64-bit whole numbers (``numpy.uint64``, or a column of pandas, polars or pyarrow), in the order of the accesses, with `writes`;
        - a generator of such arrays, or of pairs ``(addresses, writes)``.

        What an array or a generator touches is mapped before the first access, as for imported traces. An array is copied; what a
        generator yields is kept in memory, compressed, until it has run.
    machines : str, dict or list of them
        Names with overlays and values, as ``"zen5+nested"`` or ``"zen5:costs.fault=900"``; paths of machine files; dicts with the keys of a
        machine file, or with ``"from"`` and what differs: ``{"from": "zen5", "name": "mine", "costs": {"fault": 900}}``.
    policies : str, dict, Policy or list of them
        Names with parameters, as ``"reservation:preempt=off"``; paths of policy files; dicts
        ``{"from": "reservation", "preempt": "off"}``; or objects of a class of your own (`Policy`).
    memory, swap : str or int
        Bytes, as ``"512M"``; otherwise the machine file's memory, and twice that of swap space.
    sizes : list of str
        Leave only these superpage sizes in use, as ``["64K", "2M"]``.
    fragment, seed
        The share of extents, from 0 to 1, that hold an immovable page before the run (or ``"2M:0.5"``, ``"frag-50"``, ``"aged"``, the path of a machine's memory), and the seed of their places.
    files, digest, background, time_scale, host_policies, kernels, parts, contiguity, lines, every, cores, quantum, migrate
        As the flags of ``superpage sim``.
    writes
        For an array of addresses: an array of as many truths, whether each access is a write. Otherwise all are reads.
    instructions, access_bytes, name
        For arrays: instructions executed for each access, bytes of each, and what rows call the workload.
    replacements : dict
        Replacements of your own, by the names of the TLBs of all machines of the call that get them: ``{"L2 DTLB": Fifo}`` (`Replacement`).
    observe : callable, or object with methods
        Sees what happens, free of charge in modelled time: a function ``f(event)`` of each `Event`, or an object with methods that are
        called ``map unmap protect discard grow remap fork exec exit mark fault promote demote sample``, each with the events of its kind;
        ``sample``, the counters at a moment, needs ``every=``. One event is over before the next, of whichever simulation. An exception
        ends the call. It is the object itself, not a copy.
    threads : int
        Threads for this call, instead of one for each core. The rows are the same with any number.
    progress : bool or callable
        Whether to show progress with tqdm (default: if that is installed, after a second), or a function ``f(done, of)``.

    Returns
    -------
    Rows
        One row for each workload, machine and policy, in this order.

    Raises
    ------
    ValueError
        Something named does not exist, or does not fit; nothing has run.
    OSError
        A file cannot be read.
    KeyboardInterrupt
        Ctrl-C: the simulation has ended, and its rows are gone.
    """
    words = _words(
        memory=memory,
        swap=swap,
        sizes=sizes,
        fragment=fragment,
        seed=seed,
        files=files,
        digest=digest,
        background=background,
        time_scale=time_scale,
        host_policies=host_policies,
        kernels=kernels,
        parts=parts,
        contiguity=contiguity,
        lines=lines,
        every=every,
        cores=cores,
        quantum=quantum,
        migrate=migrate,
    )
    up_to_cut = _given.truth("up_to_cut", up_to_cut)
    threads = _optional(_given.whole, "threads", threads, 1024, 1)
    words_of_accesses = {"name": _given.text("name", name), "bytes": access_bytes, "instructions": instructions}
    streams = _streams(workload, writes, words_of_accesses, up_to_cut)
    given = [_machine(machine) for machine in _list(machines)]
    chosen = [_policy(policy) for policy in _list(policies)]
    seen = _observe.callbacks(observe, every)
    replaced = _replacement.given(replacements or {})
    with _watched(progress, "runs") as bar:
        return _native.simulate(streams, given, chosen, words, threads, bar, seen, replaced)


def misses(
    workload: _Workload,
    *,
    machine: _Machine = "golden-cove",
    policy: _Policy = "base",
    memory: str | int | None = None,
    cores: int | None = None,
    writes: _Any = None,
    progress: _Progress = None,
) -> list[dict[str, _Any]]:
    """The TLB misses of a program by mapping, those with most first: ``pandas.DataFrame(superpages.misses("sort.sp"))``.

    A mapping is what the program got of one call, as of ``mmap``; its heap is one. Where something was mapped twice, the last one counts; what
    several processes have at an address is one. Sites of allocations are not known: a recording has mappings, no calls of ``malloc``.

    >>> import superpages
    >>> [each["share"] for each in superpages.misses("random:bytes=16M,references=20K", machine="zen5")]
    [1.0]

    Parameters
    ----------
    workload, machine, policy, memory, cores, writes, progress
        As of `simulate`: one workload or trace, one machine, one policy.

    Returns
    -------
    list of dict
        Of each mapping that missed: ``address`` and ``bytes`` (`None` for what was in none), ``missed_pages``, its base pages that missed,
        ``misses``, and ``share`` of all misses, from 0 to 1.

    Raises
    ------
    RuntimeError
        The run has ended early, as for lack of memory.
    """
    if isinstance(workload, (list, tuple)):
        raise _given.wrong("workload", "one workload or trace", workload)
    words = _words(memory=memory, cores=cores)
    (stream,) = _streams(workload, writes, {"name": "accesses", "bytes": 8, "instructions": 1}, False)
    with _watched(progress, "runs") as bar:
        rows, found = _native.misses(stream, _machine(machine), _policy(policy), words, bar)
    if not rows[0]["complete"]:
        raise RuntimeError(rows[0]["error"])
    every = sum(count for _, _, count, _ in found)
    return [
        {
            "address": start if end else None,
            "bytes": end - start if end else None,
            "missed_pages": pages,
            "misses": count,
            "share": count / every,
        }
        for start, end, count, pages in found
    ]


def write_trace(
    path: str | _os.PathLike[str],
    addresses: _Any,
    *,
    writes: _Any = None,
    instructions: int = 1,
    access_bytes: int = 8,
    name: str = "accesses",
    lines: bool = False,
    progress: _Progress = None,
) -> _pathlib.Path:
    """Writes an array of accesses, or what a generator yields, as a trace: ``simulate(path)`` has the rows that ``simulate(addresses)`` has.

    Parameters
    ----------
    path
        The trace to write, ``something.sp``.
    addresses, writes, instructions, access_bytes, name
        As of `simulate`.
    lines
        Whether the trace also says which lines of caches are accessed, for ``simulate(path, lines=True)``.

    Returns
    -------
    pathlib.Path
        The trace.
    """
    if isinstance(addresses, (str, _os.PathLike)):
        raise _given.wrong("addresses", "an array of addresses or a generator of them", addresses)
    there = _pathlib.Path(_given.path("path", path, "the path of the trace"))
    words = {"name": _given.text("name", name), "bytes": access_bytes, "instructions": instructions}
    (stream,) = _streams(addresses, writes, words, False)
    lines = _given.truth("lines", lines)
    with _watched(progress, "runs") as bar:
        _native.write_trace(there, stream, lines, bar)
    return there


def record(
    command: str | _Sequence[str | _os.PathLike[str]],
    output: str | _os.PathLike[str],
    *,
    lines: bool = False,
    calls: bool = False,
    sample: str | None = None,
    seed: int | None = None,
    cwd: str | _os.PathLike[str] | None = None,
    stdout: str | _os.PathLike[str] | int | None = None,
    check: bool = True,
    progress: _Progress = None,
) -> _pathlib.Path:
    """Records what a program does to its memory, as a trace for `simulate`. Needs QEMU's user-mode emulator (Debian: qemu-user).

    Parameters
    ----------
    command : str or list of str
        The program and its arguments; a string is split as a shell splits it.
    output : path
        The trace to write, ``something.sp``.
    lines, calls, sample, seed
        As the flags of ``superpage record``.
    cwd : path
        The folder that the program runs in; `output` and `stdout` are not in it.
    stdout : path or ``subprocess.DEVNULL``
        The file that the program's standard output goes to; otherwise this is standard error.
    check : bool
        Whether a program that ends with another status than 0 raises `RuntimeError`; its trace is written anyway.

    Returns
    -------
    pathlib.Path
        The trace.

    Raises
    ------
    FileNotFoundError
        QEMU is not installed: the message says how to.
    ValueError
        There is no such program, or it cannot be recorded.
    RuntimeError
        The program has failed.
    """
    expected = "a program and its arguments, as text or a list of texts"
    words = _shlex.split(command) if isinstance(command, str) else _given.texts("command", command, expected)
    if not words:
        raise ValueError(f"command: expected {expected}, not nothing")
    if isinstance(stdout, int):
        import subprocess

        if stdout != subprocess.DEVNULL:
            raise ValueError("stdout: expected a path or subprocess.DEVNULL")
        stdout = _os.devnull
    path = _pathlib.Path(_given.path("output", output, "the path of the trace"))
    flags = _given.truth("lines", lines), _given.truth("calls", calls)
    sample = _optional(_given.text, "sample", sample, "text as of superpage record --sample")
    seed = _optional(_given.whole, "seed", seed)
    cwd = _optional(_given.path, "cwd", cwd, "the path of a folder")
    stdout = _optional(_given.path, "stdout", stdout, "a path or subprocess.DEVNULL")
    check = _given.truth("check", check)
    with _watched(progress, "runs") as bar:
        status, notes = _native.record(words, path, *flags, sample, seed, cwd, stdout, bar)
    for note in notes:
        _warnings.warn(note, stacklevel=2)
    if check and status != 0:
        raise RuntimeError(f"{words[0]} ended with status {status}; what it did is in {path}")
    return path


def reproduce(
    names: str | _Sequence[str],
    *,
    corpus: str | _os.PathLike[str] = "corpus",
    programs: str | _os.PathLike[str] = "target/release/examples",
    long: bool = False,
    progress: _Progress = None,
) -> Rows:
    """Runs the tables and figures of papers, as ``superpage reproduce`` does.

    Parameters
    ----------
    names : str or list of str
        Papers (``"navarro02"``), experiments (``"navarro02/table3"``), or paths of experiment files; see `experiments`.
    corpus, programs : path
        The folders of the corpus's traces and of this project's own programs, which some experiments need.
    long : bool
        Whether to use the longer parameters where an experiment has them.

    Returns
    -------
    Rows
        One row for each finding: ``paper experiment item quantity paper_value measured tolerance verdict reason settings settings_verdict
        estimate``. Warnings name what could not be run.
    """
    chosen = _given.texts("names", names, "the name of a paper, of an experiment, or the path of an experiment file")
    for each in chosen:
        _given.there(each)
    folders = _given.path("corpus", corpus, "the path of a folder"), _given.path("programs", programs, "the path of a folder")
    long = _given.truth("long", long)
    with _watched(progress, "runs") as bar:
        rows, notes, failures = _native.reproduce(chosen, *folders, long, bar)
    for note in [*notes, *failures]:
        _warnings.warn(note, stacklevel=2)
    return rows


def sweep(
    spec: str | _os.PathLike[str] | dict[str, _Any],
    output: str | _os.PathLike[str] | None = None,
    *,
    jobs: int | None = None,
    shard: str = "1/1",
    repair: bool = False,
    progress: _Progress = None,
) -> Rows | None:
    """Runs the combinations of workloads, machines, policies and more that a sweep names (docs/sweep.md), and goes on where an earlier run
    was ended.

    Parameters
    ----------
    spec : path or dict
        A file of a sweep, or a dict with its keys: ``{"sweep": {"name": "mine"}, "axes": {"workload": [...], "policy": [...]}}``. In a dict,
        machines and policies may be dicts as `simulate` takes them, and policies objects of your own (`Policy`): what tells those apart,
        when a sweep goes on, is their source, that of what they inherit from and call, the values that these name, and their attributes.
    output : path
        The folder for cells, ``rows.parquet`` and ``index.html``. Without it, a temporary one that is gone afterwards.
    jobs : int
        The most cells at a time, each on a processor; default: one for each.
    shard : str
        Run only part ``"i/n"`` of the cells, as for a job of a batch system.
    repair : bool
        Remove damaged cells and compute them again; without it they are an error that names them.

    Returns
    -------
    Rows or None
        The rows, in the order of the grid; `None` if this shard has ended and others have not.
    """
    import tempfile

    jobs = _optional(_given.whole, "jobs", jobs, 1024, 1)
    output = _optional(_given.path, "output", output, "the path of a folder")
    repair = _given.truth("repair", repair)
    if _given.text("shard", shard, 'text as "3/8"') != "1/1" and output is None:
        raise ValueError("shard: needs output=, the folder that all shards share")
    plan = _plan(spec)
    with tempfile.TemporaryDirectory(prefix="superpage-") as folder, _watched(progress, "cells") as bar:
        place = _os.path.join(folder, "sweep") if output is None else output
        _, _, whole, failed = plan.run(place, f"superpages.sweep(..., {str(place)!r})", jobs, shard, repair, bar)
        for row in failed:
            _warnings.warn(row, stacklevel=2)
        return plan.merged(place) if whole else None


def _plan(spec) -> _native.Plan:
    """The plan of a file, or of a dict that may hold objects."""
    return _native.Plan(*_spec(spec))


def _spec(spec) -> tuple[str, str, list]:
    """The text of a sweep's file, its name for errors, and policies that are objects, each with what tells it from others."""
    if not isinstance(spec, dict):
        path = _given.path("spec", spec, "the path of a sweep's file, or a dict with its keys")
        with open(path, encoding="utf-8") as file:
            return file.read(), path, []
    for key, item in spec.items():
        if not isinstance(item, dict):
            raise _given.wrong(f"spec: {key}", "a dict", item)
    axes, own = dict(spec.get("axes", {})), []
    machines = dict(spec.get("machines", {}))
    if "machine" in axes:
        expected = "a name, the path of a file, or a dict"
        axes["machine"] = [
            _named(machine, machines) if isinstance(machine, dict) else _given.there(_given.path("axes.machine", machine, expected))
            for machine in _list(axes["machine"])
        ]
    if "host-policy" in axes:
        axes["host-policy"] = [_policy_text(policy, "axes.host-policy") for policy in _list(axes["host-policy"])]
    if "policy" in axes:
        chosen = [_policy(policy, "axes.policy") for policy in _list(axes["policy"])]
        own = [(policy, _told_apart(policy)) for policy in chosen if not isinstance(policy, str)]
        axes["policy"] = [policy if isinstance(policy, str) else policy[0] for policy in chosen]
    return _toml({**spec, "axes": axes} | ({"machines": machines} if machines else {})), "dict", own


def _named(machine: dict[str, _Any], machines: dict[str, dict[str, _Any]]) -> str:
    """The name by which an axis names this machine, which is one of the sweep's own (docs/sweep.md) from now on."""
    name = "".join(c if c.isalnum() or c in "-_" else "-" for c in str(machine.get("name", "dict")))
    if "from" not in machine or name in machines or name in _native.machines():
        name = f"{name}-{1 + len(machines)}"
    machines[name] = machine
    return name


def _machine(machine):
    """A name, or a name with parts that are texts of files."""
    if not isinstance(machine, dict):
        return _given.there(_given.path("machines", machine, "a name, the path of a file, or a dict"))
    own = {key: value for key, value in machine.items() if key != "from"}
    if "from" not in machine:
        return "dict.toml", {"dict.toml": _toml(own)}
    own.setdefault("name", "dict")
    own.setdefault("description", "What a dict says.")
    base = _given.there(_given.path("machines: from", machine["from"], "the name of a machine, or the path of a file"))
    return f"{base}+dict.toml", {"dict.toml": _toml(own)}


def _policy_text(policy, argument="policies") -> str:
    if not isinstance(policy, dict):
        kinds = "or a dict" if "host" in argument else "a dict, or an object of a superpages.Policy"
        return _given.there(_given.path(argument, policy, f"a name, the path of a file, {kinds}"))
    parameters = policy.get("parameters", {})
    if not isinstance(parameters, dict):
        raise _given.wrong(f"{argument}: parameters", "a dict", parameters)
    own = {**policy, **parameters}
    named = own.pop("name", None)
    name = own.pop("from", None) or named
    own.pop("parameters", None)
    if name is None:
        raise ValueError(f'{argument}: a dict needs "from", the policy that it differs from, as {{"from": "reservation"}}')
    name = _given.there(_given.path(f"{argument}: from", name, "the name of a policy, or the path of a file"))
    words = {True: "on", False: "off"}
    pairs = ",".join(f"{key}={words[value] if isinstance(value, bool) else value}" for key, value in own.items())
    return f"{name}{',' if ':' in name else ':'}{pairs}" if pairs else name


def _policy(policy, argument="policies"):
    if isinstance(policy, type) and issubclass(policy, Policy):
        policy = policy()
    if isinstance(policy, Policy) or hasattr(policy, "tick"):
        answers = getattr(policy, "answers", {}) or {}
        if not isinstance(answers, (str, dict)):
            raise _given.wrong("answers", "the text or the dict of a policy", answers)
        text = answers if isinstance(answers, str) else _policy_text({"from": "base", **answers})
        name = _given.text("name", getattr(policy, "name", None) or type(policy).__name__.lower())
        _refuse_misspelt(name, type(policy))
        if name == "base":
            raise ValueError("base: this is the name of what all policies are compared with: give your policy another name")
        return name, text, policy
    return _policy_text(policy, argument)


def _words(
    *,
    memory=None,
    swap=None,
    sizes=None,
    fragment: float | str = 0,
    seed=0,
    files="warm",
    digest="fast",
    background=None,
    time_scale=1,
    host_policies=(),
    kernels=(),
    parts=False,
    contiguity=False,
    lines=False,
    every=None,
    cores=None,
    quantum=10_000_000,
    migrate=False,
):
    """The conditions of simulations, in the words of the command's flags."""
    return dict(
        sizes=None if sizes is None else [_given.size("sizes", size) for size in _list(sizes)],
        memory=_optional(_given.size, "memory", memory),
        swap=_optional(_given.size, "swap", swap),
        files=_given.text("files", files, "warm or cold"),
        digest=_given.text("digest", digest, "fast or sha-1"),
        background=_optional(_given.text, "background", background, "core or program"),
        time_scale=_given.whole("time_scale", time_scale, 1_000_000, 1),
        fragment=_given.share("fragment", fragment),
        seed=_given.whole("seed", seed),
        host_policies=[_policy_text(policy, "host_policies") for policy in _list(host_policies)],
        kernels=_given.texts("kernels", kernels, "the name of a kernel's model with its switches"),
        parts=_given.truth("parts", parts),
        contiguity=_given.truth("contiguity", contiguity),
        lines=_given.truth("lines", lines),
        every=_optional(_given.text, "every", every, "a time such as 100ms, or a number of instructions such as 10M"),
        cores=_optional(_given.whole, "cores", cores, 4096, 1),
        quantum=_given.whole("quantum", quantum, (1 << 63) - 1, 1),
        migrate=_given.truth("migrate", migrate),
    )
