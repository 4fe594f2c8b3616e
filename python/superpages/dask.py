"""Sweeps on the workers of a Dask cluster: a laptop's processors, or the nodes that Slurm, PBS and others give (docs/cluster.md)::

    import superpages.dask
    rows = superpages.dask.sweep(None, "sweeps/policies.toml", "policies")           # a cluster of this computer's processors
    from dask_jobqueue import SLURMCluster                                          # or of four nodes
    cluster = SLURMCluster(cores=32, processes=1, memory="64GB", walltime="02:00:00")
    cluster.scale(jobs=4)
    rows = superpages.dask.sweep(cluster.get_client(), "sweeps/policies.toml", "policies")

Needs Dask: ``pip install 'superpages[dask]'``, or ``'superpages[cluster]'`` with ``dask-jobqueue``.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import hashlib
import math
import os
import tempfile
import threading
import time
import tomllib
import uuid
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from . import _given, _native, _spec, _toml
from ._given import optional as _optional
from ._native import Rows, __version__
from ._progress import watched as _watched

try:
    import distributed
except ImportError as error:
    raise ImportError("superpages.dask needs Dask: pip install 'superpages[dask]'") from error

__all__ = ["sweep"]

# The most cells that share one pass over their stream, as in `superpage sweep`.
_PASS = 8
# What the scheduler and this process take for a task, rounded up (demo/cluster: 3.7 ms). A task lasts as long as all threads need to keep them half busy,
# and not less than this.
_TASK_SECONDS = 1.0
_OVERHEAD_SECONDS = 0.005
# Threads that put cells on the disk, each of which waits for it, and the most cells that wait for them.
_WRITERS = 8
_WAITING = 1024
# Cells that may fail before the rest is given up, if hardly any do not.
_FAILURES = 100
# What the file of a cell has if it was run: one that could not be run has rows with the reason.
_RAN = b"superpage.seconds"


def sweep(client, spec, output=None, *, retries=2, send=None, repair=False, progress=None) -> Rows:
    """Runs a sweep as `superpages.sweep` does, with its cells on the workers of a Dask cluster. The rows are the same, to the byte.

    Parameters
    ----------
    client : distributed.Client or None
        The cluster. `None`: one of this computer's processors (``LocalCluster()``), for this call.
    spec, output, repair
        As for `superpages.sweep`: the folder is in the same format, so any of ``superpage sweep``, `superpages.sweep` and this goes on where
        another was ended.
    retries : int
        How often what raised on a worker is tried again. Tasks of a worker that is gone run on others in any case; Dask gives a task up when
        it was on four that died (``distributed.scheduler.allowed-failures``).
    send : bool
        Whether traces are sent to workers, once to each, and kept in its local directory until the sweep ends (in the scheduler's memory
        too, for workers that come later). Default: those that a worker does not find, with the same contents, under their path.
    progress : bool or callable
        Whether to show progress with tqdm (default: if that is installed, after a second), or a function ``f(done, of)`` of cells.

    Returns
    -------
    Rows
        The rows, in the order of the grid. A cell that cannot be run is rows with the reason as ``error``, and a warning.

    Raises
    ------
    ValueError
        Something named does not exist or does not fit, or no worker has the same version of superpage, machine files and policy files.
    OSError
        A file cannot be read, or a cell not be kept.
    RuntimeError
        Some cells did not come back. The others are in `output`, and the same call runs what is missing.
    KeyboardInterrupt
        Ctrl-C: whole cells are in `output`. What runs on workers of other computers ends with the pass that it is in.
    """
    if client is not None and not isinstance(client, distributed.Client):
        raise _given.wrong("client", "a distributed.Client, as cluster.get_client() returns, or None", client)
    retries = _given.whole("retries", retries, 2**31)
    send = _optional(_given.truth, "send", send)
    repair = _given.truth("repair", repair)
    output = _optional(_given.path, "output", output, "the path of a folder")
    if getattr(client, "asynchronous", False):
        raise ValueError("client: expected a distributed.Client that is not asynchronous")
    text, name, own = _spec(spec)
    if own:
        raise ValueError("policies that are objects run where they are: superpages.sweep(spec, output, shard=...)")
    plan = _native.Plan(text, name)
    with tempfile.TemporaryDirectory(prefix="superpage-") as folder, _watched(progress, "cells") as bar:
        place = os.path.join(folder, "sweep") if output is None else output
        run = _Run(plan, plan.open(place, repair), bar, retries)
        try:
            if run.queue:
                with _client(client) as client:
                    run.on(client, _Sweep(text, name, _traces(plan.traces, send)))
            _, _, _, failed = run.folder.finish(run.ran, f"superpages.dask.sweep(client, ..., {str(place)!r})")
        finally:
            run.folder = None  # which others may use now, though a traceback has this frame
        if run.problems:
            some = "; ".join(run.problems[:3]) + ("; ..." if len(run.problems) > 3 else "")
            kept = "" if output is None else f"; the others are in {place}, and the same call runs what is missing"
            raise RuntimeError(f"{run.of - run.done} of {run.of} cells did not run: {some}{kept}")
        for row in failed:
            warnings.warn(row, stacklevel=2)
        return plan.merged(place)


@contextlib.contextmanager
def _client(client):
    if client is not None:
        yield client
        return
    local = distributed.LocalCluster(dashboard_address=None)  # pyright: ignore[reportArgumentType]
    with local as cluster, distributed.Client(cluster) as client:
        yield client


# What workers have.


@dataclass
class _Trace:
    """A trace that the sweep names, and how to tell that a file is it."""

    path: str
    absolute: str
    bytes: int
    digest: str
    twins: int
    """How many before it have the same contents: each needs a path of its own, for a sweep names nothing twice."""
    send: bool | None


def _traces(paths, send) -> list[_Trace]:
    traces: list[_Trace] = []
    for path in dict.fromkeys(paths):
        digest = _digest(path)
        twins = sum(other.digest == digest for other in traces)
        traces.append(_Trace(path, os.path.join(os.getcwd(), path), os.path.getsize(path), digest, twins, send))
    return traces


def _digest(path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _Sweep(distributed.WorkerPlugin):
    """A sweep, on each worker that there is or will be."""

    idempotent = False

    def __init__(self, text, file, traces):
        self.text, self.file, self.traces, self.version = text, file, traces, __version__
        self.job = self.name = f"superpage-{uuid.uuid4().hex}"

    def setup(self, worker):
        self.worker, self.lock, self.plan, self.there = worker, threading.Lock(), None, {}

    def find(self, trace) -> str | None:
        """Where this worker has a trace."""
        paths = [] if trace.send else [trace.path, trace.absolute]
        for path in paths:
            with contextlib.suppress(OSError):
                if os.path.getsize(path) == trace.bytes and _digest(path) == trace.digest:
                    return path
        path = _sent(self.worker, self.job, trace.digest, trace.twins)
        return path if os.path.exists(path) else None

    def lay_out(self) -> list[str]:
        """Plans the sweep, once; returns the digests of traces that this worker does not have."""
        with self.lock:
            if self.plan is not None:
                return []
            for trace in self.traces:
                self.there[trace.path] = self.there.get(trace.path) or self.find(trace)
            lacking = [trace.digest for trace in self.traces if self.there[trace.path] is None]
            if not lacking:
                self.plan = _native.Plan(_with_traces(self.text, self.there), self.file)
                self.cells = self.plan.cells
            return lacking

    @property
    def moved(self) -> bool:
        """Whether traces are elsewhere than the sweep's file says."""
        return any(path != there for path, there in self.there.items())


class _Content(distributed.WorkerPlugin):
    """A trace that is sent."""

    idempotent = False
    content: Any

    def __init__(self, job, trace):
        self.job, self.digest, self.name = job, trace.digest, f"{job}-{trace.digest}"
        with open(trace.path, "rb") as file:
            self.content = file.read()
        if hashlib.sha256(self.content).hexdigest() != trace.digest:
            raise OSError(f"{trace.path} has changed since the sweep began: begin another, with a new folder")

    async def setup(self, worker):
        self.path = _sent(worker, self.job, self.digest)
        await asyncio.to_thread(self.keep)

    def keep(self):
        part = f"{self.path}.part"
        with open(part, "wb") as file:
            file.write(self.content)
        os.replace(part, self.path)
        self.content = None

    def teardown(self, worker):
        with contextlib.suppress(OSError):
            os.unlink(self.path)


def _sent(worker, job, digest, twins=0) -> str:
    """Where a trace is that was sent to a worker."""
    return os.path.join(worker.local_directory, *["."] * twins, f"{job}-{digest}.sp")


def _with_traces(text, there) -> str:
    """The text of a sweep with other paths of traces."""
    if all(path == now for path, now in there.items()):
        return text
    spec = tomllib.loads(text)
    for table in [spec["axes"], *spec.get("suites", {}).values()]:
        if "trace" in table:
            paths = table["trace"] if isinstance(table["trace"], list) else [table["trace"]]
            table["trace"] = [there[path] for path in paths]
    return _toml(spec)


@dataclass
class _Answer:
    """What a task comes back with."""

    worker: str
    cells: list = field(default_factory=list)
    """The name and the file of each cell that ran."""
    seconds: list = field(default_factory=list)
    """How long each pass took."""
    moved: bool = False
    lacks: list = field(default_factory=list)
    """Digests of traces that the worker needs."""
    refused: str | None = None
    """Why this worker can run nothing of the sweep."""


def _task(job, version, passes) -> _Answer:
    """On a worker: runs passes, each a list of cells over one stream by place and name."""
    worker = distributed.get_worker()
    answer = _Answer(worker.address)
    if version != __version__:
        answer.refused = f"it has superpage {__version__}, and the sweep is of {version}"
        return answer
    own: Any = worker.plugins[job]
    try:
        answer.lacks = own.lay_out()
    except (ValueError, OSError) as error:
        answer.refused = str(error)
    if answer.lacks or answer.refused:
        return answer
    if any(len(own.cells) <= place or own.cells[place][0] != name for cells in passes for place, name in cells):
        answer.refused = "its machine files, policy files or superpage are others, for its cells have other names"
        return answer
    answer.moved = own.moved
    for cells in passes:
        begun = time.monotonic()
        try:
            answer.cells += own.plan.run_cells([place for place, _ in cells])
        except Exception as error:
            raise RuntimeError(f"worker {worker.address}: {error}") from error
        answer.seconds.append(time.monotonic() - begun)
    return answer


# What this side does.


class _Queue:
    """Cells that wait, in the order of the grid, and how long those of each stream take."""

    def __init__(self, cells, places):
        self.cells, self.streams = cells, {}
        for place in places:
            self.streams.setdefault(cells[place][1], collections.deque()).append(place)
        self.length, self.alone = len(places), collections.deque()
        self.means = {}

    def __bool__(self):
        return self.length > 0

    def learn(self, place, cells, seconds):
        then, number = self.means.get(self.cells[place][1], (0.0, 0))
        self.means[self.cells[place][1]] = then + seconds, number + cells

    def back(self, passes, alone=False):
        """Takes cells back; `alone`: each is to be a task by itself."""
        for places in passes:
            self.length += len(places)
            if alone:
                self.alone.extend(places)
            else:
                self.streams.setdefault(self.cells[places[0]][1], collections.deque()).extendleft(reversed(places))

    def take(self, threads) -> list[list[int]]:
        """The passes of the next task: enough tasks are left for all threads to end at about the same time, and none is so short that
        handing it out takes longer than running it."""
        if self.alone:
            self.length -= 1
            return [[self.alone.popleft()]]
        share = math.ceil(self.length / (2 * threads))
        left = max(_TASK_SECONDS, 2 * threads * _OVERHEAD_SECONDS)
        passes = []
        while share > 0 and left > 0 and self.streams:
            stream, places = next(iter(self.streams.items()))
            seconds, number = self.means.get(stream, (math.inf, 1))
            taken = [places.popleft() for _ in range(min(share, _PASS, len(places)))]
            if not places:
                del self.streams[stream]
            passes.append(taken)
            share -= len(taken)
            left -= seconds / number * len(taken)
        self.length -= sum(map(len, passes))
        return passes


class _Run:
    """A sweep that runs."""

    folder: Any
    keep: Any

    def __init__(self, plan, folder, bar, retries):
        self.plan, self.folder, self.bar, self.retries = plan, folder, bar, retries
        self.cells = plan.cells
        missing = folder.missing()
        self.queue = _Queue(self.cells, missing)
        self.of, self.done, self.ran = len(self.cells), len(self.cells) - len(missing), 0
        self.problems, self.refused, self.sent = [], {}, []
        self.tasks, self.gone = {}, False

    def on(self, client, own):
        """Runs the cells that are missing."""
        self.client, self.own = client, own
        self.looked, self.threads, self.workers = -math.inf, 1, []
        self.completed = distributed.as_completed(loop=client.loop, with_results=True, raise_errors=False)
        self.kept = collections.deque()
        pool = ThreadPoolExecutor(_WRITERS, thread_name_prefix="superpage-cells")
        self.keep = functools.partial(pool.submit, self.written)
        try:
            self.register(own)
            for trace in own.traces:
                if trace.send:
                    self.send(trace.digest)
            self.show()
            while not self.gone and len(self.problems) <= self.ran + _FAILURES and self.fill():
                for future, result in self.wait():
                    self.came(future, result)
                self.settle(_WAITING)
            self.settle(0)
        finally:
            pool.shutdown(cancel_futures=True)
            self.keep = None
            futures = [future for future, _ in self.tasks.values()]
            self.tasks.clear()
            with contextlib.suppress(Exception):  # a cluster that is gone
                client.cancel(futures, force=True)
                for name in [*self.sent, own.name]:
                    client.unregister_worker_plugin(name)

    def register(self, plugin):
        try:
            self.client.register_plugin(plugin)
        except ImportError as error:
            raise ValueError(f"a worker cannot import superpages ({error}): install version {__version__} where workers run") from error

    def look(self):
        """How many threads there are; they come and go."""
        if time.monotonic() - self.looked > 1:
            self.workers = self.client.nthreads()
            self.threads = max(1, sum(threads for worker, threads in self.workers.items() if worker not in self.refused))
            self.looked = time.monotonic()

    def fill(self) -> bool:
        """Hands out tasks, two for each thread; returns whether any is out."""
        self.look()
        while self.queue and len(self.tasks) < 2 * self.threads + 1:
            where = {}
            if self.refused:
                where = {"workers": [worker for worker in self.workers if worker not in self.refused]}
                if not where["workers"]:
                    raise ValueError(next(iter(self.refused.values())))
            passes = self.queue.take(self.threads)
            named = [[(place, self.cells[place][0]) for place in places] for places in passes]
            future = self.client.submit(_task, self.own.job, __version__, named, pure=False, retries=self.retries, **where)
            self.tasks[future.key] = future, passes
            self.completed.add(future)
        return bool(self.tasks)

    def wait(self) -> list:
        """Tasks that came back; none after a second, in which workers may have come."""
        until = time.monotonic() + 1
        while not self.completed.has_ready() and time.monotonic() < until:
            time.sleep(0.01)
        return self.completed.next_batch(block=False)

    def came(self, future, result):
        """Takes what a task came back with."""
        _, passes = self.tasks.pop(future.key)
        # The future may have been lost since, with its worker: the result is here.
        if not isinstance(result, _Answer):
            if not isinstance(result, tuple):
                self.gone = True
                self.problems.append("Dask's scheduler is gone, or its tasks were cancelled")
            elif sum(map(len, passes)) > 1:
                self.queue.back(passes, alone=True)  # which of them it was shows when each runs alone
            else:
                self.problems.append(f"cell {self.cells[passes[0][0]][0]}: {' '.join(str(result[1]).split())}")
            return
        for digest in result.lacks:
            self.send(digest)
        if result.refused and result.worker not in self.refused:
            self.refused[result.worker] = f"worker {result.worker} cannot run cells of this sweep: {result.refused}"
            warnings.warn(self.refused[result.worker], stacklevel=4)
            self.looked = -math.inf
        if not result.cells:
            self.queue.back(passes)
            return
        for places, seconds in zip(passes, result.seconds):
            self.queue.learn(places[0], len(places), seconds)
        places = (place for places in passes for place in places)
        self.kept.extend(self.keep(place, name, content, result.moved) for place, (name, content) in zip(places, result.cells))

    def send(self, digest):
        """Sends a trace to all workers, and to those that will come."""
        trace = next(trace for trace in self.own.traces if trace.digest == digest)
        plugin = _Content(self.own.job, trace)
        if plugin.name in self.sent:
            return
        if trace.send is False:
            raise ValueError(f"{trace.path}: a worker does not find it, and send=False")
        self.sent.append(plugin.name)
        self.register(plugin)

    def written(self, place, name, content, moved):
        """Keeps a cell. What failed where the trace has another name is run here, since the reason has the name."""
        if moved and _RAN not in content:
            ((name, content),) = self.plan.run_cells([place])
        self.folder.write(name, content)

    def settle(self, most):
        """Waits until so many cells are not on the disk yet."""
        while self.kept and (len(self.kept) > most or self.kept[0].done()):
            self.kept.popleft().result()
            self.ran, self.done = self.ran + 1, self.done + 1
            self.show()

    def show(self):
        if self.bar is not None:
            self.bar(self.done, self.of)
