"""Reads and constrains replies of gpt-oss, in which each message has a channel: thoughts, calls and answers alike.

The format is OpenAI's harmony. Knows text alone; the grammar makes the marks visible in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from runtime.conversation.calls.form import before_overlap
from runtime.conversation.calls.grammar import answer_schema
from runtime.conversation.calls.parser import ArgumentText, CallBegins, ContentPart, Part, ThoughtPart
from runtime.conversation.calls.rules import USUAL_JSON, Rules, excluding, quoted
from runtime.conversation.calls.schemas import Function
from runtime.sampling.grammar import Grammar

CHANNEL, MESSAGE, START, END = "<|channel|>", "<|message|>", "<|start|>", "<|end|>"
RECIPIENT = re.compile(r"to=functions\.([\w.:-]+)")


def is_harmony(template: str) -> bool:
    """Whether a chat template writes messages into channels."""
    return CHANNEL in template and MESSAGE in template and "commentary" in template


def harmony_grammar(
    functions: Sequence[Function], *, required: bool, answer: Grammar | None = None, is_thinking: bool = False
) -> Grammar:
    """Return the grammar of a reply in channels: thoughts, then an answer or a call. With `is_thinking` it begins
    within a thought. Raises SettingsError.
    """
    rules = Rules()
    calls = [rules.add(f"call_{i}", call_rule(function)) for i, function in enumerate(functions)]
    if required and not is_thinking:
        return Grammar("lark", rules.text(" | ".join(calls)), "required")
    rules.add("TEXT", f"/(.|\\n)+/ & {excluding(END)}")
    rules.add("TEXT_END", f"TEXT? {quoted(END)}")
    rules.add("rest", f'(TEXT_END | TEXT? "{END}") "{START}assistant"')
    lead = "rest " if is_thinking else ""
    if required:
        return Grammar("lark", rules.text(f"{lead}({' | '.join(calls)})"), "required")
    rules.add("before", f'"{CHANNEL}" ("analysis" | "commentary") "{MESSAGE}" rest')
    answer_rule = f"%json {json.dumps(answer_schema(answer))}" if answer else "TEXT?"
    rules.add("final", f'"{CHANNEL}final" (" "? "<|constrain|>json")? "{MESSAGE}" {answer_rule}')
    return Grammar("lark", rules.text(f"{lead}before* ({' | '.join(['final', *calls])})"), "auto" if functions else "")


def call_rule(function: Function) -> str:
    """Return the rule of a call, whose recipient comes before or inside its channel."""
    to, schema = f" to=functions.{function.name}", json.dumps(function.schema | USUAL_JSON)
    headers = f"{quoted(f'{CHANNEL}commentary{to}')} | {quoted(f'{to}{CHANNEL}commentary')}"
    return f'({headers}) (" "? "<|constrain|>"? "json")? "{MESSAGE}" %json {schema}'


class HarmonyParser:
    """Reads a reply in channels. With `is_thinking` it begins within a thought."""

    def __init__(self, is_thinking: bool = False) -> None:
        self._held = f"{CHANNEL}analysis{MESSAGE}" if is_thinking else ""
        self._header, self._is_body = "", False  # of the message that was begun last; whether its text is being read

    def feed(self, text: str) -> list[Part]:
        """Return the parts that are certain after this text."""
        self._held += text
        return list(self._parts())

    def finish(self, is_cut: bool) -> list[Part]:
        """Return the parts still buffered at the end of the reply; a reply without any mark is an answer."""
        text, self._held = self._held, ""
        is_plain = not self._header and CHANNEL not in text and "to=functions." not in text
        is_whole = not is_cut if self._is_body else is_plain
        return [self._part(text)] if text and is_whole else []

    def _parts(self) -> Iterator[Part]:
        while self._is_body or self._has_begun():
            if not self._is_body:
                self._is_body = True
                if recipient := RECIPIENT.search(self._header):
                    yield CallBegins(recipient[1])
            text, has_ended, rest = self._held.partition(END)
            if not has_ended:
                at = before_overlap(text, END)
                text, rest = text[:at], text[at:]
            self._held, self._is_body = rest, not has_ended
            if text:
                yield self._part(text)
            if not has_ended:
                return

    def _has_begun(self) -> bool:
        """Read the header of the next message; return whether it is complete."""
        header, has_ended, body = self._held.partition(MESSAGE)
        if has_ended:
            self._header, self._held = header, body
        return bool(has_ended)

    def _part(self, text: str) -> Part:
        if RECIPIENT.search(self._header):
            return ArgumentText(text)
        return ThoughtPart(text) if "analysis" in self._header else ContentPart(text)
