"""What people and programs are sent, to the letter: a change of both sides at once shows in the files of tests/golden.

`pytest tests/product/test_golden.py --snapshot-update` writes them anew; the change is then read in the diff.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.cli import main as command
from app.cli.report import describe
from app.models import seeking
from runtime.engine.loaded import LoadedEngine
from runtime.engine.stats import Pass, Stats
from runtime.loading.exactness import Exactness
from runtime.speculative.step import Widths
from tests.support.golden import Golden, exchange, pretty, steady_text
from tests.support.scripted import ScriptedEngine
from tests.support.serving import READ_FILE, open_plain, running

QUESTION = "What does os.path.join do?"
BEGUN = f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
TURNS = [{"role": "user", "content": QUESTION}]
GREEDY: dict[str, Any] = {"temperature": 0}
CHAT = {"messages": TURNS, "max_tokens": 6, **GREEDY}
TEXT = {"prompt": BEGUN, "max_tokens": 4, **GREEDY}
NATIVE = {"prompt": BEGUN, "n_predict": 4, **GREEDY}
INPUT = {"input": QUESTION, "max_output_tokens": 6, **GREEDY}
MESSAGES = {"model": "claude-sonnet-4-5", "messages": TURNS, "max_tokens": 6, **GREEDY}
INFILL = {"input_prefix": "import ", "input_suffix": "\n", "n_predict": 2, **GREEDY}
PLAIN = ("--max-tokens", "6", "--temperature", "0", "--drafters", "none", "--threads", "1")
KEY, FOLDER = "sk-golden", Path(__file__).parents[1] / "golden"

ASKED: dict[str, tuple[str, Any]] = {
    "chat": ("/v1/chat/completions", CHAT),
    "chat_logprobs": ("/v1/chat/completions", CHAT | {"max_tokens": 2, "logprobs": True, "top_logprobs": 1}),
    "chat_two_choices": ("/v1/chat/completions", CHAT | {"n": 2, "max_tokens": 2}),
    "completion": ("/v1/completions", TEXT),
    "responses": ("/v1/responses", INPUT),
    "messages": ("/v1/messages", MESSAGES),
    "messages_count": ("/v1/messages/count_tokens", {"model": "demo", "messages": TURNS}),
    "native": ("/completion", NATIVE),
    "tokenize": ("/tokenize", {"content": "import os"}),
    "detokenize": ("/detokenize", {"tokens": [1, 2, 3]}),
    "template": ("/apply-template", {"messages": TURNS}),
}
STREAMED = {
    "chat": {"stream_options": {"include_usage": True}},
    "completion": {},
    "responses": {},
    "messages": {},
    "native": {},
}
REFUSED: dict[str, tuple[str, Any]] = {
    "unknown_model": ("/v1/chat/completions", CHAT | {"model": "nobody"}),
    "bad_json": ("/v1/chat/completions", "{"),
    "no_object": ("/v1/chat/completions", [1]),
    "wrong_kind": ("/v1/chat/completions", CHAT | {"max_tokens": "many"}),
    "too_large": ("/v1/chat/completions", CHAT | {"temperature": 101}),
    "too_long": ("/v1/chat/completions", CHAT | {"messages": [{"role": "user", "content": "word " * 3000}]}),
    "no_messages": ("/v1/chat/completions", {}),
    "unknown_tool_choice": ("/v1/chat/completions", CHAT | {"tools": [READ_FILE], "tool_choice": "perhaps"}),
    "unknown_path": ("/v1/nothing", {}),
    "anthropic": ("/v1/messages", MESSAGES | {"max_tokens": 0}),
    "anthropic_bad_json": ("/v1/messages", "{"),
    "native_no_prompt": ("/completion", {"n_predict": 1}),
    "responses_no_input": ("/v1/responses", {}),
    "infill": ("/infill", INFILL),
}
COMMANDS: dict[str, tuple[str, ...]] = {
    "no_file": ("run", "hi", "-m", "/no/such.gguf"),
    "no_model_file": ("run", "hi", "-m", "README.md"),
    "unknown_pair": ("run", "hi", "-m", "dema"),
    "unknown_option": ("run", "hi", "--jsn"),
    "unknown_command": ("rnu",),
    "model_as_command": ("demo",),
    "bad_number": ("run", "hi", "--max-tokens", "many"),
    "bad_temperature": ("run", "hi", "--temperature", "-1"),
    "two_forms": ("run", "hi", "--json-object", "--regex", "a"),
    "logprobs_without_json": ("run", "hi", "--logprobs", "1"),
    "unknown_drafter": ("run", "hi", "--drafters", "modle"),
}


@pytest.fixture
def golden(pytestconfig: pytest.Config) -> Golden:
    return Golden(FOLDER, bool(pytestconfig.option.update_snapshots))


@pytest.fixture(scope="module")
def client() -> Iterator[httpx2.Client]:
    """Of a server that has read the question: what is cached does not depend on which test comes first."""
    with running(open_plain) as here:
        found = here.client()
        found.post("/v1/chat/completions", json=CHAT)
        yield found


def post(client: httpx2.Client, path: str, body: Any) -> str:
    """The exchange; a text is sent as it is."""
    return exchange(client.post(path, content=body) if isinstance(body, str) else client.post(path, json=body))


@pytest.mark.parametrize("name", ASKED)
def test_an_answer(client: httpx2.Client, golden: Golden, name: str) -> None:
    golden.check(f"answer_{name}", post(client, *ASKED[name]))


@pytest.mark.parametrize("name", STREAMED)
def test_a_stream(client: httpx2.Client, golden: Golden, name: str) -> None:
    path, body = ASKED[name]
    golden.check(f"stream_{name}", post(client, path, body | {"stream": True} | STREAMED[name]))


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal(client: httpx2.Client, golden: Golden, name: str) -> None:
    golden.check(f"refusal_{name}", post(client, *REFUSED[name]))


@pytest.mark.parametrize(
    "path",
    ["/health", "/v1/models", "/v1/models/nobody", "/props", "/slots", "/v1/responses/resp_0", "/v1/chat/completions"],
)
def test_what_is_there(client: httpx2.Client, golden: Golden, path: str) -> None:
    golden.check("get" + path.replace("/", "_"), exchange(client.get(path)))


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_a_wrong_key(golden: Golden, path: str) -> None:
    with running(lambda on_progress: ScriptedEngine("Hello"), api_key=KEY) as here:  # type: ignore[arg-type, return-value]
        reply = here.client().post(path, json=CHAT, headers={"Authorization": "Bearer sk-wrong"})
        golden.check("wrong_key" + path.replace("/", "_"), exchange(reply))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """A command in this process: what it was asked, how it ended and what it wrote."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    monkeypatch.chdir(Path(__file__).parents[2])

    def said(*args: str, engine: Any = None) -> str:
        monkeypatch.setattr(seeking, "opener", lambda *_, **__: engine or LoadedEngine)
        with pytest.raises(SystemExit) as ended:
            command.main(args)
        out, err = capsys.readouterr()
        asked = " ".join(f"'{each}'" if " " in each else each for each in args)
        return f"$ slipstream {asked}\n[{ended.value.code}]\n{pretty(out)}\n--- standard error\n{steady_text(err)}"

    return said


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_fails(run: Any, golden: Golden, name: str) -> None:
    golden.check(f"command_{name}", run(*COMMANDS[name]))


def test_a_reply_as_json(run: Any, golden: Golden) -> None:
    golden.check("run_json", run("run", QUESTION, "--json", *PLAIN))
    golden.check("run_json_logprobs", run("run", QUESTION, "--json", "--logprobs", "1", *PLAIN))


def test_a_reply_with_stats(run: Any, golden: Golden) -> None:
    golden.check("run_stats", run("run", QUESTION, "--stats", *PLAIN))


def test_stats_of_a_reply_with_drafts(golden: Golden) -> None:
    passes = [Pass(0.02, "model", 3, n, n + 1, 0.004, 0.015) for n in (3, 0, 2, 3)] + [
        Pass(0.01, "none", 0, 0, 1, 0.0, 0.01)
    ]
    stats = Stats(12, 4, 0.05, 0.1, 80.0, passes, exactness=Exactness(4, 13, 0.01), widths=Widths.EXACT)
    golden.check("stats_with_drafts", describe(stats, "everything fits", "it learns"))
