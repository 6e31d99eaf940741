"""One loaded pair that answers: settings checked, the chat template applied, a reply begun.

The only door for the command line, the chat and the server. Plain data in, plain data out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from runtime.core.backend import OnProgress
from runtime.core.errors import ContextError, SettingsError
from runtime.engine.chat_template import USUAL_FORM, Message, TemplateForm
from runtime.engine.prompt import NEEDED, Prompt, PromptEncoder
from runtime.engine.reply import Chunk, Reply
from runtime.engine.stats import Stats
from runtime.engine.window import POLICIES, PromptWindow
from runtime.loading.loaded_pair import LoadedPair
from runtime.loading.options import Options
from runtime.models.registry import Pair
from runtime.sampling.grammar import Grammar, GrammarMask, compile_grammar
from runtime.sampling.masks import together
from runtime.sampling.sampler import Sampler, Sampling, TokenMask, check
from runtime.sampling.thoughts import ThoughtBudget, ThoughtMask, spelling
from runtime.speculative.control.explain import Explanation, Pass, explain

MAX_STOPS, MAX_STOP_LENGTH = 64, 1024
TURN = 10  # times what it takes to change from one reply to another


class Engine:
    """A pair in memory. Replies are made one at a time, or in turns on one thread."""

    def __init__(self, pair: Pair, options: Options | None = None, on_progress: OnProgress | None = None) -> None:
        self.pair = pair
        self._loaded = LoadedPair(pair, options or Options(), on_progress)
        self.loop, self.vocab = self._loaded.loop, self._loaded.target.vocab
        self.n_ctx, self.exactness = self._loaded.backend.n_ctx, self._loaded.exactness
        self._encoder = PromptEncoder(self.vocab, self.template, pair.target.name, self.n_ctx)
        self._stats = Stats()  # of the last reply

    def encode(self, prompt: Prompt) -> list[int]:
        """The ids of a prompt, a conversation in the model's chat template. Raises TemplateError, SettingsError."""
        return self._encoder.encode(prompt)

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        form: TemplateForm = USUAL_FORM,
    ) -> str:
        """The conversation as the text that the model reads. Raises TemplateError."""
        return self._encoder.render(messages, tools, form)

    def tokenize(self, text: str, *, special: bool = True, bos: bool = False) -> list[int]:
        """Ids of `text`; with `special`, names of control tokens in it are those tokens; with `bos`, begun as the model
        wants it.
        """
        ids = self.vocab.encode(text, special=special)
        return [self.vocab.bos, *ids] if bos and self.vocab.adds_bos and ids[:1] != [self.vocab.bos] else ids

    def reply(
        self,
        prompt: Prompt,
        sampling: Sampling,
        max_tokens: int | None = None,
        stops: Sequence[str] = (),
        cancel: Callable[[], bool] = lambda: False,
        on_prefill: Callable[[int, int], None] = lambda done, total: None,
        *,
        grammar: Grammar | None = None,
        thoughts: ThoughtBudget | None = None,
        n_logprobs: int | None = None,
        after_sampling: bool = False,
        when_full: str = "stop",
        prediction: str = "",
        pauses: bool = False,
    ) -> Iterator[Chunk]:
        """Streams the reply. `n_logprobs` likeliest tokens come with each token, as the model sees it or as it is
        `after_sampling`; `when_full` is one of POLICIES.

        `prediction` is text that the reply is expected to repeat for the most part: the drafter of that name makes use
        of it. Between two chunks other replies may go on; where it `pauses`, empty chunks come while the prompt is
        read. Raises ContextError when the prompt does not fit, SettingsError, TemplateError, ModelError.
        """
        if self._loaded.target.is_embedder:
            raise SettingsError(
                f"This is an embedding model ({self.pair.target.name}): it turns text into vectors and writes none. "
                "Ask it for those at `/v1/embeddings` of `slipstream serve`, or choose another model."
            )
        masks = self._masks(grammar, thoughts)
        sampler = self._sampler(sampling, max_tokens, stops, masks, n_logprobs, when_full)
        window = PromptWindow(prompt, self._encoder, self.n_ctx, when_full == "drop-oldest")
        ids = window.begin(max_tokens)
        if not ids:
            raise ContextError("The prompt is empty. Say something.")
        if len(ids) >= self.n_ctx:
            raise ContextError(
                f"The prompt has {len(ids)} tokens, but the context holds {self.n_ctx}. Shorten it, or raise "
                "`--context`.",
                len(ids),
                self.n_ctx,
            )
        expected = self.vocab.encode(prediction, special=False) if prediction else ()
        report = None if n_logprobs is None else sampler.report(n_logprobs, after_sampling)
        reply = Reply(self.loop, self.vocab, window, ids, sampler, max_tokens, stops, report, self.exactness, expected)
        self._stats = reply.stats
        return reply.run(cancel, on_prefill, pauses)

    @property
    def turn_seconds(self) -> float:
        """How long a reply should go on before another has its turn, so that changing costs little.

        Infinite where only one can be held.
        """
        return TURN * self.loop.switch_seconds if self._loaded.backend.slots > 1 else math.inf

    @property
    def n_held(self) -> int:
        """Conversations that need not be read again."""
        return self._loaded.backend.n_held

    def share(self, n_waiting: int) -> None:
        """So many replies wait for the steps that are made from now on."""
        self.loop.set_waiting(n_waiting)

    def passes(self, first: int = 0) -> tuple[Pass, ...]:
        """The target passes of the last reply, also while it is made, from the `first` on."""
        return tuple(self._stats.steps[first:])

    def explain(self) -> Explanation:
        """What decides about speculation now, as far as the last reply has come."""
        return explain(self.loop.controller, self._stats.prompt_n + self._stats.predicted_n, self.loop.why_plain().text)

    def _sampler(
        self,
        sampling: Sampling,
        max_tokens: int | None,
        stops: Sequence[str],
        masks: Sequence[TokenMask],
        n_logprobs: int | None,
        when_full: str,
    ) -> Sampler:
        """Raises SettingsError for what only the model, or several settings together, can show to be wrong."""
        n_vocab = self.vocab.n_vocab
        if unknown := next((token for token, _ in sampling.logit_bias if token >= n_vocab), None):
            raise SettingsError(
                f"logit_bias names token {unknown}, but the model has {n_vocab} tokens. Use ids below that."
            )
        if len(stops) > MAX_STOPS or any(len(stop) > MAX_STOP_LENGTH for stop in stops):
            raise SettingsError(
                f"stop has {len(stops)} strings: it may have {MAX_STOPS} of up to {MAX_STOP_LENGTH} characters."
            )
        check("max_tokens", max_tokens, max_tokens is None or max_tokens >= 1, "at least 1")
        check("n_logprobs", n_logprobs, n_logprobs is None or 0 <= n_logprobs <= n_vocab, f"from 0 to {n_vocab}")
        if when_full not in POLICIES:
            raise SettingsError(f"when_full is '{when_full}': it must be one of {', '.join(POLICIES)}.")
        # Where only exact passes are used, rounding decides nothing
        return Sampler(sampling, together(masks), 0.0 if self.is_reproducible else self.exactness.difference)

    def _masks(self, grammar: Grammar | None, thoughts: ThoughtBudget | None) -> list[TokenMask]:
        """What binds a reply's tokens. Raises SettingsError for a grammar that is not valid."""
        masks: list[TokenMask] = []
        if thoughts:
            closing = spelling(thoughts.end, self.vocab, as_text=grammar is not None)
            masks.append(ThoughtMask(thoughts, closing, self.token_bytes, self.vocab.n_vocab))
        if grammar:  # the last: a call that was begun in a thought is not broken off
            masks.append(GrammarMask(compile_grammar(grammar, self.vocab.grammar_tokenizer), self.vocab.n_vocab))
        return masks

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

    def token_text(self, token: int) -> str:
        """The token as text; control tokens by their names."""
        return self.vocab.pieces[token].decode("utf8", "replace") or self.vocab.special_text(token)

    @property
    def is_reproducible(self) -> bool:
        """Has a reply with a seed, or at temperature 0, the same text with any drafter?"""
        return self.exactness.is_exact or not self._loaded.options.fast

    @property
    def template(self) -> str:
        """The chat template's source; "" when the model has none."""
        return self._loaded.target.template

    @property
    def n_ctx_train(self) -> int:
        """Tokens of context that the model was trained on."""
        return self._loaded.target.n_ctx_train

    @property
    def fit(self) -> str:
        """What was loaded given the memory that was free, in a sentence; "" where that is not known."""
        return self._loaded.plan.text if self._loaded.plan else ""

    @property
    def left_out(self) -> str:
        """What of the pair, or of what was asked for, is lacking, and why, without a full stop; "" where nothing is."""
        loaded = self._loaded
        if loaded.plan and loaded.plan.is_less:
            return f"memory is short: {loaded.plan.text}"
        failed = loaded.left_out.text if loaded.left_out and loaded.left_out.code == "draft-error" else ""
        return "; ".join(text for text in (loaded.shortened, failed) if text)

    @property
    def memory_level(self) -> str:
        """How short memory was at the last token: OK, TIGHT or CRITICAL."""
        return self.loop.memory_level

    @property
    def given_up(self) -> str:
        """What was given up for that and why, with numbers; "" while nothing is."""
        return self.loop.given_up

    @property
    def n_bytes(self) -> int:
        """Size of the target's weights."""
        return self._loaded.target.size

    @property
    def can_draft(self) -> bool:
        """Are drafts possible for what this model is?"""
        off = self.loop.controller.off
        return not self._loaded.target.is_embedder and (off is None or off.code != "architecture")

    @property
    def could_be_exact(self) -> bool:
        """Is it worth a trial whether the layout of weights in which all passes round alike costs speed here?"""
        return self._loaded.could_be_exact

    @property
    def can_infill(self) -> bool:
        """Was the model trained to fill in the middle?"""
        return self.vocab.fim.keys() >= set(NEEDED)

    @property
    def n_embd(self) -> int:
        """How many numbers an embedding has."""
        return self._loaded.target.n_embd

    def embed(self, tokens: Sequence[int]) -> list[float]:
        """The text of these ids as a vector of length 1. Raises ContextError, ModelError."""
        vector: list[float] = self._loaded.embedder().embed(list(tokens)).tolist()
        return vector

    def tend(self) -> None:
        """Housekeeping between replies, on their thread: gives up or takes back what memory asks for."""
        self._loaded.close_embedder()
        self.loop.degrade()

    def close(self) -> None:
        """Frees the models."""
        self._loaded.close()
