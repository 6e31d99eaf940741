"""Compiles grammars in processes of their own before they are used, where that may take exponential time:
`python -m runtime.sampling.grammar_trial PIPE`.

llguidance intersects regular expressions, such as the patterns of an `allOf`; each may double the time, and none of its
limits counts that. Knows no tokens.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from runtime.core.children import inherited
from runtime.core.watched import LimitError, WatchedProcesses, WorkLimits, never, serve

LIMITS = WorkLimits(seconds=5.0, memory=2**31)
UNTRIED = 8  # regular expressions that are compiled in milliseconds, however they are combined
SIGNS = '"pattern"', '"format"'
PROCESSES = WatchedProcesses("runtime.sampling.grammar_trial")


def excess(text: str, source: str, is_unwanted: Callable[[], bool] = never) -> str:
    """Return as a clause what compiling a grammar takes too much of, "" if nothing; `source` is it in llguidance's
    notation. Only those that may take long are tried, and only while they are wanted.
    """
    if sum(map(text.count, SIGNS)) <= UNTRIED:
        return ""
    try:
        PROCESSES.ask(source, LIMITS, is_unwanted)
    except LimitError as error:
        return str(error)
    return ""


def compiled(source: str) -> None:
    """Compile a grammar. Its errors are found again where it is used."""
    from llguidance import LLMatcher

    LLMatcher.validate_grammar(source)


if __name__ == "__main__":
    serve(inherited(sys.argv[1]), compiled, LIMITS.memory)
