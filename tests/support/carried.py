"""Hostile arguments of calls in each form: names and values that contain what the form ends them with."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st
from llguidance import LLTokenizer

from runtime.conversation.calls import CallForm, CallParser, Function, ReplyPart, call_grammar, form_of
from runtime.conversation.calls.form import (
    GEMMA,
    GEMMA_QUOTE,
    JSON,
    PYTHON,
    TEXT,
    TYPES,
    TaggedArguments,
    ValueStyle,
    filled,
)
from runtime.conversation.calls.known import DESCRIBED, GRANITE, LFM2
from runtime.conversation.calls.past import written_calls
from runtime.conversation.calls.tagged_rules import tell
from runtime.conversation.calls.texts import core
from runtime.core.errors import SettingsError
from runtime.sampling.grammar import Grammar, compile_grammar
from tests.support.call_templates import FORMS, template
from tests.support.calls import Calls, folded

BYTES = LLTokenizer("byte")
GEMMA_STYLES = {
    "string": ValueStyle(f":{GEMMA_QUOTE}", GEMMA_QUOTE, TEXT),
    "number": ValueStyle(":", "", JSON),
    "boolean": ValueStyle(":", "", JSON),
    "null": ValueStyle(":", "", PYTHON),
    "array": ValueStyle(":", "", GEMMA),
    "object": ValueStyle(":", "", GEMMA),
}
GEMMA_FORM = CallForm(
    "<|tool_call>call:",
    "{",
    "}<tool_call|>",
    arguments=TaggedArguments("", ",", dict.fromkeys(TYPES, ValueStyle(":", "", GEMMA))),
    trigger="<|tool_call>",
)
QUOTED_FORM = CallForm(  # as Gemma 4's template shows it to the probe
    "<|tool_call>call:",
    "{",
    "}<tool_call|>",
    "}<tool_call|><|tool_call>call:",
    TaggedArguments("", ",", GEMMA_STYLES),
    trigger="<|tool_call>",
)
OVERLAPPING = ValueStyle(">", "]<]m[>[</\ue003>]<]m[>[", TEXT)  # as MiniMax-M3 closes an element
ELEMENTS_FORM = CallForm(
    ']<]m[>[<tool_call>\n]<]m[>[<invoke name="',
    '">]<]m[>[',
    "</invoke>\n]<]m[>[</tool_call>",
    arguments=TaggedArguments(
        "<", "<", dict.fromkeys(TYPES, replace(OVERLAPPING, notation=JSON)) | {"string": OVERLAPPING}
    ),
    trigger="]<]m[>[<tool_call>",
)
KNOWN = {
    "elements": ELEMENTS_FORM,
    "gemma": GEMMA_FORM,
    "gemma, quoted": QUOTED_FORM,
    "granite": GRANITE,
    "lfm2": LFM2,
    "described": DESCRIBED,
}
EVERY_FORM: dict[str, CallForm] = {
    **{name: form for name in FORMS if (form := form_of(template(FORMS[name]))) is not None},
    **KNOWN,
}
NAMES = [
    "v",
    "@type",
    "😀",
    "",
    "</s>",
    "a b",
    "a:b",
    "a>b",
    " x",
    "x ",
    "a\nb",
    '"q"',
    "=",
    "a=b",
    ")]",
    "ключ",
    "}",
    "$ref",
]
PIECES = [
    *"a\n \"'\\[]{}()<>,:=é😀#",
    "</",
    "]]>",
    "<![CDATA[",
    GEMMA_QUOTE,
    "null",
    "true",
    "None",
    "1",
    "1.5e3",
    "</s>",
    "//",
]


@dataclass(frozen=True, slots=True)
class Case:
    """A function with one argument, and a call of it."""

    function: Function
    arguments: dict[str, Any]

    def is_beyond(self, form: CallForm) -> bool:
        """Whether a value is a text that the form has no way to write, which nothing tells ahead of a reply."""
        (key,) = self.arguments
        marks = [mark for style in styles_of(form) if (mark := filled(style.after, key=key).strip())]
        schema = self.function.parameters["properties"].get(key, {})
        is_json = isinstance(self.arguments[key], list | dict) or not {"pattern", "maxLength", "format"}.isdisjoint(
            schema
        )
        if is_json and any(style.notation == PYTHON for style in styles_of(form)):
            return True  # the form's writer spells it in Python, and the grammar in JSON
        texts = texts_in(self.arguments[key]) if styles_of(form) else []
        return any(GEMMA_QUOTE in text or ("]]>" in text and is_marked(text, marks)) for text in texts)


def is_marked(text: str, marks: Sequence[str]) -> bool:
    """Whether a text is written as CDATA."""
    return text.startswith("<![CDATA[") or any(core(mark) in text for mark in marks)


def styles_of(form: CallForm) -> Sequence[ValueStyle]:
    """The styles of a form's values; none if its arguments are JSON."""
    return tuple(form.arguments.styles.values()) if isinstance(form.arguments, TaggedArguments) else ()


def texts_in(value: Any) -> list[str]:
    """The texts and keys in a value."""
    if isinstance(value, dict):
        return [*value, *(text for each in value.values() for text in texts_in(each))]
    if isinstance(value, list):
        return [text for each in value for text in texts_in(each)]
    return [value] if isinstance(value, str) else []


def literals_of(form: CallForm, key: str) -> list[str]:
    """The texts around names, keys and values."""
    literals = [form.opening, form.closing, form.between or "", form.head]
    literals += [filled(part, key=key) for style in styles_of(form) for part in (style.before, style.after)]
    return list(filter(None, literals))


def cases(form: CallForm) -> st.SearchStrategy[Case]:
    """Calls with a hostile name or value."""
    texts = st.lists(st.sampled_from([*PIECES, *literals_of(form, "v")]), max_size=4).map("".join)
    keys = st.sampled_from(NAMES) | texts
    return st.tuples(keys, valued(texts)).map(lambda found: case_of(*found))


def case_of(key: str, found: tuple[dict[str, Any], Any]) -> Case:
    """A call with this argument, whose schema comes with a value."""
    schema, value = found
    whole = {"type": "object", "properties": {key: schema}, "required": [key]}
    return Case(Function("f", whole), {key: value})


def valued(texts: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[dict[str, Any], Any]]:
    """Schemas, each with a value that follows it."""
    string = texts.map(lambda text: ({"type": "string"}, text))
    const = texts.map(lambda text: ({"const": text}, text))
    enum = st.tuples(texts, texts).map(lambda two: ({"enum": list(dict.fromkeys(two))}, two[0]))
    pattern = texts.map(lambda text: ({"type": "string", "pattern": "^(.|\n)*$", "maxLength": 200}, text))
    numbers = st.integers(-9, 9).map(lambda number: ({"type": "integer", "minimum": -9, "maximum": 9}, number))
    others = st.sampled_from([({"type": "boolean"}, True), ({"type": "null"}, None), ({"enum": ["a", 3]}, 3)])
    lists = st.lists(texts, max_size=3).map(lambda each: ({"type": "array", "items": {"type": "string"}}, each))
    maps = st.tuples(texts, texts).map(
        lambda two: (
            {"type": "object", "properties": {two[0]: {"type": "string"}}, "required": [two[0]]},
            {two[0]: two[1]},
        )
    )
    # Texts that are also JSON of another allowed type are that
    either = texts.filter(is_no_json).map(lambda text: ({"anyOf": [{"type": "string"}, {"type": "null"}]}, text))
    both = lists.map(lambda found: ({"anyOf": [{"type": "string"}, found[0]]}, found[1]))
    return st.one_of(string, const, enum, pattern, numbers, others, lists, maps, either, both)


def is_no_json(text: str) -> bool:
    """Whether a text is no null in any notation."""
    return text.strip() not in ("null", "None")


def fate(form: CallForm, case: Case) -> str:
    """What becomes of a call: it is refused in a sentence, read back as it is written, or told not to be writable."""
    with logged() as told:
        try:
            grammar = required_grammar(form, case)
        except SettingsError as error:
            return str(error)
    text = written_calls(form, [{"function": {"name": "f", "arguments": case.arguments}}])
    if is_taken(grammar, text):
        for size in (1, 1000):
            assert parsed(form, [case.function], text, size) == ("", [("f", case.arguments)]), text
        return "read back"
    assert told or case.is_beyond(form), text
    return "told"


@contextmanager
def logged() -> Iterator[list[str]]:
    """What is logged about calls."""
    found, logger, handler = list[str](), logging.getLogger("runtime.conversation.calls"), logging.Handler()
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        yield found
    finally:
        logger.removeHandler(handler)


def required_grammar(form: CallForm, case: Case) -> Grammar:
    """The grammar of a reply that is a call. Raises SettingsError."""
    tell.cache_clear()
    return call_grammar(form, [case.function], required=True, parallel=False)


def is_taken(grammar: Grammar, text: str) -> bool:
    """Whether a grammar allows the whole text as a reply."""
    matcher, tokens = compile_grammar(grammar, BYTES), list(text.encode())
    return bool(matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting())


def parsed(form: CallForm, functions: Sequence[Function], reply: str, size: int) -> tuple[str, Calls]:
    """The text and the calls of these functions in a reply that comes in pieces of this size."""
    parser, parts = CallParser(form, functions), list[ReplyPart]()
    for at in range(0, len(reply), size):
        parts += parser.feed(reply[at : at + size])
    return folded([*parts, *parser.finish(is_cut=False)])
