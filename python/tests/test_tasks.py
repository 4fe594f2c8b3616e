"""The tasks of docs/python-tasks.md, each block as it stands there, and what must come out."""

import re
import time

import pytest

from conftest import ROOT

PAGE = (ROOT / "docs" / "python-tasks.md").read_text()
MOST_SECONDS = 60


def blocks():
    """The blocks of each section, by its title."""
    sections = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
    found = {title: re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL) for title, text in sections.items()}
    return {title: code for title, code in found.items() if code}


@pytest.mark.parametrize("title", blocks())
def test_a_task_runs_as_it_stands(title, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope = {}
    exec(re.search(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[1], scope)
    begun = time.perf_counter()
    for code in blocks()[title]:
        assert len(code.rstrip().splitlines()) <= 10, title
        exec(code, scope)
    print(f"{title}: {time.perf_counter() - begun:.1f} s")
    assert time.perf_counter() - begun < MOST_SECONDS
    CHECKS[title](scope)


def curve(scope):
    mpki = scope["curve"]["mpki"].tolist()
    assert len(mpki) == 4 and mpki == sorted(mpki, reverse=True) and mpki[0] > mpki[-1]


def pareto(scope):
    best, frame = scope["best"], scope["frame"]
    assert 1 <= len(best) < len(frame)
    assert best["speedup"].is_monotonic_decreasing and best["peak_resident_bytes"].is_monotonic_decreasing


def fragmentation(scope):
    table = scope["table"].set_index(["policy", "fragment"])
    assert table.loc[("thp", 0.0), "promotions"] > 0 == table.loc[("thp", 1.0), "promotions"]
    assert table.loc[("thp", 0.0), "speedup"] > table.loc[("thp", 1.0), "speedup"]


def misses(scope):
    shares = scope["misses"].groupby("structure")["share"].sum()
    assert shares["table"] > shares["index"] and shares.sum() == pytest.approx(1)


def nested(scope):
    frame = scope["frame"].set_index(["machine", "policy"])["references"]
    assert frame["zen5+nested", "base"] > frame["zen5", "base"]
    assert frame["zen5+nested-2m", "thp"] < frame["zen5+nested", "base"]


def deletes(scope):
    # Samples are taken at the marks of the workload, too: "drop" is where deletions begin, "use" where they end.
    resident = scope["series"].set_index(["policy", "event"])["resident_bytes"]
    for policy in ("base", "thp", "reservation"):
        assert 0 < resident[policy, "use"] < 0.9 * resident[policy, "drop"]
    counted = {row["policy"]: row["demotions"] for row in scope["rows"]}
    for policy, count in counted.items():
        assert count == sum(policy == each for _, each, _ in scope["demoted"])


CHECKS = {
    "A curve of misses over the size of the TLB": curve,
    "The Pareto frontier of a policy of your own": pareto,
    "Fragmentation": fragmentation,
    "Misses by data structure": misses,
    "Nested paging": nested,
    "Memory while a store deletes": deletes,
}


def test_the_page_is_short():
    assert list(blocks()) == list(CHECKS)
    lines = PAGE.splitlines()
    assert len(lines) <= 150 and max(map(len, lines)) <= 100
