"""Small chat templates, each of which writes tool calls in one of the forms that models know."""

# ruff: noqa: E501 (a template's lines are what is written)

from __future__ import annotations

TURNS = """{% if tools %}[tools]{{ tools | tojson }}[/tools]{% endif %}{% for m in messages %}<|{{ m.role }}|>
{% if m.tool_calls %}CALLS{% else %}{{ m.content }}{% endif %}<|end|>
{% endfor %}{% if add_generation_prompt %}<|assistant|>
{% endif %}"""


def template(calls: str) -> str:
    """A template whose turns with calls are written so."""
    return TURNS.replace("CALLS", calls)


HERMES = """{% for c in m.tool_calls %}{% if not loop.first %}{{ '\\n' }}{% endif %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}"""
LIST = """[CALLS][{% for c in m.tool_calls %}{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}\
{% if c.id | length != 9 %}{{ raise_exception('ids have nine letters') }}{% endif %}, "id": "{{ c.id }}"}\
{% if not loop.last %}, {% endif %}{% endfor %}]"""
MARKED = """{% for c in m.tool_calls %}<|calls|>{{ c.function.name }}<|args|>{{ c.function.arguments | tojson }}{% endfor %}"""
SECTION = """<|section|>{% for c in m.tool_calls %}<|call|>functions.{{ c.function.name }}:{{ loop.index0 }}<|args|>\
{{ c.function.arguments | tojson }}<|call_end|>{% endfor %}<|section_end|>"""
BY_ID = """<|section|>{% for c in m.tool_calls %}<|call|>{{ c.id }}<|args|>{{ c.function.arguments | tojson }}<|call_end|>\
{% endfor %}<|section_end|>"""
TAGS = """{% for c in m.tool_calls %}{% if not loop.first %}{{ '\\n' }}{% endif %}<tool_call>
<function={{ c.function.name }}>
{% for key, value in c.function.arguments.items() %}<parameter={{ key }}>
{{ value if value is string else value | tojson }}
</parameter>
{% endfor %}</function>
</tool_call>{% endfor %}"""
PAIRS = """{% for c in m.tool_calls %}<tool_call>{{ c.function.name }}{% for key, value in c.function.arguments.items() %}\
<arg_key>{{ key }}</arg_key><arg_value>{{ value if value is string else value | tojson }}</arg_value>{% endfor %}\
</tool_call>{% endfor %}"""
TYPED = """<dsml>
{% for c in m.tool_calls %}<invoke name="{{ c.function.name }}">
{% for key, value in c.function.arguments.items() %}\
<parameter name="{{ key }}" string="{{ 'true' if value is string else 'false' }}">\
{{ value if value is string else value | tojson }}</parameter>
{% endfor %}</invoke>
{% endfor %}</dsml>"""
PYTHON = """<|calls|>[{% for c in m.tool_calls %}{{ c.function.name }}(\
{% for key, value in c.function.arguments.items() %}{{ key }}={{ value | tojson }}{% if not loop.last %}, {% endif %}\
{% endfor %}){% if not loop.last %}, {% endif %}{% endfor %}]<|calls_end|>"""
ONE = """{% if m.tool_calls | length > 1 %}{{ raise_exception('one call at a time') }}{% endif %}\
{"name": "{{ m.tool_calls[0].function.name }}", "parameters": {{ m.tool_calls[0].function.arguments | tojson }}}"""
AS_TEXT = """{% for c in m.tool_calls %}{% if not loop.first %}{{ '\\n' }}{% endif %}<|call|>{{ c.function.name }}
```json
{{ c.function.arguments + '' }}
```<|call_end|>{% endfor %}"""
ANSWERED = """{% for c in m.tool_calls %}{% if not loop.first %}>>>{% endif %}{{ c.function.name }}
{{ c.function.arguments | tojson }}{% endfor %}"""

FORMS = {
    "hermes": HERMES, "list": LIST, "marked": MARKED, "section": SECTION, "by id": BY_ID, "tags": TAGS, "pairs": PAIRS,
    "typed": TYPED, "python": PYTHON, "one": ONE, "as text": AS_TEXT, "answered": ANSWERED,
}  # fmt: skip

# As gpt-oss writes it: every message in a channel
CHANNELS = """{% if tools %}<|start|>developer<|message|>{{ tools | tojson }}<|end|>{% endif %}{% for m in messages %}\
{% if m.role == 'assistant' and m.tool_calls %}<|start|>assistant to=functions.{{ m.tool_calls[0].function.name }}\
<|channel|>commentary json<|message|>{{ m.tool_calls[0].function.arguments | tojson }}<|call|>\
{% elif m.role == 'assistant' %}<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|end|>\
{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}\
{% if add_generation_prompt %}<|start|>assistant{% endif %}"""
