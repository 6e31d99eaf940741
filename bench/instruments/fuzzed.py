"""Random and mutated external input for its readers: chat templates, requests, stored measurements, a hub's answers.

Each reader returns the outcome of one input. Raises any error that is not a refusal.
"""

from __future__ import annotations

import json
import random
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import httpcore2
import httpx2
from huggingface_hub import set_client_factory
from pydantic import ValidationError

from app.server.anthropic.messages import MessagesRequest
from app.server.errors import ApiError, as_api_error, from_validation
from app.server.generation import GenerationRequest
from app.server.llamacpp.completion import InfillRequest, RawCompletionRequest
from app.server.openai.chat import ChatRequest
from app.server.openai.completions import CompletionRequest
from app.server.openai.responses import ResponsesRequest
from bench.instruments.servers import default_client_factory, http
from bench.instruments.toy import facts
from bench.instruments.traces import LAWS, controller_for, made_up
from demo.conversations import CHAT_TEMPLATE
from runtime.conversation.chat_template import ChatTemplate
from runtime.core.errors import SlipstreamError, TemplateError
from runtime.engine import Engine, Message, Rendered
from runtime.loading.calibration import remembered
from runtime.loading.exactness import Exactness
from runtime.loading.profile_cache import ProfileCache
from runtime.models.hub.fetch import Hub
from runtime.models.hub.names import HubError
from runtime.models.registry import load_registry
from runtime.speculative.control.explain import kept, restore

ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, 10**40, -(10**40), 1e308, -1e-300, 0.5, "", "x", "\ud800", "0",
    "a" * 5000, [], [[]], {}, {"": {}}, [None], [0, 1], {"type": "text", "text": "x"}, {"type": "image"}, "assistant",
    "{{ 1 / 0 }}",
)  # fmt: skip
EXPRESSIONS = (
    "messages", "messages[0].content", "messages[99]", "m", "x", "'x'", "9", "99999999", "10 ** 9", "none", "tools",
    "{}", "[1, 2]", "range(999)", "namespace(a=1)", "loop.index", "bos_token", "add_generation_prompt", "undefined.a",
)  # fmt: skip
OPERATORS = (" ~ ", " + ", " * ", " % ", " // ", " / ", " in ", " and ", " == ", " < ")
CALLS = (
    " | length", " | join(',')", " | tojson", " | upper", " | trim", " | replace('x', 'xx')", " | indent(9999)",
    " | center(99999999)", " | list", " | first", " | last", " | sort", " | batch(3)", " | slice(3)", " | map('upper')",
    " | selectattr('role')", " | string", " | int", " | round(2)", " | dictsort", " | default('y')", " | random",
    ".split('x')", ".strip()", ".format(1)", ".items()", ".ljust(999999999)", "[::2]", "[:-1]", ".x", "()",
)  # fmt: skip
FUNCTION = {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "string"}}}}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TEXT = {"type": "text", "text": "Hi"}
TRACE = made_up(LAWS["informed 0.5"], ([2.0, 3.0, 4.0], 1.0, 0.5), 20, 1)
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # without the system's certificates, which load slowly
KNOWN = kept(controller_for(TRACE, 2))
BODIES: dict[type[GenerationRequest], dict[str, Any]] = {
    ChatRequest: {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [TEXT]},
            {"role": "assistant", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "1", "content": "5"},
        ],
        "tools": [{"type": "function", "function": FUNCTION}],
        "tool_choice": "auto", "temperature": 0.5, "top_p": 0.9, "seed": 1, "stop": ["x"], "logit_bias": {"5": 1.0},
        "max_tokens": 5, "logprobs": True, "top_logprobs": 2, "n": 2, "response_format": {"type": "json_object"},
        "stream_options": {"include_usage": True}, "chat_template_kwargs": {"enable_thinking": False},
    },
    CompletionRequest: {
        "prompt": ["a", "b"], "echo": True, "best_of": 2, "n": 1, "logprobs": 3, "suffix": "x", "max_tokens": 3,
    },
    ResponsesRequest: {
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
            {"type": "reasoning", "summary": []},
        ],
        "tools": [{"type": "function", **FUNCTION}], "text": {"format": {"type": "text"}}, "max_output_tokens": 5,
        "reasoning": {"effort": "low"}, "instructions": "x",
    },
    MessagesRequest: {
        "max_tokens": 5, "messages": [{"role": "user", "content": [TEXT]}], "stop_sequences": ["x"], "system": [TEXT],
        "tools": [{"name": "f", "input_schema": {"type": "object"}}],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    },
    RawCompletionRequest: {
        "prompt": ["a", 5], "n_predict": 3, "t_max_predict_ms": 5, "n_probs": 2, "grammar": 'root ::= "x"',
        "response_fields": ["content"], "logit_bias": [[5, -1.0]],
    },
    InfillRequest: {
        "input_prefix": "a", "input_suffix": "b", "input_extra": [{"filename": "f", "text": "t"}], "prompt": "p",
    },
}  # fmt: skip


def expression(rng: random.Random, depth: int = 0) -> str:
    """Return a random template expression, often an invalid one."""
    found = rng.choice(EXPRESSIONS)
    while rng.random() < 0.5 - 0.1 * depth:
        found += rng.choice(CALLS) if rng.random() < 0.6 else rng.choice(OPERATORS) + expression(rng, depth + 1)
    return found


def template(rng: random.Random, depth: int = 0) -> str:
    """Return a random chat template, often a broken one."""
    parts = []
    for _ in range(rng.randrange(1, 4)):
        kind, inner = rng.randrange(7), expression(rng)
        body = template(rng, depth + 1) if depth < 3 and kind < 4 else "x"
        parts.append(
            {
                0: f"{{% for m in {inner} %}}{body}{{% endfor %}}", 1: f"{{% if {inner} %}}{body}{{% endif %}}",
                2: f"{{% macro f(x) %}}{body}{{% endmacro %}}{{{{ f({inner}) }}}}", 3: f"{{% set x = {inner} %}}{body}",
            }.get(kind, f"{{{{ {inner} }}}}")
        )  # fmt: skip
    text = "".join(parts)
    cut = rng.randrange(len(text) + 1)
    return text[:cut] + text[cut + rng.choice((0, 0, 0, 1, 3)) :]


def read_template(rng: random.Random) -> str:
    """Return the outcome for one template."""
    try:
        ChatTemplate(template(rng), "<s>", "</s>").render([Message("user", "Hi"), Message("assistant", "x")])
    except TemplateError as error:
        return check_refusal(str(error))
    return "read"


def check_refusal(sentence: str) -> str:
    """Return the outcome of a refusal, after checking that it is one line."""
    assert 0 < len(sentence) < 2000
    assert "\n" not in sentence
    return "refused"


def odder(value: Any, rng: random.Random) -> Any:
    """Return the value with some parts of it replaced, left out or repeated."""
    if rng.random() < 0.04:
        return rng.choice(ODD)
    if isinstance(value, dict):
        found = {key: odder(each, rng) for key, each in value.items() if rng.random() > 0.03}
        if rng.random() < 0.03:
            found[rng.choice(("model", "stream", "x", "messages", "prompt", "max_tokens"))] = rng.choice(ODD)
        return found
    if isinstance(value, list):
        return [odder(each, rng) for each in value for _ in range(rng.choice((1, 1, 1, 1, 1, 0, 2)))]
    return value


class Letters:
    """A stand-in engine for requests, whose tokens are the bytes of the text."""

    pair, facts, end_tokens = load_registry()["demo"], facts(n_ctx=512, n_vocab=256, template=CHAT_TEMPLATE), (0,)

    def tokenize(self, text: str, *, special: bool = True, bos: bool = False) -> list[int]:
        """Return the bytes of the text."""
        return list(text.encode("utf8", "replace"))

    def encode(self, prompt: Any) -> list[int]:
        """Return the bytes of a text or a conversation; ids are unchanged."""
        if isinstance(prompt, list):
            prompt = self.render(prompt)
        return list(getattr(prompt, "tokens", ())) or self.tokenize(
            prompt.text if isinstance(prompt, Rendered) else str(prompt)
        )

    def render(self, messages: Sequence[Message], *more: Any) -> Rendered:
        """Render the messages with the bundled template."""
        return Rendered(ChatTemplate(CHAT_TEMPLATE).render(messages, *more))

    def token_text(self, token: int) -> str:
        """Return one letter."""
        return chr(token % 256)

    def token_bytes(self, token: int) -> bytes:
        """Return one byte."""
        return bytes([token % 256])


def read_request(rng: random.Random) -> str:
    """Return the outcome for one request, up to the engine's tasks and the formatter of the reply."""
    kind = rng.choice(list(BODIES))
    body = json.dumps(odder(BODIES[kind], rng)).encode()
    if rng.random() < 0.1:
        at = rng.randrange(len(body))
        body = body[:at] + bytes([rng.randrange(256)]) + body[at + rng.choice((0, 1, 9)) :]
    engine = cast("Engine", Letters())
    try:
        request = kind.model_validate_json(body)
        tasks = [request.task(engine, i) for i in range(request.n_prompts)]
        request.formatter(engine, [task.prompt_ids for task in tasks])
    except ValidationError as error:
        return check_refusal(str(from_validation(error)))
    except (ApiError, SlipstreamError) as error:
        return check_refusal(str(as_api_error(error)))
    return "read"


def read_measurements(rng: random.Random) -> str:
    """Return the outcome for files of measurements: invalid ones are ignored, and accepted ones are usable."""
    controller = controller_for(TRACE, 2)
    with TemporaryDirectory() as folder:
        cache = ProfileCache("x", Path(folder))
        found = odder({"one": 2, "many": 1, "pass_seconds": {"1": 0.5, "2": 0.7}, "width": 1, "tried": 13}, rng)
        text = json.dumps(found)
        cache.path.write_text(text[: rng.randrange(len(text) + 1)] if rng.random() < 0.2 else text)
        measured = remembered(cache)
        cache.read_as(Exactness)
    assert measured is None or all(seconds > 0 for seconds in measured.pass_seconds.values())
    mutated = odder(KNOWN, rng)
    restore(controller, mutated if isinstance(mutated, dict) else {})
    controller.begin(0)
    assert all(0 <= chance <= 1 for state in controller.states.values() for chance in state.acceptance.chances)
    return "refused" if measured is None else "read"


@contextmanager
def hub_that_says(answer: bytes) -> Iterator[None]:
    """Let the hub's client read these bytes as the answer to every request, without a network."""
    transport = httpx2.HTTPTransport(verify=NO_TLS)
    transport._pool = httpcore2.ConnectionPool(network_backend=httpcore2.MockBackend([answer]))
    set_client_factory(lambda: httpx2.Client(transport=transport, follow_redirects=True, timeout=None))
    try:
        yield
    finally:
        set_client_factory(default_client_factory)


def read_hub(rng: random.Random) -> str:
    """Return the outcome for one answer of a hub, through the real client."""
    usual = {"id": "owner/small", "sha": "a" * 40, "siblings": [{"rfilename": "small.gguf", "size": 5}]}
    body = json.dumps(odder([usual], rng)).encode()
    as_json = b"Content-Type: application/json"
    answer = rng.choice((http(body, as_json), http(body, as_json), http(body, status=b"500 No"), body))
    if rng.random() < 0.3:
        at = rng.randrange(len(answer))
        answer = answer[:at] + bytes([rng.randrange(256)]) + answer[at + rng.choice((1, 5)) :]
    with hub_that_says(answer):
        try:
            Hub("http://hub.test").search("small")
        except HubError as error:
            return check_refusal(str(error))
    return "read"


READERS: dict[str, Callable[[random.Random], str]] = {
    "template": read_template,
    "request": read_request,
    "measurements": read_measurements,
    "hub": read_hub,
}
