"""Estimates how long the result of an operator, a method or a filter can become, in characters.

Each has the parameters of its function. It may be too high, never far too low. Knows Python's and Jinja's functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

from jinja2.exceptions import SecurityError

from runtime.conversation.template_bounds import CONTAINERS, TEXTS, THING, VIEWS, checked_number, depth, size, weight

LISTED = 2**20  # characters of a list passed to a filter for texts, at most
DIGITS = 400  # characters of the longest float, and of the fixed part of a format directive
LINE_ENDS = ("\n", "\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")
PERCENT = re.compile(r"%(?:%|(?:\((?:[^()]|\([^()]*\))*\))?[#0\- +]*(\*|\d*)(?:\.(\*|\d*))?[hlL]?(.))", re.DOTALL)
SPEC = re.compile(r"(?:.?[<>=^])?[-+ ]?z?#?0?(\d*)[_,]?(?:\.(\d+))?", re.DOTALL)
DIRECTIVE = re.compile(r"%[-_0^#+]*(\d*)")
Text = str | bytes
REPEATED = (*TEXTS, list, tuple)
HASHED = set, *VIEWS


def product(left: Any, right: Any) -> int:
    """Return the length of `left * right`. Raises SecurityError for a number that is too long."""
    if isinstance(left, int) and isinstance(right, int):
        checked_number(left.bit_length() + right.bit_length())
    left, right = (right, left) if isinstance(left, int) else (left, right)
    is_repeated = isinstance(left, REPEATED) and isinstance(right, int)
    return len(left) * max(right, 0) * (1 if isinstance(left, TEXTS) else THING) if is_repeated else 0


def power(left: Any, right: Any) -> int:
    """Return 0. Raises SecurityError for a number that is too long."""
    if isinstance(left, int) and isinstance(right, int) and right > 0 and abs(left) > 1:
        checked_number(left.bit_length() * right)
    return 0


def both(left: Any, right: Any) -> int:
    """Return at most the length of a sum or a difference; the elements of a set count too, as they are compared."""
    return weight(left) + weight(right) if isinstance(left, HASHED) else size(left) + size(right)


def percent(text: Any, args: object) -> int:
    """Return at most the length of `text % args`."""
    form = text.decode("latin-1") if isinstance(text, bytes) else text
    given = args if isinstance(args, tuple) else (args,)
    star = max((abs(value) for value in given if isinstance(value, int)), default=0)
    longest = DIGITS + max(map(weight, given), default=0)
    total = len(form)
    for width, precision, kind in PERCENT.findall(form):
        total += sum(star if number == "*" else int(number or 0) for number in (width, precision))
        total += longest * (10 if kind in "ra" or hasattr(text, "__html__") else 1) if kind else 0
    return total


def spec_width(spec: str) -> int:
    """Return the number of characters that a format specification requests."""
    found = SPEC.match(spec)
    return sum(int(number or 0) for number in found.groups()) if found else 0


def date(form: str) -> int:
    """Return at most the length of a date in this format."""
    return len(form) + sum(DIGITS + int(width or 0) for width in DIRECTIVE.findall(form))


def padded(text: Text, width: int = 80, *_: object) -> int:
    """Estimate `ljust` and similar methods."""
    return max(len(text), width)


def expanded(text: Text, tabsize: int = 8) -> int:
    """Estimate `expandtabs`."""
    return len(text) * max(tabsize, 1)


def joined(separator: Text, values: Iterable[object]) -> int:
    """Estimate `join` as a method."""
    return sum(weight(value) + len(separator) for value in values)


def replaced(text: Any, old: Any, new: Text, count: int | None = -1) -> int:
    """Estimate `replace`."""
    found: int = text.count(old)
    return len(text) + (found if count is None or count < 0 else min(count, found)) * len(new)


def translated(text: Text, table: Any) -> int:
    """Estimate `translate`."""
    values: Iterable[object] = table.values() if isinstance(table, dict) else table
    return len(text) * max(map(size, values), default=1)


def encoded(text: Text, *args: object, **named: object) -> int:
    """Estimate `encode`; characters outside the encoding may be written by name."""
    return len(text) * (10 if len(args) < 2 and "errors" not in named else 100)


def split(text: Any, sep: Any = None, maxsplit: int = -1) -> int:
    """Estimate `split` and `rsplit`."""
    found = len(text) // 2 if sep is None else text.count(sep)
    return searched(text, sep or "") + THING * (1 + (found if maxsplit < 0 else min(maxsplit, found)))


def searched(text: Text, sub: Any = "", *_: object) -> int:
    """Estimate a search of one text in another: an eighth of the number of comparisons, as they are fast."""
    return len(text) * max(len(sub) if isinstance(sub, TEXTS) else 1, 8) // 8


def usual(text: Text, *_: object, **__: object) -> int:
    """Estimate methods that return a text of at most the same length; some letters become three."""
    return 3 * size(text)


def bytes_of(number: object, length: int = 1, *_: object, **__: object) -> int:
    """Estimate `to_bytes`."""
    return length


METHODS: Mapping[str, Callable[..., int]] = {
    **dict.fromkeys(("ljust", "rjust", "center", "zfill"), padded),
    **dict.fromkeys(("strip", "lstrip", "rstrip", "rfind", "rindex", "rpartition"), searched),
    **dict.fromkeys(("split", "rsplit"), split),
    "splitlines": lambda text, keepends=False: THING * len(text),
    "expandtabs": expanded,
    "join": joined,
    "replace": replaced,
    "translate": translated,
    "encode": encoded,
    "to_bytes": bytes_of,
}


def indented(value: object, width: int | str = 4, *_: object, **__: object) -> int:
    """Estimate the filter `indent`."""
    text = value if isinstance(value, str) else "\n" * weight(value)
    lines = 2 + sum(map(text.count, LINE_ENDS))
    return len(text) + lines * (THING + (len(width) if isinstance(width, str) else max(width, 0)))


def joined_list(value: Any, d: str = "", attribute: object = None) -> int:
    """Estimate the filter `join`; in HTML a character may become five."""
    things = len(value) if hasattr(value, "__len__") else 0
    return 6 * (weight(value) + things * size(d))


def replaced_in(value: Any, old: Any, new: Any, count: Any = None) -> int:
    """Estimate the filter `replace`."""
    return 6 * replaced(text_of(value), text_of(old), text_of(new), count)


def text_of(value: object) -> str:
    """Return a value as text. Raises SecurityError for a list whose text would be too long."""
    if isinstance(value, CONTAINERS) and weight(value) > LISTED:
        raise SecurityError("it uses a long list as text")
    return value if isinstance(value, str) else str(value)


def batched(value: object, linecount: int, fill_with: object = None) -> int:
    """Estimate `batch`."""
    return size(value) * THING + (0 if fill_with is None else THING * linecount)


def sliced(value: object, slices: int, fill_with: object = None) -> int:
    """Estimate `slice`."""
    return size(value) * THING + THING * slices


def rounded(value: object, precision: int = 0, *_: object, **__: object) -> int:
    """Estimate `round`. Raises SecurityError for too many places."""
    checked_number(4 * abs(precision))
    return 0


def truncated(
    value: object, length: int = 255, killwords: bool = False, end: str = "...", *_: object, **__: object
) -> int:
    """Estimate `truncate`."""
    return weight(value) + size(end)


def wrapped(
    value: object, width: int = 79, break_long_words: bool = True, wrapstring: Any = None, *_: object, **__: object
) -> int:
    """Estimate `wordwrap`."""
    return weight(value) * (THING + size(wrapstring or ""))


def dumped(
    value: object, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> int:
    """Estimate `tojson`: one line for each element, and twelve characters for each escaped one."""
    total = weight(value)
    step = len(indent) if isinstance(indent, str) else max(indent or 0, 0)
    line = step * (depth(value) + 1 if step else 0) + sum(map(size, separators or ()))
    return (12 if ensure_ascii else 6) * total + (1 + total // THING) * line


def in_pieces(value: object, *args: object, **named: object) -> int:
    """Estimate filters that split a text."""
    return THING * (1 + weight(value)) + sum(map(weight, chain(args, named.values()))) * (1 + weight(value))


def written(*args: object, **named: object) -> int:
    """Estimate any other filter: all its arguments, escaped or copied for comparison."""
    return 6 * sum(map(weight, chain(args, named.values())))


def pretty(value: object, *_: object) -> int:
    """Estimate `pprint`, where each line may be indented by all keys around it."""
    return weight(value) ** 2 // 4


def taken(value: object, *args: object, **named: object) -> int:
    """Estimate filters that read a list but not its elements."""
    return sum(map(weight, chain(args, named.values())))


def listed(value: object) -> int:
    """Estimate `list`."""
    return THING * size(value) if isinstance(value, TEXTS) else size(value)


SHALLOW = (
    "length", "count", "first", "last", "default", "d", "map", "select", "reject", "selectattr", "rejectattr", "random",
    "reverse", "attr", "items", "abs", "int", "float", "sum",
)  # fmt: skip
FILTERS: Mapping[str, Callable[..., int]] = {
    **dict.fromkeys(SHALLOW, taken),
    **dict.fromkeys(("title", "wordcount", "urlencode", "urlize", "striptags", "xmlattr"), in_pieces),
    "list": listed,
    "center": lambda value, width=80: max(weight(value), width),
    "indent": indented,
    "join": joined_list,
    "replace": replaced_in,
    "format": lambda value, *args, **named: percent(text_of(value), named or args),
    "batch": batched,
    "slice": sliced,
    "round": rounded,
    "truncate": truncated,
    "wordwrap": wrapped,
    "tojson": dumped,
    "pprint": pretty,
}
