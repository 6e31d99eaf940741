"""The engine of an embedding or a reranking model in this process: texts to token ids, and those to vectors or scores.

It writes no text: every request for a reply is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as List
from concurrent.futures import Executor
from functools import cached_property
from typing import Any

from runtime.backends import library
from runtime.backends.pooling import MAX_TEXTS, Inputs, Vectors
from runtime.conversation.chat_template import USUAL_FORM, Message, TemplateForm
from runtime.conversation.marks import MarkNames, QuotedEncoder
from runtime.conversation.prompt import Prompt, PromptEncoder
from runtime.conversation.quoting import Rendered
from runtime.core.backend import OnProgress
from runtime.core.errors import ModelError, SettingsError
from runtime.engine.engine import Ask
from runtime.engine.facts import EngineFacts
from runtime.engine.output import Output, Sink, Status
from runtime.engine.pooling import Pooling
from runtime.engine.streams import PushedEngine
from runtime.engine.text import LoadedTexts
from runtime.loading.exactness import Exactness
from runtime.loading.options import Options
from runtime.loading.pooled import PooledModel
from runtime.models.content import content_of
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.registry import Pair, with_files
from runtime.speculative.control.explain import Explanation, Pass

NO_TEXT = "it turns text into vectors and writes none"
NO_REPLY = (
    "This is an embedding model ({}): it turns text into vectors and writes none. Ask it for those at `/v1/embeddings` "
    "of `slipstream serve`, or choose another model."
)
NO_RANKED_REPLY = (
    "This is a reranking model ({}): it scores documents and writes no text. Ask it for scores at `/v1/rerank` of "
    "`slipstream serve`, or choose another model."
)


def pools(pair: Pair) -> bool:
    """Return whether the pair's model is an embedding or a reranking model, by its header, if that can be read."""
    try:
        return not pair.upstream and ModelFacts(read_model_header(with_files(pair).target)).pooling.is_pooled
    except (ModelError, OSError):
        return False


class PooledEngine(LoadedTexts, PushedEngine):
    """An engine whose model pools its outputs. It has nothing to do between calls."""

    is_idle, n_running = True, 0

    def __init__(self, pair: Pair, options: Options | None = None, on_progress: OnProgress | None = None) -> None:
        if pair.lora:
            raise ModelError(f"{pair.target.name} writes no text, and so takes no LoRA adapters. Leave out `--lora`.")
        self.pair, options = pair, options or Options()
        self._loaded = PooledModel(pair, options, on_progress or (lambda what, share: True))
        self.limits = options.limits
        self.facts = facts_of(self._loaded)
        target = self._loaded.target
        super().__init__(target.vocab, PromptEncoder(target.vocab, "", pair.target.name, self.facts.n_ctx))
        self._template = target.template("rerank") if self._loaded.pooler.ranks else ""

    def tokenize(self, text: str, *, special: bool = True, bos: bool = False) -> list[int]:
        """See Engine; with `bos`, all tokens that the model expects before and after a text."""
        ids = super().tokenize(text, special=special)
        before, after = self.vocab.frame if bos else ([], [])
        return [*before, *ids, *after]

    def texts_to_ids(self, texts: List[str], cuts: bool = False) -> list[list[int]]:
        """See Engine."""
        before, after = self.vocab.frame
        room = self.facts.n_ctx - len(before) - len(after)
        found = []
        for text in texts:
            ids = self.vocab.encode(self._beginning(text), special=False) if cuts else self._ids(text)
            found.append([*before, *(ids[:room] if cuts else ids), *after] if text else [])
        return found

    def _ids(self, text: str) -> list[int]:
        """Return the ids of a text. Raises ContextError if it cannot fit."""
        self._encoder.check_length(text)
        return self.vocab.encode(text, special=False)

    def _beginning(self, text: str) -> str:
        """Return as much of a text as may fit."""
        return text[: self.facts.n_ctx * self.vocab.longest]

    def pairs_to_ids(self, query: str, documents: List[str]) -> list[list[int]]:
        """See Engine. Raises SettingsError for an embedding model."""
        if not self._loaded.pooler.ranks:
            raise SettingsError(
                f"{self.pair.target.name} is an embedding model, which scores no documents. Compare the vectors of "
                "`/v1/embeddings`, or serve a reranking model."
            )
        if self._template:
            return [self._filled(query, document) for document in documents]
        before, between, after = self.vocab.joints
        asked = self._ids(query)
        return [[*before, *asked, *between, *self._ids(document), *after] for document in documents]

    def _filled(self, query: str, document: str) -> list[int]:
        """Return the ids of the file's own prompt with these texts in it."""
        rendered, rest = Rendered(""), self._template
        for name, value in (("{query}", query), ("{document}", document)):
            head, _, rest = rest.partition(name)
            rendered = rendered.plus(head).plus(value, is_quoted=True)
        self._encoder.check_length(query + document)
        return self._quoting.encode(rendered.plus(rest))

    @cached_property
    def _quoting(self) -> QuotedEncoder:
        return QuotedEncoder(self.vocab, MarkNames(mark.text for mark in self.vocab.marks if mark.is_control))

    def encode(self, prompt: Prompt) -> list[int]:
        """Raise SettingsError: it writes no text."""
        raise self._no_reply()

    def render(
        self, messages: List[Message], tools: List[Mapping[str, Any]] = (), form: TemplateForm = USUAL_FORM
    ) -> Rendered:
        """Raise SettingsError: it writes no text."""
        raise self._no_reply()

    def _no_reply(self) -> SettingsError:
        refusal = NO_RANKED_REPLY if self._loaded.pooler.ranks else NO_REPLY
        return SettingsError(refusal.format(self.pair.target.name))

    def embed(self, inputs: Inputs) -> Vectors:
        """See Engine."""
        return self._loaded.pool(inputs)

    def add(self, ask: Ask, sink: Sink) -> int:
        """Raise SettingsError: it writes no text."""
        raise self._no_reply()

    def begin(self, ask: Ask, number: int, pool: Executor | None = None) -> None:
        """Raise SettingsError as `add` does."""
        self.add(ask, lambda output: None)

    def step(self) -> list[Output]:
        """Return nothing: there are no replies."""
        return []

    def cancel(self, number: int) -> None:
        """See Engine; there are no replies."""

    def end(self, number: int) -> None:
        """See Engine; there are no replies."""

    def store_prompts(self) -> bool:
        """Return False: there are no prompts to store."""
        return False

    def tend(self) -> None:
        """Do housekeeping between calls: free the memory that a long text took."""
        self._loaded.pooler.shrink()

    def passes(self, first: int = 0) -> tuple[Pass, ...]:
        """Return nothing; see Engine."""
        return ()

    def explain(self) -> Explanation:
        """Return that nothing is drafted."""
        return Explanation((), (), 0.0, 0.0, 0.0, None, (), None, 0.0, 0.0, 0.0, NO_TEXT)

    @property
    def status(self) -> Status:
        """See Engine."""
        return Status()

    def close(self, on_progress: Callable[[], object] = lambda: None) -> None:
        """See Engine."""
        self._loaded.close()


def facts_of(loaded: PooledModel) -> EngineFacts:
    """Return the constant facts of an embedding or a reranking model."""
    target, pooler = loaded.target, loaded.pooler
    return EngineFacts(
        n_ctx=pooler.n_ctx,
        n_ctx_train=target.n_ctx_train,
        n_vocab=target.vocab.n_vocab,
        n_embd=pooler.width,
        n_bytes=target.size,
        n_needed=loaded.n_needed,
        template="",
        fit=loaded.fit,
        left_out="",
        exactness=Exactness(1, 1),
        is_reproducible=True,
        can_draft=False,
        could_be_exact=False,
        has_gpu=library.has_gpu(),
        can_infill=False,
        content=content_of(loaded.pair.target),
        pooling=Pooling(pooler.n_rows, MAX_TEXTS, pooler.ranks, bool(loaded.facts and loaded.facts.is_nested)),
    )
