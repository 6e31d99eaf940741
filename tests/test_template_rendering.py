"""Chat templates are rendered as transformers renders them: small pieces of templates beside the reference."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.engine.chat_template import ChatTemplate, Message, TemplateForm
from tests.support.reference_template import reference_text

CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "weather", "arguments": {"city": "Zürich", "n": 1764183600}},
}
MESSAGES = [
    Message("system", 'Be <brief> & "kind".'),
    Message("user", "  Hello there,\nwörld: 日本!  "),
    Message("assistant", "<think>\nhm\n</think>\n\nHi, it's me", {"tool_calls": [CALL]}),
    Message("tool", '{"t": 4}', {"name": "weather", "tool_call_id": "call_1"}),
    Message("user", "Thanks\tMax"),
]
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {
        "city": {"type": "string"}, "days": {"type": "integer", "maximum": 100000}}, "required": ["city"]}}}
]  # fmt: skip
DATA: dict[str, Any] = {
    "n": 1764183600, "f": 3.14159, "t": "a-b_c d", "l": [3, 1, 2], "d": {"b": 1, "a": 2, "C": [1, {"x": None}]},
    "people": [{"name": "Bo", "age": 3}, {"name": "al", "age": 5}, {"name": "Cy", "age": 3}], "yes": True, "none": None,
}  # fmt: skip

# By kind: each is one template
NUMBERS = """
{{ 10 ** 20 }} {{ 2 ** 100 }} {{ 2 ** -1 }} {{ 2.5 ** 2 }} {{ (-2) ** 3 }} {{ 1 ** 99999999999 }} {{ 0 ** 0 }}
{{ n * 1000000000 }} {{ 10000000000 * 10000000000 }} {{ 1e9 * 5 }} {{ 3 * 0.5 }} {{ yes * 7 }} {{ -5 * 12345678901 }}
{{ 9 ** 9 ** 9 }}
{{ n + 1 }} {{ n - 1 }} {{ n // 7 }} {{ n / 2 }} {{ n % 60 }} {{ -n }} {{ +n }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 - 10 }}
{{ n | abs }} {{ n | int }} {{ '1764183600' | int }} {{ '0x1F' | int(base=16) }} {{ 'x' | int(99999) }} {{ '2.5' | float }}
{{ f | round(2) }} {{ f | round(1, 'floor') }} {{ f | round(method='ceil') }} {{ 42.7 | int }} {{ 123456789 | filesizeformat }}
{{ [1, 99999, 3] | sum }} {{ people | sum(attribute='age') }} {{ [[1], [2]] | sum(start=[0]) }} {{ [n, 5] | max }} {{ [n, 5] | min }}
{{ n is divisibleby 5 }} {{ n is odd }} {{ n is even }} {{ n > 10 ** 9 }} {{ 1 < 2 < 3 }} {{ n == 1764183600 }} {{ n != 1 }}
{{ (n).bit_length() }} {{ 255 .to_bytes(2, 'big') }} {{ n | string }} {{ n | default(100000) }} {{ undefined | default(1000000) }}
{{ range(3) | list }} {{ range(10, 0, -3) | list }} {{ range(100000) | length }} {{ [100000, 200000] | join('-') }}
"""
REPEATED = """
{{ '  ' * 3 }}| {{ 3 * 'ab' }} {{ 'x' * 0 }}. {{ 'x' * -4 }}. {{ 'x' * yes }} {{ [1, 2] * 2 }} {{ 2 * [0] }} {{ (1,) * 3 }} {{ [] * 5 }}
{{ '=' * (t | length) }} {{ ('ab' * 2 + 'c') * 2 }} {{ 'é' * 20000 == 'é' * 20000 }} {{ ('-' * 30000) | length }}
"""
FORMATS = """
{{ '* %s' % t }} {{ 'port 18300: %s' % t }} {{ '%s' % n }} {{ '%d items' % 5 }} {{ '%05d' % 42 }} {{ '%-6s|' % 'ab' }} {{ '%+.2f' % f }}
{{ '%5.1f|%%' % f }} {{ '%(a)s %(b)s' % {'a': 1, 'b': 'x'} }} {{ '%*d' % (6, 5) }} {{ '%.*f' % (2, f) }} {{ '%s %s' % ('a', 'b') }}
{{ '%r' % t }} {{ '%x %o %e' % (255, 8, f) }} {{ '%c%c' % ('a', 66) }} {{ '%s' % [1, 2] }} {{ '%s' % (none,) }} {{ '%(a-12345)s' % {'a-12345': 7} }}
{{ '%s-%s' | format('a', n) }} {{ '%(x)s' | format(x=3) }} {{ '{}'.format(n) }} {{ '{0} {1} {0}'.format('a', 'b') }} {{ '{name!r}'.format(name=t) }}
{{ '{:>8}|{:<4}|{:^5}'.format('a', 'b', 'c') }} {{ '{:5<7}'.format('x') }} {{ '{:08.3f}'.format(f) }} {{ '{:,}'.format(n) }} {{ '{:_}'.format(n) }}
{{ '{:{}}|'.format('x', 4) }} {{ '{{18300}} {}'.format(1) }} {{ '{a[b]} {m[C]}'.format(a={'b': 1}, m=d) }} {{ '{a}'.format_map({'a': 5}) }}
{{ '{:x} {:#b} {:e}'.format(255, 5, f) }} {{ '{:%}'.format(0.5) }} {{ 'port 99999 {}'.format('x') }} {{ '{0.real}'.format(5) }}
"""
TEXTS = """
{{ t.split('-') }} {{ t.rsplit('_', 1) }} {{ t.split() }} {{ 'a  b c'.split(' ', 1) }} {{ 'a\nb'.splitlines() }} {{ t.partition('-') }} {{ t.rpartition('-') }}
{{ ' x '.strip() }}| {{ 'xxaxx'.strip('x') }} {{ ' x'.lstrip() }} {{ 'x '.rstrip() }}| {{ t.startswith('a') }} {{ t.startswith(('q', 'a')) }} {{ t.endswith('d') }}
{{ t.replace('-', '+') }} {{ t.replace('', '.') }} {{ 'aaa'.replace('a', 'b', 2) }} {{ t.title() }} {{ t.upper() }} {{ t.capitalize() }} {{ 'ß'.upper() }} {{ t.swapcase() }}
{{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }} {{ '7'.zfill(3) }} {{ 'x'.ljust(3) }}| {{ 'x'.rjust(3, '.') }} {{ 'x'.center(5, '*') }} {{ 'a\tb'.expandtabs(4) }}
{{ t.find('b') }} {{ t.rfind('z') }} {{ t.index('c') }} {{ t.count('-') }} {{ '12'.isdigit() }} {{ 'ab'.isalpha() }} {{ t.islower() }} {{ '-'.join(['a', 'b']) }} {{ ', '.join(d) }}
{{ 'abc'.translate({97: 'x'}) }} {{ 'ä'.encode() }} {{ 'ä'.encode('latin-1').decode('latin-1') }} {{ t[0] }} {{ t[-1] }} {{ t[1:4] }} {{ t[::-1] }} {{ t[::2] }} {{ t[:-1] }} {{ t[4:] }}
{{ t ~ 1 ~ none ~ [1] }} {{ 'a' + 'b' }} {{ 'a' ~ n }} {{ t in 'xx a-b_c d' }} {{ 'z' not in t }} {{ 'a' 'b' }} {{ t | length }} {{ t | list }} {{ t | first }} {{ t | last }} {{ t | reverse }}
"""
FILTERS = """
{{ t | upper }} {{ t | title }} {{ t | capitalize }} {{ ' x ' | trim }} {{ 'xax' | trim('x') }} {{ t | replace('-', '') }} {{ 'aaa' | replace('a', 'b', 1) }} {{ t | center(20) }}|
{{ 'a\nb' | indent }} {{ 'a\nb' | indent(2, true) }} {{ 'a\n\nb' | indent('> ', first=True, blank=True) }} {{ 'one two three' | wordwrap(5) }} {{ 'one two three' | truncate(9) }}
{{ 'a b' | wordcount }} {{ '<b>x</b>' | striptags }} {{ '<&>' | escape }} {{ '<&>' | e | upper }} {{ '<&>' | safe }} {{ ('<' | safe) + '>' }} {{ ('<' | safe) ~ '>' }} {{ 'a b&c' | urlencode }} {{ {'q': 1} | urlencode }}
{{ l | sort }} {{ l | sort(reverse=true) }} {{ people | sort(attribute='name') | map(attribute='name') | list }} {{ people | sort(attribute='age,name') | map(attribute='name') | join(' ') }} {{ l | reverse | list }}
{{ l | join }} {{ l | join(', ') }} {{ people | join('/', attribute='name') }} {{ ['a', 'A', 'b'] | unique | list }} {{ l | first }} {{ l | last }} {{ l | length }} {{ d | length }} {{ d | count }}
{{ d | items | list }} {{ d | dictsort }} {{ d | dictsort(true) }} {{ d | dictsort(by='key', reverse=true) }} {{ d | list }} {{ range(5) | batch(2) | list }} {{ range(5) | batch(2, 0) | list }} {{ range(5) | slice(2) | list }}
{{ people | groupby('age') }} {{ people | map(attribute='age') | list }} {{ people | map(attribute='zip', default='-') | list }} {{ ['a'] | map('upper') | list }} {{ ['a'] | map('replace', 'a', 'b') | first }} {{ people | selectattr('age', 'equalto', 3) | map(attribute='name') | list }}
{{ people | selectattr('age', '>', 3) | list }} {{ people | rejectattr('age', 'eq', 3) | list }} {{ people | selectattr('zip') | list }} {{ people | selectattr('name', 'in', ['al']) | list | length }} {{ l | select('odd') | list }} {{ l | reject('equalto', 1) | list }} {{ [0, 1, '', 'x'] | select | list }}
{{ people | map(attribute='name') | map('lower') | sort | join(',') }} {{ d | pprint }} {{ {'class': 'x', 'n': none} | xmlattr }} {{ 'see https://a.b' | urlize }} {{ [[1, 2], [3]] | map('sum') | list }} {{ d | attr('keys') is defined }} {{ n | default('x', true) }} {{ '' | default('x', true) }} {{ none | d('y') }}
"""
JSON = """
{{ tools | tojson }} {{ tools | tojson(indent=2) }} {{ tools[0] | tojson(indent=4) }} {{ d | tojson }} {{ n | tojson }} {{ 123456789012345678901234567890 | tojson }} {{ '<日本>' | tojson }} {{ '日本' | tojson(true) }} {{ '日本' | tojson(ensure_ascii=True) }}
{{ d | tojson(false, 2) }} {{ d | tojson(false, none, [',', ':']) }} {{ d | tojson(separators=(',', ':')) }} {{ d | tojson(separators=(', ', ': '), indent=1) }} {{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }} {{ {'b': 1, 'a': 2} | tojson(false, none, none, true) }} {{ d | tojson(indent='--') }} {{ d | tojson(indent=0) }}
{{ [] | tojson }} {{ none | tojson }} {{ true | tojson }} {{ f | tojson }} {{ messages[2].tool_calls | tojson }} {{ messages[2].tool_calls[0].function.arguments | tojson | length }} {{ (1, 2) | tojson }} {{ {1: 2} | tojson }} {{ tools | tojson | safe }}
"""
TESTS = """
{{ d is mapping }} {{ l is mapping }} {{ l is iterable }} {{ t is iterable }} {{ n is iterable }} {{ l is sequence }} {{ t is string }} {{ n is number }} {{ yes is number }} {{ yes is boolean }} {{ n is integer }} {{ f is float }} {{ none is none }} {{ zip is defined }} {{ zip is undefined }} {{ t is callable }}
{{ 1 is in [1, 2] }} {{ 'a' in d }} {{ 5 in l }} {{ 3 is in l }} {{ l == [3, 1, 2] }} {{ d == {} }} {{ l != l }} {{ l is sameas l }} {{ 'a' is lower }} {{ 'A' is upper }} {{ 2 is eq 2 }} {{ 2 is gt 1 }} {{ yes is true }} {{ yes is false }} {{ [1] < [2] }} {{ l in [l] }} {{ 'upper' is filter }} {{ 'odd' is test }}
{{ 'y' if yes else 'n' }} {{ 'y' if none }}. {{ not yes }} {{ yes and t }} {{ none or t }} {{ (t | length > 3) and l }} {{ documents is none }} {{ zip.zap is defined }} {{ d.zip }} {{ d['a'] }} {{ d.b }} {{ l[9] is defined }} {{ messages[0]['role'] }} {{ messages[-1].content }} {{ messages[0].zip is none }}
{{ l[1:] }} {{ l[::-1] }} {{ l[-2:] }} {{ l[:1] + l[2:] }} {{ messages[::2] | length }} {{ (1, 2, 3)[1:] }} {{ d.items() | list }} {{ d.keys() | list }} {{ d.values() | list | length }} {{ d.get('zip', 5) }} {{ d.get('a') }} {{ {'a': {'b': [1]}}.a.b[0] }} {{ dict(a=1, **{'b': 2}) }} {{ dict([('x', 1)]) }}
"""
BLOCKS = [
    "{% set ns = namespace(x=0, l=[]) %}{% for i in l %}{% set ns.x = ns.x + i %}{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.x }}{{ ns.l }}",
    "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.first }}{{ loop.last }}{{ loop.length }};{% endfor %}",
    "{% for m in messages %}{{ loop.previtem.role }}<{{ loop.nextitem.role }}{{ loop.cycle('a', 'b') }}{{ loop.changed(m.role) }}{% endfor %}",
    "{% for m in messages if m.role == 'user' %}{{ m.content }}{% else %}none{% endfor %}{% for x in [] %}{% else %}empty{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k, v in d | dictsort %}{{ k }}{% endfor %}",
    "{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for x in [1, [2, [3]]] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}{{ loop.depth }}{% endif %}{% endfor %}",
    "{% macro f(a, b='z') %}[{{ a }}{{ b }}{{ varargs }}{{ kwargs }}]{% endmacro %}{{ f(1) }}{{ f(1, 2, 3, c=4) }}{{ f(b=5, a='q') | upper }}",
    "{% macro box(x) %}<{{ caller(x) }}>{% endmacro %}{% call(y) box(7) %}{{ y }}!{% endcall %}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(9) }}",
    "{%- set x %}  a {{ t }}\n{% endset %}{{ x | trim }}{{ x | length }}{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set x | upper %}abc{% endset %}{{ x }}{% filter upper %}x{{ t }}{% endfilter %}{% filter indent(2) %}a\nb{% endfilter %}",
    "{% with a = 1, b = t %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}{% block c %}{{ t }}{% endblock %}{{ self.c() }}",
    "{% if n > 5 %}big{% elif n %}small{% else %}no{% endif %}   {# note #}\n  {%- if yes -%}  x  {%- endif %}\n{% raw %}{{ x }}{% endraw %}",
    "   {% if yes %}\nline\n   {% endif %}\n  {{ t }}\n{% for i in l %}\n  {{ i }}\n{% endfor %}\nend",
    "{% generation %}{{ messages[0].content }}{% endgeneration %}!",
    "{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}",
    "{% for m in messages %}{% generation %}{{ loop.index }}{{ m.role }}\n{% endgeneration %}{% endfor %}",
    "{% set ns = namespace(x=1) %}{%- generation -%}  {% set ns.x = 2 %} {%- endgeneration -%} {{ ns.x }}",
    "{% set s = messages | selectattr('role', 'equalto', 'user') %}{% if s %}{{ s | list | length }}{{ s | list | length }}{% endif %}",
    "{% set s = [] | map('upper') %}{{ 'yes' if s else 'no' }}{% for x in messages | rejectattr('role', 'in', ['tool']) %}{{ x.role }}{{ loop.last }}{% endfor %}",
    "{% for k, g in people | groupby('age') %}{{ k }}:{{ g | map(attribute='name') | join('+') }};{% endfor %}",
    "{% for row in messages | batch(2, 'x') %}{{ row | length }}{% endfor %}{% for c in l | slice(2) %}{{ c }}{% endfor %}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{% set j = joiner(', ') %}{{ j() }}x{{ j() }}y",
    "{{ messages[2].content.split('</think>')[-1].lstrip('\\n') }}{{ messages[2].content.split('</think>')[0].split('<think>')[-1].strip() }}",
    "{% for tc in messages[2].tool_calls %}{{ tc.function.name }}{{ tc.function.arguments.n }}{% for k, v in tc.function.arguments | items %}{{ k }}{{ v if v is string else v | tojson }}{% endfor %}{% endfor %}",
    "{% autoescape true %}{{ '<' }}{{ '<' ~ '>' }}{{ '<' | safe }}{{ ['<'] | join(',') }}{{ messages[0].content }}{% endautoescape %}{{ '<' }}",
    "{% set x = ('<%s {}' | safe) % '<' %}{{ x }}{{ x.format('<') }}{{ x * 2 }}{{ x + '<' }}{{ x.join(['<', 'b']) }}{{ x.replace('s', '<') }}",
    "{{ bos_token }}{{ eos_token }}{{ unk_token }}{{ add_generation_prompt }}{{ tools[0].function.name }}{{ strftime_now('%Y') }}{{ strftime_now('%d %b') | length }}",
    "{% set _ = t %}{% set x = {'a': 1, 'b': {'c': (1, 2)}} %}{% for k in x %}{{ k }}{{ x[k] }}{% endfor %}{{ x.b.c[1] }}{{ {(1, 2): 3}[(1, 2)] }}",
    "{% set ns = namespace(a=none) %}{% for m in messages[::-1] %}{% if ns.a is none and m.role == 'user' %}{% set ns.a = loop.index0 %}{% endif %}{% endfor %}{{ ns.a }}{{ (messages | length - 1) - ns.a }}",
    "{% if messages[0].role == 'system' and messages[1:] %}{{ messages[1:][0].content | trim }}{% endif %}{{ messages[1:] | map(attribute='role') | join('>') }}",
    "{{ (messages | map(attribute='role') | list)[1:3] }}{{ messages | map(attribute='content') | map('length') | sum }}{{ messages | last is mapping }}",
]  # fmt: skip


def pieces(lines: str) -> list[str]:
    """Return each `{{ ... }}` with what follows it."""
    return ["{{ " + piece.strip(" ") for piece in lines.strip("\n").split("{{ ")[1:]]


SOURCES = [piece for kind in (NUMBERS, REPEATED, FORMATS, TEXTS, FILTERS, JSON, TESTS) for piece in pieces(kind)]


def reference(source: str) -> str:
    """Return what transformers writes for the same messages, tools and variables."""
    turns = [{"role": message.role, "content": message.content, **message.more} for message in MESSAGES]
    tokens = {"bos_token": "<s>", "eos_token": "</s>", "documents": None}
    return reference_text(source, {**tokens, **DATA, "messages": turns, "tools": TOOLS, "add_generation_prompt": True})


@pytest.mark.parametrize("source", [*SOURCES, *BLOCKS])
def test_a_piece_of_a_template_is_rendered_as_transformers_renders_it(source: str) -> None:
    rendered = ChatTemplate(source, "<s>", "</s>").render(MESSAGES, TOOLS, TemplateForm(DATA))
    assert rendered == reference(source)
