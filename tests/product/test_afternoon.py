"""An afternoon of use: commands, chats, servers, requests and signals in a random order, by the real commands.

At its end no process and no temporary file is left, every terminal is as it was, and all that was finished is kept.
"""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path

import httpx2
import pytest

from app.chats.store import Store
from bench.instruments.servers import free_port
from tests.support.cli import QUESTION, SLIPSTREAM
from tests.support.family import Family
from tests.support.pseudo_terminal import PseudoTerminal
from tests.support.waiting import PATIENCE, wait_for

N_EVENTS, SECONDS = 24, 90.0  # events at most, and the time after which no further one begins
N_OPEN = 3  # chats and servers at the same time, at most
ENDS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL]
LIGHT = "--threads", "1", "--context", "1024"
ENDLESS = "--temperature", "5", "--seed", "1", "--max-tokens", "100000"
COMMANDS = (
    ["--version"], ["models", "list"], ["models", "info", "demo"], ["doctor"], ["run", QUESTION, *LIGHT],
    ["run", QUESTION, *LIGHT, "--json", "--seed", "3"],
)  # fmt: skip
BROKEN_OFF = (
    ["run", QUESTION, *LIGHT, *ENDLESS], ["doctor"], ["models", "pair", "demo"], ["models", "list"],
    ["bench", "--quick", "--drafters", "none"],
)  # fmt: skip


class Afternoon:
    """What is open now, what was finished so far, and the events of which there is one after the other."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random, self.family, self.chats = random.Random(seed), Family(folder), folder / "chats.db"
        self.open_chats, self.servers = list[PseudoTerminal](), list[tuple[subprocess.Popen[bytes], str]]()
        self.finished = dict[str, str]()  # questions with their replies
        self.log = list[str]()  # of the events, for who reads a failure

    def happen(self) -> None:
        """One event."""
        events = [self.command, self.broken_off]
        if len(self.open_chats) + len(self.servers) < N_OPEN:
            events += [self.begin_chat, self.begin_server] * 2
        events += [self.ask, self.ask, self.leave_chat] * bool(self.open_chats)
        events += [self.request, self.request, self.end_server] * bool(self.servers)
        event: Callable[[], None] = self.random.choice(events)
        self.log.append(event.__name__)
        event()

    def command(self) -> None:
        args = self.random.choice(COMMANDS)
        process = self.family.begin([*SLIPSTREAM, *args])
        _, errors = process.communicate(timeout=PATIENCE)
        assert (process.returncode, errors) == (0, b""), args

    def broken_off(self) -> None:
        args, number = self.random.choice(BROKEN_OFF), self.random.choice(ENDS)
        process = self.family.begin([*SLIPSTREAM, *args])
        with suppress(subprocess.TimeoutExpired):
            process.wait(self.random.uniform(0, 4))
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode in (-number, 0), (args, errors)
        assert b"Traceback" not in errors

    def begin_chat(self) -> None:
        command = [*SLIPSTREAM, "chat", *LIGHT, "--chats", str(self.chats)]
        self.open_chats.append(PseudoTerminal(command, self.family.environment))

    def ask(self, patience: float = 0.7) -> None:
        """Ask, and with that probability wait for the whole reply; else leave it to whatever comes next."""
        chat, question = self.random.choice(self.open_chats), f"{QUESTION} {len(self.log)}"
        chat.until("is ready")
        chat.keys(f"{question}\r")
        if self.random.random() < patience:
            wait_for(lambda: question in self.replies())
            self.finished[question] = self.replies()[question]

    def replies(self) -> dict[str, str]:
        """The replies that are kept and were not interrupted, by their questions."""
        with closing(Store(self.chats)) as store:
            branches = [store.branch(chat.leaf) for chat in store.chats()]
        pairs = [pair for branch in branches for pair in pairwise(branch)]
        return {first.content: reply.content for first, reply in pairs if reply.role == "assistant" and is_whole(reply)}

    def leave_chat(self, number: int = 0) -> None:
        chat = self.open_chats.pop(self.random.randrange(len(self.open_chats)))
        how = number or self.random.choice([*ENDS, "key", "window"])
        with closing(chat):
            if how == "window":
                chat.hang_up()
                assert chat.ended() == -signal.SIGHUP
                return
            if how == "key":
                chat.until("is ready")
                chat.keys("\x11")
            else:
                chat.process.send_signal(how)
            assert chat.ended() == (0 if how == "key" else -how)
            assert how == signal.SIGKILL or chat.left_on() == []

    def begin_server(self) -> None:
        port = free_port()
        command = [*SLIPSTREAM, "serve", "demo", *LIGHT, "--quiet", "--port", str(port)]
        self.servers.append((self.family.begin(command), f"http://127.0.0.1:{port}"))

    def request(self) -> None:
        """A whole reply, or a stream that its reader leaves."""
        _, url = self.random.choice(self.servers)
        wait_for(lambda: is_up(url))
        body = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 16}
        if self.random.random() < 0.6:
            reply = httpx2.post(f"{url}/v1/chat/completions", json=body, timeout=PATIENCE)
            assert reply.json()["choices"][0]["message"]["content"].startswith("Join two or more")
            return
        endless = {"prompt": QUESTION, "n_predict": 10**4, "stream": True, "temperature": 5.0}
        with httpx2.stream("POST", f"{url}/completion", json=endless, timeout=PATIENCE) as stream:
            next(stream.iter_lines())

    def end_server(self, number: int = 0) -> None:
        process, _ = self.servers.pop(self.random.randrange(len(self.servers)))
        number = number or self.random.choice(ENDS)
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == -number
        assert b"Traceback" not in errors

    def end(self) -> None:
        """Leave all that is open in an orderly way."""
        while self.open_chats:
            self.leave_chat(signal.SIGTERM)
        while self.servers:
            self.end_server(signal.SIGTERM)

    def clean(self) -> None:
        """Leave nothing, also after a failure."""
        for chat in self.open_chats:
            chat.close()
        self.family.end()


def is_whole(reply: object) -> bool:
    """Whether a kept reply has come to its end."""
    facts = reply.facts  # type: ignore[attr-defined]
    return "numbers" in facts and not facts.get("end")


def is_up(url: str) -> bool:
    """Whether a server answers and has its model."""
    with suppress(httpx2.HTTPError):
        return httpx2.get(f"{url}/health", timeout=5).status_code == 200
    return False


@pytest.fixture
def afternoon(tmp_path: Path) -> Iterator[Afternoon]:
    here = Afternoon(tmp_path, seed=68)
    yield here
    here.clean()


@pytest.mark.slow
def test_an_afternoon_leaves_nothing_and_loses_nothing(afternoon: Afternoon) -> None:
    ends = time.monotonic() + SECONDS
    afternoon.begin_chat()
    afternoon.begin_server()
    afternoon.ask(patience=1.0)
    while len(afternoon.log) < N_EVENTS and time.monotonic() < ends:
        afternoon.happen()
    afternoon.end()
    wait_for(lambda: not afternoon.family.alive())
    assert list(afternoon.family.temporary.iterdir()) == []
    kept = afternoon.replies()
    assert kept == afternoon.finished | kept
    assert afternoon.finished
