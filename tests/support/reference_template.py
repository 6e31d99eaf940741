"""Jinja as transformers sets it up for chat templates, without bounds: what a template's text is compared with."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Kept(Extension):
    """The tag around an assistant's words, whose places transformers notes and whose text it leaves alone."""

    tags = {"generation"}  # noqa: RUF012 (Jinja's declaration)

    def parse(self, parser: Parser) -> nodes.Node:
        """Return the block as a call of `same`."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("same"), [], [], body).set_lineno(line)

    def same(self, caller: Any) -> Any:
        """Return the block's text."""
        return caller()


def refuse(message: str) -> NoReturn:
    """What a template calls for messages that it cannot write."""
    raise TemplateError(message)


def dump(
    x: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Return JSON, with transformers' parameters in its order."""
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def reference_text(source: str, variables: dict[str, Any]) -> str:
    """Return what transformers renders."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Kept, loopcontrols])
    environment.filters["tojson"] = dump
    environment.globals |= {"raise_exception": refuse, "strftime_now": lambda form: datetime.now().strftime(form)}
    return environment.from_string(source).render(variables)
