"""Fields of requests: each has a bound, which is told with the field's name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from app.server.anthropic.response import as_object
from app.server.application import ENDPOINTS
from app.server.errors import ApiError
from app.server.fields import MAX_OBJECT, MAX_PARTS, Few, RequestModel, checked, short_object
from app.server.ollama.reply import called
from app.server.openai.chat import ChatRequest
from runtime.engine import Prompt
from tests.support.serving import Running

ASKED: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}


@pytest.mark.parametrize(
    ("field", "what"),
    [
        ("[]" + ",[]" * MAX_PARTS, "has 32772 lists and objects"),
        ("{}" + ",{}" * MAX_PARTS, "has 32772 lists and objects"),
        ("1" + ",1" * 2**21, "has 2097153 values"),
        (",".join(["9" * 4000] * 51), "has 1020 times 200 digits"),
    ],
    ids=["lists", "objects", "values", "digits"],
)
def test_a_body_of_very_many_values_is_not_looked_at(field: str, what: str) -> None:
    with pytest.raises(ApiError, match=what) as raised:
        checked(bytearray(f'{{"messages":[],"documents":[{field}'.encode()), ChatRequest, 2048)
    assert raised.value.status == 413


@pytest.mark.parametrize(
    ("path", "field", "value", "sentence"),
    [
        ("/api/chat", "model", "x" * 1025, "model must have at most 1024 characters."),
        ("/completion", "stop", ["a", "x" * 1025], "stop.1 must have at most 1024 characters."),
        ("/v1/messages", "stop_sequences", ["a"] * 1025, "stop_sequences must have at most 1024 items, not 1025."),
        ("/v1/responses", "metadata", {f"k{i}": "" for i in range(1025)}, "metadata must have at most 1024 entries."),
        ("/v1/chat/completions", "grammar", "x" * (2**18 + 1), "grammar must have at most 262144 characters."),
        ("/v1/chat/completions", "json_schema", {"title": "x" * MAX_OBJECT},
         "json_schema must have at most 1048576 characters as JSON."),
        ("/v1/chat/completions", "documents", [{"a": "x" * MAX_OBJECT}],
         "documents.0 must have at most 1048576 characters as JSON."),
        ("/v1/chat/completions", "prediction", {"type": "content", "content": "x" * (MAX_OBJECT + 1)},
         "prediction.content must have at most 1048576 characters."),
    ],
    ids=lambda value: str(value)[:30],
)  # fmt: skip
def test_who_sends_too_much_reads_which_field_and_how_much(
    here: Running, path: str, field: str, value: Any, sentence: str
) -> None:
    answer = here.client().post(path, json=ASKED | {"prompt": "", "input": "Hi", field: value})
    error = answer.json()["error"]
    assert (answer.status_code, error if isinstance(error, str) else error["message"]) == (400, sentence)


def test_arguments_of_very_many_parts_are_passed_on_as_text() -> None:
    text = json.dumps({"a": [[]] * MAX_PARTS})
    call = {"function": {"name": "f", "arguments": text}}
    (chat,) = ChatRequest.model_validate({"messages": [{"role": "assistant", "tool_calls": [call]}]}).messages
    assert [each.arguments() for each in chat.tool_calls or ()] == [{"arguments": text}]


def test_what_looks_like_values_within_a_text_is_none() -> None:
    text = '[{"\\,' * 2**19 + "9" * 10**6
    assert checked(bytearray(json.dumps(ASKED | {"user": None, "stop": None, "x": text}).encode()), ChatRequest, 1)


def unbounded(schema: Any, place: str, most: int | None = None) -> Iterator[str]:
    """The fields of any length in a schema of pydantic's. `most`: characters of texts, as the model itself says."""
    if not isinstance(schema, dict):
        for each in schema if isinstance(schema, list | tuple) else ():
            yield from unbounded(each, place, most)
        return
    kind, limit = schema.get("type"), schema.get("max_length")
    most = schema.get("config", {}).get("str_max_length", most)
    if limit == 0 or (kind == "function-after" and schema["function"]["function"] is short_object):
        return
    if limit is None and (kind in ("list", "dict", "set", "any", "bytes") or (kind == "str" and most is None)):
        yield f"{place}: {kind}"
    if kind == "list" and not schema.get("fail_fast"):
        yield f"{place}: seeks more errors than one"
    for key, each in schema.items():
        is_field = isinstance(each, dict) and each.get("type") == "model-field"
        if key not in ("metadata", "json_schema_input_schema", "default"):
            yield from unbounded(each, f"{place}.{key}" if is_field else place, most)


@pytest.mark.parametrize("kind", sorted({each.request for each in ENDPOINTS if each.request}, key=str))
def test_no_field_of_a_request_may_be_of_any_length(kind: type[RequestModel]) -> None:
    assert [*unbounded(kind.__pydantic_core_schema__, kind.__name__)] == []


def test_a_field_without_a_bound_is_found() -> None:
    class Loose(RequestModel):
        short: str
        few: Few[str]
        many: list[str]
        named: dict[str, Any]
        within: Few[dict[str, str]] | None = None

    assert [*unbounded(Loose.__pydantic_core_schema__, "")] == [
        ".many: list", ".many: seeks more errors than one", ".named: dict", ".named: any", ".within: dict",
    ]  # fmt: skip


def test_arguments_that_a_model_nests_deeply_are_left_out() -> None:
    text = "[" * 100_000
    assert as_object(text) == {}
    read = called({"id": "1", "function": {"name": "f", "arguments": text}})
    assert read["function"] == {"name": "f", "arguments": {}}


def test_prompts_behind_one_that_is_too_long_are_not_tokenized(here: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, n = here.server.served.engine, 0
    encode = engine.encode

    def counted(prompt: Prompt) -> Sequence[int]:
        nonlocal n
        n += 1
        return encode(prompt)

    monkeypatch.setattr(engine, "encode", counted)
    answer = here.client().post("/v1/completions", json={"prompt": ["a", *["the cat " * 2000] * 20], "max_tokens": 1})
    assert (answer.status_code, answer.json()["error"]["param"], n) == (400, "prompt", 2)
