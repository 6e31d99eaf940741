"""Builds the rule of a text that stands between literals without quotation marks. Knows text alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from runtime.conversation.calls.rules import ANY, Rules, ending_in, not_beginning, quoted, without

CDATA, CDATA_END = "<![CDATA[", "]]>"  # around text that contains marks, as in XML
NO_CDATA_END = r"/([^\]]|\][^\]]|\]\]+[^\]>])*\]*/"
ANY_TEXT = rf"/{ANY}/"
# A list or an object may contain the mark in a text, so another text that begins like one has no quotation mark
NO_JSON = rf'/\s*([^\s\[{{]{ANY})?|[^"]*/'


def lead_of(after: str) -> str:
    """Return the whitespace that a literal begins with."""
    return after[: len(after) - len(after.lstrip())]


@lru_cache(maxsize=256)
def core(mark: str, longest: int = 40) -> str:
    """Return the part of a mark that a text before it must not contain: the longest one that begins with a character
    that it has once, occurs once in the mark, cannot lie across its beginning, and is no longer than `longest`
    characters, because an expression without it nests as deeply; the mark if there is none.
    """
    parts = (mark[at : at + n] for n in range(min(len(mark), longest), 1, -1) for at in range(len(mark) - n + 1))
    return next((part for part in parts if is_core(part, mark)), mark)


def is_core(part: str, mark: str) -> bool:
    """Whether a part of a mark can be excluded in its place."""
    lies_across = any(mark.startswith(part[n:]) for n in range(1, len(part)))
    return len(part) > 1 and part[0] not in part[1:] and mark.count(part) == 1 and not lies_across


def text_rule(rules: Rules, after: str, expression: str, also: Sequence[str] = ()) -> str:
    """Return the rule for a text up to the literal that ends it. The text is one of the expression, or any if that is
    empty, and of those of `also`; if it contains the literal, it is written as CDATA.

    A mark may be a token of its own, or be spelled by tokens that contain some of the text before it.
    """
    mark, space = after.strip(), after[len(after.rstrip()) :]
    text = " & ".join(filter(None, (expression, not_beginning(CDATA), without(core(mark)), *also)))
    lead = f" {quoted(lead_of(after))}" if expression and lead_of(after) else ""  # any text may end with it or not
    data = " & ".join(filter(None, (expression, NO_CDATA_END)))
    free = f"({text}){lead}", f"{quoted(CDATA)} ({data}) {quoted(CDATA_END)}"
    end = rules.sequence(mark)
    ended = [f"{body} {quoted(mark)}" for body in free]
    if core(mark) == mark and mark[:1] in mark[1:]:  # two of it may overlap
        ended[0] = f"({ended[0]}) & {ending_in(mark)}"
    each = [
        f"{rules.named('TEXT', body)} {end} | {rules.named('TEXT', whole)}"
        for body, whole in zip(free, ended, strict=True)
    ]
    return f"({' | '.join(each)}) {rules.sequence(space)}"
