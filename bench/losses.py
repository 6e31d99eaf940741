"""The models are lost again and again, and every text is the same: `python -m bench.losses`.

A chat and a server's clients ask without an end while the process with the models is ended at random moments, by the
signals of a crash and of want of memory. Every reply is compared with the one of an undisturbed engine; of the server
it is told what it holds before and after.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile

import httpx2
import psutil

from bench.demo import questions
from bench.timing import report
from runtime.engine import Message, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import load_registry
from runtime.process.client import EngineProcess

SIGNALS = (signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV)
PAUSE = 0.1, 3.0  # seconds between two losses
TOKENS, N_CLIENTS, PORT = 60, 3, 8017
ROOT = Path(__file__).parents[1]


@dataclass
class Tally:
    """What came of it."""

    n_replies: int = 0
    n_different: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    n_lost: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, said: str, expected: str) -> None:
        """Takes in a reply."""
        with self.lock:
            self.n_replies += 1
            self.n_different += said != expected

    def fail(self, reason: str) -> None:
        """Takes in a reply that ended with an error."""
        with self.lock:
            self.n_replies += 1
            self.reasons[reason] += 1


def jobs() -> list[tuple[str, Sampling]]:
    """Questions, greedy and with a seed."""
    asked = questions()[:8]
    return [(each, sampling) for each in asked for sampling in (Sampling(temperature=0), Sampling(0.9, seed=3))]


def expected() -> dict[tuple[str, Sampling], str]:
    """What an undisturbed engine says."""
    engine = LoadedEngine(load_registry()["demo"], Options(drafters=()))
    try:
        return {job: said(engine, *job) for job in jobs()}
    finally:
        engine.close()


def said(engine: LoadedEngine | EngineProcess, question: str, sampling: Sampling) -> str:
    """A whole reply."""
    return "".join(chunk.text for chunk in engine.reply([Message("user", question)], sampling, TOKENS))


def disturb(n: int, tally: Tally, pid: Callable[[], int | None], rng: random.Random) -> None:
    """Ends that process so often, with a reply that ends between two times: one hit over and over is given up."""
    while tally.n_lost < n:
        n_before = tally.n_replies
        time.sleep(rng.uniform(*PAUSE))
        while tally.n_lost and tally.n_replies == n_before:
            time.sleep(PAUSE[0])
        victim = pid()
        if victim is not None:
            psutil.Process(victim).send_signal(rng.choice(SIGNALS))
            tally.n_lost += 1


def chat(n: int, texts: dict[tuple[str, Sampling], str]) -> Tally:
    """One person asks."""
    tally, rng = Tally(), random.Random(1)
    engine = EngineProcess(load_registry()["demo"], Options())

    def pid() -> int | None:
        process = engine._process._process
        return process.pid if process.poll() is None else None

    killer = threading.Thread(target=disturb, args=(n, tally, pid, rng))
    killer.start()
    while killer.is_alive():
        job = random.choice(list(texts))
        tally.count(said(engine, *job), texts[job])
    engine.close()
    return tally


def serve_one(client: httpx2.Client, job: tuple[str, Sampling], text: str, tally: Tally) -> None:
    """A whole reply of the server, compared with `text`."""
    question, sampling = job
    body = {"messages": [{"role": "user", "content": question}], "max_tokens": TOKENS}
    body |= {"temperature": sampling.temperature} | ({} if sampling.seed is None else {"seed": sampling.seed})
    answer = client.post("/v1/chat/completions", json=body)
    if answer.status_code == 200:
        tally.count(answer.json()["choices"][0]["message"]["content"], text)
    else:
        tally.fail(answer.json()["error"]["message"])


def clients(n: int, texts: dict[tuple[str, Sampling], str]) -> tuple[Tally, list[str]]:
    """Several ask the server of a process of its own; also what that held before and after."""
    command = [sys.executable, "-m", "app.cli", "serve", "demo", "--port", str(PORT), "--quiet"]
    log = TemporaryFile()  # noqa: SIM115 (until the end)
    server = subprocess.Popen(command, cwd=ROOT, stderr=log)
    client, tally = httpx2.Client(base_url=f"http://127.0.0.1:{PORT}", timeout=120), Tally()
    while not answers(client):
        time.sleep(0.2)
    person = psutil.Process(server.pid)

    def pid() -> int | None:
        return next((child.pid for child in person.children()), None)

    for job, text in texts.items():
        serve_one(client, job, text, tally)
    held = [holds(person)]
    killer = threading.Thread(target=disturb, args=(n, tally, pid, random.Random(2)))

    def ask() -> None:
        with httpx2.Client(base_url=f"http://127.0.0.1:{PORT}", timeout=120) as own:
            while killer.is_alive():
                job = random.choice(list(texts))
                serve_one(own, job, texts[job], tally)

    killer.start()
    asking = [threading.Thread(target=ask) for _ in range(N_CLIENTS)]
    for each in asking:
        each.start()
    for each in (*asking, killer):
        each.join()
    held.append(holds(person))
    client.close()
    server.terminate()
    server.wait()
    if tally.reasons:
        log.seek(0)
        print(log.read().decode()[-4000:])
    return tally, held


def answers(client: httpx2.Client) -> bool:
    """Is the model loaded?"""
    try:
        return client.get("/health").status_code == 200
    except httpx2.TransportError:
        return False


def holds(process: psutil.Process) -> str:
    """Memory, threads and descriptors of the process that people meet."""
    mib = process.memory_info().rss / 2**20
    return f"{mib:.0f} MiB, {process.num_threads()} threads, {process.num_fds()} descriptors"


def main() -> None:
    """Exit code 1 where a text was another, or a reply failed."""
    parser = argparse.ArgumentParser(description="The models are lost again and again.")
    parser.add_argument("--losses", type=int, default=100, help="of the chat, and of the server")
    args = parser.parse_args()
    texts = expected()
    tallies = {"chat": chat(args.losses, texts)}
    tallies["server"], held = clients(args.losses, texts)
    rows = [
        [who, *map(str, (tally.n_lost, tally.n_replies, tally.n_different, tally.reasons.total()))]
        for who, tally in tallies.items()
    ]
    columns = ["who", "losses", "replies", "different", "failed"]
    reasons = dict(tallies["server"].reasons)
    report("the models are lost", columns, rows, {"server, before and after": held, "reasons": reasons})
    sys.exit(any(tally.n_different or tally.reasons for tally in tallies.values()))


if __name__ == "__main__":
    main()
