"""What a chat template is told, and replies that were begun: at every interface as /apply-template shows it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from app.server.anthropic.blocks import AnthropicMessage
from app.server.openai.chat import ChatRequest
from app.server.openai.conversation import ANALYSIS, FINAL, NEXT, ConversationRequest
from app.server.openai.responses import ResponsesRequest
from bench.instruments.toy import facts
from runtime.conversation.chat_template import ChatTemplate
from runtime.conversation.prompt import PromptEncoder
from runtime.engine import Message, Options, Rendered, TemplateForm
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import load_registry
from tests.support.call_templates import CHANNELS
from tests.support.serving import READ_FILE, events, open_plain, running

USER, BEGUN = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Well"}
ASSISTANT = "<|im_start|>assistant\n"
PLAIN = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}[a]{% endif %}"
THINKS = PLAIN + "{% if add_generation_prompt %}<think>\n{% endif %}{# </think> #}"
THOUGHT = "[user]Hi[a]<think>\n340+51\n"
ASKED = "<|start|>user<|message|>Hi<|end|><|start|>assistant"  # as a template with channels writes it
SWITCHED = PLAIN + "{% if not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"


@pytest.fixture(scope="module")
def demo() -> Iterator[httpx2.Client]:
    with running(open_plain) as here:
        yield here.client()


class Template:
    """An engine that only renders."""

    def __init__(self, template: str, thinking: bool = True) -> None:
        self.facts, self.pair = facts(template=template), SimpleNamespace(thinking=thinking)

    def render(self, messages: Any, tools: Any, form: TemplateForm) -> Rendered:
        return Rendered(ChatTemplate(self.facts.template).render(messages, tools, form))


def written(template: str, *messages: Any, thinking: bool = True, **more: Any) -> Any:
    request = ConversationRequest.model_validate({"messages": [USER, *messages], **more})
    return request.written(Template(template, thinking))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (THINKS, "[user]Hi[a]<think>\n</think>"),
        (SWITCHED, "[user]Hi[a]<think>\n\n</think>\n\n"),
        (PLAIN, "[user]Hi[a]"),
    ],
)
@pytest.mark.parametrize(
    "off",
    [
        {"enable_thinking": False},
        {"reasoning_budget": 0},
        {"thinking_budget_tokens": 0},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"reasoning_effort": "none"},
        {"thinking": False},
    ],
)
def test_a_model_that_is_not_to_think_finds_its_thoughts_ended(
    template: str, expected: str, off: dict[str, Any]
) -> None:
    found = written(template, **off)
    assert (found.text, found.is_thinking) == (expected, False)


def test_a_model_thinks_unless_it_is_told_not_to() -> None:
    assert written(THINKS).is_thinking
    assert written(SWITCHED).text == "[user]Hi[a]"
    assert written(SWITCHED, thinking=False, enable_thinking=True).text == "[user]Hi[a]"


@pytest.mark.parametrize(
    ("template", "last", "more", "expected"),
    [
        (PLAIN, BEGUN, {}, ("[user]Hi[a]Well", False, True)),
        (PLAIN, BEGUN, {"continue_final_message": False}, ("[user]Hi[assistant]Well[a]", False, False)),
        (THINKS, BEGUN, {}, ("[user]Hi[a]<think>\n\n</think>\n\nWell", False, True)),
        (THINKS, BEGUN | {"reasoning_content": "Hm"}, {}, ("[user]Hi[a]<think>\nHm\n</think>\n\nWell", False, True)),
        (THINKS, {"role": "assistant", "reasoning_content": "Hm"}, {}, ("[user]Hi[a]<think>\nHm", True, False)),
        (THINKS, BEGUN | {"content": "<think>Hm"}, {}, ("[user]Hi[a]<think>\nHm", True, False)),
        (
            THINKS,
            {"role": "assistant", "reasoning_content": "Hm"},
            {"continue_final_message": "reasoning_content"},
            ("[user]Hi[a]<think>\nHm", True, False),
        ),
        (PLAIN, BEGUN | {"content": ""}, {}, ("[user]Hi[a]", False, False)),
        (THINKS, BEGUN | {"content": "<think>340+51</think>"}, {}, (f"{THOUGHT}</think>\n\n", False, True)),
        (THINKS, BEGUN | {"content": "<think>\n340+51\n</think>\n\n"}, {}, (f"{THOUGHT}</think>\n\n", False, True)),
        (THINKS, BEGUN | {"content": "340+51</think>39"}, {}, (f"{THOUGHT}</think>\n\n39", False, True)),
        (SWITCHED, BEGUN | {"content": "<think></think>"}, {}, ("[user]Hi[a]<think>\n\n</think>\n\n", False, True)),
        (SWITCHED, BEGUN | {"content": "<think>340+51</think>39"}, {}, (f"{THOUGHT}</think>\n\n39", False, True)),
        (SWITCHED, BEGUN | {"content": "so </think>"}, {}, ("[user]Hi[a]so </think>", False, True)),
        (
            THINKS,
            BEGUN | {"content": "<think>340+51</think>"},
            {"continue_final_message": "reasoning_content"},
            ("[user]Hi[a]<think>\n340+51", True, False),
        ),
        (CHANNELS, BEGUN, {}, (f"{ASKED}{FINAL}Well", False, True)),
        (CHANNELS, BEGUN | {"content": ""}, {}, (ASKED, False, False)),
        (CHANNELS, BEGUN | {"reasoning_content": "Hm"}, {}, (f"{ASKED}{ANALYSIS}Hm{NEXT}{FINAL}Well", False, True)),
        (CHANNELS, {"role": "assistant", "reasoning_content": "Hm"}, {}, (f"{ASKED}{ANALYSIS}Hm", True, False)),
    ],
)
def test_a_reply_that_was_begun_goes_on_where_it_stopped(
    template: str, last: dict[str, Any], more: dict[str, Any], expected: tuple[str, bool, bool]
) -> None:
    found = written(template, last, **more)
    assert (found.text, found.is_thinking, found.is_answering) == expected


def test_a_template_is_told_what_it_asks_for() -> None:
    source = "{{ date_string }}|{{ functions }}|{{ documents[0].text }}|{{ reasoning_effort }}|{{ colour }}"
    more = {"documents": [{"text": "d"}], "reasoning_effort": "low", "chat_template_kwargs": {"colour": "red"}}
    assert written(source, **more).text == f"{datetime.now():%d %b %Y}||d|low|red"
    assert '"read_file"' in ChatTemplate("{{ functions }}").render([Message("user", "x")], [READ_FILE])


def test_parts_of_a_text_are_lines() -> None:
    parts = [{"type": "text", "text": text} for text in ("", "a", "b")]
    assert written(PLAIN, {"role": "user", "content": parts}).text == "[user]Hi[user]a\nb[a]"
    (message,) = AnthropicMessage.model_validate({"role": "user", "content": parts}).chat_messages()
    assert message.text == "a\nb"


def test_the_server_shows_and_goes_on_with_a_reply_that_was_begun(demo: httpx2.Client) -> None:
    def prompt(**body: Any) -> str:
        return str(demo.post("/apply-template", json={"messages": [USER], **body}).json()["prompt"])

    assert prompt().endswith(ASSISTANT)
    assert ASSISTANT not in prompt(add_generation_prompt=False)
    assert "read_file" in prompt(tools=[READ_FILE])
    assert prompt(messages=[USER, BEGUN]).endswith(f"{ASSISTANT}Well")
    greedy = {"temperature": 0, "max_tokens": 8}
    chat = demo.post("/v1/chat/completions", json={"messages": [USER, BEGUN], **greedy}).json()
    text = demo.post("/completion", json={"prompt": prompt(messages=[USER, BEGUN]), "temperature": 0, "n_predict": 8})
    assert chat["choices"][0]["message"]["content"] == text.json()["content"]
    claude = demo.post("/v1/messages", json={"messages": [USER, BEGUN], **greedy}).json()
    assert claude["content"][0]["text"] == text.json()["content"]


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"messages": [USER, BEGUN], "continue_final_message": True, "add_generation_prompt": True}, "continue_"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"messages": [USER, BEGUN, BEGUN]}, "messages"),
        ({"chat_template_kwargs": {"enable_thinking": "no"}}, "chat_template_kwargs"),
    ],
)
@pytest.mark.parametrize("path", ["/apply-template", "/v1/chat/completions"])
def test_contradictions_are_refused(demo: httpx2.Client, path: str, more: dict[str, Any], param: str) -> None:
    reply = demo.post(path, json={"messages": [USER], **more})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"].startswith(param)


def test_responses_hand_their_effort_on() -> None:
    body = {"input": "Hi", "reasoning": {"effort": "none"}}
    assert ResponsesRequest.model_validate(body).chat.reasoning_effort == "none"
    assert isinstance(ResponsesRequest.model_validate(body).chat, ChatRequest)


class Thinker(LoadedEngine):
    """The bundled pair with a template that begins to think."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.facts = replace(self.facts, template=THINKS)
        self._encoder = PromptEncoder(self.vocab, THINKS, "thinker", self.facts.n_ctx)


@pytest.fixture(scope="module")
def thinker() -> Iterator[httpx2.Client]:
    with running(lambda on_progress: Thinker(load_registry()["demo"], Options(threads=1), on_progress)) as here:
        yield here.client()


BUDGETS = ["reasoning_budget", "reasoning_budget_tokens", "thinking_budget_tokens"]


@pytest.mark.parametrize("name", BUDGETS)
@pytest.mark.parametrize("settings", [{"temperature": 0}, {"seed": 1}, {}, {"tools": [READ_FILE], "seed": 1}])
def test_thoughts_end_when_their_budget_is_spent(thinker: httpx2.Client, name: str, settings: dict[str, Any]) -> None:
    body = {"messages": [USER], "max_tokens": 40, "ignore_eos": True, name: 6, **settings}
    parts = ["</", "think", ">"] if "tools" in settings else ["</think>"]
    n_mark = sum(len(thinker.post("/tokenize", json={"content": part}).json()["tokens"]) for part in parts)
    reply = thinker.post("/v1/chat/completions", json=body).json()
    message, details = reply["choices"][0]["message"], reply["usage"]["completion_tokens_details"]
    assert details["reasoning_tokens"] - n_mark in range(6, 10)  # a character may need more tokens to be whole
    assert message["reasoning_content"]
    assert message["content"]
    assert "</" not in message["reasoning_content"] + message["content"]


def test_a_stream_keeps_to_the_budget_as_well(thinker: httpx2.Client) -> None:
    body = {"messages": [USER], "max_tokens": 40, "ignore_eos": True, "temperature": 0, "thinking_budget_tokens": 6}
    whole = thinker.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]
    deltas = [
        event["choices"][0]["delta"]
        for event in events(thinker.post("/v1/chat/completions", json=body | {"stream": True}))
        if event["choices"]
    ]
    for key in ("reasoning_content", "content"):
        assert "".join(delta.get(key) or "" for delta in deltas) == whole[key]


def test_anthropics_budget_is_kept_to(thinker: httpx2.Client) -> None:
    body = {"messages": [USER], "max_tokens": 40, "temperature": 0, "thinking": {"type": "enabled", "budget_tokens": 6}}
    asked = {"messages": [USER], "max_tokens": 40, "temperature": 0, "thinking_budget_tokens": 6}
    chat = thinker.post("/v1/chat/completions", json=asked).json()["choices"][0]["message"]
    thought, text = thinker.post("/v1/messages", json=body).json()["content"]
    assert (thought["thinking"], text["text"]) == (chat["reasoning_content"], chat["content"])
    off = thinker.post("/v1/messages", json=body | {"thinking": {"type": "enabled", "budget_tokens": 0}}).json()
    assert [block["type"] for block in off["content"]] == ["text"]


@pytest.mark.parametrize("name", BUDGETS)
def test_a_budget_that_is_none_is_refused(demo: httpx2.Client, name: str) -> None:
    asked = {"messages": [USER], "max_tokens": 1}
    assert demo.post("/v1/chat/completions", json=asked | {name: -1}).status_code == 200
    assert demo.post("/v1/chat/completions", json=asked | {name: 9}).status_code == 200  # it does not think anyway
    refused = demo.post("/v1/chat/completions", json=asked | {name: -2})
    assert refused.status_code == 400
    assert name in refused.json()["error"]["message"]


def test_parts_of_a_reply_that_was_begun_are_paragraphs() -> None:
    begun = {"role": "assistant", "content": [{"type": "text", "text": "Wh"}, {"type": "text", "text": "ill"}]}
    assert written(PLAIN, begun).text == "[user]Hi[a]Wh\n\nill"
