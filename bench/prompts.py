"""Prompt cache on disk: a long prompt after restarts of the server, and the cost of storing for other requests.

Usage: `python -m bench.prompts`. The server is killed (every second time politely) and started again before each reply,
with a cache folder of its own. The text with a seed must be the same as that of the first reply, and as that of a
server that stores nothing. Then two servers, one of which stores, take turns: short prompts that have nothing in
common, and replies that begin just while the long prompt before them is being stored, for which the gaps between two
tokens are reported.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2

from bench.clients import percentile
from bench.instruments.servers import free_port, wait_until_loaded
from bench.instruments.timing import ratios, report, spread
from runtime.models.registry import load_registry

ROOT = Path(__file__).parents[1]
OFF = "prompt_cache_bytes = 0\n"
N_SHORT = 4  # short prompts per round
QUESTION = "Name one class of this module."


@dataclass(frozen=True, slots=True)
class Answer:
    """A streamed reply: its text, seconds to its first text and between its chunks, and the tokens of its prompt."""

    text: str
    first: float
    gaps: Sequence[float]
    n_prompt: int
    n_cached: int


class Server:
    """`slipstream serve` of a model with folders of its own."""

    def __init__(self, model: str, folder: Path, stores: bool, context: int) -> None:
        self.folder = folder
        self._command = [sys.executable, "-m", "app.cli", "serve", model, "--quiet", "--context", str(context)]
        (folder / "config" / "slipstream").mkdir(parents=True)
        (folder / "config" / "slipstream" / "settings.toml").write_text("" if stores else OFF, encoding="utf8")
        self._process: subprocess.Popen[str] | None = None
        self._url = ""

    def start(self) -> None:
        """Start the server and wait until the model is loaded."""
        port = free_port()
        self._url = f"http://127.0.0.1:{port}"
        folders = {f"XDG_{name.upper()}_HOME": str(self.folder / name) for name in ("config", "cache", "data")}
        env = os.environ | folders | {"SLIPSTREAM_NO_SEARCH": "1"}
        command = [*self._command, "--port", str(port)]
        self._process = subprocess.Popen(command, env=env, text=True, stderr=subprocess.DEVNULL)
        wait_until_loaded(self._url, self._process)

    def stop(self, how: signal.Signals) -> None:
        """End the server with a signal."""
        if self._process:
            self._process.send_signal(how)
            self._process.wait()
            time.sleep(1)  # until the model's process has ended, too

    def wait_for_stored(self, seconds: float = 60) -> int:
        """Return the bytes of stored prompts once the folder no longer grows."""
        end, before = time.monotonic() + seconds, -1
        while time.monotonic() < end:
            time.sleep(1)
            now = sum(each.stat().st_size for each in (self.folder / "cache").rglob("prompts/*") if each.is_file())
            if now == before and now > 1_000_000:
                return now
            before = now
        return max(before, 0)

    def ask(self, system: str, question: str, n_tokens: int) -> Answer:
        """Stream a seeded reply."""
        body = {
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": question}],
            "max_tokens": n_tokens, "temperature": 0.8, "seed": 7, "ignore_eos": True,
            "stream": True, "stream_options": {"include_usage": True},
        }  # fmt: skip
        text, times, usage = "", [time.perf_counter()], dict[str, Any]()
        with httpx2.stream(
            "POST", f"{self._url}/v1/chat/completions", json=body, timeout=900, trust_env=False
        ) as reply:
            for line in reply.iter_lines():
                event = json.loads(line[6:]) if line.startswith("data: {") else {}
                usage = event.get("usage") or usage
                for choice in event.get("choices") or ():
                    if piece := choice["delta"].get("content"):
                        text += piece
                        times.append(time.perf_counter())
        gaps = [after - before for before, after in pairwise(times)]
        n_prompt, details = usage["prompt_tokens"], usage["prompt_tokens_details"]
        return Answer(text, gaps[0], gaps[1:], n_prompt, details["cached_tokens"])


def long_text(server: Server, n_tokens: int) -> str:
    """Return sources of this repository as a prompt of about `n_tokens` tokens."""
    sources = sorted((ROOT / "runtime").rglob("*.py"))
    text = "".join(each.read_text(encoding="utf8") for each in sources)
    sample = server.ask(text[:2000], QUESTION, 1).n_prompt
    return text[: int(2000 * n_tokens / sample)]


@contextmanager
def servers(model: str, context: int, *stores: bool) -> Iterator[list[Server]]:
    """Yield one server for each of `stores`, not started; all are ended with the block."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        found = [Server(model, folder / str(i), each, context) for i, each in enumerate(stores)]
        for each in found:
            stack.callback(each.stop, signal.SIGTERM)
        yield found


def restarts(model: str, n_tokens: int, n_starts: int) -> tuple[list[list[str]], dict[str, object]]:
    """Measure a long prompt, read once and then loaded from disk by `n_starts` fresh processes."""
    with servers(model, n_tokens + 1024, True, False) as (ours, without):
        without.start()
        text = long_text(without, n_tokens)
        plain = without.ask(text, QUESTION, 16)
        without.stop(signal.SIGTERM)
        ours.start()
        cold = ours.ask(text, QUESTION, 16)
        n_bytes, again = ours.wait_for_stored(), list[Answer]()
        for number in range(n_starts):
            ours.stop(signal.SIGTERM if number % 2 else signal.SIGKILL)
            ours.start()
            again.append(ours.ask(text, QUESTION, 16))
        other = ours.ask(text, "What is it for?", 16)
    same = {plain.text, cold.text, *(each.text for each in again)}
    firsts = [each.first for each in again]
    rows = [
        ["read, nothing stored", f"{plain.first:.2f}", f"{plain.n_prompt}", f"{plain.n_cached}"],
        ["read and stored", f"{cold.first:.2f}", f"{cold.n_prompt}", f"{cold.n_cached}"],
        [f"after {n_starts} restarts", str(spread(firsts)), f"{again[0].n_prompt}", f"{again[0].n_cached}"],
        ["another question", f"{other.first:.2f}", f"{other.n_prompt}", f"{other.n_cached}"],
    ]
    summary = {"MB": n_bytes // 10**6, "same": len(same) == 1, "restart": round(statistics.median(firsts), 2)}
    return rows, summary | {"slowest": round(max(firsts), 2)}


def measure_storing(model: str, n_rounds: int) -> tuple[list[list[str]], dict[str, object]]:
    """Measure the cost of storing: first tokens of short prompts, and gaps of replies that begin while a prompt is
    stored.
    """
    with servers(model, 4096, True, False) as pair:
        for each in pair:
            each.start()
        firsts: list[list[float]] = [[], []]
        gaps: list[list[float]] = [[], []]
        text = long_text(pair[0], 1500)
        for number in range(n_rounds + 1):
            for i in (0, 1) if number % 2 else (1, 0):
                short = [pair[i].ask(f"Note {number} {n}. {text[:1200]}", QUESTION, 1).first for n in range(N_SHORT)]
                pair[i].ask(f"Long note {number}. {text}", QUESTION, 1)
                time.sleep(0.5)
                reply = pair[i].ask(f"Reply {number}.", "Tell me about the sea.", 100)
                if number:
                    firsts[i] += short
                    gaps[i] += reply.gaps
    cost = ratios(*firsts)
    middle = [[1e3 * percentile(each, q) for q in (0.5, 0.99)] for each in gaps]
    rows = [
        [name, f"{1e3 * statistics.median(first):.0f}", *(f"{each:.1f}" for each in found)]
        for name, first, found in zip(("stores", "stores nothing"), firsts, middle, strict=True)
    ]
    return rows, {"first tokens, times those without": str(cost)}


def main() -> None:
    """Goals: first tokens after a restart within 1.5 s, the same text, and no noticeable cost for other requests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", default=str(load_registry()["demo"].target), help="a GGUF file")
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=8)
    args = parser.parse_args()
    name = Path(args.pair).stem
    if args.starts:
        rows, summary = restarts(args.pair, args.tokens, args.starts)
        report(f"{name}, a prompt after restarts", ["", "first token, s", "prompt", "cached"], rows, summary)
    if args.rounds:
        rows, summary = measure_storing(args.pair, args.rounds)
        report(f"{name}, while a prompt is stored", ["server", "first token, ms", "gap p50, ms", "p99"], rows, summary)


if __name__ == "__main__":
    main()
