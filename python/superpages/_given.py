"""What users give: each argument as its kind, or one sentence that says which it is, what was expected, and what it was."""

from __future__ import annotations

import difflib
import errno
import operator
import os
import reprlib


def wrong(name, expected, value, kind: type[Exception] = TypeError) -> Exception:
    """The error for an argument."""
    return kind(f"{name}: expected {expected}, not {reprlib.repr(value)} ({type(value).__name__})")


def whole(name, value, most=2**64 - 1, least=0) -> int:
    expected = f"a whole number from {least} to {most}"
    try:
        number = operator.index(value)
    except TypeError:
        raise wrong(name, expected, value) from None
    if not least <= number <= most:
        raise wrong(name, expected, value, ValueError)
    return number


def truth(name, value) -> bool:
    # Also numpy's.
    if isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", "") == "b":
        return bool(value)
    raise wrong(name, "True or False", value)


def text(name, value, expected="text") -> str:
    if isinstance(value, str):
        return value
    raise wrong(name, expected, value)


def path(name, value, expected="a path") -> str:
    try:
        found = os.fspath(value)
    except TypeError:
        found = None
    if isinstance(found, str):
        return found
    raise wrong(name, expected, value)


def texts(name, value, expected) -> list[str]:
    """A list of texts or paths, or one."""
    return [path(name, each, expected) for each in listed(value)]


def size(name, value) -> str:
    """A number of bytes as the command's flags take it."""
    if isinstance(value, str):
        return value
    try:
        return str(operator.index(value))
    except TypeError:
        raise wrong(name, 'bytes, as "512M" or a whole number', value) from None


def share(name, value) -> str:
    """A number, or text that says more, as the command's flag takes it."""
    if isinstance(value, str):
        return value
    try:
        return str(float(value))
    except (TypeError, ValueError):
        raise wrong(name, 'a number from 0 to 1, or text as "2M:0.5"', value) from None


def public(kind, without=(object,)) -> dict:
    """The public names of a class and of those that it is made from, without these, and what they stand for."""
    own = {name: item for each in reversed(kind.__mro__) if each not in without for name, item in vars(each).items()}
    return {name: item for name, item in own.items() if not name.startswith("_")}


def refuse_near(what, names, known):
    """Refuses a name that nobody looks for and that nearly is one that is looked for, and is not there."""
    for name in sorted(set(names) - set(known)):
        near = difflib.get_close_matches(name.lower(), [each for each in known if each not in names], 1, 0.75)
        if near:
            raise TypeError(f"{what}: superpages looks for {near[0]}, not for {name}: was that meant?")


def there(named):
    """The name of a machine, a policy or an experiment, after a look at the files that its parts name."""
    for part in named.split("+"):
        file = part.partition(":")[0]
        if file.endswith(".toml") and not os.path.exists(file):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), file)
    return named


def progress(value):
    if value is None or isinstance(value, bool) or callable(value):
        return value
    raise wrong("progress", "True, False, None or a function f(done, of)", value)


def listed(value) -> list:
    return list(value) if isinstance(value, (list, tuple, set, frozenset)) else [value]


def optional(check, name, value, *more):
    """The same of an argument that may be left out."""
    return None if value is None else check(name, value, *more)
