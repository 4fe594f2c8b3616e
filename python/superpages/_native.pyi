from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any

__version__: str
INTERFACE: int

class Rows:
    """Rows, one for each simulation or finding, with the keys of the command's rows in their order.

    pandas, polars, DuckDB and pyarrow take it as it is (``pandas.DataFrame.from_arrow(rows)``, ``polars.DataFrame(rows)``,
    ``duckdb.sql("select * from rows")``, ``pyarrow.table(rows)``): whole numbers are int64, others float64, nested values JSON as text.
    Those of simulations can be pickled, and so come back from other processes; pickle needs the same version of superpage to read them.
    """

    def __init__(self, kept: bytes) -> None:
        """The rows that pickle has kept."""
    def __reduce__(self) -> tuple[type[Rows], tuple[bytes]]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> dict[str, Any]:
        """The row at a place as a dict; nested values are dicts and lists."""
    @property
    def keys(self) -> list[str]:
        """The keys of the rows, in order."""
    def column(self, key: str) -> list[Any]:
        """All values of one key, a list as long as there are rows; `KeyError` lists the keys."""
    def estimates(self, key: str) -> list[str | None]:
        """Why each value of a key is no exact count (a sampled stream): how sure it is, in words; None where it is exact."""
    @property
    def figures(self) -> list[dict[str, Any]]:
        """Of findings (`superpages.reproduce`), the figures of the experiments, as dicts: ``experiment title x y``, where ``x`` and ``y`` are
        the labels of axes, and ``series``, a list of ``name x y paper`` with lists of as many values. Empty for simulations."""
    def to_json(self) -> str:
        """What ``--format json`` prints."""
    def to_csv(self) -> str:
        """What ``--format csv`` prints."""
    def to_parquet(self) -> bytes:
        """What ``--format parquet`` prints: a file, to be written as it is."""
    def table(self, width: int = 100) -> str:
        """The table that the command prints on a terminal of so many columns."""
    def plot(self, key: str = "speedup", ax: Any = None) -> Any:
        """Bars of a key, a group for each workload and machine, a bar for each policy. Needs matplotlib; returns the axes."""
    def _repr_html_(self) -> str: ...
    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...
    def __arrow_c_schema__(self) -> Any: ...

class Event:
    """Something that happened in a simulation, as ``observe=`` of `superpages.simulate` sees it."""

    @property
    def kind(self) -> str:
        """``"map"``, ``"unmap"``, ``"protect"``, ``"discard"``, ``"grow"``, ``"remap"``, ``"fork"``, ``"exec"``, ``"exit"`` or ``"mark"``: what
        the program asked for; ``"fault"``, ``"promote"``, ``"demote"``: what the kernel did; ``"sample"``: the counters at a moment."""
    @property
    def workload(self) -> str:
        """The workload, as in rows."""
    @property
    def machine(self) -> str:
        """The machine, as in rows."""
    @property
    def policy(self) -> str:
        """The policy, as in rows; on a host with a policy, ``"thp on base"``."""
    @property
    def seconds(self) -> float:
        """The modelled time."""
    @property
    def space(self) -> int:
        """The address space, as policies name it."""
    @property
    def address(self) -> int:
        """Where it begins, in bytes."""
    @property
    def bytes(self) -> int:
        """How long it is: of a fault, the page that maps the address then."""
    @property
    def detail(self) -> Any:
        """Of ``map``, ``"anonymous"``, ``"file"``, ``"heap"`` or ``"stack"``; of ``remap``, the address before; of ``fork``, the number of the
        child; of ``mark``, its text; of ``fault``, how it was resolved, as ``"zero"``; of ``promote``, ``"in-place"`` or ``"whole"`` (at once,
        or by copying); of ``demote``, the bytes of the pages that replace it; of ``sample``, a dict (``series`` in docs/rows.md)."""

class Region:
    """An aligned part of an address space, of the size of a level, that holds a page."""

    @property
    def number(self) -> int:
        """Its address divided by the size of its level."""
    @property
    def populated(self) -> int:
        """How many of its base pages are populated."""
    @property
    def superpage(self) -> bool:
        """Whether it is a superpage already."""

class System:
    """What a policy may see and do, while its `tick` is called. Times are nanoseconds of modelled time; level 0 is the base page."""

    @property
    def sizes(self) -> list[int]:
        """The page sizes in use in bytes, by level."""
    @property
    def now(self) -> int:
        """The current time in nanoseconds."""
    @property
    def spent(self) -> int:
        """Modelled processor time that the policy has used in all calls before, in nanoseconds."""
    def spaces(self) -> list[int]:
        """The address spaces, in ascending order."""
    def scan(self, space: int, level: int) -> list[Region]:
        """The regions of a level that hold a page, in ascending order; empty for a space that has ended. The policy is charged for each."""
    def accessed(self, space: int, level: int, region: Region | int) -> int | None:
        """How many base pages of a region were accessed since the last call for it; `None` if that is not known."""
    def pieces(self, space: int, level: int, region: Region | int) -> int | None:
        """The number of physically contiguous pieces of a region; `None` if that is not known."""
    def free_extents(self, level: int) -> int | None:
        """The number of free extents of a level; `None` if that is not known."""
    def check(self, space: int, level: int, region: Region | int) -> int | None:
        """The populated base pages of a region as it is now, in any mapping; `None` if other address spaces share pages of it."""
    def promote(self, space: int, level: int, regions: Sequence[Region | int], how: str = "either") -> list[str]:
        """Promotes regions ``"in-place"``, ``"by-copying"`` or ``"either"``. Returns what came of each: ``"promoted"``, or why it was not:
        ``"no-extent"``, ``"superpage"`` (it is one already), ``"not-populated"``, ``"shared-by-fork"``, ... (all are in crates/vm/src/why.rs)."""
    def demote(self, space: int, level: int, region: Region | int) -> bool:
        """Demotes the superpage of exactly this level at the start of a region; returns whether there was one."""
    def zero_ahead(self, level: int, most: int) -> int | None:
        """Zeroes up to so many free extents of a level ahead of faults that take them whole; returns how many."""

class Plan:
    """A sweep, checked completely: everything named exists and fits."""

    def __init__(self, text: str, name: str, policies: list[tuple[Any, str]] = ...) -> None: ...
    @property
    def cells(self) -> list[tuple[str, int]]: ...
    @property
    def rows(self) -> int: ...
    @property
    def traces(self) -> list[str]: ...
    def run(
        self,
        output: str | PathLike[str],
        command: str,
        jobs: int | None = None,
        shard: str = "1/1",
        repair: bool = False,
        progress: Callable[[int, int], object] | None = None,
    ) -> tuple[int, int, bool, list[str]]: ...
    def merged(self, output: str | PathLike[str]) -> Rows: ...
    def run_cells(self, places: list[int], threads: int = 1) -> list[tuple[str, bytes]]: ...
    def open(self, output: str | PathLike[str], repair: bool = False) -> Folder: ...

class Folder:
    """The folder of a sweep, held until this object is gone."""

    def missing(self) -> list[int]: ...
    def write(self, name: str, bytes: bytes) -> None: ...
    def finish(self, ran: int, command: str) -> tuple[int, int, bool, list[str]]: ...

def machines() -> list[str]: ...
def overlays() -> list[str]: ...
def policies() -> list[tuple[str, str]]: ...
def policy_help() -> str: ...
def workloads() -> list[tuple[str, str, list[tuple[str, str]]]]: ...
def machine_text(machine: Any) -> str: ...
def experiments() -> list[tuple[str, str]]: ...
def trace_info(path: str | PathLike[str]) -> str: ...
def simulate(
    streams: list[Any],
    machines: list[Any],
    policies: list[Any],
    words: Any,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    observe: dict[str, Callable[[Event], object]] = ...,
    replacements: list[tuple[str, str, Any]] = ...,
) -> Rows: ...
def misses(
    stream: Any, machine: Any, policy: Any, words: Any, progress: Callable[[int, int], object] | None = None
) -> tuple[Rows, list[tuple[int, int, int, int]]]: ...
def write_trace(
    path: str | PathLike[str], accesses: Any, lines: bool = False, progress: Callable[[int, int], object] | None = None
) -> None: ...
def record(
    command: list[str],
    output: str | PathLike[str],
    lines: bool = False,
    calls: bool = False,
    sample: str | None = None,
    seed: int | None = None,
    folder: str | PathLike[str] | None = None,
    stdout: str | PathLike[str] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> tuple[int, list[str]]: ...
def reproduce(
    names: list[str],
    corpus: str | PathLike[str],
    programs: str | PathLike[str],
    long: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> tuple[Rows, list[str], list[str]]: ...
