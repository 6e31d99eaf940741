"""Expresses what a JSON schema says about a text as an expression of a terminal in Lark, for texts that stand between
literals without JSON's quotation marks.

Knows JSON schemas and text; knows no forms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from runtime.conversation.calls.rules import ANY, Rules, ending_in, not_beginning, quoted, without
from runtime.conversation.calls.schemas import DEEPEST, listed, parts_of, types_of
from runtime.sampling.bounds import PIECES
from runtime.sampling.schema import number, resolved

if TYPE_CHECKING:
    from llguidance import LLTokenizer

CDATA, CDATA_END = "<![CDATA[", "]]>"  # around text that contains marks, as in XML
NO_CDATA_END = r"/([^\]]|\][^\]]|\]\]+[^\]>])*\]*/"
ANY_TEXT = rf"/{ANY}/"
# A list or an object may contain the mark in a text, so another text that begins like one has no quotation mark
NO_JSON = rf'/\s*([^\s\[{{]{ANY})?|[^"]*/'
LENGTHS = "minLength", "maxLength"
ANYTHING = "(?s:.*)"
MOST_COMBINED = 6  # expressions that a text may have to follow at once: each may double the time of compiling them


class TextExpressions:
    """The texts that schemas of one function's arguments allow."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self.lost: dict[str, None] = {}  # keywords that could not be enforced

    def of(self, schema: Any, depth: int = DEEPEST) -> str:
        """Return the texts that a schema allows, or "" if it allows all."""
        if not isinstance(schema, dict) or not depth:
            return ""
        parts = list(own_parts(schema))
        if isinstance(schema.get("$ref"), str):
            parts.append(("$ref", self.of(resolved(schema["$ref"], self._root), depth - 1)))
        parts += [("allOf", self.of(part, depth - 1)) for part in parts_of(schema, "allOf")]
        for key in ("anyOf", "oneOf"):
            each = [self.of(part, depth - 1) for part in parts_of(schema, key) if self._has_text(part)]
            parts += [(key, joined(each, "|"))] if all(each) else []
        return self._combined(parts)

    def _has_text(self, schema: Any) -> bool:
        return "string" in types_of(schema, self._root)

    def _combined(self, parts: Iterable[tuple[str, str]]) -> str:
        """Return the texts that all parts allow, without those parts that leave none."""
        found = list[str]()
        for keyword, part in parts:
            if part and part not in found:
                whole = joined([*found, part], "&")
                if whole.count(" & ") < MOST_COMBINED and is_possible(whole):
                    found.append(part)
                else:
                    self.lost[keyword] = None
        return joined(found, "&")


def joined(parts: list[str], sign: str) -> str:
    """Return expressions as one."""
    return f"({f' {sign} '.join(parts)})" if len(parts) > 1 else "".join(parts)


def own_parts(schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (keyword, expression) of a schema's own keywords."""
    if texts := [value for value in listed(schema) or () if isinstance(value, str)]:
        yield "enum", f"({' | '.join(map(quoted, texts))})"
    if isinstance(schema.get("pattern"), str):
        yield "pattern", pattern_expression(schema["pattern"])
    if (form := FORMATS.get(str(schema.get("format")))) is not None:
        yield "format", f"/{regex_in_lark(form)}/"
    least, most = (int(schema[key]) if number(schema.get(key)) is not None else None for key in LENGTHS)
    if least or most is not None:
        yield LENGTHS[most is not None], f"/(?s:.{{{least or 0},{'' if most is None else most}}})/"


def pattern_expression(pattern: str) -> str:
    """Return the texts in which a pattern of a schema occurs. It may have anchors at the ends of its alternatives."""
    found = list[str]()
    for parts in alternatives(pattern):
        begins, ends = parts[:1] == ["^"], parts[-1:] == ["$"]
        body = "".join(parts[begins : len(parts) - ends])
        found.append(f"{'' if begins else ANYTHING}(?:{body}){'' if ends else ANYTHING}")
    return f"/{regex_in_lark('|'.join(found))}/"


def regex_in_lark(pattern: str) -> str:
    """Return a regular expression as Lark has it between slashes."""
    from llguidance import regex_to_lark

    return regex_to_lark(pattern, "dw").replace("\n", r"\n").replace("\r", r"\r")


def alternatives(pattern: str) -> list[list[str]]:
    """Return the parts of a regular expression between bars that are in no group and no class, in pieces."""
    found, depth = [list[str]()], 0
    for piece in PIECES.findall(pattern):
        depth += (piece == "(") - (piece == ")")
        if piece == "|" and not depth:
            found.append([])
        else:
            found[-1].append(piece)
    return found


@lru_cache(maxsize=1024)
def is_possible(expression: str) -> bool:
    """Whether an expression can be compiled, and allows any text."""
    from llguidance import LLMatcher

    grammar = LLMatcher.grammar_from_lark(f"start: T\nT: {expression}")
    matcher = LLMatcher(byte_tokenizer(), grammar, log_level=0)
    if not matcher.is_error():
        matcher.compute_bitmask()
    return not matcher.is_error()


@cache
def byte_tokenizer() -> LLTokenizer:
    """Return the vocabulary of all bytes."""
    from llguidance import LLTokenizer

    return LLTokenizer("byte")


def times() -> dict[str, str]:
    """Return the formats of dates, times and durations."""
    day = r"((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
    hour = "([01][0-9]|2[0-3]):[0-5][0-9]"
    date, time = f"[0-9]{{4}}-{day}", rf"{hour}:[0-5][0-9](\.[0-9]{{1,9}})?(Z|[+-]{hour})"
    clock = "T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)"
    duration = f"P(([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)({clock})?|{clock}|[0-9]+W)"
    return {"date": date, "time": time, "date-time": f"{date}T{time}", "duration": duration}


def addresses() -> dict[str, str]:
    """Return the formats of names and addresses in a network."""
    label, name, part = "[a-zA-Z0-9]{1,20}(-[a-zA-Z0-9]{1,20}){0,2}", "[a-zA-Z0-9_+-]{1,30}", "[0-9a-fA-F]{1,4}"
    host, byte = rf"{label}(\.{label}){{0,3}}", "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
    shortened = "|".join(f"({part}:){{{n}}}(:{part}){{1,{7 - n}}}" for n in range(1, 7))
    return {
        "hostname": host,
        "email": rf"{name}(\.{name}){{0,1}}@{host}",
        "ipv4": rf"{byte}(\.{byte}){{3}}",
        "ipv6": f"({part}:){{7}}{part}|{shortened}|({part}:){{1,7}}:|:(:{part}){{1,7}}|::",
        "uri": uri(host),
    }


def uri(host: str) -> str:
    """Return the format of an address of a resource."""
    each = r"([a-zA-Z0-9._~!$&'()*+,;=:@-]|%[0-9a-fA-F]{2})"
    path = f"(//{host}(:[0-9]{{1,4}})?(/{each}*)*|/?({each}+(/{each}*)*)?)"
    return rf"[a-zA-Z][a-zA-Z0-9+.-]*:{path}(\?({each}|[/?])*)?(#({each}|[/?])*)?"


FORMATS = times() | addresses() | {"uuid": "[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"}


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
