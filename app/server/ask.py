"""What a client wants to have said, as plain data for the engine; knows no protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from runtime.engine import Chunk, Engine, Grammar, Ids, Prompt, Sampling


@dataclass(frozen=True, slots=True)
class Ask:
    """One reply: from which prompt, how, and how long."""

    prompt: Callable[[Engine], Prompt]
    sampling: Sampling
    max_tokens: int | None = None  # 0: the prompt is only read, so that the next request finds it in the cache
    stops: tuple[str, ...] = ()
    grammar: Grammar | None = None
    n_logprobs: int | None = None
    prediction: str = ""
    max_seconds: float | None = None  # of decoding
    is_short: bool = False  # an editor's completion, which goes before chats that wait
    text_field: str = "prompt"  # of the request, from which the prompt came

    def read(self, engine: Engine) -> Ask:
        """With the prompt as ids: that may take a while for a long one, and need not be done between two steps."""
        ids = Ids(tuple(engine.encode(self.prompt(engine))))
        return replace(self, prompt=lambda engine: ids)

    def begin(self, engine: Engine, cancel: Callable[[], bool], on_read: Callable[[], None]) -> Iterator[Chunk]:
        """The reply; `on_read` is called when the prompt has been read. Raises what Engine.reply raises."""

        def report(done: int, total: int) -> None:
            if done == total:
                on_read()

        return engine.reply(
            self.prompt(engine), self.sampling, self.max_tokens or None, self.stops, cancel, report,
            grammar=self.grammar, n_logprobs=self.n_logprobs, prediction=self.prediction, pauses=True,
        )  # fmt: skip
