"""Arguments of calls, each refused by its name where it is not what it is to be."""

from __future__ import annotations

import math
import numbers
import operator
import os
from typing import Any, Iterable, Mapping

from ._terrace import RequestError


def is_flag(value: Any) -> bool:
    """Whether it is true or false, and not merely taken for one of them: `bool`, or that of numpy."""
    kind = type(value)
    return isinstance(value, bool) or (kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_"))


def flag(name: str, value: Any) -> bool:
    """True or false. A text such as "no" counts as true for Python, and is refused.

    >>> flag("whole", True)
    True
    >>> flag("whole", "no")
    Traceback (most recent call last):
        ...
    terrace.RequestError: whole: 'no' is neither True nor False
    """
    if not is_flag(value):
        raise RequestError(f"{name}: {value!r} is neither True nor False")
    return bool(value)


def whole(name: str, value: Any, least: int = 1, most: int = 2**32 - 1) -> int:
    """A whole number, as an option takes it; one that is too small is refused with the option's range later.

    >>> whole("scale", 4)
    4
    """
    try:
        number = None if is_flag(value) else operator.index(value)
    except TypeError:
        number = None
    if number is None or not 0 <= number <= most:
        raise RequestError(f"{name}: {value!r} is not a whole number from {least} on")
    return number


def between(name: str, value: Any, least: int, most: int) -> int:
    """A whole number between two others.

    >>> between("seeds", 3, 1, 100)
    3
    """
    number = whole(name, value, least)
    if not least <= number <= most:
        raise RequestError(f"{name}: {number} is not in {least}..={most}")
    return number


def number(value: Any) -> float:
    """A number, also one of numpy or :mod:`decimal`, or a text that is one; NaN for what is none."""
    if isinstance(value, str) or (not is_flag(value) and hasattr(value, "__float__") and not hasattr(value, "__len__")):
        try:
            return float(value)
        except (TypeError, ValueError):
            return math.nan
    return math.nan


def share(name: str, value: Any) -> float:
    """A share of 0 to 1.

    >>> share("slowdown", "3%"), share("slowdown", 0.5)
    (0.03, 0.5)
    """
    text = str(value).strip()
    percent = isinstance(value, str) and text.endswith("%")
    found = number(text[:-1]) / 100 if percent else number(value)
    if not 0 <= found <= 1:
        raise RequestError(f'{name}: "{text}" is not a share, such as 3% or 0.03 and at most 100%')
    return found


def fast_share(name: str, value: Any) -> float:
    """A share of memory that is fast, and more than none."""
    found = share(name, value)
    if found == 0:
        raise RequestError(f"{name}: some memory has to be fast, if only for page tables; 1% is little")
    return found


def fast_shares(value: Any) -> list[float]:
    """Several shares, or one.

    >>> fast_shares("25%"), fast_shares([0.25, "50%"])
    ([0.25], [0.25, 0.5])
    """
    found = [fast_share("fast", part) for part in several("fast", value)]
    for at, part in enumerate(found):
        if part in found[:at]:
            raise RequestError(f"fast: {part:.12g} is there twice; leave one of them out")
    return found


def prices(given: Any) -> list[tuple[str, float]]:
    """Prices of tiers by their names."""
    if given is None:
        return []
    # A mapping, or what is one but for its name, such as a series of pandas.
    if not hasattr(given, "items"):
        raise RequestError(f'price: {given!r} is no mapping; give one, such as {{"slow": 0.33}}')
    found = []
    for tier, price in given.items():
        amount = number(price)
        if not 0 <= amount < math.inf:
            raise RequestError(f'price: "{tier}={price}" is not TIER=PRICE, such as slow=0.33')
        found.append((str(tier), amount))
    return found


def fidelity(value: Any) -> str:
    """A text; which texts there are is said where it is read."""
    if not isinstance(value, str):
        raise RequestError(f"fidelity: {value!r} is not full, translation or pages")
    return value


def path(name: str, value: Any) -> str:
    """A name, or the path of a file."""
    found = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(found, str):
        raise RequestError(f"{name}: {value!r} is neither a text nor a path")
    return found


def optional_path(name: str, value: Any) -> str | None:
    """A name or a path, or none."""
    return None if value is None else path(name, value)


def several(name: str, value: Any) -> list[Any]:
    """What an iterable has, or the one value; nothing where there is none."""
    if value is None:
        return []
    if isinstance(value, (str, bytes, os.PathLike, numbers.Number)) or not isinstance(value, Iterable):
        return [value]
    if isinstance(value, Mapping):
        raise RequestError(f"{name}: {value!r} is a mapping; give a list")
    return list(value)


def empty(name: str) -> str:
    """What to say of a list without anything in it: a pattern of files that none has, for example."""
    return f"{name}: the list is empty; leave {name} out for those of the built-in study"


def names(name: str, value: Any) -> list[str]:
    """Names or paths: one, or several."""
    return [path(name, part) for part in several(name, value)]
