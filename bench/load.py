"""Eight clients at once against `slipstream serve demo`: errors, memory, and how long they wait for the first token.

    python -m bench.load                  # five minutes
    python -m bench.load --seconds 20 --clients 4

Six of eight clients chat, each in a conversation that grows; the others ask for short completions, as an editor does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from tempfile import TemporaryFile

import httpx2
import psutil

QUESTIONS = (
    "What does os.path.join do?",
    "How do I read a file line by line?",
    "What is a list comprehension?",
    "How do I sort a dict?",
)
CODE = "import os\n\ndef main():\n    for name in os.listdir("
LOADING = 120  # seconds at most
TURNS = 3  # questions of a conversation
LOOKS = 6  # at the memory that is taken


@dataclass
class Kind:
    """What one kind of request met."""

    first: list[float] = field(default_factory=list)  # seconds until the first token
    whole: list[float] = field(default_factory=list)  # and until the last
    errors: list[str] = field(default_factory=list)


def free_port() -> int:
    """One on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextmanager
def serving(pair: str, more: list[str]) -> Iterator[str]:
    """The address of a server of its own."""
    port = free_port()
    command = [sys.executable, "-m", "app.cli", "serve", pair, "--port", str(port), "--quiet", *more]
    # A pipe that nobody reads would be full one day, and the server would wait for it
    with TemporaryFile("w+") as said, subprocess.Popen(command, stderr=said, text=True) as server:
        try:
            wait_until_loaded(f"http://127.0.0.1:{port}", server)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait()
            said.seek(0)
            complaints = said.read().strip().splitlines()[1:]
            print("\n".join(complaints) if complaints else "the server said nothing else")


def wait_until_loaded(url: str, server: subprocess.Popen[str]) -> None:
    """Raises SystemExit when it ends, or takes too long."""
    end = time.monotonic() + LOADING
    with httpx2.Client() as client:  # one, as making them keeps a core busy while the server times its passes
        while server.poll() is None and time.monotonic() < end:
            with suppress(httpx2.HTTPError):
                if client.get(f"{url}/health").status_code == 200:
                    return
            time.sleep(0.1)
    raise SystemExit("The server did not start. Run `slipstream serve` to see why.")


async def ask(client: httpx2.AsyncClient, path: str, body: dict[str, object], kind: Kind) -> str:
    """One streamed reply; its text."""
    began, text, first = time.perf_counter(), "", 0.0
    try:
        async with client.stream("POST", path, json=body | {"stream": True}) as reply:
            if reply.status_code != 200:
                kind.errors.append(f"{reply.status_code} {(await reply.aread()).decode()}")
                return ""
            async for line in reply.aiter_lines():
                if line.startswith("data: {"):
                    event = json.loads(line.removeprefix("data: "))
                    if "error" in event:
                        kind.errors.append(event["error"]["message"])
                    elif said := text_of(event):
                        first, text = first or time.perf_counter() - began, text + said
    except httpx2.HTTPError as error:
        kind.errors.append(f"{type(error).__name__}: {error}")
        return ""
    kind.first.append(first or time.perf_counter() - began)
    kind.whole.append(time.perf_counter() - began)
    return text


def text_of(event: dict[str, list[dict[str, object]]]) -> str:
    """What an event adds to the reply."""
    choice = (event.get("choices") or [{}])[0]
    delta = choice.get("delta") or {}
    return str((delta.get("content") if isinstance(delta, dict) else "") or choice.get("text") or "")


async def chat(client: httpx2.AsyncClient, number: int, until: float, kind: Kind) -> None:
    """Conversations of a few turns, one after the other."""
    while time.monotonic() < until:
        messages: list[dict[str, str]] = []
        for turn in range(TURNS):
            messages.append({"role": "user", "content": QUESTIONS[(number + turn) % len(QUESTIONS)]})
            text = await ask(client, "/v1/chat/completions", {"messages": messages, "max_tokens": 120}, kind)
            if not text or time.monotonic() > until:
                await asyncio.sleep(0.05)
                break
            messages.append({"role": "assistant", "content": text})


async def complete(client: httpx2.AsyncClient, number: int, until: float, kind: Kind) -> None:
    """Somebody types and pauses."""
    while time.monotonic() < until:
        await ask(client, "/v1/completions", {"prompt": CODE + "x" * number, "max_tokens": 16, "temperature": 0}, kind)
        await asyncio.sleep(0.3)


async def load(url: str, n_clients: int, seconds: float) -> dict[str, Kind]:
    """All clients at once."""
    kinds, until = {"chat": Kind(), "completion": Kind()}, time.monotonic() + seconds
    async with httpx2.AsyncClient(base_url=url, timeout=120) as client:
        await asyncio.gather(*(
            complete(client, number, until, kinds["completion"]) if number % 4 == 3 else chat(client, number, until,
            kinds["chat"])
            for number in range(n_clients)
        ))  # fmt: skip
    return kinds


async def memory(seconds: float) -> list[int]:
    """MiB that the processes of the server take, LOOKS times in that time."""
    found = []
    for _ in range(LOOKS):
        await asyncio.sleep(seconds / LOOKS)
        found.append(sum(each.memory_info().rss for each in psutil.Process().children(recursive=True)) >> 20)
    return found


async def watched(url: str, n_clients: int, seconds: float) -> tuple[dict[str, Kind], list[int]]:
    """What the clients had, and what memory was taken meanwhile."""
    return await asyncio.gather(load(url, n_clients, seconds), memory(seconds))


def percentile(values: list[float], share: float) -> float:
    """The value that so large a share of them does not exceed; 0 of none."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def main() -> None:
    """Prints a table, then one line of JSON; ends with 1 after an error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--pair", default="demo")
    chosen, more = parser.parse_known_args()
    with serving(chosen.pair, more) as url:
        kinds, taken = asyncio.run(watched(url, chosen.clients, chosen.seconds))
    print(f"memory, MiB: {taken}")
    print(f"{'':12}{'replies':>9}{'errors':>9}{'first p50':>12}{'first p99':>12}{'whole p50':>12}   (ms)")
    result: dict[str, object] = {"clients": chosen.clients, "seconds": chosen.seconds, "mib": taken}
    for name, kind in kinds.items():
        numbers = [
            1e3 * percentile(kind.first, 0.5),
            1e3 * percentile(kind.first, 0.99),
            1e3 * percentile(kind.whole, 0.5),
        ]
        print(f"{name:12}{len(kind.whole):9}{len(kind.errors):9}" + "".join(f"{number:12.0f}" for number in numbers))
        named = dict(zip(("p50_ms", "p99_ms", "whole_p50_ms"), numbers, strict=True))
        result[name] = {"replies": len(kind.whole), "errors": len(kind.errors), **named}
    for error in {error for kind in kinds.values() for error in kind.errors}:
        print("error:", error)
    print(json.dumps(result))
    sys.exit(any(kind.errors for kind in kinds.values()))


if __name__ == "__main__":
    main()
