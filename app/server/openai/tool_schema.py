"""The schema of a tool's arguments as far as a reply can be bound to it, and what its author is told of the rest."""

from __future__ import annotations

import json
import logging
from functools import lru_cache
from typing import Any

from runtime.engine import closed, excess, is_usable, unsupported

log = logging.getLogger(__name__)
ANY_OBJECT: dict[str, Any] = {"type": "object"}
# Unknown keywords are left to the model.
LENIENT = {"x-guidance": {"lenient": True, "whitespace_flexible": False}}


@lru_cache(maxsize=256)
def arguments_rule(tool: str, text: str) -> str:
    """What the grammar has for a tool's arguments, whose schema is `text`: what cannot be enforced of it is left out,
    and all of it where it is too large.

    The log names it, once.
    """
    schema = json.loads(text)
    if too_much := excess(schema):
        log.warning(f"Tool '{tool}': its schema {too_much}, so any arguments may come. Leave some out.")
        return json.dumps(ANY_OBJECT | LENIENT)
    if keywords := unsupported(schema):
        bound = is_usable(schema, lenient=True)
        log.warning(told(tool, keywords, bound))
        schema = schema if bound else ANY_OBJECT
    return json.dumps(closed(schema) | LENIENT)


def told(tool: str, keywords: tuple[str, ...], is_bound: bool) -> str:
    """The sentence about a tool's schema, which is bound to the rest of it or to nothing."""
    named = " and ".join(f"'{keyword}'" for keyword in keywords)
    result = "calls are held to the rest of the schema only" if is_bound else "any arguments may come"
    return f"Tool '{tool}': {named} cannot be enforced, so {result}. Leave that out of its parameters."
