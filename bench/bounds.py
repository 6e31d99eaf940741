"""What costly requests of one client cost others: the gaps of a stream meanwhile, `/health`, and memory.

Usage: `python -m bench.bounds [MODEL] [PART OF A NAME ...]`. The server is a process of its own. A client streams
replies, one after the other, while each request of `bench.instruments.costly` is sent; the largest gap between two
pieces of a reply and the slowest `/health` are reported, and how much more memory the server's processes take when the
request has ended.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import httpx2
import psutil

from bench.instruments.costly import REQUESTS
from bench.instruments.servers import serving
from bench.instruments.timing import report

MIB = 2**20
IDLE = 12.0  # seconds at the end until the processes have returned what they no longer need
PAUSE = 1.0  # seconds of the stream before and after a request
STREAMED = {"prompt": "What is a list?", "n_predict": 600, "ignore_eos": True, "stream": True, "seed": 7}


class Cost(NamedTuple):
    """The cost of a request for others."""

    outcome: str
    seconds: float  # until the outcome
    gap: float  # seconds between two pieces of another client's stream, at most
    health: float  # seconds of /health, at most
    n_bytes: int  # more memory afterwards
    texts: set[str]  # of the streamed replies


class Watch:
    """A client that streams replies, and one that asks for /health, until the block ends."""

    def __init__(self, url: str) -> None:
        self._url, self._is_over = url, threading.Event()
        self.gap = self.health = 0.0
        self.texts = set[str]()

    @contextmanager
    def during(self) -> Iterator[None]:
        """Watch during the block, and some time before and after it."""
        threads = [threading.Thread(target=each) for each in (self._stream, self._ask_health)]
        for each in threads:
            each.start()
        time.sleep(PAUSE)
        try:
            yield
            time.sleep(PAUSE)
        finally:
            self._is_over.set()
            for each in threads:
                each.join()

    def _stream(self) -> None:
        with httpx2.Client(trust_env=False, timeout=120) as client:
            while not self._is_over.is_set():
                self._read_reply(client)

    def _read_reply(self, client: httpx2.Client) -> None:
        text, last = "", 0.0
        with client.stream("POST", f"{self._url}/completion", json=STREAMED) as reply:
            for line in reply.iter_lines():
                now = time.perf_counter()
                if line:  # comments too are signs of life, but no pieces
                    text += json.loads(line.removeprefix("data: "))["content"] if line.startswith("data: {") else ""
                    self.gap, last = max(self.gap, now - last if last else 0.0), now
        self.texts.add(text)

    def _ask_health(self) -> None:
        with httpx2.Client(trust_env=False, timeout=120) as client:
            while not self._is_over.is_set():
                began = time.perf_counter()
                client.get(f"{self._url}/health")
                self.health = max(self.health, time.perf_counter() - began)
                time.sleep(0.05)


def memory() -> int:
    """Return the bytes of all processes that this one has started."""
    found = 0
    for each in psutil.Process().children(recursive=True):
        try:
            found += each.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return found


def measured(url: str, name: str) -> Cost:
    """Send a request during a stream, from a process of its own, and return what it cost."""
    watch, before = Watch(url), memory()
    with watch.during():
        sender = subprocess.run(
            [sys.executable, "-m", "bench.instruments.costly", url, name], capture_output=True, text=True, check=True
        )
    seconds, outcome = sender.stdout.strip().split(" ", 1)
    return Cost(outcome, float(seconds), watch.gap, watch.health, memory() - before, watch.texts)


def numbers(cost: Cost) -> list[str]:
    """Return the numbers of a row."""
    return [f"{cost.gap:.2f}", f"{cost.health:.3f}", f"{cost.n_bytes / MIB:+.0f}", f"{cost.seconds:.1f}"]


def main() -> None:
    """Print the costs by request."""
    model, *parts = sys.argv[1:] or ["demo"]
    chosen = [name for name in REQUESTS if not parts or any(part in name for part in parts)]
    with serving(model, ["--parallel", "4"]) as url:
        measured(url, "nothing")  # the first replies also allocate
        before, costs = memory(), {name: measured(url, name) for name in chosen}
        time.sleep(IDLE)
        kept = memory() - before
    rows = [[name, *numbers(each), each.outcome] for name, each in costs.items()]
    texts = set[str]().union(*(each.texts for each in costs.values()))
    columns = ["beside the stream", "largest gap, s", "/health, s", "memory, MiB", "answered after, s", "answer"]
    report("bounds", columns, rows, {"streamed texts": len(texts), "MiB kept": round(kept / MIB)})


if __name__ == "__main__":
    main()
