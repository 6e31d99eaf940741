"""An engine whose models are in a process of their own. A crash of that is a pause: it is started anew, reads again
what was said, and the reply goes on with the same text.

Token ids are the truth and the cache is a memo, so what is kept here is enough to go on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import count
from typing import Any

from runtime.core.backend import OnProgress
from runtime.core.errors import ModelError, TemplateError
from runtime.engine.chat_template import USUAL_FORM, Message, TemplateForm
from runtime.engine.engine import Ask, Engine
from runtime.engine.prompt import Ids, Prompt
from runtime.engine.quoting import Rendered
from runtime.engine.reply import Chunk
from runtime.engine.trace import TracedPass, TraceFile
from runtime.loading.options import Options
from runtime.models.registry import Pair
from runtime.process.losses import Losses
from runtime.process.messages import Call, Status
from runtime.process.model_process import TEXT, ModelProcess, OverdueError, ProcessLostError
from runtime.process.reply import ProcessReply
from runtime.speculative.control.explain import Explanation, Pass

PATIENCE = 15.0  # seconds that a worker may take to be there again
CLOSED = "The model is closed."
Say = Callable[[str], object]


def silent(text: str) -> None:
    """Nobody is told."""


class EngineProcess(Engine):
    """An engine in another process. `say` is told when that was lost and is there again, and when the `trace` that
    passes are written to ends.
    """

    def __init__(
        self,
        pair: Pair,
        options: Options | None = None,
        on_progress: OnProgress | None = None,
        say: Say = silent,
        trace: TraceFile | None = None,
    ) -> None:
        self.pair, self._say, self._losses, self._trace = pair, say, Losses(options or Options()), trace
        self._lock, self._is_closed, self._n_waiting = threading.RLock(), False, 0
        self._numbers = trace.sequences if trace else count(1)
        self._reply: ProcessReply | None = None  # the last one
        self._words: dict[int, tuple[bytes, str, bool]] = {}
        self._process = self._started(on_progress or (lambda what, share: True))
        self.facts = self._process.facts
        if self._losses.is_reduced:
            lost = f"the model's process was lost while it loaded and was started again{self._losses.consequence}"
            self.facts = replace(self.facts, left_out="; ".join(filter(None, (self.facts.left_out, lost))))

    def _started(self, on_progress: OnProgress, patience: float = 0.0) -> ModelProcess:
        """Raises what loading raises; a file at which it was lost several times is a ModelError.

        Workers may be away for so many seconds, as a process is lost with one of them.
        """
        while True:
            try:
                process = ModelProcess(self.pair, replace(self._losses.options, patience=patience), on_progress)
            except ProcessLostError as lost:
                self.note_loss(lost, "load")
            else:
                self._losses.forgive("load")
                return process

    def living(self) -> ModelProcess:
        """The process, started anew where it was lost. Raises what loading raises."""
        with self._lock:
            if not self._process.is_alive:
                if self._is_closed:
                    raise ModelError(CLOSED)
                self._process.close()
                try:
                    self._process = self._started(lambda what, share: not self._is_closed, PATIENCE)
                except KeyboardInterrupt:  # closed meanwhile
                    raise ModelError(CLOSED) from None
                self.facts = self._process.facts
                lacking = f" {self.facts.left_out}." if self.facts.left_out else ""
                self._say(
                    f"The model's process was lost and has been started again{self._losses.consequence}.{lacking}"
                )
            return self._process

    def note_loss(self, lost: ProcessLostError, place: Hashable) -> None:
        """Takes in that the process was lost there. Raises ModelError when that goes on."""
        with self._lock:
            self._losses.note(lost, place, self.pair.target.name)

    def _ask(self, name: str, *args: Any) -> Any:
        """What the engine there says, on the thread of replies."""
        place = object()
        while True:
            try:
                return self.living().ask(Call(name, args))
            except ProcessLostError as lost:
                self.note_loss(lost, place)

    def _ask_text(self, name: str, *args: Any, **named: Any) -> Any:
        """What the engine there says of text, beside replies."""
        place = object()
        while True:
            try:
                return self.living().ask_text(Call(name, args, named))
            except ProcessLostError as lost:
                self.note_loss(lost, place)
            except OverdueError:
                raise TemplateError(
                    f"Reading the prompt took more than {TEXT:g} s, so it was given up: it is too long, or the model's "
                    "chat template does not come to an end."
                ) from None

    def encode(self, prompt: Prompt) -> list[int]:
        """As Engine says."""
        if isinstance(prompt, Ids):  # no way to another process for what is known here
            return prompt.checked(self.facts.n_vocab)
        ids: list[int] = self._ask_text("encode", prompt)
        return ids

    def render(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = (), form: TemplateForm = USUAL_FORM
    ) -> Rendered:
        """As Engine says."""
        rendered: Rendered = self._ask_text("render", messages, tools, form)
        return rendered

    def tokenize(self, text: str, *, special: bool = True, bos: bool = False) -> list[int]:
        """As Engine says."""
        ids: list[int] = self._ask_text("tokenize", text, special=special, bos=bos)
        return ids

    def token_bytes(self, token: int) -> bytes:
        """As Engine says."""
        return self._word(token)[0]

    def token_text(self, token: int) -> str:
        """As Engine says."""
        return self._word(token)[1]

    def is_end(self, token: int) -> bool:
        """As Engine says."""
        return self._word(token)[2]

    def _word(self, token: int) -> tuple[bytes, str, bool]:
        word = self._words.get(token)
        if word is None:
            word = self._words[token] = self._ask_text("word", token)
        return word

    @cached_property
    def end_tokens(self) -> tuple[int, ...]:
        """As Engine says."""
        tokens: tuple[int, ...] = self._ask_text("end_tokens")
        return tokens

    def answer(
        self, ask: Ask, cancel: Callable[[], bool], on_prefill: Callable[[int, int], None], pauses: bool
    ) -> Iterator[Chunk]:
        """As Engine says."""
        ask = replace(ask, is_traced=self._trace is not None)
        self._reply = ProcessReply(self, next(self._numbers), ask, cancel)
        self._reply.begin()
        return self._reply.chunks(on_prefill, pauses)

    def note_pass(self, number: int, n: int, made: Pass) -> None:
        """Writes the `n`-th pass of the reply of that number to the trace, where there is one."""
        if self._trace and made.why and (problem := self._trace.write(TracedPass(number, n, made, made.why))):
            self._say(problem)

    def passes(self, first: int = 0) -> tuple[Pass, ...]:
        """As Engine says."""
        return tuple(self._reply.passes[first:]) if self._reply else ()

    def explain(self) -> Explanation:
        """As Engine says."""
        explanation: Explanation = self._ask("explain")
        return explanation

    def embed(self, tokens: Sequence[int]) -> list[float]:
        """As Engine says."""
        vector: list[float] = self._ask("embed", list(tokens))
        return vector

    @property
    def n_waiting(self) -> int:
        """Replies that wait for the steps that are made."""
        return self._n_waiting

    def share(self, n_waiting: int) -> None:
        """As Engine says."""
        self._n_waiting = n_waiting

    def let_in(self) -> None:
        """As Engine says."""
        self._process.lets_in = True

    def tend(self) -> None:
        """As Engine says; one that was lost is not started for that."""
        if self._process.is_alive:
            self._process.status = self._ask("tend")

    def close(self) -> None:
        """Frees the models; whatever is asked at the moment fails."""
        self._is_closed = True
        self._process.close()

    @property
    def _status(self) -> Status:
        return self._process.status

    @property
    def turn_seconds(self) -> float:
        """As Engine says."""
        return self._status.turn_seconds

    @property
    def n_held(self) -> int:
        """As Engine says."""
        return self._status.n_held

    @property
    def memory_level(self) -> str:
        """As Engine says."""
        return self._status.memory_level

    @property
    def given_up(self) -> str:
        """As Engine says."""
        return self._status.given_up

    @property
    def learning(self) -> str:
        """As Engine says."""
        return self._status.learning
