"""Memory pages of several sizes: what superpages do for programs, as data frames.

>>> import superpages
>>> rows = superpages.simulate("random:bytes=256M,references=1M", machines="zen5", policies=["thp", "reservation"])
>>> print(rows)                   # the command's table
>>> import pandas                 # or polars, duckdb, pyarrow: none of them is needed
>>> pandas.DataFrame.from_arrow(rows)[["policy", "tlb_misses", "speedup"]]

A row is one simulation, with the keys of ``superpage sim --format json`` (docs/rows.md says what each is, and its unit). Same input, same
rows, to the byte, as the command's.
"""

from __future__ import annotations

import array as _array
import difflib as _difflib
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
from . import _given, _native
from ._given import listed as _list
from ._given import optional as _optional
from ._native import Region, Rows, System
from ._native import __version__ as __version__
from ._policy import Policy
from ._progress import watched as _watched

_Progress = bool | _Callable[[int, int], object] | None
_Machine = str | _os.PathLike[str] | dict[str, _Any]
_Policy = str | _os.PathLike[str] | dict[str, _Any] | Policy | type[Policy]
# The last two: an array of addresses, or a generator of them.
_Workload = str | _os.PathLike[str] | _Any | _Iterable[_Any]

__all__ = [
    "Policy",
    "Region",
    "Rows",
    "System",
    "experiments",
    "machine_text",
    "machines",
    "overlays",
    "policies",
    "policy_help",
    "record",
    "reproduce",
    "simulate",
    "sweep",
    "trace_info",
    "workloads",
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
    words = dict(
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
    up_to_cut = _given.truth("up_to_cut", up_to_cut)
    threads = _optional(_given.whole, "threads", threads, 1024, 1)
    words_of_accesses = {"name": _given.text("name", name), "bytes": access_bytes, "instructions": instructions}
    streams = _streams(workload, writes, words_of_accesses, up_to_cut)
    given = [_machine(machine) for machine in _list(machines)]
    chosen = [_policy(policy) for policy in _list(policies)]
    with _watched(progress, "runs") as bar:
        return _native.simulate(streams, given, chosen, words, threads, bar)


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
            _named(machine, machines) if isinstance(machine, dict) else _given.path("axes.machine", machine, expected)
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


def _told_apart(policy) -> str:
    """What a policy does, as text: the sources of its class, of those that it inherits from and of the functions that these name, with the
    values that they name, its answers and its attributes."""
    import dis
    import inspect

    _, answers, chosen = policy
    said: dict[str, str] = {}

    def source(what):
        try:
            return inspect.getsource(what)
        except (OSError, TypeError):
            raise ValueError(
                f"policy {policy[0]}: the source of {what.__name__} cannot be read, so a sweep cannot tell it from others: "
                "define it in a file or a notebook"
            ) from None

    def value(name, item):
        if inspect.ismodule(item) or inspect.isbuiltin(item) or getattr(item, "__module__", None) in ("builtins", "superpage"):
            return
        if inspect.isclass(item):
            return of_class(item)
        if inspect.isfunction(item):
            return function(item)
        text = f"{item.dtype} {item.shape} {item.tobytes()!r}" if hasattr(item, "tobytes") else repr(item)
        if " at 0x" in text:
            raise ValueError(
                f"policy {policy[0]}: a sweep cannot tell {name} from others, since it prints as {text}: give its class a __repr__"
            )
        said[name] = text

    def function(item):
        name = f"{item.__module__}.{item.__qualname__}"
        if name in said or item.__module__.partition(".")[0] == "superpage":
            return
        said[name] = source(item)
        named = dict(zip(item.__code__.co_freevars, (cell.cell_contents for cell in item.__closure__ or ())))
        codes = [item.__code__]
        for code in codes:
            codes += filter(inspect.iscode, code.co_consts)
            loaded = (step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL")
            named |= {word: item.__globals__[word] for word in loaded if word in item.__globals__}
        for word, of in sorted(named.items()):
            value(f"{name}: {word}", of)

    def of_class(item):
        name = f"{item.__module__}.{item.__qualname__}"
        if name in said or item in (object, Policy):
            return
        said[name] = source(item)
        for base in item.__bases__:
            value(name, base)
        for word, of in sorted(vars(item).items()):
            if inspect.isfunction(of):
                function(of)
            elif not word.startswith("__") and not inspect.isdatadescriptor(of):
                value(f"{name}.{word}", of)

    of_class(type(chosen))
    for word, of in sorted(vars(chosen).items()):
        value(f"self.{word}", of)
    return "\n".join([*said.values(), answers, *said])


def _toml(value, path=()) -> str:
    """A dict as TOML: of each table its own keys first, then the tables in it."""
    if not path and not isinstance(value, dict):
        raise TypeError(f"expected a dict, not {type(value).__name__}")
    lines, tables = [], []
    for key, item in value.items():
        name = _toml_text(str(key))
        if isinstance(item, dict):
            tables.append(f"[{'.'.join([*path, name])}]\n{_toml(item, (*path, name))}")
        elif isinstance(item, (list, tuple)) and item and all(isinstance(each, dict) for each in item):
            for each in item:
                tables.append(f"[[{'.'.join([*path, name])}]]\n{_toml(each, (*path, name))}")
        elif item is not None:
            lines.append(f"{name} = {_toml_value(item, key)}\n")
    return "".join(lines + tables)


def _toml_text(text: str) -> str:
    """A string of TOML: as JSON's, but that TOML knows no pairs of surrogates."""
    return _json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_value(item, key) -> str:
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, int):
        return int.__repr__(item)
    if isinstance(item, float):  # also numpy's, which print otherwise
        return float.__repr__(item)
    if isinstance(item, (str, _os.PathLike)):
        return _toml_text(_os.fspath(item))
    if isinstance(item, (list, tuple, range)):
        return "[" + ", ".join(_toml_value(each, key) for each in item) + "]"
    if isinstance(item, dict):
        return "{" + ", ".join(f"{_toml_text(str(k))} = {_toml_value(v, k)}" for k, v in item.items()) + "}"
    if hasattr(item, "tolist"):  # an array or a number of numpy's
        return _toml_value(item.tolist(), key)
    raise TypeError(f"{key}: expected text, a number, a truth, a list or a dict, not {type(item).__name__}")


def _machine(machine):
    """A name, or a name with parts that are texts of files."""
    if not isinstance(machine, dict):
        return _given.path("machines", machine, "a name, the path of a file, or a dict")
    own = {key: value for key, value in machine.items() if key != "from"}
    if "from" not in machine:
        return "dict.toml", {"dict.toml": _toml(own)}
    own.setdefault("name", "dict")
    own.setdefault("description", "What a dict says.")
    return f"{_given.path('machines: from', machine['from'], 'the name of a machine, or the path of a file')}+dict.toml", {"dict.toml": _toml(own)}


def _policy_text(policy, argument="policies") -> str:
    if not isinstance(policy, dict):
        kinds = "or a dict" if "host" in argument else "a dict, or an object of a superpages.Policy"
        return _given.path(argument, policy, f"a name, the path of a file, {kinds}")
    parameters = policy.get("parameters", {})
    if not isinstance(parameters, dict):
        raise _given.wrong(f"{argument}: parameters", "a dict", parameters)
    own = {**policy, **parameters}
    named = own.pop("name", None)
    name = own.pop("from", None) or named
    own.pop("parameters", None)
    if name is None:
        raise ValueError(f'{argument}: a dict needs "from", the policy that it differs from, as {{"from": "reservation"}}')
    name = _given.path(f"{argument}: from", name, "the name of a policy, or the path of a file")
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


def _refuse_misspelt(name, kind):
    """Refuses a class whose names nobody looks for: it would run as its answers alone."""
    called = ("tick", "faulted", "missed", "gone")
    known = (*called, "name", "answers", "interval")
    own = {name: item for each in kind.__mro__ if each not in (Policy, object) for name, item in vars(each).items()}
    public = {name: item for name, item in own.items() if not name.startswith("_") and name not in known}
    for given in public:
        near = _difflib.get_close_matches(given, [each for each in known if each not in own], 1, 0.75)
        if near:
            raise TypeError(f"policy {name}: superpages looks for {near[0]}, not for {given}: was that meant?")
    methods = [given for given, item in public.items() if callable(item)]
    if methods and not any(each in own for each in called):
        raise TypeError(f"policy {name}: nobody calls {', '.join(methods)}; expected one of {', '.join(called)}")


def _streams(workload, writes, words, up_to_cut):
    workload, writes = _column(workload), _column(writes)
    array = hasattr(workload, "__array_interface__") or isinstance(workload, (_array.array, memoryview))
    named = isinstance(workload, (str, _os.PathLike)) or (
        isinstance(workload, (list, tuple)) and all(isinstance(each, (str, _os.PathLike)) for each in workload)
    )
    if named and (words["name"], words["bytes"], words["instructions"]) != ("accesses", 8, 1):
        raise TypeError("instructions, access_bytes, name: go with arrays of addresses, not with workloads that have a name")
    words["instructions"] = _given.whole("instructions", words["instructions"], 2**32 - 1)
    words["bytes"] = _given.whole("access_bytes", words["bytes"], 2**20)
    if writes is not None and not array:
        raise TypeError("writes: goes with one array of addresses; a generator yields pairs (addresses, writes)")
    if isinstance(workload, (list, tuple)) and all(isinstance(each, (str, _os.PathLike)) for each in workload):
        if not workload:
            raise ValueError("workload: an empty list; expected workloads or traces")
        return [_stream(each, up_to_cut) for each in workload]
    if isinstance(workload, (str, _os.PathLike)):
        return [_stream(workload, up_to_cut)]
    if array:
        pieces = [(workload, writes)]
    elif isinstance(workload, (list, tuple)) and any(isinstance(each, (str, bytes, int, float, _os.PathLike)) for each in workload):
        other = next(each for each in workload if not isinstance(each, (str, _os.PathLike)))
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
    return _os.fspath(workload), up_to_cut


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


def _piece(piece):
    """Addresses and writes, as memory of 64-bit numbers and of bytes."""
    addresses, writes = map(_column, piece) if isinstance(piece, tuple) and len(piece) == 2 else (piece, None)
    addresses = _column(addresses)
    if isinstance(addresses, (list, range)):
        addresses = _array.array("Q", addresses)
    if writes is not None:
        if isinstance(writes, (list, tuple)):
            writes = bytes(bool(write) for write in writes)
        view = memoryview(writes)
        if view.format == "?":
            view = memoryview(view.tobytes())
        writes = view
    return addresses, writes
