"""What a model that reads text cannot be shown: notes in results and earlier messages, at all three interfaces."""

from __future__ import annotations

from typing import Any

import pytest

from app.server.anthropic.messages import AnthropicConversation
from app.server.openai.chat import ChatRequest
from app.server.openai.responses import ResponsesRequest

NOTE = "[image left out: this model reads text only]"
IMAGE_URL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
INPUT_IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,aGk="}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
TEXT = {"type": "text", "text": "Look"}
HI = {"role": "user", "content": "Hi"}


def chat_texts(messages: list[Any]) -> list[str]:
    return [message.text for message in ChatRequest.model_validate({"messages": messages}).messages]


def anthropic_texts(messages: list[Any]) -> list[str]:
    return [message.text for message in AnthropicConversation.model_validate({"messages": messages}).chat().messages]


def responses_texts(items: list[Any]) -> list[str]:
    return [message.text for message in ResponsesRequest.model_validate({"input": items}).chat.messages]


def result_of(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": list(blocks)}]}


def test_an_image_in_a_result_is_a_note() -> None:
    assert chat_texts([HI, {"role": "tool", "tool_call_id": "1", "content": [TEXT, IMAGE_URL]}])[1] == f"Look\n{NOTE}"
    assert anthropic_texts([HI, result_of(IMAGE)])[1] == NOTE
    output = {"type": "function_call_output", "call_id": "1", "output": [INPUT_IMAGE, {"type": "input_file"}]}
    assert responses_texts([HI, output])[1] == f"{NOTE}\n{NOTE.replace('image', 'file')}"


@pytest.mark.parametrize(
    ("block", "text"),
    [
        ({"type": "search_result", "title": "T", "source": "https://x", "content": [TEXT]}, "T\nhttps://x\nLook"),
        ({"type": "document", "title": "T", "source": {"type": "text", "data": "Words"}}, "T\nWords"),
        ({"type": "document", "source": {"type": "content", "content": [TEXT]}}, "Look"),
        ({"type": "document", "source": {"type": "base64", "data": "aGk="}}, NOTE.replace("image", "document")),
        ({"type": "tool_reference", "tool_name": "x"}, NOTE.replace("image", "tool reference")),
        ({"type": "new]kind"}, NOTE.replace("image", "new kind")),
    ],
)
def test_a_result_of_another_kind_is_its_text_or_a_note(block: dict[str, Any], text: str) -> None:
    assert anthropic_texts([HI, result_of(block)])[1] == text


def test_an_image_of_an_earlier_message_is_a_note() -> None:
    assert chat_texts([{"role": "user", "content": [TEXT, IMAGE_URL]}, HI]) == [f"Look\n{NOTE}", "Hi"]
    assert anthropic_texts([{"role": "user", "content": [TEXT, IMAGE]}, HI]) == [f"Look\n{NOTE}", "Hi"]
    assert responses_texts([{"role": "user", "content": [INPUT_IMAGE]}, HI]) == [NOTE, "Hi"]


def test_an_image_of_the_last_question_is_refused() -> None:
    for texts, image in ((chat_texts, IMAGE_URL), (anthropic_texts, IMAGE), (responses_texts, INPUT_IMAGE)):
        asked = [HI, {"role": "user", "content": [image]}, {"role": "assistant", "content": "Well"}]
        with pytest.raises(ValueError, match="image input is not supported"):
            texts(asked)


def test_what_is_neither_media_nor_a_result_is_refused_as_before() -> None:
    with pytest.raises(ValueError, match="of type text or"):
        anthropic_texts([{"role": "user", "content": [{"type": "secret"}]}, HI])
    with pytest.raises(ValueError, match="list"):
        ChatRequest.model_validate({"messages": "Hi"})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ('{"a": 1}', {"a": 1}),
        ({"a": 1}, {"a": 1}),
        ("", {}),
        (" \n", {}),
        ("null", {}),
        (None, {}),
        ('{"a": ', {"arguments": '{"a": '}),
        ("[1]", {"arguments": "[1]"}),
        ([1], {"arguments": "[1]"}),
        (7, {"arguments": "7"}),
        ("[" * 100_000, {"arguments": "[" * 100_000}),
    ],
)
def test_arguments_of_earlier_calls_are_an_object(given: Any, expected: Any) -> None:
    call = {"function": {"name": "f", "arguments": given}}
    (chat,) = ChatRequest.model_validate({"messages": [{"role": "assistant", "tool_calls": [call]}]}).messages
    use = {"type": "tool_use", "id": "1", "name": "f", "input": given}
    (block,) = (
        AnthropicConversation.model_validate({"messages": [{"role": "assistant", "content": [use]}]}).chat().messages
    )
    item = {"type": "function_call", "call_id": "1", "name": "f", "arguments": given}
    (turn,) = ResponsesRequest.model_validate({"input": [item]}).chat.messages
    for message in (chat, block, turn):
        assert [call.arguments() for call in message.tool_calls or ()] == [expected]


def test_a_call_without_an_id_has_none_for_the_template() -> None:
    call = {"function": {"name": "f", "arguments": "{}"}}
    (chat,) = ChatRequest.model_validate({"messages": [{"role": "assistant", "tool_calls": [call]}]}).messages
    assert chat.message().more["tool_calls"] == [{"type": "function", "function": {"name": "f", "arguments": {}}}]
