"""Configurations, each in a process of its own that stays alive: two builds of llama.cpp never share a process, and an
abort costs one configuration.

Also processes that keep a core busy; `python -m bench.instruments.processes` is one in place of a training, at the
lowest priority. Knows processes, pipes and rates; knows no model library.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from bench.instruments.timing import interleaved, ratios, spread
from bench.instruments.ways import (
    DRAFT_TYPES,
    Answer,
    Job,
    Prompt,
    Way,
    WayError,
    draft_lengths,
    drafts_by,
    examine_server,
    open_server,
    prepare,
)
from runtime.engine import Message
from runtime.models.registry import Pair


def elsewhere(function: Callable[..., Any], *arguments: object) -> Any:
    """Return the result of the function in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


SPAWN = get_context("spawn")  # a fork would take one library's locks and threads into another's process
ROUND_SECONDS = 30.0  # after these seconds the remaining prompts of a round are left out
TIMEOUT = 900.0  # maximal seconds to load, and for one answer
OPENED = Answer("", 0, 0)


class Peer:
    """A configuration in its own process: started by the first request, alive until closed.

    After its first failure it gets no more requests.
    """

    def __init__(self, job: Job, way: Way, is_kept: bool = True) -> None:
        self.job, self.way, self.is_kept = job, way, is_kept
        self.failure = ""
        self.texts: dict[str, set[str]] = {}  # replies by question, in all rounds
        self.drafted = self.accepted = self.tokens = 0
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None

    def rate(self, prompts: Sequence[Prompt]) -> float:
        """Return the tokens per second of one round; NaN if the configuration has failed."""
        try:
            return math.nan if self.failure else self._round(prompts)
        except WayError as error:
            self.failure = str(error)
            return math.nan
        finally:
            if self.failure or not self.is_kept:
                self.close()

    def forget(self) -> None:
        """Clear the texts and counts so far."""
        self.texts.clear()
        self.drafted = self.accepted = self.tokens = 0

    def _round(self, prompts: Sequence[Prompt]) -> float:
        self._start()
        began, tokens, seconds = time.perf_counter(), 0.0, 0.0
        for prompt in prompts:
            answer = self._ask(prompt)
            tokens, seconds = tokens + answer.tokens, seconds + answer.seconds
            if time.perf_counter() - began > ROUND_SECONDS:
                break
        if not tokens:
            raise WayError("no reply was longer than a token")
        return tokens / seconds

    def _start(self) -> None:
        if self._process is None:
            self._pipe, theirs = SPAWN.Pipe()
            self._process = SPAWN.Process(target=serve, args=(theirs, self.job, self.way), daemon=True)
            self._process.start()
            theirs.close()  # otherwise the end of the process is not detected here
            self._exchange(None)

    def _ask(self, prompt: Prompt) -> Answer:
        answer = self._exchange(prompt)
        self.texts.setdefault(prompt.question, set()).add(answer.text)
        self.drafted, self.accepted = self.drafted + answer.drafted, self.accepted + answer.accepted
        self.tokens += int(answer.tokens)
        return answer

    def _exchange(self, prompt: Prompt | None) -> Answer:
        """Send the prompt, if there is one, and wait for the answer."""
        assert self._process is not None
        assert self._pipe is not None
        try:
            if prompt is not None:
                self._pipe.send(prompt)
            if not self._pipe.poll(TIMEOUT):
                raise WayError(f"nothing came for {TIMEOUT:g} seconds")
            came: Answer | str = self._pipe.recv()
        except (EOFError, OSError):
            self._process.join(5)
            raise WayError(f"the process ended with code {self._process.exitcode}") from None
        if isinstance(came, str):
            raise WayError(came)
        return came

    def close(self) -> None:
        """End the process; may be called twice."""
        if self._process is not None and self._pipe is not None:
            self._pipe.close()
            self._process.join(5)
            self._process.kill()
            self._process.join()
            self._process = self._pipe = None


def serve(pipe: Connection, job: Job, way: Way) -> None:
    """Run a peer's process: open the configuration, then answer until the other end is closed.

    A string instead of an answer is an error.
    """
    try:
        answer = way.opens(job, way)
        pipe.send(OPENED)
        while True:
            pipe.send(answer(pipe.recv()))
    except (EOFError, KeyboardInterrupt):
        pass
    except Exception as error:  # any error of a peer's library costs its row only
        pipe.send(f"{type(error).__name__}: {error}")


def spin() -> None:
    """Keep a core busy until the parent process ends."""
    parent = parent_process()
    while parent is not None and parent.is_alive():
        sum(range(100_000))


def train() -> None:
    """Compute without end, as a training does."""
    from runtime.training.adapting import end_with_parent, give_way

    give_way()
    end_with_parent()
    while True:
        sum(range(100_000))


@contextmanager
def busy_core() -> Iterator[None]:
    """Keep one core busy inside the block."""
    process = SPAWN.Process(target=spin, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


LENGTHS = 1, 2, 3, 5, 8  # maximal draft tokens
PLAIN = "server, plain"
Asked = str | Sequence[Message]  # a raw prompt, or a question


def server_rows(
    pair: Pair, prompts: Sequence[Asked], most: int, threads: int | None, runs: int, ours: float
) -> Iterator[tuple[list[str], float]]:
    """Yield a row of the table of drafters for each configuration, and the ratio of `ours` (tokens per second) to its
    rate.
    """
    is_raw = isinstance(prompts[0], str)
    texts = [each if isinstance(each, str) else each[0].content for each in prompts]
    found = of_server(pair, texts, is_raw, most, threads, runs)
    plain = found[PLAIN][0] if PLAIN in found else []
    for name, (rates, drafted, accepted) in found.items():
        rate, times = spread(rates), str(ratios(rates, plain)) if plain else "-"
        share = f"{accepted / drafted:.0%}" if drafted else "-"
        yield [pair.name, name, str(rate), times, share, "-", "-", "-", "-"], ours / rate.median


def of_server(
    pair: Pair, asked: Sequence[str], is_raw: bool, most: int, threads: int | None, runs: int
) -> dict[str, tuple[list[float], int, int]]:
    """Return by configuration: tokens per second of decoding in each round, draft tokens proposed and accepted."""
    job, counted, prompts, _ = elsewhere(prepare, Job(pair, most, is_raw), asked)
    server = elsewhere(examine_server)
    settings: dict[str, dict[str, Any]] = {"plain": {}}
    if drafts_by(pair) in DRAFT_TYPES:
        settings |= draft_lengths(pair, server, LENGTHS, 0.0)
    with ExitStack() as stack:
        peers = {
            f"server, {name}": stack.enter_context(
                closing(Peer(job, Way(f"server, {name}", open_server, PLAIN, threads or counted, values)))
            )
            for name, values in settings.items()
        }
        rates = interleaved({name: partial(peer.rate, prompts) for name, peer in peers.items()}, runs)
        for name, peer in peers.items():
            if peer.failure:
                print(f"{pair.name}, {name} is left out. {peer.failure}", flush=True)
                del rates[name]
        return {name: (values, peers[name].drafted, peers[name].accepted) for name, values in rates.items()}


if __name__ == "__main__":
    train()
