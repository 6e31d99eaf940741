"""The engine of a pair in this process: checks settings, applies the chat template and begins replies."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as List
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from itertools import count

import numpy as np

from runtime.backends.pooling import Inputs, Vectors
from runtime.conversation import chat_template
from runtime.conversation.infill import NEEDED
from runtime.conversation.prompt import PromptEncoder
from runtime.conversation.window import PromptWindow
from runtime.core.backend import OnProgress
from runtime.engine.ahead import ReadAhead, answering
from runtime.engine.binding import adapters_of, bound
from runtime.engine.core import EngineCore
from runtime.engine.engine import Ask
from runtime.engine.facts import EngineFacts
from runtime.engine.kept_prompts import KeptPrompts
from runtime.engine.output import Chunk, Output, Sink, Status
from runtime.engine.preparation import prompt_ids
from runtime.engine.sequence import Sequence
from runtime.engine.streams import Came, PushedEngine
from runtime.engine.text import LoadedTexts
from runtime.loading.draft import about_words
from runtime.loading.eyes import with_encoder
from runtime.loading.loaded_pair import LoadedPair
from runtime.loading.options import Options
from runtime.models.content import content_of
from runtime.models.registry import Pair
from runtime.speculative.control.explain import Explanation, Pass, explain
from runtime.training.background import opened_learner, replacing_head
from runtime.training.conditions import why_never


class LoadedEngine(LoadedTexts, PushedEngine):
    """An engine whose models are in this process. Its outputs are pushed by `step`, on the thread that calls it.

    With `learns`, the head of a pair that asks for it is trained in the background. Benchmarks leave it off and use the
    head as it is.
    """

    def __init__(
        self, pair: Pair, options: Options | None = None, on_progress: OnProgress | None = None, learns: bool = False
    ) -> None:
        self.pair = pair
        chat_template.PROCESSES.prepare()  # while the weights are read
        self._loaded = LoadedPair(pair, options or Options(), on_progress, replacing_head(pair))
        self._learner = None if not learns or why_never(pair, self._loaded.drafts_by) else opened_learner(pair)
        self._asked_head = self._loaded.learned
        self.decoder = self._loaded.decoder
        self.facts = facts_of(self._loaded)
        super().__init__(self._loaded.target.vocab, self._text_encoder())
        self._start()

    def _text_encoder(self) -> PromptEncoder:
        facts, vocab = self.facts, self._loaded.target.vocab
        encoder = PromptEncoder(vocab, facts.template, self.pair.target.name, facts.n_ctx, facts.tool_template)
        if vision := self._loaded.target.vision:
            encoder.place = vision.ids
        encoder.why_blind = self._loaded.target.why_blind
        return encoder

    def _start(self) -> None:
        """Create the engine core after loading."""
        self.limits = self._loaded.options.limits
        ahead = ReadAhead(self._loaded.options.reads_ahead, lambda: self.decoder.active.memory_level)
        self.core = EngineCore(self.decoder, self._loaded.backend, self.limits, ahead)
        self.prompts = KeptPrompts(self._loaded, self.core)
        self._numbers, self._sinks = count(1), dict[int, Sink]()

    def add(self, ask: Ask, sink: Sink) -> int:
        """See Engine."""
        number = next(self._numbers)
        self.begin(ask, number)
        self._sinks[number] = sink
        return number

    def begin(self, ask: Ask, number: int, pool: Executor | None = None) -> None:
        """Begin a reply with an unused number, whose outputs only `step` returns. It is prepared in the pool, if there
        is one, and what is wrong with it is an output then. Raises as `add` does.
        """
        self.core.begin(ask, number, partial(self._sequence, ask, number), pool)
        if pool is None and isinstance(error := self.core.preparing[-1].outcome, Exception):
            self.core.end(number)
            raise error

    def _sequence(self, ask: Ask, number: int, is_cancelled: Callable[[], bool]) -> Sequence:
        """Return the sequence of a request. Called on any thread."""
        if ask.is_ahead:
            self.core.ahead.check()
        adapters = adapters_of(ask, self._loaded.backend.model.adapters)
        facts = replace(self.facts, exactness=self._loaded.roundings.of(adapters))
        binding = bound(ask, self.vocab, facts, self._loaded.options, is_cancelled, adapters)
        window = PromptWindow(ask.prompt, self._encoder, facts.n_ctx, ask.when_full == "drop-oldest", is_cancelled)
        sequence = Sequence(number, ask, prompt_ids(window, ask.max_tokens), window, binding)
        if sequence.drafting.reading.has_images and (vision := self._loaded.target.vision):
            sequence.images = vision.embed(sequence.tokens.tolist(), is_cancelled)
        elif self._learner and not ask.is_ahead and not binding.adapters:
            self._learner.reply_begins(sequence.generated, self.decoder.active.memory_level)
        return sequence

    def step(self) -> list[Output]:
        """Run one pass at most, give its outputs to their sinks, and return them."""
        outputs = self.core.step()
        for number, came in outputs:
            is_last = isinstance(came, Exception) or came.finish_reason is not None
            if sink := self._sinks.pop(number, None) if is_last else self._sinks.get(number):
                sink(came)
        return outputs

    def _wait(self, came: Came) -> Chunk | Exception | None:
        if came.empty():
            self.step()
        return None if came.empty() else came.get()

    def cancel(self, number: int) -> None:
        """See Engine."""
        self.core.cancels.cancel(number)

    def end(self, number: int) -> None:
        """See Engine."""
        self._sinks.pop(number, None)
        self.core.end(number)

    def passes(self, first: int = 0) -> tuple[Pass, ...]:
        """See Engine."""
        return tuple(self.core.last.stats.steps[first:]) if self.core.last else ()

    def explain(self) -> Explanation:
        """See Engine."""
        last = self.core.last
        n_context, state = (last.buffer.n, last.drafting) if last else (0, None)
        return explain(self.decoder.controller, n_context, self.decoder.why_plain(state).text)

    @property
    def status(self) -> Status:
        """See Engine."""
        scheduler, active, n_held = self.core.scheduler, self.decoder.active, self._loaded.backend.n_held
        n_running, n_waiting = len(scheduler.sequences), len(answering((*scheduler.waiting, *self.core.preparing)))
        preparing = tuple(each.number for each in self.core.preparing if not each.made.done())
        ahead = self.core.ahead.n_read, self.core.ahead.n_used
        told = active.memory_level, active.given_up, self._learning
        return Status(n_running, n_waiting, n_held, *told, ahead, preparing)

    def is_ready(self, tokens: List[int]) -> bool:
        """See Engine."""
        return self._loaded.embedder().is_ready(list(tokens))

    def embed(self, inputs: Inputs) -> Vectors:
        """See Engine."""
        embedder = self._loaded.embedder()
        return np.stack([embedder.embed(list(tokens)) for tokens in inputs])

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return self.core.is_idle

    @property
    def n_running(self) -> int:
        """Number of replies that are being generated."""
        return self.core.n_running

    def store_prompts(self) -> bool:
        """Store a prompt on disk that is worth it. Return whether there may be more."""
        return self.prompts.keep()

    def tend(self) -> None:
        """Do housekeeping between replies: close the embedder, suspend or restore drafters as memory requires, and
        install the learned head, or the pair's own if that is current.
        """
        self._loaded.close_embedder()
        self.decoder.active.degrade()
        if self._learner:
            self._learner.tend(level := self.decoder.active.memory_level)
            head = self._learner.head
            if head != self._asked_head and level == "OK":
                self._asked_head = head
                self._loaded.take_head(head)

    def close_drafts(self) -> int:
        """See Engine."""
        if not (self.is_idle and self.decoder.active.rest()):
            return 0
        spec = self._loaded.wanted.spec
        return spec.draft_needs(self.facts.n_ctx) if spec else 0

    def conversation(self, action: str, number: int, path: str = "") -> tuple[int, int]:
        """See Engine."""
        return self.prompts.handle(action, number, path)

    @property
    def _learning(self) -> str:
        if not self.pair.learn:
            return ""
        why = why_never(self.pair, self._loaded.drafts_by) or "measurements are not kept"
        return self._learner.state if self._learner else f"it does not learn: {why}"

    def close(self, on_progress: Callable[[], object] = lambda: None) -> None:
        """See Engine; `on_progress` is called from time to time while prompts are stored."""
        if self._learner:
            self._learner.close()
        self.prompts.close(on_progress)
        self._loaded.close()
        chat_template.PROCESSES.end()


def facts_of(loaded: LoadedPair) -> EngineFacts:
    """Return the constant facts of a loaded pair."""
    target, plan, off, lacking = loaded.target, loaded.wanted.plan, loaded.decoder.controller.off, loaded.left_out
    failed = lacking.text if lacking and lacking.code in ("cost", "draft-error") else ""
    left_out = "; ".join(text for text in (loaded.shortened, failed) if text)
    return EngineFacts(
        n_ctx=loaded.backend.n_ctx,
        n_ctx_train=target.n_ctx_train,
        n_vocab=target.vocab.n_vocab,
        n_embd=target.n_embd,
        n_bytes=target.size,
        n_needed=with_encoder(target, loaded.wanted.spec, loaded.backend.n_ctx, loaded.draft is not None),
        template=target.templates[0],
        tool_template=target.templates[1],
        fit=plan.text if plan else "",
        left_out=f"memory is short: {plan.text}" if plan and plan.is_less else left_out,
        is_short=bool(plan and plan.is_less),
        exactness=loaded.exactness,
        is_reproducible=loaded.exactness.is_exact or not loaded.options.fast,
        can_draft=off is None or off.code != "architecture",
        could_be_exact=loaded.could_be_exact,
        has_gpu=loaded.is_elsewhere,
        can_infill=target.vocab.fim.keys() >= set(NEEDED),
        reads_ahead=loaded.options.reads_ahead,
        shares_passes=loaded.decoder.target.shared is not None,
        content=content_of(loaded.pair.target),
        vision=target.vision.kind if target.vision else "",
        remark=lacking.text if lacking and lacking.code == "cost" else about_words(loaded.draft),
    )
