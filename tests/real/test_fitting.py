"""Awkward conversations through every chat template of llama.cpp's collection: taken whole, or left as they were."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from runtime.conversation.chat_template import ChatTemplate, Message
from runtime.conversation.fitting import Fitting
from runtime.core.errors import TemplateError
from tests.support.awkward import AWKWARD, conversation, texts
from tests.support.collection import collection

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "its name"}},
            "required": ["city"],
        },
    },
}
ODD: tuple[dict[str, object], ...] = ({}, {"arguments": "[1"}, {"a": None, "b": [1, {"c": 2.5}], "d": True})
# They write a message's calls and leave out its text, and take no two messages of the assistant's in a row
TEXT_OR_CALLS = ("Mistral-Small-3.2-24B-Instruct-2506", "mistralai-Mistral-Nemo-Instruct-2407")
CLOCK = re.compile(r"\w{3} \d\d \d{4} \d\d:\d\d:\d\d")


@cache
def template(path: Path) -> ChatTemplate:
    return ChatTemplate(path.read_text("utf8"), "<s>", "</s>")


def templates() -> list[Path]:
    found = sorted((collection() / "templates").glob("*.jinja"))
    assert len(found) == 70
    return found


def expected(path: Path, letters: str, messages: list[Message]) -> list[str]:
    """The texts that must be found; texts beside or before calls need not, where a template has no place for them."""
    wanted = texts(messages)
    if path.stem in TEXT_OR_CALLS:
        gone = {i + k for found in re.finditer("X|AC", letters) for i in [found.start()] for k in range(2)}
        return [word for i, word in enumerate(wanted) if i not in gone]
    return wanted


@pytest.mark.parametrize("has_tools", [False, True])
@pytest.mark.parametrize("letters", AWKWARD)
def test_every_text_is_in_the_prompt(letters: str, has_tools: bool) -> None:
    tools, messages = [TOOL] * has_tools, conversation(letters)
    for path in templates():
        fitted = Fitting(template(path), has_tools).fit(messages)
        text = template(path).render(fitted.messages, tools)
        assert [word for word in expected(path, letters, messages) if word not in text] == [], path.stem


@pytest.mark.parametrize("has_tools", [False, True])
@pytest.mark.parametrize("letters", AWKWARD)
def test_what_a_template_takes_is_the_same_text(letters: str, has_tools: bool) -> None:
    tools, messages = [TOOL] * has_tools, conversation(letters)
    for path in templates():
        try:
            before = template(path).render(messages, tools)
        except TemplateError:
            continue
        if all(word in before for word in texts(messages)):
            fitted = Fitting(template(path), has_tools).fit(messages)
            after = template(path).render(fitted.messages, tools)
            assert (CLOCK.sub("", after), fitted.changes) == (CLOCK.sub("", before), ()), path.stem


@pytest.mark.parametrize("arguments", ODD, ids=str)
@pytest.mark.parametrize("letters", ["UCTAU", "UCT", "SUDTTAU", "UXTU"])
def test_odd_arguments_are_taken(letters: str, arguments: dict[str, object]) -> None:
    messages = conversation(letters, arguments)
    for path in templates():
        fitted = Fitting(template(path), has_tools=True).fit(messages)
        text = template(path).render(fitted.messages, [TOOL])
        assert all(word in text for word in expected(path, letters, messages)), path.stem


def test_the_exceptions_are_exceptions() -> None:
    """The lists above name only templates of which it is true."""
    for path in templates():
        plain = Fitting(template(path), has_tools=False)
        if path.stem in TEXT_OR_CALLS:
            text = template(path).render(plain.fit(conversation("UXT")).messages)
            assert "text1." not in text
