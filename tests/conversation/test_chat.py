"""Chat templates: the bundled one, and hostile ones."""

from __future__ import annotations

import pytest

from demo.conversations import CHAT_TEMPLATE
from runtime.conversation import chat_template
from runtime.conversation.chat_template import ChatTemplate, Message
from runtime.core.errors import TemplateError


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
        ("{{ 9 ** (9 ** 9) }}", "more than 3 s"),
        ("{{ 'x' * 9999999999 }}", "too much memory|of memory"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "failed"),
    ],
)
def test_a_bad_template_is_explained(source: str, match: str) -> None:
    with pytest.raises(TemplateError, match=match):
        ChatTemplate(source).render([Message("user", "x")])


TWICE = "{% set box = namespace(x='xxxxxxxxxxxxxxxx') %}{% for i in range(60) %}{% set box.x = HERE %}{% endfor %}"


def twice(made: str) -> str:
    """A template that does this to a text, sixty times."""
    return TWICE.replace("HERE", made)


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx{% endfor %}{% endfor %}",
        "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
        "{% for i in range(10 ** 12) %}{% endfor %}",
        twice("box.x ~ box.x"),
        twice("box.x + box.x"),
        twice("box.x | replace('x', box.x)"),
        twice("box.x.replace('x', box.x)"),
        twice("[box.x, box.x] | join(box.x)"),
        twice("box.x.join([box.x, box.x, box.x])"),
        twice("(box.x ~ box.x ~ '\n') | indent(9999, true)"),
        "{{ 'x'.ljust(10000000000) }}",
        "{{ 'x'.center(10000000000) }}",
        "{{ 'x'.zfill(10000000000) }}",
        "{{ 'x' | center(10000000000) }}",
        "{{ ['x'] | map('center', 10000000000) | list }}",
        "{{ 'x' | indent(10000000000, true) }}",
        "{{ ['x'] | slice(10000000000) | list }}",
        "{{ ['x'] | batch(10000000000, 'x') | list }}",
        "{{ messages | tojson(indent=10000000000) }}",
        "{{ '%10000000000d' % 5 }}",
        "{{ '%*d' % (10000000000, 5) }}",
        "{{ '%10000000000d' | format(5) }}",
        "{{ '{:10000000000}'.format('x') }}",
        "{{ '{:{}}'.format('x', '10000000000') }}",
        "{{ lipsum(1000000) }}",
        "{{ 1 / 0 }}",
        "{% include 'x' %}",
        "{% import 'x' as y %}",
        "{% extends 'x' %}",
        "{{ messages[0].content | no_such_filter }}",
        "{{ messages | sum }}",
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    ],
)
def test_a_hostile_template_ends_with_a_sentence(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "SECONDS", 0.5)
    with pytest.raises(TemplateError, match=r"^The model's chat template (failed|cannot be read) \(.+\)\. Use `--raw`"):
        ChatTemplate(source).render([Message("user", "x")])


def test_what_real_templates_do_is_within_the_bounds() -> None:
    source = (
        "{% set text = messages[0].content ~ '!' %}{{ text.ljust(6) | indent(2, true) }}{{ '%04d' % 7 }}"
        "{{ '{:>4}'.format('x') }}{{ ['a', 'b'] | join(', ') }}{{ 'aXb' | replace('X', '-') }}{{ text + '?' }}"
        "{{ {'a': 1} | tojson(indent=2) }}{{ 7 % 4 }}"
    )
    assert ChatTemplate(source).render([Message("user", "Hi")]) == '  Hi!   0007   xa, ba-bHi!?{\n  "a": 1\n}3'


def test_a_template_may_go_through_tools_that_are_not_there() -> None:
    source = "{% for tool in tools %}{{ tool.function.name }}{% endfor %}{{ messages[0].content }}{{ tools is none }}"
    assert ChatTemplate(source).render([Message("user", "Hi")]) == "HiFalse"
    assert ChatTemplate("{{ tools is none }}").render([Message("user", "Hi")]) == "True"


PARTS = (
    "{% for m in messages %}{{ m.role | capitalize }}{% for part in m.content %}{% if part.type == 'text' %}: "
    "{{ part.text }}{% endif %}{% endfor %}<end>\n{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)


def test_a_template_that_reads_parts_gets_texts_as_such() -> None:
    template = ChatTemplate(PARTS)
    turns = [Message("user", "Hi"), Message("assistant", "Hello"), Message("user", "Why?")]
    expected = "User: Hi<end>\nAssistant: Hello<end>\nUser: Why?<end>\nAssistant:"
    assert template.render(turns) == template.render(turns) == expected


def test_a_template_that_drops_questions_is_left_as_it_is() -> None:
    template = ChatTemplate("{% for m in messages if m.role == 'system' %}{{ m.content }}{% endfor %}")
    assert template.render([Message("system", "S"), Message("user", "Q")]) == "S"
