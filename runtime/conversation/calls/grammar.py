"""Builds the grammar that constrains a reply to calls in a model's own form, as Lark text with marks as plain text.

Knows forms and JSON schemas; knows no vocabulary, as marks are matched to tokens when the grammar is compiled.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from runtime.conversation.calls import form as forms
from runtime.conversation.calls.form import CallForm, JsonArguments, filled
from runtime.conversation.calls.rules import LENIENT, SPACED, Rules, excluding, quoted
from runtime.conversation.calls.schemas import Function
from runtime.conversation.calls.tagged_rules import tagged_arguments
from runtime.sampling.checking import check_schema
from runtime.sampling.grammar import Grammar
from runtime.sampling.lark import OTHER_MARKS
from runtime.sampling.schema import closed

WHITESPACE: dict[str, dict[str, Any]] = {
    forms.COMPACT: SPACED,
    forms.TIGHT: {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"},
    forms.LOOSE: {"whitespace_pattern": r"[ ]?|\n[ ]{0,16}"},
}
MAX_EXTRA_CALLS = 31  # calls after the first of a reply, at most, as some models never stop
THINK, THOUGHT_END = "<think>", "</think>"
# no thought; started in the prompt; the reply may start one
NO_THOUGHT, OPEN_THOUGHT, MAY_THINK = "none", "open", "may"


def call_grammar(
    form: CallForm,
    functions: Sequence[Function],
    *,
    required: bool,
    parallel: bool,
    answer: Grammar | None = None,
    thoughts: str = NO_THOUGHT,
) -> Grammar:
    """Return the grammar of a reply that may call functions.

    If `required`, the reply is calls alone. With `answer`, it is an answer that follows that schema, or calls.
    Otherwise it is any text that may end in calls. Raises SettingsError for an answer that cannot be enforced.
    """
    if form.trigger and not form.is_announced and not required and not answer:
        return unbound()
    rules = Rules()
    body = body_of(form, functions, parallel, rules)
    if required or answer:
        lead, opening = led(form.opening)
        calls = f"{lead}{rules.sequence(opening)} {body}"
        if not answer or required:
            return Grammar("lark", rules.text(calls), "required", beginning(form))
        rules.add("answer", f"%json {json.dumps(answer_schema(answer))}")
        return Grammar("lark", rules.text(f"answer | {calls}"), "either", beginning(form))
    start = free_or_calls(form, [function.name for function in functions], body, rules)
    return Grammar("lark", rules.text(with_thought(start, thoughts, rules)), "auto", beginning(form))


def beginning(form: CallForm) -> str:
    """Return the text of a call behind its mark, up to the function's name: some models leave the mark out."""
    return forms.MARK.sub("", form.opening).strip()


def unbound() -> Grammar:
    """Return the grammar of any text and marks, for calls whose marks also occur elsewhere."""
    rules = Rules()
    rules.free_text("")
    return Grammar("lark", rules.text("free"), "auto")


def answer_schema(answer: Grammar) -> dict[str, Any]:
    """Return the schema of an answer. Raises SettingsError if it cannot be enforced."""
    schema: dict[str, Any] = json.loads(answer.text or '{"type": "object"}')
    check_schema(schema)
    return closed(schema) | {"x-guidance": SPACED}


def body_of(form: CallForm, functions: Sequence[Function], parallel: bool, rules: Rules) -> str:
    """Add the rule for the text after the opening, and return its name.

    It is a call, further ones if `parallel`, and the closing.
    """
    for i, function in enumerate(functions):
        rules.add(f"arguments_{i}", arguments_of(form, function, rules))
        head = rules.sequence(function.name + filled(form.head, name=function.name))
        rules.add(f"call_{i}", f"{head} arguments_{i}")
    rules.add("call", alternatives("call", len(functions)))
    rules.add("end", ending(form, rules, has_more=parallel and form.between is not None))
    return rules.add("calls", "call end")


def ending(form: CallForm, rules: Rules, has_more: bool) -> str:
    """Return the rule of what follows a call: the closing, before it further calls if there may be any.

    Where each call has its own closing, all that may follow a complete call is a part of its own, because the lexer
    takes the longest match: the text may end after the call, after its closing, and after the whitespace behind that.
    """
    between, times = form.between or "", f"{{0,{MAX_EXTRA_CALLS}}}"
    within, mark = closing_parts(form)
    if not has_more or not between.startswith(form.closing):
        more = f"({rules.sequence(between)} call){times} " if has_more else ""
        return f"{more}{rules.sequence(form.closing)}"
    again = between.removeprefix(form.closing).lstrip()
    spaces = between.removeprefix(form.closing).removesuffix(again)
    space, close = (quoted(spaces) if spaces else '""'), f"{rules.sequence(within)} {rules.sequence(mark)}"
    more = f"({close} {space} {rules.sequence(again)} call){times}"
    return f"{more} {rules.sequence(within)} ({rules.sequence(mark)} {space}?)?"


def closing_parts(form: CallForm) -> tuple[str, str]:
    """Return the part of the closing that completes a call, and the mark after it, without which a call can be read."""
    mark = forms.MARK.search(form.closing)
    if mark is None or not isinstance(form.arguments, JsonArguments):
        return form.closing, ""
    within = form.closing[: mark.start()].rstrip()
    return within, form.closing[len(within) :]


def alternatives(name: str, n: int) -> str:
    """Return numbered rules as alternatives."""
    return " | ".join(f"{name}_{i}" for i in range(n))


def arguments_of(form: CallForm, function: Function, rules: Rules) -> str:
    """Return the rule of a function's arguments."""
    if isinstance(form.arguments, JsonArguments):
        schema = function.schema | {"x-guidance": LENIENT | WHITESPACE[form.arguments.whitespace]}
        return f"%json {json.dumps(schema)}"
    return tagged_arguments(form, function, rules)


def free_or_calls(form: CallForm, names: Sequence[str], body: str, rules: Rules) -> str:
    """Return the rule of text without calls or with calls at its end; without a trigger, calls start the reply."""
    _, opening = led(form.opening)
    if form.is_announced:
        rules.free_text(excluding(form.trigger))
        rules.add("BEFORE", f"FREE? {quoted(form.trigger)}")
        rest = rules.add("rest", f"{rules.sequence(opening.removeprefix(form.trigger))} {body}")
        return f"free | (FREE? {OTHER_MARKS})* BEFORE {rest} | free {quoted(form.trigger)} {rest}"
    heads = []
    for i, name in enumerate(names):
        whole = opening + name + filled(form.head, name=name)
        mark = forms.MARK.search(whole)
        heads.append(whole[: mark.start()] if mark else whole)
        rules.add(f"HEAD_{i}", rf"/\s{{0,2}}/ {quoted(heads[i])}")  # one lexeme, as the longest match wins
        rules.add(f"first_{i}", f"HEAD_{i} {rules.sequence(whole[len(heads[i]) :])} arguments_{i}")
    rules.free_text(excluding(*heads, at_start=True))
    return f"free | ({alternatives('first', len(names))}) end"


def led(opening: str) -> tuple[str, str]:
    """Return the leading whitespace of an opening as a rule, and the rest."""
    rest = opening.lstrip()
    spaces = opening[: len(opening) - len(rest)]
    return (f"{quoted(spaces)}? " if spaces else "", rest)


def with_thought(start: str, thoughts: str, rules: Rules) -> str:
    """Return the rule where a thought may come first, in which marks of calls are text."""
    if thoughts == NO_THOUGHT:
        return start
    begin = "" if thoughts == OPEN_THOUGHT else rf"\s*{THINK}"
    rules.add("THOUGHT", rf"/{begin}(.|\n)*/ & {excluding(THOUGHT_END)}")
    rules.add("THOUGHT_WHOLE", f"THOUGHT {quoted(THOUGHT_END)}")
    rules.add("thought", f"THOUGHT_WHOLE | THOUGHT {quoted(THOUGHT_END)}")
    if thoughts == OPEN_THOUGHT:
        return f"THOUGHT | thought ({start})"
    rules.narrow_free_text(excluding(THINK, at_start=True))
    return f"{start} | THOUGHT | thought ({start})"
