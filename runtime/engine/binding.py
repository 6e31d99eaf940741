"""Constraints on a reply's tokens: a grammar, and a thinking budget. Knows a vocabulary; generates no tokens."""

from __future__ import annotations

from collections.abc import Mapping

from runtime.backends.vocab import Vocab
from runtime.conversation.window import POLICIES
from runtime.core.errors import SettingsError
from runtime.engine.engine import Ask
from runtime.sampling.grammar import Grammar, GrammarMask, compile_grammar, taken_tokens
from runtime.sampling.masks import together
from runtime.sampling.sampler import Sampler, TokenMask, check
from runtime.sampling.thoughts import ThoughtBudget, ThoughtMask

MAX_STOPS, MAX_STOP_LENGTH = 64, 1024


def masks(vocab: Vocab, grammar: Grammar | None, thoughts: ThoughtBudget | None) -> list[TokenMask]:
    """Return the token masks of a reply. Raises SettingsError for an invalid grammar."""
    found: list[TokenMask] = []
    if thoughts:
        pieces = shown_pieces(vocab, grammar)
        found.append(ThoughtMask(thoughts, closing(thoughts.end, vocab, grammar), pieces.__getitem__, vocab.n_vocab))
    if grammar:  # last, so that a tool call begun in a thought is not cut off
        control = vocab.control_tokens
        matcher = compile_grammar(grammar, vocab.grammar_tokenizer, control)
        found.append(GrammarMask(matcher, vocab.n_vocab, control.ends, vocab.text_or_name))
    return found


def shown_pieces(vocab: Vocab, grammar: Grammar | None) -> Mapping[int, bytes]:
    """Return the bytes that each token adds to a reply; with a grammar, control tokens add their names."""
    return vocab.named_pieces if grammar else vocab.pieces


def closing(mark: str, vocab: Vocab, grammar: Grammar | None) -> list[int]:
    """Return the tokens of the mark that ends a thought, spelled as text if the grammar lacks its control token."""
    ids = vocab.encode(mark, special=True)
    control = {token for token in ids if not vocab.pieces[token]} if grammar else set[int]()
    is_spelled = grammar is not None and not control <= taken_tokens(grammar, vocab.control_tokens)
    return vocab.encode(mark, special=False) if is_spelled else ids


def bound_sampler(ask: Ask, vocab: Vocab, n_vocab: int) -> Sampler:
    """Return the sampler of a reply.

    Raises SettingsError for settings that are invalid for this model or in combination.
    """
    n_logprobs = ask.n_logprobs
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
    return Sampler(ask.sampling, together(masks(vocab, ask.grammar, ask.thoughts)))
