"""Renders chat templates in Jinja, set up as in transformers, with bounds on what a template creates.

A template comes with a model from the internet. It may write text about messages; an operation that would grow beyond
any prompt is refused before it runs. Knows Jinja; knows no messages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from types import GeneratorType
from typing import Any

from jinja2 import Template, nodes, pass_context, pass_eval_context
from jinja2.ext import loopcontrols
from jinja2.filters import make_attrgetter
from jinja2.nodes import EvalContext
from jinja2.runtime import Context, Macro, markup_join, str_join
from jinja2.sandbox import (
    ImmutableSandboxedEnvironment,
    SandboxedEnvironment,
    SandboxedEscapeFormatter,
    SandboxedFormatter,
)
from markupsafe import Markup

from runtime.conversation import template_growth as growth
from runtime.conversation.template_bounds import CONTAINERS, TEXTS, THING, Meter, checked_number, size, weight
from runtime.conversation.template_growth import FILTERS, METHODS
from runtime.conversation.template_syntax import Generation, Hooks

CHANGES = frozenset("append extend insert pop remove reverse clear popitem setdefault update".split())
COMPARES = frozenset(("index", "count", "remove"))
COPIES = frozenset(("extend", "update", "copy"))
PASSED = "jinja_pass_arg"  # the attribute by which Jinja marks a function that takes one of Jinja's own arguments first


class BoundedFormatter(SandboxedFormatter):
    """Replacement for a text's own `format`, with bounds on each field."""

    _env: Sandbox

    def format_field(self, value: Any, format_spec: str) -> Any:
        """Format one field."""
        self._env.meter.spend(growth.spec_width(format_spec) + 6 * weight(value))
        return super().format_field(value, format_spec)

    def convert_field(self, value: Any, conversion: Any) -> Any:
        """Convert one field as Python would for `!r` or `!a`."""
        self._env.meter.spend(10 * weight(value) if conversion else 0)
        return super().convert_field(value, conversion)


class BoundedEscapeFormatter(BoundedFormatter, SandboxedEscapeFormatter):
    """The same formatter for HTML."""


class Sandbox(ImmutableSandboxedEnvironment):
    """An environment for one rendering. Pass copies of lists, as a template may change them."""

    intercepted_binops = frozenset(SandboxedEnvironment.default_binop_table)
    intercepted_unops = frozenset(SandboxedEnvironment.default_unop_table)

    def __init__(self, now: datetime | None = None, **functions: Callable[..., Any]) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
        self.meter, self.now = Meter(), now or datetime.now()
        self.finalize, self.concat = self.weighed, self.joined  # type: ignore[method-assign]
        del self.globals["lipsum"]
        self.globals |= {"strftime_now": self.strftime_now, **functions}
        self.filters |= {"tojson": tojson, "sum": added}  # Jinja's tojson is for HTML
        self.filters = {name: self.bounded(name, work) for name, work in self.filters.items()}
        tests: dict[str, Any] = {**self.tests}
        self.tests = {name: self.bounded("", work) for name, work in tests.items()}
        hooks = (self.concatenated, self.cut, self.made, self.weighed)
        self.filters |= {hook.__name__: hook for hook in hooks}

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = Hooks().visit(super()._parse(source, name, filename))
        return tree

    def loaded(self, code: Any) -> Template:
        """Return the template from code that another sandbox compiled."""
        return self.template_class.from_code(self, code, self.make_globals(None))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Whether the attribute is safe: lists and dicts may be changed, but not sorted by a function from the
        template.
        """
        return super().is_safe_attribute(obj, attr, value) or (attr in CHANGES and isinstance(obj, list | dict))

    def bounded(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """Return a filter, or a test if `name` is empty, that refuses calls with too large a result."""
        estimate, skip = FILTERS.get(name, growth.written) if name else growth.taken, hasattr(work, PASSED)
        bounded = partial(self.careful, work, estimate, skip)
        if skip:
            setattr(bounded, PASSED, getattr(work, PASSED))
        return bounded

    def careful(
        self, work: Callable[..., Any], estimate: Callable[..., int], skip: int, /, *args: Any, **kwargs: Any
    ) -> Any:
        """Call a filter or a test if its estimated result fits; `skip` is 1 if Jinja passes its own argument first."""
        value = args[skip]
        if estimate not in LAZY and hasattr(value, "__next__"):
            value = self.gathered(value)
            args = (*args[:skip], value, *args[skip + 1 :])
        self.meter.afford(estimate(*args[skip:], **kwargs))
        made = work(*args, **kwargs)
        return self.counted(made, made is value or estimate is growth.taken)

    def gathered(self, things: Iterable[Any]) -> list[Any]:
        """Return the elements as a list, counted one by one."""
        found = []
        for thing in things:
            self.meter.spend(THING + (size(thing) if isinstance(thing, list) else 0))
            found.append(thing)
        return found

    def counted(self, made: Any, was_there: bool = False) -> Any:
        """Return a result after counting it; a generator is read to its end, as chains of generators have no bound."""
        if isinstance(made, GeneratorType):
            return iter(self.gathered(made))
        if isinstance(made, int):
            checked_number(made.bit_length())
        if isinstance(made, str) and not was_there:
            self.meter.spend_text(made)
        elif not was_there:
            self.meter.spend(size(made))
        return made

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Apply a binary operator if its estimated result fits."""
        if operator == "%" and isinstance(left, TEXTS):
            self.meter.afford(growth.percent(left, right))
        else:
            self.meter.afford(OPERATORS.get(operator, growth.both)(left, right))
        return self.counted(super().call_binop(context, operator, left, right))

    def call_unop(self, context: Context, operator: str, arg: Any) -> Any:
        """Apply a unary operator, and count the new number."""
        return self.counted(super().call_unop(context, operator, arg))

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Return an item, after weighing the key: a tuple as a key is compared."""
        return super().getitem(obj, self.weighed(argument))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Return the replacement for a text's own `format`, or None for anything else."""
        if super().wrap_str_format(value) is None:
            return None
        text, is_map = value.__self__, value.__name__ == "format_map"
        is_html = isinstance(text, Markup)
        formatter = BoundedEscapeFormatter(self, escape=text.escape) if is_html else BoundedFormatter(self)

        def format(*args: Any, **kwargs: Any) -> Any:
            return type(text)(formatter.vformat(text, () if is_map else args, args[0] if is_map else kwargs))

        return format

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call an object: methods are bounded as filters are, macros by their own operations."""
        owner, name = getattr(obj, "__self__", None), getattr(obj, "__name__", "")
        named = {key: value for key, value in kwargs.items() if key not in ("_loop_vars", "_block_vars")}
        self.meter.spend(THING * (1 + len(args) + len(named)))
        if isinstance(owner, (*TEXTS, int)):
            args = tuple(self.gathered(value) if hasattr(value, "__next__") else value for value in args)
            html = 6 if isinstance(owner, Markup) else 1
            self.meter.afford(html * METHODS.get(name, growth.usual)(owner, *args, **named))
        elif not isinstance(obj, Macro):
            self.check_arguments(owner, name, [*args, *named.values()])
        made = super().call(context, obj, *args, **kwargs)
        if isinstance(owner, TEXTS) and isinstance(made, list | tuple):
            self.meter.spend(len(owner))
        return self.counted(made, made is owner or isinstance(obj, Macro) or isinstance(owner, list | dict))

    def check_arguments(self, owner: object, name: str, given: list[Any]) -> None:
        """Weigh values that are compared or written, and count the elements that a list or a dict gains."""
        self.meter.afford(sum(map(weight, given)) + (weight(owner) if name in COMPARES else 0))
        if isinstance(owner, list | dict) and name in COPIES:
            self.meter.spend(sum(THING * len(value) for value in [owner, *given] if hasattr(value, "__len__")))

    def weighed(self, value: Any) -> Any:
        """Return a value to be written or compared, after weighing it with all its elements."""
        if isinstance(value, CONTAINERS):
            self.meter.afford(weight(value))
        return value

    def joined(self, parts: Iterable[str]) -> str:
        """Return the text of a macro or a block."""
        parts = list(parts)
        self.meter.spend(sum(map(len, parts)))
        return "".join(parts)

    @pass_eval_context
    def concatenated(self, context: EvalContext, parts: list[Any]) -> str:
        """Return `a ~ b`."""
        self.meter.afford(sum(map(weight, parts)) * (6 if context.autoescape else 1))
        return self.meter.spend_text(markup_join(parts) if context.autoescape else str_join(parts))

    def cut(self, value: Any, start: Any, stop: Any, step: Any) -> Any:
        """Return `value[start:stop:step]`."""
        return self.counted(value[start:stop:step])

    @pass_context  # keeps Jinja from folding it into a constant
    def made(self, context: Context, value: Any) -> Any:
        """Return a list or a dict literal of the template."""
        return self.counted(value)

    def strftime_now(self, form: str) -> str:
        """Return the current time in the template's format."""
        self.meter.afford(growth.date(form))
        return self.now.strftime(form)


LAZY = (growth.taken, growth.listed)
OPERATORS = {"*": growth.product, "**": growth.power}


def tojson(
    x: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Return a value as JSON, with the parameters and the key order of transformers."""
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@pass_context
def added(context: Context, iterable: Iterable[Any], attribute: Any = None, start: Any = 0) -> Any:
    """Return the sum, with each step bounded as the template's own operators are."""
    environment = context.environment
    assert isinstance(environment, Sandbox)
    for value in iterable if attribute is None else map(make_attrgetter(environment, attribute), iterable):
        start = environment.call_binop(context, "+", start, value)
    return start
