"""Tool calls in the form of each template: found, bound by a grammar, and read back however the text is cut."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer

from runtime.conversation.calls import (
    MAY_THINK,
    NO_THOUGHT,
    OPEN_THOUGHT,
    CallForm,
    CallParser,
    Function,
    HarmonyParser,
    ReplyPart,
    call_grammar,
    form_of,
    harmony_grammar,
)
from runtime.conversation.calls.form import TYPES, TaggedArguments, ValueStyle
from runtime.conversation.calls.known import DESCRIBED, GRANITE, HERMES, LFM2
from runtime.conversation.calls.past import plain_tools, written_calls
from runtime.conversation.chat_template import ChatTemplate
from runtime.conversation.past_calls import CallFields
from runtime.sampling.grammar import Grammar, compile_grammar
from tests.support.call_templates import FORMS, template
from tests.support.calls import CALLS, FUNCTIONS, Calls, endings_of, folded, random_reply, read, rendered_turn, turn

BYTES = LLTokenizer("byte")
ONE_AT_A_TIME = ("one",)


def form_in(name: str) -> CallForm:
    found = form_of(template(FORMS[name]))
    assert found is not None
    return found


@pytest.mark.parametrize("case", CALLS)
@pytest.mark.parametrize("name", FORMS)
def test_what_a_template_writes_is_read_back(name: str, case: str) -> None:
    form, calls = form_in(name), CALLS[case]
    calls = calls[:1] if name in ONE_AT_A_TIME else calls
    text = rendered_turn(ChatTemplate(template(FORMS[name])), form, calls)
    text = text.partition("<|assistant|>\n")[2].removesuffix("\n").removesuffix("<|end|>")
    for sizes in ((10**6,), (1,), (2, 3, 7)):
        assert read(form, text, sizes) == ("", calls), text


@pytest.mark.parametrize(
    ("name", "trigger"),
    [
        ("hermes", "<tool_call>"),
        ("list", "[CALLS]"),
        ("marked", "<|calls|>"),
        ("section", "<|section|>"),
        ("tags", "<tool_call>"),
        ("typed", "<dsml>"),
        ("one", ""),
        ("answered", ""),
    ],
)
def test_a_call_is_announced_by_what_no_answer_has(name: str, trigger: str) -> None:
    assert form_in(name).trigger == trigger


def test_a_template_that_takes_one_call_a_turn_is_known_for_it() -> None:
    assert form_in("one").between is None
    assert form_in("hermes").between == '}\n</tool_call>\n<tool_call>\n{"name": "'


def test_earlier_calls_have_the_ids_and_arguments_that_their_template_takes() -> None:
    assert form_in("list").past == CallFields(short_ids=True)
    assert form_in("by id").past == CallFields(numbered_ids=True)
    assert form_in("as text").past == CallFields(text_arguments=True)
    text = rendered_turn(ChatTemplate(template(FORMS["by id"])), form_in("by id"), CALLS["two calls"])
    assert "<|call|>functions.get_weather:1<|args|>" in text


def test_a_template_that_offers_no_tools_has_no_form() -> None:
    assert form_of("{% for m in messages %}{{ m.content }}{% endfor %}") is None
    assert form_of("{{ tools }}{% if %}") is None


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ tools | tojson }}{% for m in messages %}{{ m.content }}{% endfor %}{# <|tool_call|> #}", GRANITE),
        ("{{ 'List of tools: ' ~ tools }}{% for m in messages %}{{ m.content }}{% endfor %}", LFM2),
        ("{{ tools }}<tool_call>{% for m in messages %}{{ m.content }}{% endfor %}", DESCRIBED),
    ],
)
def test_templates_that_write_no_calls_are_known_by_their_signs(source: str, expected: CallForm) -> None:
    assert form_of(source) == expected


@pytest.mark.parametrize("form", [GRANITE, LFM2, DESCRIBED], ids=["granite", "lfm2", "described"])
@pytest.mark.parametrize("case", CALLS)
def test_calls_that_no_template_writes_are_text_that_is_read_back(form: CallForm, case: str) -> None:
    text = written_calls(form, turn(CALLS[case]).more["tool_calls"])
    assert read(form, text, (1, 5)) == ("", CALLS[case])


def is_allowed(calls: Calls) -> bool:
    """Does every call follow the schema of its function?"""
    schemas = {function.name: dict(function.parameters or {}) for function in FUNCTIONS}
    return all(jsonschema_rs.validator_for(schemas[name]).is_valid(arguments) for name, arguments in calls)


def ready(grammar: Grammar) -> LLMatcher:
    return compile_grammar(grammar, BYTES)


EVERY_FORM = {name: form_in(name) for name in FORMS} | {"granite": GRANITE, "lfm2": LFM2, "described": DESCRIBED}


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("name", EVERY_FORM)
def test_a_bound_reply_is_a_call_whatever_the_model(name: str, parallel: bool) -> None:
    form, n = EVERY_FORM[name], 0
    for seed in range(6):
        matcher = ready(call_grammar(form, FUNCTIONS, required=True, parallel=parallel))
        reply = random_reply(matcher, BYTES, seed, endings_of(form))
        if reply is None:
            continue
        words, calls = read(form, bytes(reply).decode("utf8", "replace"), (3,))
        assert words.strip() == ""
        assert calls
        assert len(calls) == 1 or (parallel and form.between is not None)
        assert is_allowed(calls)
        n += 1
    assert n >= 2


def takes(matcher: LLMatcher, text: str) -> bool:
    """Does a grammar allow the whole text as a reply?"""
    tokens = list(text.encode())
    return bool(matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting())


@pytest.mark.parametrize("name", EVERY_FORM)
def test_free_text_may_end_in_a_call_and_in_nothing_that_only_begins_one(name: str) -> None:
    form = EVERY_FORM[name]
    call = written_calls(form, turn(CALLS["two arguments"]).more["tool_calls"])
    before = "Let me look.\n" if form.trigger else ""
    free = call_grammar(form, FUNCTIONS, required=False, parallel=True)
    assert takes(ready(free), "Just text, with <b>marks</b> and {braces}.")
    assert takes(ready(free), before + call)
    assert not takes(ready(free), before + call[: call.index("3")])
    if form.trigger:
        assert not takes(ready(free), f"{form.trigger} is what begins a call.")


@pytest.mark.parametrize("name", ["hermes", "one", "tags"])
def test_marks_within_a_thought_are_text(name: str) -> None:
    form = form_in(name)
    call = written_calls(form, turn(CALLS["one argument"]).more["tool_calls"])
    thought = f"I could write {form.trigger} now.</think>\n\n"
    opened = call_grammar(form, FUNCTIONS, required=False, parallel=True, thoughts=OPEN_THOUGHT)
    may = call_grammar(form, FUNCTIONS, required=False, parallel=True, thoughts=MAY_THINK)
    for grammar, begin in ((opened, ""), (may, "<think>")):
        assert takes(ready(grammar), begin + thought + "An answer.")
        assert takes(ready(grammar), begin + thought + call)
        assert takes(ready(grammar), begin + "cut off")
    assert takes(ready(may), call)
    assert takes(ready(may), "An answer.")


def test_with_an_answers_schema_a_reply_is_one_or_the_other() -> None:
    answer = Grammar("json_schema", json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}}))
    grammar = call_grammar(HERMES, FUNCTIONS, required=False, parallel=True, answer=answer, thoughts=NO_THOUGHT)
    assert takes(ready(grammar), '{"n": 3}')
    assert takes(ready(grammar), written_calls(HERMES, turn(CALLS["one argument"]).more["tool_calls"]))
    assert not takes(ready(grammar), "text")


def test_a_mark_that_comes_in_pieces_is_no_text() -> None:
    call = written_calls(HERMES, turn(CALLS["one argument"]).more["tool_calls"])
    text, calls = read(HERMES, f"Let me look. {call}", (16, 3))
    assert (text.strip(), calls) == ("Let me look.", CALLS["one argument"])


def test_a_mark_that_begins_no_call_is_text() -> None:
    assert read(HERMES, "The mark <tool_call> begins a call.", (1,)) == ("The mark <tool_call> begins a call.", [])
    unknown = '<tool_call>\n{"name": "other", "arguments": {}}\n</tool_call>'
    assert read(HERMES, unknown, (4,)) == (unknown, [])


@settings(deadline=None, max_examples=60)
@given(st.text(max_size=40), st.sampled_from(["hermes", "pairs", "tags", "typed"]), st.integers(1, 5))
def test_any_text_is_an_argument(value: str, name: str, size: int) -> None:
    form, calls = form_in(name), [("get", {"city": value})]
    if "</" in value or value != value.strip("\n"):  # ends an argument where arguments are tags
        return
    text = written_calls(form, turn(calls).more["tool_calls"])
    assert read(form, text, (size,)) == ("", calls)


OPTIONAL = {"anyOf": [{"type": "string"}, {"type": "null"}]}
COLOUR = {"$defs": {"Colour": {"enum": ["red", "blue"]}}}
WRITTEN: list[tuple[str, dict[str, Any], str, Any]] = [
    ("tags", OPTIONAL, "    indented\n", "    indented\n"),
    ("tags", OPTIONAL, "'a' || 'b'", "'a' || 'b'"),
    ("tags", OPTIONAL, '"quoted"', '"quoted"'),
    ("tags", OPTIONAL, "null", None),
    ("tags", {"allOf": [{"type": "string"}]}, "42", "42"),
    ("tags", {"type": "string"}, "true", "true"),
    ("tags", {"type": "string"}, "x = 1\n", "x = 1\n"),
    ("pairs", {"type": ["integer", "string"]}, "42", 42),
    ("pairs", {"type": "number"}, "1e999", "1e999"),
    ("pairs", {"type": "object"}, '{"a": [1, "b"]}', {"a": [1, "b"]}),
    ("pairs", {}, "a" * 40_000, "a" * 40_000),
]


@pytest.mark.parametrize(("name", "schema", "text", "expected"), WRITTEN)
@pytest.mark.parametrize("size", [3, 10**6])
def test_a_value_is_read_by_the_types_of_its_schema(
    name: str, schema: dict[str, Any], text: str, expected: Any, size: int
) -> None:
    function = Function("f", {"type": "object", "properties": {"v": schema}})
    form = form_in(name)
    assert isinstance(form.arguments, TaggedArguments)
    style = form.arguments.styles["string"]
    reply = f"{form.opening}f{form.head}{form.arguments.first}v{style.before}{text}{style.after}{form.closing}"
    assert parsed(form, [function], reply, size) == ("", [("f", {"v": expected})])


def parsed(form: CallForm, functions: list[Function], reply: str, size: int) -> tuple[str, Calls]:
    """The text and the calls of these functions in a reply that comes in pieces of this size."""
    parser, parts = CallParser(form, functions), list[ReplyPart]()
    for at in range(0, len(reply), size):
        parts += parser.feed(reply[at : at + size])
    return folded([*parts, *parser.finish(is_cut=False)])


def test_a_mark_without_its_line_break_ends_a_value_too() -> None:
    reply = "<tool_call>\n<function=get>\n<parameter=city>\nfoo</parameter>\n<parameter=days>\n5\n</parameter>\n"
    reply += "</function>\n</tool_call>"
    assert read(form_in("tags"), reply, (2,)) == ("", [("get", {"city": "foo", "days": 5})])
    grammar = call_grammar(form_in("tags"), FUNCTIONS, required=True, parallel=False)
    assert takes(ready(grammar), reply)
    assert not takes(ready(grammar), reply.replace("foo", "</parameter>\nfoo"))


@pytest.mark.parametrize("text", ['[<|"|>6" nail<|"|>,<|"|>x, y]<|"|>]', '[<|"|><|"|>]'])
def test_quotation_marks_within_gemmas_are_text(text: str) -> None:
    style = ValueStyle(":", "", "gemma")
    arguments = TaggedArguments("", ",", dict.fromkeys(TYPES, style))
    form = CallForm("<|tool_call>call:", "{", "}<tool_call|>", arguments=arguments, trigger="<|tool_call>")
    function = Function("f", {"properties": {"v": {"type": "array"}}})
    expected = ['6" nail', "x, y]"] if "nail" in text else [""]
    for size in (1, 100):
        assert parsed(form, [function], f"<|tool_call>call:f{{v:{text}}}<tool_call|>", size) == (
            "",
            [("f", {"v": expected})],
        )


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"anyOf": [{"enum": ["red", "blue"]}, {"type": "null"}]}, "red", "green"),
        ({"allOf": [{"$ref": "#/$defs/Colour"}]}, "blue", "green"),
        ({"anyOf": [{"type": "integer", "maximum": 5}, {"type": "null"}]}, "5", "77"),
        ({"type": "boolean", "enum": [True]}, "true", "false"),
        ({"enum": ["red", 1]}, "1", "7"),
        ({"enum": ["a\x7fb", "#/*"]}, "a\x7fb", "a"),
    ],
)
def test_values_written_one_by_one_are_bound_by_their_schemas(schema: dict[str, Any], good: str, bad: str) -> None:
    whole = {"type": "object", "properties": {"v": schema}, "required": ["v"], **COLOUR}
    form = form_in("pairs")
    grammar = call_grammar(form, [Function("f", whole)], required=True, parallel=False)
    reply = "<tool_call>f<arg_key>v</arg_key><arg_value>{}</arg_value></tool_call>"
    assert takes(ready(grammar), reply.format(good))
    assert not takes(ready(grammar), reply.format(bad))


def test_a_schema_that_refers_to_a_definition_is_that() -> None:
    whole = {"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "properties": {"v": {"type": "string"}}}}}
    function, form = Function("f", whole), form_in("pairs")
    reply = "<tool_call>f<arg_key>v</arg_key><arg_value>5</arg_value></tool_call>"
    assert parsed(form, [function], reply, 4) == ("", [("f", {"v": "5"})])
    grammar = call_grammar(form, [function], required=True, parallel=False)
    assert takes(ready(grammar), reply)
    assert not takes(ready(grammar), reply.replace(">v<", ">w<"))


@pytest.mark.parametrize("size", [1, 2, 100])
def test_what_an_answer_begins_with_is_no_text_and_a_call_may_follow_it(size: int) -> None:
    form = replace(form_in("answered"), answer="all\n")
    assert parsed(form, FUNCTIONS, "all\nHello there", size) == ("Hello there", [])
    reply = 'all\nLet me check.\n>>>get_weather\n{"city": "Oslo"}'
    assert parsed(form, FUNCTIONS, reply, size) == ("Let me check.\n", [("get_weather", {"city": "Oslo"})])


def test_a_template_that_cannot_be_probed_has_no_form() -> None:
    deep = '{{ tools }}{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.name }}{"{{ c.function.arguments'
    assert form_of(deep + " | first }}\": {{ '[' * 90000 }}{% endfor %}{{ m.content }}{% endfor %}") is None
    assert form_of("{{ tools }}{% for m in messages %}{{ m.content }}{{ 'x' * 200000 }}{% endfor %}") is None


CHANNELS = (
    "<|channel|>analysis<|message|>They ask for < the weather.<|end|><|start|>assistant"
    '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Oslo"}'
)


@pytest.mark.parametrize("size", [1, 6, 1000])
def test_channels_are_told_apart(size: int) -> None:
    parser, parts = HarmonyParser(), []
    for at in range(0, len(CHANNELS), size):
        parts += parser.feed(CHANNELS[at : at + size])
    parts += parser.finish(is_cut=False)
    words, calls = folded(parts)
    assert (words, calls) == ("They ask for < the weather.", [("get_weather", {"city": "Oslo"})])


def test_a_reply_in_channels_is_bound_as_others_are() -> None:
    free, forced = (harmony_grammar(FUNCTIONS, required=required) for required in (False, True))
    assert takes(ready(free), CHANNELS)
    assert takes(ready(free), "<|channel|>final<|message|>Hello")
    assert not takes(ready(free), "<|channel|>commentary to=functions.other<|message|>{}")
    assert not takes(ready(forced), "<|channel|>final<|message|>Hello")
    assert takes(ready(forced), " to=functions.now<|channel|>commentary json<|message|>{}")


def test_tools_are_filled_up_for_templates_that_read_without_looking() -> None:
    schema = {"properties": {"a": {"type": ["null", "integer"]}}}
    (tool,) = plain_tools([{"type": "function", "function": {"name": "f", "parameters": schema}}])
    assert tool["function"]["description"] == ""
    assert tool["function"]["parameters"]["properties"]["a"] == {"type": "integer", "description": ""}
