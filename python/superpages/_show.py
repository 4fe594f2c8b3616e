"""Rows as a notebook shows them."""

from __future__ import annotations

import html as _html

_MAIN = [
    "workload", "machine", "kernel", "host_policy", "policy", "tlb_misses", "tlb_miss_reduction_percent", "faults", "cycles", "speedup",
    "peak_resident_bytes", "bloat_percent", "error",
]  # fmt: skip
_MOST = 60


def _cell(value) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    return _html.escape(str(value))


def html(rows) -> str:
    """A table of the main keys, without those that say nothing here."""
    keys = rows.keys
    shown = [key for key in (_MAIN if "policy" in keys else keys) if key in keys]
    columns = {key: rows.column(key) for key in shown}
    shown = [key for key in shown if any(value is not None for value in columns[key])]
    head = "".join(f"<th>{key}</th>" for key in shown)
    count = min(len(rows), _MOST)
    estimates = {key: rows.estimates(key) for key in shown}

    def cell(key, i):
        text, why = _cell(columns[key][i]), estimates[key][i]
        return f'<td title="{_html.escape(why)}">≈ {text}</td>' if why and text else f"<td>{text}</td>"

    body = "".join("<tr>" + "".join(cell(key, i) for key in shown) + "</tr>" for i in range(count))
    more = f"<p>{len(rows) - count} more rows</p>" if len(rows) > count else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


# Keys that name what ran, besides the policy.
TOLD = ("workload", "machine", "host_policy", "kernel", "memory_bytes", "swap_bytes", "fragment", "memory_state", "seed", "files", "digest", "background", "time_scale", "sizes", "part")


def plot(rows, key="speedup", ax=None):
    """Bars of a key: a group for each workload and machine, and whatever else rows differ in; a bar for each policy. Returns the axes."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("plot needs matplotlib: pip install matplotlib") from error
    if "policy" not in rows.keys:
        raise ValueError("plot draws rows of simulations, and these are findings of papers")
    values = rows.column(key)
    if not all(value is None or isinstance(value, (int, float)) for value in values):
        raise ValueError(f"{key} is no number: plot draws numbers")
    # What rows differ in, besides their policies, names a group.
    told = {name: [str(each) for each in rows.column(name)] for name in TOLD if name in rows.keys}
    told = {name: words for name, words in told.items() if len(set(words)) > 1}
    workloads = told.pop("workload", [""] * len(values) if told else rows.column("workload"))
    cut = {word: word if len(word) <= 24 else word[:23] + "…" for word in workloads}
    if len(set(cut.values())) < len(cut):
        cut = {word: word for word in cut}
    groups: dict[str, dict[str, float]] = {}
    policies: list[str] = []
    for at, (policy, value) in enumerate(zip(rows.column("policy"), values)):
        words = [words[at] if name == "machine" else f"{name.replace('_', ' ')} {words[at]}" for name, words in told.items()]
        label = "\n".join(filter(None, [cut[workloads[at]], *words]))
        if policy in groups.setdefault(label, {}):
            raise ValueError(f"two rows of {policy} differ in none of {', '.join(TOLD)}: plot some of them")
        groups[label][policy] = float("nan") if value is None else value
        if policy not in policies:
            policies.append(policy)
    ax = ax or pyplot.subplots(figsize=(max(4, 0.5 + 0.35 * len(groups) * (len(policies) + 1)), 3.2), layout="constrained")[1]
    width = 0.8 / len(policies)
    for place, policy in enumerate(policies):
        heights = [bars.get(policy, float("nan")) for bars in groups.values()]
        at = [i + (place - (len(policies) - 1) / 2) * width for i in range(len(groups))]
        ax.bar(at, heights, width, label=policy)
    ax.set_xticks(range(len(groups)), groups, fontsize="small")
    ax.set_ylabel(("≈ " if any(rows.estimates(key)) else "") + key.replace("_", " "))
    if key == "speedup":
        ax.axhline(1, color="0.5", linewidth=0.8, zorder=0)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize="small")
    return ax
