"""A request's work for the engine: prepared so far that the engine can begin, then run until it or its time is over.

Must not know a protocol.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from starlette.concurrency import run_in_threadpool

from runtime.engine import Chunk, Engine, Ids, Pictured, Prompt
from runtime.engine.engine import Ask
from runtime.engine.streams import PrefillReport

PromptIds = tuple[int, ...]
MASK = 2**64 - 1  # the largest seed


@dataclass(frozen=True, slots=True)
class CompletionTask:
    """A text to complete: what to ask the engine, with the prompt as token ids."""

    ask: Ask
    prompt_field: str = "prompt"  # the request field that holds the prompt, named in errors
    # The longest time for generating, counted from the end of the prefill; it ends the reply once a line is complete
    max_decode_seconds: float | None = None
    changes: tuple[str, ...] = ()  # to the conversation, which the chat template required

    @property
    def prompt_ids(self) -> PromptIds:
        """The prompt as token ids."""
        prompt = self.ask.prompt.prompt if isinstance(self.ask.prompt, Pictured) else self.ask.prompt
        return prompt.tokens if isinstance(prompt, Ids) else ()

    @property
    def n_prompt(self) -> int:
        """The number of prompt tokens."""
        return len(self.prompt_ids)

    @property
    def max_tokens(self) -> int | None:
        """The most tokens to generate. 0: prefill only, so that the next request finds the prompt in the cache."""
        return self.ask.max_tokens

    def choice(self, i: int, most: int | None) -> CompletionTask:
        """Return the task for choice `i`, whose seed is `i` higher, with at most `most` tokens. None: no limit."""
        ask, seed = self.ask, self.ask.sampling.seed
        if seed is not None:
            ask = replace(ask, sampling=replace(ask.sampling, seed=(seed + i) & MASK))
        if most is not None and (ask.max_tokens is None or ask.max_tokens > most):
            ask = replace(ask, max_tokens=most)
        return replace(self, ask=ask)


def encoded(prompt: Prompt, engine: Engine) -> Ids | Pictured:
    """Return a prompt as token ids. This is done ahead because it is slow for a long prompt, and no other reply must
    wait for it.
    """
    ids = Ids(tuple(engine.encode(prompt)))
    return Pictured(ids, prompt.images) if isinstance(prompt, Pictured) else ids


class StepTask(ABC):
    """Work of the engine that is no reply, such as texts to embed. It takes turns with other work of its kind."""

    prompt_field: str
    n_prompt = 0
    max_tokens: int | None = None
    max_decode_seconds: float | None = None
    changes: tuple[str, ...] = ()

    async def at_once(self, engine: Engine) -> Chunk | None:
        """Do it without a thread and return its last chunk; None: in steps. Raises what the engine raises."""
        return None

    @abstractmethod
    def steps(self, engine: Engine, should_stop: Callable[[], bool]) -> Iterator[Chunk]:
        """Yield a chunk for each step. The last one has a finish reason. Raises what the engine raises."""


EngineTask = CompletionTask | StepTask


class TaskRun:
    """A task that is run on the event loop. Its chunks are passed on to `emit` as they come, but for the last one."""

    def __init__(self, task: EngineTask, engine: Engine, emit: Callable[[Chunk], None]) -> None:
        self._task, self._engine, self._emit = task, engine, emit
        self._last: asyncio.Future[Chunk] = asyncio.get_running_loop().create_future()
        self._reply: int | None = None  # the engine's number of the reply
        self.text, self.n_decoded = "", 0  # of the reply so far
        self.began_at: float | None = None  # when the reply or the first step began
        self._is_cancelled = self._is_prefilled = False
        self._prefill = PrefillReport(self._on_prefill)
        self._deadline: float | None = None  # of generating

    async def reply(self, ask: Ask) -> Chunk:
        """Ask the engine for a reply and return its last chunk. Raises what the engine raises, and what `fail` is
        given.
        """
        loop = asyncio.get_running_loop()

        def sink(output: Chunk | Exception) -> None:
            with suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(self._take, output)

        self._reply = self._engine.add(ask, sink)
        try:
            return await self._last
        finally:
            self._engine.end(self._reply)  # nobody reads the rest, if there is any

    async def steps(self, task: StepTask, turn: asyncio.Lock) -> Chunk:
        """Run a task in its `turn`: at once, or each of its steps in a thread. Return the last chunk; raises as `reply`
        does.
        """
        steps = task.steps(self._engine, lambda: self._is_cancelled)
        while not self._last.done():
            async with turn:
                if not self._last.done():
                    is_first, self.began_at = self.began_at is None, self.began_at or time.perf_counter()
                    only = await task.at_once(self._engine) if is_first else None
                    self._take(await run_in_threadpool(next, steps) if only is None else only)
        return self._last.result()

    def _take(self, output: Chunk | Exception) -> None:
        """Process the next output of the engine."""
        if self._last.done():
            return
        if isinstance(output, Exception):
            self._last.set_exception(output)
            return
        self.began_at = self.began_at or time.perf_counter()
        self.n_decoded += len(output.tokens)
        self.text += output.text
        if not is_empty(output):
            self._prefill.take(output)
        if output.finish_reason is not None:
            is_late = output.finish_reason == "cancelled" and not self._is_cancelled
            self._last.set_result(replace(output, finish_reason="length") if is_late else output)
            return
        self._emit(output)
        if self._is_over and self._reply is not None:
            self._engine.cancel(self._reply)

    def cancel(self) -> None:
        """Have the task end within a step."""
        self._is_cancelled = True
        if self._reply is not None:
            self._engine.cancel(self._reply)

    def fail(self, error: Exception) -> None:
        """End the task with an error."""
        self._take(error)

    def _on_prefill(self, done: int, total: int) -> None:
        if done < total:
            return
        self._is_prefilled = True
        if self._task.max_decode_seconds is not None:
            self._deadline = time.perf_counter() + self._task.max_decode_seconds

    @property
    def _is_over(self) -> bool:
        """Whether its time is over and a line is complete, or a prefill-only prompt has been read."""
        is_late = self._deadline is not None and time.perf_counter() >= self._deadline and "\n" in self.text
        return is_late or (self._is_prefilled and self._task.max_tokens == 0)


def is_empty(chunk: Chunk) -> bool:
    """Return whether a chunk tells nothing but that the reply runs."""
    return not (chunk.tokens or chunk.text or chunk.stats or chunk.finish_reason)
