"""Renders chat templates in Jinja, set up as in transformers: `python -m runtime.conversation.template_sandbox PIPE`.

A template comes with a model from the internet. Jinja's immutable sandbox lets it write text about messages; how long
it takes and how much memory is watched from outside (`chat_template.py`). Knows Jinja; knows no messages.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from runtime.conversation.chat_template import MEMORY, Outcome, Rendering, RenderRequest
from runtime.core.children import inherited
from runtime.core.watched import serve

MAX_REASON = 1000  # characters of a template's error message, at most
CHANGES = frozenset("append extend insert pop remove reverse clear popitem setdefault update".split())


class RefusedError(Exception):
    """A template says what is wrong with the messages."""


class Generation(Extension):
    """The tag `{% generation %}` around a model's training text: a scope of its own, rendered as it is."""

    tags = {"generation"}  # noqa: RUF012 (Jinja's declaration)

    def parse(self, parser: Parser) -> nodes.Node:
        """Return the block as a call, as in transformers: variables set in it stay local."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("written"), [], [], body).set_lineno(line)

    def written(self, caller: Callable[[], str]) -> str:
        """Return the block's text."""
        return caller()


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment of all templates, which may change lists and dicts, as these are copies."""

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
        self.filters["tojson"] = tojson  # Jinja's own is for HTML
        self.globals["raise_exception"] = refuse
        del self.globals["lipsum"]

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Whether the attribute is safe: lists and dicts may be changed, but not sorted by a function from the
        template.
        """
        return super().is_safe_attribute(obj, attr, value) or (attr in CHANGES and isinstance(obj, list | dict))


def tojson(
    x: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Return a value as JSON, with the parameters and the key order of transformers; what `map` yields as a list."""
    x = list(x) if hasattr(x, "__next__") else x
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def refuse(text: object) -> NoReturn:
    """Say what is wrong with the messages."""
    raise RefusedError(str(text)[:MAX_REASON])


@lru_cache(maxsize=16)
def compiled(source: str) -> Template:
    """Return a template from its source."""
    return Sandbox().from_string(source)


def rendered(request: RenderRequest) -> Rendering:
    """Return what a template writes, or why it does not."""
    outcome = Outcome.UNREADABLE
    try:
        template, outcome = compiled(request.source), Outcome.FAILED
        return Rendering(Outcome.WRITTEN, "") if request.given is None else written(template, request)
    except RefusedError as error:
        return Rendering(Outcome.REFUSED, str(error))
    except MemoryError:
        return Rendering(Outcome.LIMITED, "it takes too much memory")
    except Exception as error:  # a template may raise nearly anything
        return Rendering(outcome, reason(error))


def written(template: Template, request: RenderRequest) -> Rendering:
    """Return what a template writes, if that is not too long."""
    now, pieces, left = datetime.fromisoformat(request.now), list[str](), request.longest
    for piece in template.generate({"strftime_now": now.strftime, **(request.given or {})}):
        pieces.append(piece)
        if (left := left - len(piece)) < 0:
            return Rendering(Outcome.LIMITED, "it writes too much text")
    return Rendering(Outcome.WRITTEN, "".join(pieces))


def reason(error: Exception) -> str:
    """Return what is wrong as a clause."""
    kind, text = type(error).__name__, " ".join(str(error)[:MAX_REASON].split())
    return text if text and isinstance(error, TemplateError) else f"{kind}: {text}" if text else kind


if __name__ == "__main__":
    serve(inherited(sys.argv[1]), rendered, MEMORY)
