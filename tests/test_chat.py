"""Chat templates: the bundled one, and hostile ones."""

from __future__ import annotations

import pytest

from demo.conversations import CHAT_TEMPLATE
from runtime.core.errors import TemplateError
from runtime.engine.chat_template import ChatTemplate, Message


def test_chatml_is_rendered_up_to_the_assistants_turn() -> None:
    text = ChatTemplate(CHAT_TEMPLATE).render([Message("system", "Be brief."), Message("user", "Hi")])
    assert text == "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def test_a_template_may_count() -> None:
    assert ChatTemplate("{{ messages | length * 2 + 1 }}").render([Message("user", "x")]) == "3"


def test_special_tokens_are_handed_to_the_template() -> None:
    assert (
        ChatTemplate("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", "<s>", "</s>").render(
            [Message("user", "x")]
        )
        == "<s>x</s>"
    )


@pytest.mark.parametrize(
    ("source", "match"),
    [
        ("{% if %}", "cannot be read"),
        ("{{ raise_exception('no system turn') }}", "no system turn"),
        ("{{ messages[5].content }}", "failed"),
        ("{{ 9 ** 9 ** 9 }}", "may not be used"),
        ("{{ 'x' * 999999999 }}", "may not be used"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "failed"),
    ],
)
def test_a_bad_template_is_explained(source: str, match: str) -> None:
    with pytest.raises(TemplateError, match=match):
        ChatTemplate(source).render([Message("user", "x")])
