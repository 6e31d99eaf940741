"""One loaded pair that answers: settings checked, the chat template applied, a reply begun.

The only door for the command line, the chat and the server. Plain data in, plain data out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from runtime.chat import ChatTemplate, Message
from runtime.errors import ContextError, SettingsError, TemplateError
from runtime.grammar import Grammar, GrammarMask, compile_grammar
from runtime.loading import Loaded, OnProgress, Options
from runtime.logits import TokenLogprobs
from runtime.registry import Pair
from runtime.reply import Chunk, Conversation, Reply
from runtime.sampling import Sampler, Sampling, check
from runtime.window import POLICIES

MAX_STOPS, MAX_STOP_LENGTH = 64, 1024
MAX_LOGPROBS = 20


class Engine:
    """A pair in memory. One reply at a time."""

    def __init__(self, pair: Pair, options: Options | None = None, on_progress: OnProgress | None = None) -> None:
        self.pair = pair
        self._loaded = Loaded(pair, options or Options(), on_progress)
        self.loop, self.vocab = self._loaded.loop, self._loaded.target.vocab
        self.n_ctx, self.exactness = self._loaded.backend.n_ctx, self._loaded.exactness
        self._template: ChatTemplate | None = None

    def encode(self, prompt: str | Sequence[Message]) -> list[int]:
        """The ids of a raw prompt, or of a conversation in the model's chat template. Raises TemplateError."""
        if isinstance(prompt, str):
            ids, opens = self.vocab.encode(prompt, special=False), False
        else:
            text = self._chat_template().render(prompt)
            ids = self.vocab.encode(text, special=True)
            opens = bool(ids) and ids[0] == self.vocab.bos
        return [self.vocab.bos, *ids] if self.vocab.adds_bos and not opens else ids

    def _chat_template(self) -> ChatTemplate:
        if self._template is None:
            if not self._loaded.target.template:
                raise TemplateError(f"{self.pair.target.name} has no chat template. Use `--raw` to send the prompt as it is.")
            bos, eos = (self.vocab.special_text(token) for token in (self.vocab.bos, self.vocab.eos))
            self._template = ChatTemplate(self._loaded.target.template, bos, eos)
        return self._template

    def reply(
        self,
        prompt: str | Sequence[Message],
        sampling: Sampling,
        max_tokens: int | None = None,
        stops: Sequence[str] = (),
        cancel: Callable[[], bool] = lambda: False,
        on_prefill: Callable[[int, int], None] = lambda done, total: None,
        *,
        grammar: Grammar | None = None,
        n_logprobs: int | None = None,
        when_full: str = "stop",
    ) -> Iterator[Chunk]:
        """Streams the reply. `n_logprobs` likeliest tokens come with each token; `when_full` is one of POLICIES.

        Raises ContextError when the prompt does not fit, SettingsError, TemplateError, ModelError.
        """
        sampler = self._sampler(sampling, max_tokens, stops, grammar, n_logprobs, when_full)
        conversation = Conversation(prompt, self.encode, self.n_ctx, when_full == "drop-oldest")
        ids = conversation.begin(max_tokens)
        if not ids:
            raise ContextError("The prompt is empty. Say something.")
        if len(ids) >= self.n_ctx:
            raise ContextError(f"The prompt has {len(ids)} tokens, but the context holds {self.n_ctx}. Shorten it, or raise `--context`.")
        return Reply(self.loop, self.vocab, conversation, ids, sampler, max_tokens, stops, n_logprobs, self.exactness).run(cancel, on_prefill)

    def _sampler(
        self, sampling: Sampling, max_tokens: int | None, stops: Sequence[str], grammar: Grammar | None, n_logprobs: int | None, when_full: str
    ) -> Sampler:
        """Raises SettingsError for what only the model, or several settings together, can show to be wrong."""
        n_vocab = self.vocab.n_vocab
        if unknown := next((token for token, _ in sampling.logit_bias if token >= n_vocab), None):
            raise SettingsError(f"logit_bias names token {unknown}, but the model has {n_vocab} tokens. Use ids below that.")
        if len(stops) > MAX_STOPS or any(len(stop) > MAX_STOP_LENGTH for stop in stops):
            raise SettingsError(f"stop has {len(stops)} strings: it may have {MAX_STOPS} of up to {MAX_STOP_LENGTH} characters.")
        check("max_tokens", max_tokens, max_tokens is None or max_tokens >= 1, "at least 1")
        check("n_logprobs", n_logprobs, n_logprobs is None or 0 <= n_logprobs <= MAX_LOGPROBS, f"from 0 to {MAX_LOGPROBS}")
        if when_full not in POLICIES:
            raise SettingsError(f"when_full is '{when_full}': it must be one of {', '.join(POLICIES)}.")
        mask = GrammarMask(compile_grammar(grammar, self.vocab.grammar_tokenizer), n_vocab) if grammar else None
        return Sampler(sampling, mask, self._loaded.exactness.difference)

    def token_text(self, token: int) -> str:
        """The token as text; control tokens by their names."""
        return self.vocab.piece(token).decode("utf8", "replace") or self.vocab.special_text(token)

    def close(self) -> None:
        """Frees the models."""
        self._loaded.close()


__all__ = ["Chunk", "Engine", "Grammar", "Message", "Options", "Sampling", "TokenLogprobs"]
