"""A pair in this process that answers: settings checked, the chat template applied, a reply begun."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from runtime.core.backend import OnProgress
from runtime.core.errors import ContextError, ModelError, SettingsError, StoppedError
from runtime.engine.binding import masks, shown_pieces
from runtime.engine.chat_template import USUAL_FORM, Message, TemplateForm
from runtime.engine.engine import Ask, Engine, EngineFacts
from runtime.engine.prompt import NEEDED, Prompt, PromptEncoder
from runtime.engine.quoting import Rendered
from runtime.engine.reply import Chunk, Reply
from runtime.engine.stats import Stats
from runtime.engine.window import POLICIES, PromptWindow
from runtime.learning.conditions import LEARNS, why_never
from runtime.learning.learner import BackgroundLearner, learner_of
from runtime.learning.place import place_of
from runtime.learning.versions import Versions
from runtime.loading.loaded_pair import LoadedPair
from runtime.loading.options import Options
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.heads import begins_for
from runtime.models.registry import Pair
from runtime.sampling.masks import together
from runtime.sampling.sampler import Sampler, check
from runtime.speculative.control.explain import Explanation, Pass, explain

MAX_STOPS, MAX_STOP_LENGTH = 64, 1024
TURN = 10  # times what it takes to change from one reply to another


class LoadedEngine(Engine):
    """An engine whose models are in this process. Where it `learns`, so does the head of a pair that is to: what
    measures does not, and has the head as it is.
    """

    def __init__(
        self, pair: Pair, options: Options | None = None, on_progress: OnProgress | None = None, learns: bool = False
    ) -> None:
        self.pair = pair
        self._loaded = LoadedPair(pair, options or Options(), on_progress, learned_head(pair))
        self._why_not_learning = why_never(pair, self._loaded.drafts_by)
        self._learner = opened_learner(pair) if learns and not self._why_not_learning else None
        self._asked_head = self._loaded.learned
        self.loop, self.vocab = self._loaded.loop, self._loaded.target.vocab
        self.facts = facts_of(self._loaded)
        self._encoder = PromptEncoder(self.vocab, self.facts.template, pair.target.name, self.facts.n_ctx)
        self._stats = Stats()  # of the last reply

    def prepare(self) -> None:
        """Makes ready what the first prompt would wait for."""
        self._encoder.prepare()

    def encode(self, prompt: Prompt) -> list[int]:
        """The ids of a prompt, a conversation in the model's chat template. Raises TemplateError, SettingsError."""
        return self._encoder.encode(prompt)

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        form: TemplateForm = USUAL_FORM,
    ) -> Rendered:
        """As Engine says."""
        return self._encoder.render(messages, tools, form)

    def unquoted_roles(self) -> list[str]:
        """As PromptEncoder says."""
        return self._encoder.unquoted_roles()

    def tokenize(self, text: str, *, special: bool = True, bos: bool = False) -> list[int]:
        """As Engine says."""
        if bos:
            self._encoder.check_length(text)
        ids = self.vocab.encode(text, special=special)
        return [self.vocab.bos, *ids] if bos and self.vocab.adds_bos and ids[:1] != [self.vocab.bos] else ids

    def answer(
        self, ask: Ask, cancel: Callable[[], bool], on_prefill: Callable[[int, int], None], pauses: bool
    ) -> Iterator[Chunk]:
        """The reply in chunks, as `reply` says; it is ready to be made when this returns."""
        if self._loaded.target.is_embedder:
            raise SettingsError(
                f"This is an embedding model ({self.pair.target.name}): it turns text into vectors and writes none. "
                "Ask it for those at `/v1/embeddings` of `slipstream serve`, or choose another model."
            )
        sampler = self._sampler(ask)
        window = PromptWindow(ask.prompt, self._encoder, self.facts.n_ctx, ask.when_full == "drop-oldest", cancel)
        try:
            ids = self._begun(window, ask.max_tokens)
        except StoppedError:
            return cancelled()
        expected = self.vocab.encode(ask.prediction, special=False) if ask.prediction else ()
        report = None if ask.n_logprobs is None else sampler.report(ask.n_logprobs, ask.after_sampling)
        reply = Reply(
            self.loop, self.vocab, window, ids, sampler, ask.max_tokens, ask.stops, report, self.facts.exactness,
            expected, shown_pieces(self.vocab, ask.grammar),
        )  # fmt: skip
        reply.request.is_traced = ask.is_traced
        reply.take_up(ask.said, ask.passes)
        self._stats = reply.stats
        if self._learner:
            self._learner.reply_begins(reply.made, self.memory_level)
        return reply.run(cancel, on_prefill, pauses)

    def _begun(self, window: PromptWindow, max_tokens: int | None) -> list[int]:
        """The prompt's ids. Raises ContextError when there is nothing to read, or too much."""
        ids, n_ctx = window.begin(max_tokens), self.facts.n_ctx
        if not ids:
            raise ContextError("The prompt is empty. Say something.")
        if len(ids) >= n_ctx:
            raise ContextError(
                f"The prompt has {len(ids)} tokens, but the context holds {n_ctx}. Shorten it, or raise `--context`.",
                len(ids),
                n_ctx,
            )
        return ids

    @property
    def turn_seconds(self) -> float:
        """How long a reply should go on before another has its turn, so that changing costs little.

        Infinite where only one can be held, nothing while they share passes.
        """
        if self._loaded.backend.slots == 1:
            return math.inf
        return 0.0 if self.loop.company else TURN * self.loop.lineup.switch_seconds

    @property
    def n_held(self) -> int:
        """Conversations that need not be read again."""
        return self._loaded.backend.n_held

    @property
    def n_read_passes(self) -> int:
        """Passes so far that read prompts, or parts of some."""
        return self.loop.n_read_passes

    def share(self, n_waiting: int) -> None:
        """So many replies wait for the steps that are made from now on."""
        self.loop.controller.n_waiting = n_waiting

    def passes(self, first: int = 0) -> tuple[Pass, ...]:
        """The target passes of the last reply, also while it is made, from the `first` on."""
        return tuple(self._stats.steps[first:])

    def explain(self) -> Explanation:
        """What decides about speculation now, as far as the last reply has come."""
        return explain(self.loop.controller, self._stats.prompt_n + self._stats.predicted_n, self.loop.why_plain().text)

    def _sampler(self, ask: Ask) -> Sampler:
        """Raises SettingsError for what only the model, or several settings together, can show to be wrong."""
        n_vocab, n_logprobs = self.facts.n_vocab, ask.n_logprobs
        if unknown := next((token for token, _ in ask.sampling.logit_bias if token >= n_vocab), None):
            raise SettingsError(
                f"logit_bias names token {unknown}, but the model has {n_vocab} tokens. Use ids below that."
            )
        if len(ask.stops) > MAX_STOPS or any(len(stop) > MAX_STOP_LENGTH for stop in ask.stops):
            raise SettingsError(
                f"stop has {len(ask.stops)} strings: it may have {MAX_STOPS} of up to {MAX_STOP_LENGTH} characters."
            )
        check("max_tokens", ask.max_tokens, ask.max_tokens is None or ask.max_tokens >= 0, "at least 0")
        check("n_logprobs", n_logprobs, n_logprobs is None or 0 <= n_logprobs <= n_vocab, f"from 0 to {n_vocab}")
        if ask.when_full not in POLICIES:
            raise SettingsError(f"when_full is '{ask.when_full}': it must be one of {', '.join(POLICIES)}.")
        # Where only exact passes are used, rounding decides nothing
        tolerance = 0.0 if self.facts.is_reproducible else self.facts.exactness.difference
        return Sampler(ask.sampling, together(masks(self.vocab, ask.grammar, ask.thoughts)), tolerance)

    def token_bytes(self, token: int) -> bytes:
        """What the token adds to the text; b"" for a control token."""
        return self.vocab.pieces[token]

    def is_end(self, token: int) -> bool:
        """Does the model end its turn with this token?"""
        return self.vocab.ends[token]

    @cached_property
    def end_tokens(self) -> tuple[int, ...]:
        """The tokens with which the model ends its turn."""
        return tuple(token for token in range(self.vocab.n_vocab) if self.vocab.ends[token])

    def word(self, token: int) -> tuple[bytes, str, bool]:
        """All that is asked of a token: its bytes, its text, and whether it ends a turn."""
        return self.token_bytes(token), self.token_text(token), self.is_end(token)

    def token_text(self, token: int) -> str:
        """The token as text; control tokens by their names."""
        return self.vocab.text_or_name(token)

    @property
    def memory_level(self) -> str:
        """How short memory was at the last token: OK, TIGHT or CRITICAL."""
        return self.loop.lineup.memory_level

    @property
    def given_up(self) -> str:
        """What was given up for that and why, with numbers; "" while nothing is."""
        return self.loop.lineup.given_up

    def embed(self, tokens: Sequence[int]) -> list[float]:
        """The text of these ids as a vector of length 1. Raises ContextError, ModelError."""
        vector: list[float] = self._loaded.embedder().embed(list(tokens)).tolist()
        return vector

    def tend(self) -> None:
        """Housekeeping between replies, on their thread: gives up or takes back what memory asks for."""
        self._loaded.close_embedder()
        self.loop.lineup.degrade()
        if self._learner:
            self._learner.tend(self.memory_level)
            self._use_learned(self._learner)

    def _use_learned(self, learner: BackgroundLearner) -> None:
        """Between two replies a head that was learned takes the place of another, or the pair's own comes back."""
        head = learner.head
        if head != self._asked_head and self.memory_level == "OK":
            self._asked_head = head
            self._loaded.take_head(head)

    @property
    def learning(self) -> str:
        """As Engine says."""
        if not self.pair.learn:
            return ""
        why = self._why_not_learning or "nothing is kept of what is measured"
        return self._learner.state if self._learner else f"it does not learn: {why}"

    def stop(self, is_stopped: bool) -> None:
        """Ends the pass that runs and every further one at once, until told otherwise. On any thread."""
        self._loaded.backend.stop_flag.put(is_stopped)

    def close(self) -> None:
        """Frees the models."""
        if self._learner:
            self._learner.close()
        self._loaded.close()


def learned_head(pair: Pair) -> Path | None:
    """The head that was learned from a pair's own and is used instead, also where none can be trained now."""
    if pair.learn and pair.draft is not None and begins_for(pair.draft) == LEARNS:
        with suppress(OSError):
            return Versions(place_of(pair.target, pair.draft)).current()
    return None


def opened_learner(pair: Pair) -> BackgroundLearner | None:
    """What learns beside the pair, whose draft is a head."""
    if pair.draft is None:
        return None
    with suppress(OSError, ModelError):
        facts = ModelFacts(read_model_header(pair.target))
        return learner_of(pair.target, pair.draft, facts.n_vocab)
    return None


def cancelled() -> Iterator[Chunk]:
    """A reply that nobody wanted any more before it began."""
    yield Chunk("", finish_reason="cancelled", stats=Stats())


def facts_of(loaded: LoadedPair) -> EngineFacts:
    """What does not change from now on."""
    target, plan, off, lacking = loaded.target, loaded.plan, loaded.loop.controller.off, loaded.left_out
    failed = lacking.text if lacking and lacking.code == "draft-error" else ""
    left_out = "; ".join(text for text in (loaded.shortened, failed) if text)
    return EngineFacts(
        n_ctx=loaded.backend.n_ctx,
        n_ctx_train=target.n_ctx_train,
        n_vocab=target.vocab.n_vocab,
        n_embd=target.n_embd,
        n_bytes=target.size,
        template=target.template,
        fit=plan.text if plan else "",
        left_out=f"memory is short: {plan.text}" if plan and plan.is_less else left_out,
        is_short=bool(plan and plan.is_less),
        exactness=loaded.exactness,
        is_reproducible=loaded.exactness.is_exact or not loaded.options.fast,
        can_draft=not target.is_embedder and (off is None or off.code != "architecture"),
        could_be_exact=loaded.could_be_exact,
        has_gpu=loaded.is_elsewhere,
        can_infill=target.vocab.fim.keys() >= set(NEEDED),
        shares_passes=loaded.loop.company is not None,
    )
