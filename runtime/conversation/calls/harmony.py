"""Reads and constrains replies of gpt-oss, in which each message has a channel: thoughts, calls and answers alike.

The format is OpenAI's harmony. Knows text alone; the grammar makes the marks visible in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from runtime.conversation.calls.grammar import answer_schema
from runtime.conversation.calls.rules import USUAL_JSON, Rules, excluding, quoted
from runtime.conversation.calls.schemas import Function
from runtime.conversation.calls.stream import PartKind, Reading, StreamParser
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


class HarmonyParser(StreamParser):
    """Reads a reply in channels. With `is_thinking` it begins within a thought."""

    def __init__(self, is_thinking: bool = False) -> None:
        super().__init__(f"{CHANNEL}analysis{MESSAGE}" if is_thinking else "")
        self._header, self._is_body = "", False  # of the message that was begun last; whether its text is being read

    def _read(self) -> Reading[None]:
        while True:
            while MESSAGE not in self.held:
                yield
            self._header, self._is_body = self.take_until(MESSAGE)
            if recipient := RECIPIENT.search(self._header):
                self.add("call", recipient[1])
            while self._is_body:
                text, has_ended = self.take_until(END)
                self._add(text)
                self._is_body = not has_ended
                if not has_ended:
                    yield

    def _read_end(self, is_cut: bool) -> None:
        """Add what is left; a reply without any mark is an answer."""
        text = self.held
        is_plain = not self._header and CHANNEL not in text and "to=functions." not in text
        is_whole = not is_cut if self._is_body else is_plain
        if is_whole:
            self._add(text)

    def _add(self, text: str) -> None:
        """Add a part of the text of the message that was begun last."""
        if text:
            kind: PartKind = "thought" if "analysis" in self._header else "content"
            self.add("arguments" if RECIPIENT.search(self._header) else kind, text)
