"""Where chat templates are rendered: Jinja's own sandbox, with bounds on time, on text and on numbers.

A template comes with a model from the net. What it may do is write text about messages; what would take long or grow
beyond any prompt is refused before it is done. Knows Jinja; knows no messages.
"""

from __future__ import annotations

import ctypes
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import loopcontrols
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

LARGEST = 1e9  # number that a template may multiply
WIDEST = 10_000  # number that may be handed to a filter or a method, such as a width
LONGEST = 2**25  # characters, or things in a list, that anything may grow to
SECONDS = 3.0
SPEC = re.compile(r"\d{5}|\*|\{[^{}]*\{")  # in a format: a great width, or one that is an argument


class TemplateTooSlowError(Exception):
    """A template did not come to an end."""


class Concatenations(NodeTransformer):
    """`a ~ b` as a filter, so that it can be bounded as the others are."""

    def visit_Concat(self, node: nodes.Concat, *args: Any, **kwargs: Any) -> nodes.Node:  # noqa: N802 (Jinja's name)
        """All of its parts in a list."""
        parts = nodes.List([self.visit(part) for part in node.nodes], lineno=node.lineno)
        return nodes.Filter(parts, "concatenated", [], [], None, None, lineno=node.lineno)


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, without what a hostile template could keep the machine busy with."""

    intercepted_binops = frozenset({"**", "*", "+", "%"})

    def __init__(self, **settings: Any) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols], **settings)
        del self.globals["lipsum"]
        self.filters["concatenated"] = lambda parts: "".join(map(str, parts))
        self.filters = {name: bounded(name, work) for name, work in self.filters.items()}

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = Concatenations().visit(super()._parse(source, name, filename))
        return tree

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Powers are refused, products that are not of small numbers, and what would become too long."""
        if operator == "+":
            require(size(left) + size(right) <= LONGEST, "'+' makes too much of it")
        elif operator == "%" and isinstance(left, str):
            require(not SPEC.search(left), "the format is too wide")
        elif operator != "%":
            require(operator == "*" and is_small(left) and is_small(right), f"'{operator}' may not be used with these")
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """What stands in for a text's own `format`; None for anything else."""
        wrapped = super().wrap_str_format(value)
        require(wrapped is None or not SPEC.search(value.__self__), "the format is too wide")
        return wrapped

    def call(self, context: Context, obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Methods of texts are bounded as filters are."""
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str):
            check_arguments(obj.__name__, (owner, *args), kwargs)
        return super().call(context, obj, *args, **kwargs)


def require(holds: bool, otherwise: str) -> None:
    """Raises SecurityError."""
    if not holds:
        raise SecurityError(otherwise)


def size(value: object) -> int:
    """How long it is; 0 for what has no length."""
    return len(value) if isinstance(value, str | list | tuple) else 0


def is_small(value: object) -> bool:
    """Is it a number that may be multiplied?"""
    return isinstance(value, int | float) and abs(value) < LARGEST


def bounded(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that refuses what would become too much."""

    @wraps(work)
    def careful(*args: Any, **kwargs: Any) -> Any:
        check_arguments(name, args, kwargs)
        return work(*args, **kwargs)

    return careful


def check_arguments(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises SecurityError where what a filter or a method makes of these could be too wide or too long."""
    given = [*args, *kwargs.values()]
    numbers = [value for value in given if isinstance(value, int)]
    texts = [value for value in given if isinstance(value, str)]
    require(all(abs(number) <= WIDEST for number in numbers) or name in HARMLESS, f"'{name}' got a great number")
    if name in ("format", "format_map"):
        require(not any(map(SPEC.search, texts)), "the format is too wide")
    require(growth(name, given, numbers, texts) <= LONGEST, f"'{name}' makes too much of it")


HARMLESS = ("int", "float", "abs", "round", "string", "default", "d", "filesizeformat", "min", "max", "sum")


def growth(name: str, given: list[Any], numbers: list[int], texts: list[str]) -> int:
    """How long at most what these become is, where it may be longer than all of them."""
    if name == "replace" and len(texts) >= 3:
        return (1 + texts[0].count(texts[1])) * len(texts[2]) + len(texts[0])
    if name in ("join", "concatenated"):
        parts = next((value for value in given if isinstance(value, list | tuple)), ())
        return sum(size(part) for part in parts) + len(parts) * max(map(len, texts), default=0)
    if name == "indent":
        width = max([*map(abs, numbers), *(len(text) for text in texts[1:]), 4])
        return len(texts[0]) + (1 + texts[0].count("\n")) * width if texts else 0
    if name == "expandtabs" and texts:
        return len(texts[0]) + texts[0].count("\t") * max([*map(abs, numbers), 8])
    return max(map(len, texts), default=0)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises TemplateTooSlowError in the block when it takes longer, whatever Python it runs."""
    thread, lock, is_over, has_fired = threading.get_ident(), threading.Lock(), False, False

    def fire() -> None:
        nonlocal has_fired
        with lock:
            if not is_over:
                has_fired = True
                error = ctypes.py_object(TemplateTooSlowError)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), error)

    timer = threading.Timer(seconds, fire)
    timer.daemon = True
    timer.start()
    try:
        yield
        with lock:
            is_over = True
        if has_fired:  # it may be on its way yet
            time.sleep(0.01)
    finally:
        is_over = True
        timer.cancel()
