"""Dicts as TOML."""

from __future__ import annotations

import json
import os


def toml(value, path=()) -> str:
    """A dict as TOML: of each table its own keys first, then the tables in it."""
    if not path and not isinstance(value, dict):
        raise TypeError(f"expected a dict, not {type(value).__name__}")
    lines, tables = [], []
    for key, item in value.items():
        name = _text(str(key))
        if isinstance(item, dict):
            tables.append(f"[{'.'.join([*path, name])}]\n{toml(item, (*path, name))}")
        elif isinstance(item, (list, tuple)) and item and all(isinstance(each, dict) for each in item):
            for each in item:
                tables.append(f"[[{'.'.join([*path, name])}]]\n{toml(each, (*path, name))}")
        elif item is not None:
            lines.append(f"{name} = {_value(item, key)}\n")
    return "".join(lines + tables)


def _text(text: str) -> str:
    """A string of TOML: as JSON's, but that TOML knows no pairs of surrogates."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(item, key) -> str:
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, int):
        return int.__repr__(item)
    if isinstance(item, float):  # also numpy's, which print otherwise
        return float.__repr__(item)
    if isinstance(item, (str, os.PathLike)):
        return _text(os.fspath(item))
    if isinstance(item, (list, tuple, range)):
        return "[" + ", ".join(_value(each, key) for each in item) + "]"
    if isinstance(item, dict):
        return "{" + ", ".join(f"{_text(str(k))} = {_value(v, k)}" for k, v in item.items()) + "}"
    if hasattr(item, "tolist"):  # an array or a number of numpy's
        return _value(item.tolist(), key)
    raise TypeError(f"{key}: expected text, a number, a truth, a list or a dict, not {type(item).__name__}")
