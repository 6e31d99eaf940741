"""After a reply the server lets the engine read what the next request will begin with."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from app.server.openai.chat import ChatRequest
from bench.instruments.toy import facts
from runtime.conversation.chat_template import ChatTemplate
from runtime.engine import Beginning, Rendered, TemplateForm
from runtime.engine.engine import Ask
from tests.support.call_templates import FORMS
from tests.support.call_templates import template as with_calls
from tests.support.serving import READ_FILE, Running, events, open_plain, running
from tests.support.waiting import wait_for

# Earlier thoughts are left out, as in Qwen3's own template
FORGETS = (
    "{% for m in messages %}[{{ m.role }}]"
    "{{ m.content.split('</think>')[-1] if m.role == 'assistant' else m.content }}{% endfor %}"
    "{% if add_generation_prompt %}[a]{% if not enable_thinking %}<think></think>{% endif %}{% endif %}"
)


class Template:
    """An engine that only renders."""

    def __init__(self, template: str) -> None:
        self.facts, self.pair = facts(template=template), SimpleNamespace(thinking=True, sampling_defaults={})

    def tokenize(self, text: str, special: bool = True, bos: bool = False) -> list[int]:
        return list(text.encode())

    def render(self, messages: Any, tools: Any, form: TemplateForm) -> Rendered:
        return Rendered(ChatTemplate(self.facts.template).render(messages, tools, form))


def followed(template: str, reply: str, **more: Any) -> str | None:
    """What the next prompt begins with after that reply."""
    engine: Any = Template(template)
    request = ChatRequest.model_validate({"messages": [{"role": "user", "content": "Hi"}], **more})
    if (ask := request.following(engine, reply)) is None:
        return None
    assert ask.is_ahead
    prompt = ask.prompt
    assert isinstance(prompt, Beginning)
    assert isinstance(prompt.first, Rendered)
    assert isinstance(prompt.second, Rendered)
    first, second = prompt.first.text, prompt.second.text
    n = next(i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    return first[:n]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("Hello.", "[user]Hi[assistant]Hello.[user]"),
        ("<think>a greeting</think>Hello.", "[user]Hi[assistant]Hello.[user]"),
        ("", None),
        ("<think>a greeting</think>", None),
    ],
)
def test_a_question_follows_a_reply_without_its_thought(reply: str, expected: str | None) -> None:
    assert followed(FORGETS, reply) == expected


@pytest.mark.parametrize("name", ["hermes", "tags", "python"])
def test_results_follow_calls(name: str) -> None:
    from runtime.conversation.calls import form_of
    from runtime.conversation.calls.past import written_calls

    template = with_calls(FORMS[name])
    form = form_of(template)
    assert form is not None
    reply = written_calls(form, [{"function": {"name": "read_file", "arguments": {"path": "a.py"}}}])
    begun = followed(template, reply, tools=[READ_FILE])
    assert begun is not None
    assert begun.index("Hi") < begun.index("a.py")
    assert "user" not in begun[begun.index("a.py") :]


@pytest.fixture
def here() -> Iterator[Running]:
    with running(open_plain) as found:
        yield found


def test_the_next_request_reads_only_what_is_new(here: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, asks = here.server.served.engine, list[Ask]()
    add = engine.add

    def noted(ask: Ask, sink: Any) -> int:
        if ask.is_ahead:
            asks.append(ask)
        return add(ask, sink)

    monkeypatch.setattr(engine, "add", noted)
    question = [{"role": "user", "content": "What does os.path.join do?"}]
    sent = {"messages": question, "max_tokens": 60, "temperature": 0}
    with here.client() as client:
        reply = client.post("/v1/chat/completions", json=sent).json()["choices"][0]
        assert reply["finish_reason"] == "stop"
        wait_for(lambda: asks)
        ids = engine.encode(asks[0].prompt)
        turns = [*question, reply["message"], {"role": "user", "content": "And os.sep?"}]
        next_ids = client.post("/apply-template", json={"messages": turns}).json()["prompt"]
        whole = engine.tokenize(next_ids, bos=True)
        assert whole[: len(ids)] == ids
        assert len(whole) - len(ids) < 16
        cut = client.post("/v1/chat/completions", json=sent | {"max_tokens": 2})
        streamed = events(client.post("/v1/chat/completions", json=sent | {"stream": True}))
        assert cut.json()["choices"][0]["finish_reason"] == "length"
        assert streamed[-1]["choices"]
        wait_for(lambda: len(asks) == 2)  # after the whole one alone
        assert "slipstream_tokens_read_ahead_total" in client.get("/metrics").text
