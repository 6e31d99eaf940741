"""Finds the form of tool calls in a chat template: it renders calls of invented functions and reads the text around
names, keys and values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from time import perf_counter
from typing import Any

from runtime.conversation.calls import form as forms
from runtime.conversation.calls.form import CallForm, JsonArguments, TaggedArguments, ValueStyle
from runtime.conversation.calls.probe_text import (
    ID,
    NAMES,
    Arguments,
    NoFormError,
    Span,
    beginning,
    between,
    holed,
    json_span,
    numbered,
    required,
    shared,
    snapped,
    snapped_end,
    style_of,
    trigger_of,
)
from runtime.conversation.chat_template import ChatTemplate, Message, TemplateForm
from runtime.conversation.past_calls import CallFields
from runtime.core.errors import TemplateError

KEYS, WORD = ("zqkeya", "zqkeyb"), "zqvalue"
SAMPLES: dict[str, Any] = {"number": 8461, "boolean": True, "null": None, "array": [WORD], "object": {"zqinner": WORD}}
USER, ANSWER = Message("user", "zqquestion"), Message("assistant", "zqanswer")
TIME_LIMIT = 4.0  # seconds, after which no further call format is tried
MAX_CHARACTERS = 100_000  # characters of a probe's conversation, at most
LONGEST_ANSWER = 64  # characters before an answer's text, at most
EMPTY_THOUGHT = re.compile(r"\s*(<[^<>]{0,40}think[^<>]{0,40}>\s*){1,2}", re.IGNORECASE)
SCHEMA = {"type": "object", "properties": {key: {"type": "string", "description": "d"} for key in KEYS}}
TOOLS = [{"type": "function", "function": {"name": name, "description": "d", "parameters": SCHEMA}} for name in NAMES]


def found_form(template: ChatTemplate) -> CallForm | None:
    """Return the form in which the template writes calls, or None if it cannot be found."""
    try:
        answered, prompt = rendered(template, ANSWER), rendered(template)
    except NoFormError:
        return None
    began = perf_counter()
    for flags in sorted(product((False, True), repeat=4), key=sum):
        if perf_counter() - began > TIME_LIMIT:
            return None
        try:
            return Probe(template, CallFields(*flags), answered, prompt).form()
        except NoFormError:
            continue
    return None


def rendered(template: ChatTemplate, turn: Message | None = None) -> str:
    """Return a conversation that ends with this turn, or with the start of a reply. Raises NoFormError."""
    form = TemplateForm({"enable_thinking": False}, begins_reply=turn is None)
    try:
        text = template.render([USER, turn] if turn else [USER], TOOLS, form)
    except TemplateError as error:
        raise NoFormError from error
    if len(text) > MAX_CHARACTERS:
        raise NoFormError
    return text


@dataclass(frozen=True, slots=True)
class Probe:
    """A template, a format of calls passed to it, and its renderings of an answer and of a prompt before a reply."""

    template: ChatTemplate
    past: CallFields
    answered: str
    prompt: str

    def form(self) -> CallForm:
        """Return the form. Raises NoFormError."""
        one, key = self.turn({KEYS[0]: WORD}), KEYS[0]
        name = one.find(NAMES[0])
        if name < 0 or one.find(WORD, one.find(key, name)) < 0 or f"{{'{key}'" in one:
            raise NoFormError
        return self._with_json(one) if json_span(one, {key: WORD}) else self._with_tags(one)

    def _with_json(self, one: str) -> CallForm:
        begin, end = required(json_span(one, {KEYS[0]: WORD}))
        form = self._around(one, (begin, end), JsonArguments(self._whitespace()))
        return self._with_second(form, lambda text, start: json_span(text, {KEYS[1]: WORD}, start), end)

    def _whitespace(self) -> str:
        arguments = {KEYS[0]: WORD, KEYS[1]: [1, 2]}
        text = self.turn(arguments)
        begin, end = required(json_span(text, arguments))
        kinds = {json.dumps(arguments): forms.COMPACT, json.dumps(arguments, separators=(",", ":")): forms.TIGHT}
        return kinds.get(text[begin:end], forms.LOOSE)

    def _with_tags(self, one: str) -> CallForm:
        """Return the form with keys and values between literals of their own. Raises NoFormError."""
        two, none = self.turn({KEYS[0]: WORD, KEYS[1]: WORD}), self.turn({})
        to_next = holed(between(two, WORD, KEYS[1]), KEYS[0])
        to_end = holed(two[two.rfind(WORD) + len(WORD) :], KEYS[1])
        after = snapped(shared(to_next, to_end))
        closing = to_end[len(after) :]
        to_key, to_close = between(one, NAMES[0], KEYS[0]), none.partition(NAMES[0])[2]
        head = shared(to_close.removesuffix(closing), to_key)
        arguments = TaggedArguments(
            holed(to_key[len(head) :]), to_next[len(after) :], self._styles(between(one, KEYS[0], WORD), after, closing)
        )
        begin = one.find(KEYS[0]) - len(to_key) + len(head)
        form = self._around(one, (begin, len(one) - len(closing)), arguments)

        def span(text: str, start: int) -> Span | None:
            key = text.find(KEYS[1], start)
            at = key - len(to_key) + len(head)
            return (at, text.rfind(WORD) + len(WORD + after)) if key >= 0 else None

        return self._with_second(form, span, one.rfind(WORD) + len(WORD) + len(forms.filled(after, key=KEYS[0])))

    def _styles(self, before: str, after: str, closing: str) -> dict[str, ValueStyle]:
        """Return the style of values of each type."""
        notation = forms.TEXT
        for quote, quoted in (('"', forms.JSON), ("'", forms.PYTHON)):
            if before.endswith(quote) and after.startswith(quote):
                before, after, notation = before[:-1], after[1:], quoted
        styles = {"string": ValueStyle(holed(before), after, notation)}
        for kind, value in SAMPLES.items():
            text = holed(self.turn({KEYS[0]: value}).partition(KEYS[0])[2], KEYS[0])
            styles[kind] = style_of(text.removesuffix(closing), value) or styles.get("number", styles["string"])
        return styles

    def _around(self, one: str, arguments: Span, kind: JsonArguments | TaggedArguments) -> CallForm:
        """Return the form with the literals around the name and the arguments of one call."""
        name = one.find(NAMES[0])
        literals = one[:name], one[name + len(NAMES[0]) : arguments[0]], one[arguments[1] :]
        opening, head, closing = map(holed, literals)
        answered = self.answered[beginning(self.turn_whole({}), self.answered, self.prompt) :]
        answer, has_answer, _ = answered.partition(ANSWER.content)
        trigger = trigger_of(opening.lstrip(), answered)
        is_own = has_answer and not answer.isspace() and not opening.lstrip().startswith(answer)
        answer = answer if is_own and len(answer) < LONGEST_ANSWER else ""
        return CallForm(opening, head, closing, None, kind, trigger, answer, self.past)

    def _with_second(self, form: CallForm, span: Callable[[str, int], Span | None], first: int) -> CallForm:
        """Return the form with the literal between two calls, if the template writes several.

        `first`: where the first call's arguments end.
        """
        try:
            text = self.turn({KEYS[0]: WORD}, {KEYS[1]: WORD})
        except NoFormError:
            return form
        second = text.find(NAMES[1])
        arguments = span(text, second) if second >= first else None
        if arguments is None:
            return form
        opening, middle = numbered(form.opening[::-1], holed(text[first:second])[::-1])
        head, _ = numbered(form.head, holed(text[second + len(NAMES[1]) : arguments[0]]))
        end = holed(text[arguments[1] :])  # some templates close only after several
        closing = end if end.startswith(form.closing) else form.closing
        return replace(form, opening=opening[::-1], between=middle[::-1], head=head, closing=closing)

    def turn(self, *calls: Arguments) -> str:
        """Return a turn with these calls, without the text around the content of a turn that answers.

        Raises NoFormError if the template refuses it.
        """
        called = self.turn_whole(*calls)
        begin = beginning(called, self.answered, self.prompt)
        called, answered = called[begin:], self.answered[begin:]
        n_after = len(snapped_end(shared(called[::-1], answered[::-1])[::-1]))
        called = called[: len(called) - n_after].rstrip()
        thought = EMPTY_THOUGHT.match(called)
        return called[thought.end() :] if thought else called

    def turn_whole(self, *calls: Arguments) -> str:
        """Return the conversation with these calls. Raises NoFormError if the template refuses it."""
        return rendered(self.template, self._message(calls))

    def _message(self, calls: Sequence[Arguments]) -> Message:
        sent = [
            {"id": ID.format(i), "type": "function", "function": {"name": NAMES[i], "arguments": arguments}}
            for i, arguments in enumerate(calls)
        ]
        (message,) = self.past.apply([Message("assistant", "", {"tool_calls": sent})])
        return message
