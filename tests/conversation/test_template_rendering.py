"""Chat templates are rendered as transformers renders them: small templates beside the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runtime.conversation.chat_template import ChatTemplate, Message, TemplateForm
from runtime.core.errors import TemplateError
from tests.support import reference_template
from tests.support.reference_template import reference_text

ARGUMENTS = {"city": "Zürich", "n": 1764183600}
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ARGUMENTS}}
MESSAGES = [
    Message("system", 'Be <brief> & "kind".'),
    Message("user", "  Hello there,\nwörld: 日本!  "),
    Message("assistant", "<think>\nhm\n</think>\n\nHi, it's me", {"tool_calls": [CALL]}),
    Message("tool", '{"t": 4}', {"name": "weather", "tool_call_id": "call_1"}),
    Message("user", "Thanks\tMax"),
]
PROPERTIES = {"city": {"type": "string"}, "days": {"type": "integer", "maximum": 100000}}
PARAMETERS = {"type": "object", "properties": PROPERTIES, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}]
DATA: dict[str, Any] = {
    "n": 1764183600,
    "f": 3.14159,
    "t": "a-b_c d",
    "l": [3, 1, 2],
    "d": {"b": 1, "a": 2, "C": [1, {"x": None}]},
    "people": [{"name": "Bo", "age": 3}, {"name": "al", "age": 5}, {"name": "Cy", "age": 3}],
    "yes": True,
    "none": None,
}
# Each line is a template by itself
PIECES = Path(reference_template.__file__).with_name("template_pieces.jinja").read_text("utf-8").splitlines()
BLOCKS = [
    "{%- set x %}  a {{ t }}\n{% endset %}{{ x | trim }}{{ x | length }}{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set x | upper %}abc{% endset %}{{ x }}{% filter indent(2) %}a\nb{% endfilter %}",
    "{% if n %}y{% else %}no{% endif %}   {# note #}\n  {%- if yes -%}  x  {%- endif %}\n{% raw %}{{ x }}{% endraw %}",
    "   {% if yes %}\nline\n   {% endif %}\n  {{ t }}\n{% for i in l %}\n  {{ i }}\n{% endfor %}\nend",
    "{% for m in messages %}{% generation %}{{ loop.index }}{{ m.role }}\n{% endgeneration %}{% endfor %}",
]


def reference(source: str) -> str:
    """Return what transformers writes for the same messages, tools and variables."""
    turns = [{"role": message.role, "content": message.content, **message.more} for message in MESSAGES]
    given = {"bos_token": "<s>", "eos_token": "</s>", "documents": None, "add_generation_prompt": True}
    return reference_text(source, {**given, **DATA, "messages": turns, "tools": TOOLS})


def rendered(source: str) -> str:
    """Return what the app writes."""
    return ChatTemplate(source, "<s>", "</s>").render(MESSAGES, TOOLS, TemplateForm(DATA))


@pytest.mark.parametrize("source", [*PIECES, *BLOCKS])
def test_a_piece_of_a_template_is_rendered_as_transformers_renders_it(source: str) -> None:
    assert rendered(source) == reference(source)


def test_templates_get_the_variables_that_transformers_gives() -> None:
    source = "{{ documents is none }}{{ tools is none }}{{ add_generation_prompt }}{{ unk_token is defined }}"
    assert ChatTemplate(source).render(MESSAGES) == "TrueTrueTrueFalse"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (
            "{% set l = [] %}{{ l.append(1) }}{{ l.extend([2, 3]) }}{{ l.insert(0, 0) }}{{ l }}",
            "NoneNoneNone[0, 1, 2, 3]",
        ),
        ("{% set l = [1, 2] %}{{ l.pop() }}{{ l }}{{ l.reverse() }}{{ l.remove(1) }}{{ l }}", "2[1]NoneNone[]"),
        ("{% set d = {} %}{{ d.update({'a': 1}) }}{{ d.setdefault('b', 2) }}{{ d.pop('a') }}{{ d }}", "None21{'b': 2}"),
        ("{% set d = {'a': 1} %}{{ d.popitem() }}{{ d.clear() }}{{ d }}", "('a', 1)None{}"),
    ],
)
def test_a_template_may_change_its_own_lists(source: str, text: str) -> None:
    assert rendered(source) == text


def test_what_a_template_changes_stays_in_its_rendering() -> None:
    messages = [Message("user", "x", {"tool_calls": [{"id": "a"}]})]
    source = (
        "{{ messages.append(1) }}{{ messages[0].tool_calls[0].update({'id': 'b'}) }}{{ tools.clear() }}"
        "{{ l.append(5) }}{{ messages | length }}{{ messages[0].tool_calls[0].id }}{{ tools }}{{ l }}"
    )
    tools, form = [{"name": "f"}], TemplateForm({"l": [4]})
    template = ChatTemplate(source)
    texts = [template.render(messages, tools, form) for _ in range(2)]
    assert texts == ["NoneNoneNoneNone2b[][4, 5]"] * 2
    assert (messages[0].more, tools, form.variables) == ({"tool_calls": [{"id": "a"}]}, [{"name": "f"}], {"l": [4]})


@pytest.mark.parametrize(
    "source",
    [
        "{{ [].__class__ }}{{ [].__class__.x }}",
        "{{ [].sort(key='x'.ljust) }}",
        "{{ '{0.__class__.x}'.format(1) }}",
        "{{ (''|attr('__class__')).x }}",
        "{{ ('{0.__class__.x}'|safe).format(1) }}",
        "{{ messages.append.__self__.x }}",
        "{{ rendered.__globals__.x }}",
        "{{ raise_exception.__globals__.x }}",
        "{{ strftime_now.__self__.meter }}",
        "{{ (messages | map('upper')).gi_frame.f_globals }}",
        "{{ namespace.__init__.x }}",
        "{% macro f() %}{% endmacro %}{{ f._func.x }}",
    ],
)
def test_a_template_reaches_nothing_of_pythons(source: str) -> None:
    with pytest.raises(TemplateError, match="failed"):
        rendered(source)
