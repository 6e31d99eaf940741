"""Checks schemas and grammars before they are used: what is too large or not supported. What may take exponential time
is compiled in processes of their own: `python -m runtime.sampling.checking PIPE`.

llguidance intersects regular expressions, such as the patterns of an `allOf`; each may double the time, and none of its
limits counts that. Knows no tokens.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from runtime.core.children import inherited
from runtime.core.errors import SettingsError
from runtime.core.watched import LimitError, WatchedProcesses, WorkLimits, never, serve
from runtime.sampling import schema as schemas
from runtime.sampling.bounds import endless, excess
from runtime.sampling.schema import Schema, contradiction

MAX_REPORTED = 8  # unsupported keywords that are reported, at most
LONGEST_REASON = 300  # characters of the library's explanation, at most
LIMITS = WorkLimits(seconds=5.0, memory=2**31)
PRIORITY = 10  # of the processes: replies go first
UNTRIED = 8  # regular expressions that are compiled in milliseconds, however they are combined
SIGNS = '"pattern"', '"format"', "&"  # of such expressions in schemas, and of what intersects them in Lark
PROCESSES = WatchedProcesses("runtime.sampling.checking")


def may_be_slow(text: str) -> bool:
    """Return whether a grammar or schema has more regular expressions than are combined quickly in any case."""
    return sum(map(text.count, SIGNS)) > UNTRIED


def too_slow(text: str, source: str, is_unwanted: Callable[[], bool] = never) -> str:
    """Return as a clause what compiling a grammar takes too much of, "" if nothing; `source` is it in llguidance's
    notation. Only those that may be slow are tried, and only while they are wanted.
    """
    if may_be_slow(text):
        try:
            PROCESSES.ask(("grammar", source), LIMITS, is_unwanted)
        except LimitError as error:
            return str(error)
    return ""


def supported(schema: Schema) -> tuple[Schema, tuple[str, ...]]:
    """Return the schema without unsupported keywords, and those. Each is left out only where it is not supported.

    Raises LimitError if that takes too long to find out.
    """
    text, keywords = _supported(json.dumps(schema))
    found: Schema = json.loads(text)
    return found, keywords


@lru_cache(maxsize=256)
def _supported(text: str) -> tuple[str, tuple[str, ...]]:
    found: tuple[str, tuple[str, ...]] = (
        PROCESSES.ask(("schema", text), LIMITS) if may_be_slow(text) else schemas.supported(text)
    )
    return found


def check_schema(schema: Any) -> None:
    """Raise SettingsError naming the keywords of a JSON schema that cannot be enforced, or its excessive size."""
    check_size(schema)
    if isinstance(schema, dict) and (limits := contradiction(schema)):
        raise SettingsError(f"The json_schema cannot be used: {limits}. Correct one of them and try again.")
    if isinstance(schema, dict) and (keywords := unsupported(schema)):
        raise SettingsError(
            f"The json_schema cannot be used: {named(keywords)} not supported in it as given. Leave that out of the "
            "schema and try again."
        )


def check_size(schema: Any) -> None:
    """Raise SettingsError for a JSON schema that would take too long to compile, or to follow."""
    if too_much := excess(schema):
        raise SettingsError(f"The json_schema {too_much}. Leave some out.")
    if isinstance(schema, dict) and (refs := endless(schema)):
        raise SettingsError(
            f"The json_schema refers to '{refs[0][:LONGEST_REASON]}' in a circle, so no value that ends can follow it. "
            "Give that a way to end."
        )


def unsupported(schema: Any) -> tuple[str, ...]:
    """Return the unsupported keywords, as far as they can be found. Raises SettingsError if that takes too long."""
    try:
        return supported(schema)[1][:MAX_REPORTED]
    except LimitError as error:
        raise SettingsError(f"The json_schema cannot be compiled: {error}. Simplify it and try again.") from error


def named(keywords: Sequence[str]) -> str:
    """Return keywords as part of a sentence, with its verb."""
    return " and ".join(f"'{keyword}'" for keyword in keywords) + (" are" if len(keywords) > 1 else " is")


def compiled(source: str) -> None:
    """Compile a grammar. Its errors are found again where it is used."""
    from llguidance import LLMatcher

    LLMatcher.validate_grammar(source)


def answer(request: tuple[str, str]) -> Any:
    """Do what is asked about a text."""
    kind, text = request
    return compiled(text) if kind == "grammar" else schemas.supported(text)


if __name__ == "__main__":
    if hasattr(os, "nice"):
        os.nice(PRIORITY)
    serve(inherited(sys.argv[1]), answer, LIMITS.memory)
