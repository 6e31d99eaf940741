"""A reply that was begun goes on where it stopped, with every chat template of llama.cpp's collection."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.reply_text import BEGIN, END
from app.server.openai.conversation import FINAL, ConversationRequest
from bench.instruments.toy import facts
from runtime.conversation.calls import is_harmony
from runtime.conversation.chat_template import ChatTemplate
from runtime.core.errors import TemplateError
from runtime.engine import Rendered, TemplateForm
from tests.support.collection import collection

LEAST = 60  # of 70 templates; the others refuse the question itself
ASKED = {"role": "user", "content": "What is 340+51?"}


class Template:
    """An engine that only renders."""

    def __init__(self, source: str) -> None:
        self.facts, self.pair = facts(template=source), SimpleNamespace(thinking=True)
        self._template = ChatTemplate(source, "<s>", "</s>")

    def render(self, messages: Any, tools: Any, form: TemplateForm) -> Rendered:
        return Rendered(self._template.render(messages, tools, form))


def written(source: str, **last: Any) -> Any:
    request = ConversationRequest.model_validate({"messages": [ASKED, {"role": "assistant", **last}]})
    return request.written(Template(source))  # type: ignore[arg-type]


def sources() -> dict[str, str]:
    return {path.name: path.read_text("utf8") for path in sorted(Path(collection(), "templates").glob("*.jinja"))}


@pytest.mark.parametrize(
    ("content", "rest"),
    [("<think>340+51</think>", ""), ("<think>340+51</think>\n\nIt is", "It is"), ("It is", "It is")],
)
def test_a_thought_that_was_ended_is_not_opened_again(content: str, rest: str) -> None:
    n = 0
    for name, source in sources().items():
        try:
            found = written(source, content=content)
        except TemplateError:
            continue
        n += 1
        assert found.is_answering, name
        assert not found.is_thinking, name
        assert found.text.rindex(END) > found.text.rindex(BEGIN) if BEGIN in found.text else True, name
        assert found.text.endswith(rest), name
        if is_harmony(source):
            assert f"<|start|>assistant{FINAL}" in found.text[-len(content) - 80 :], name
    assert n >= LEAST
