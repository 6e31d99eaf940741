"""What a model generates a reply with: its sampler, with a grammar and a thinking budget, and its vocabulary."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtime.backends.adapters import LoadedAdapters
from runtime.backends.vocab import Vocab
from runtime.conversation.window import POLICIES
from runtime.core.draft import Adapters
from runtime.core.errors import SettingsError, check
from runtime.core.watched import never
from runtime.engine.engine import Ask
from runtime.engine.facts import EngineFacts
from runtime.loading.exactness import Exactness
from runtime.loading.options import Options
from runtime.sampling.dry import NO_BREAKERS
from runtime.sampling.grammar import Grammar, GrammarMask, compile_grammar, taken_tokens
from runtime.sampling.logits import Report
from runtime.sampling.masks import LengthMask, TokenMask, together
from runtime.sampling.sampler import Sampler
from runtime.sampling.thoughts import ThoughtBudget, ThoughtMask
from runtime.speculative.step import Widths, widths_of

MAX_STOPS, MAX_STOP_LENGTH = 64, 1024


@dataclass(frozen=True, slots=True)
class Binding:
    """What a model generates the reply of a request with."""

    sampler: Sampler
    exactness: Exactness  # of the target's passes
    widths: Widths  # permitted widths of passes
    pieces: Mapping[int, bytes]  # bytes that each token adds to the reply
    ends: Mapping[int, bool]  # whether each token ends the reply
    report: Report | None = None  # returns log probabilities, if requested
    expected: Sequence[int] = ()  # predicted tokens of the reply
    adapters: Adapters = ()  # LoRA adapters of the target


def masks(
    vocab: Vocab,
    grammar: Grammar | None,
    thoughts: ThoughtBudget | None,
    is_cancelled: Callable[[], bool] = never,
) -> list[TokenMask]:
    """Return the token masks of a reply. Raises SettingsError for an invalid grammar."""
    found: list[TokenMask] = []
    if thoughts:
        pieces = shown_pieces(vocab, grammar)
        found.append(ThoughtMask(thoughts, closing(thoughts.end, vocab, grammar), pieces.__getitem__, vocab.n_vocab))
    if grammar:  # last, so that a tool call begun in a thought is not cut off
        control = vocab.control_tokens
        matcher = compile_grammar(grammar, vocab.grammar_tokenizer, control, is_cancelled)
        begins = beginnings(grammar.begins, vocab) if grammar.calls else None
        found.append(GrammarMask(matcher, vocab.n_vocab, control.ends, vocab.text_or_name, begins))
    return found


def beginnings(text: str, vocab: Vocab) -> NDArray[np.int64]:
    """Return the tokens [n] that begin a text, perhaps after a space or a line's end."""
    starts = (f"{space}{text[:n]}" for space in ("", " ", "\n") for n in range(1, len(text) + 1))
    ids = (vocab.encode(start, special=False) for start in starts)
    return np.unique([found[0] for found in ids if len(found) == 1]).astype(np.int64)


def shown_pieces(vocab: Vocab, grammar: Grammar | None) -> Mapping[int, bytes]:
    """Return the bytes that each token adds to a reply; with a grammar, control tokens add their names."""
    return vocab.named_pieces if grammar else vocab.pieces


def closing(mark: str, vocab: Vocab, grammar: Grammar | None) -> list[int]:
    """Return the tokens of the mark that ends a thought, spelled as text if the grammar lacks its control token."""
    ids = vocab.encode(mark, special=True)
    control = {token for token in ids if not vocab.pieces[token]} if grammar else set[int]()
    is_spelled = grammar is not None and not control <= taken_tokens(grammar, vocab.control_tokens)
    return vocab.encode(mark, special=False) if is_spelled else ids


def bound(
    ask: Ask,
    vocab: Vocab,
    facts: EngineFacts,
    options: Options,
    is_cancelled: Callable[[], bool] = never,
    adapters: Adapters = (),
) -> Binding:
    """Return what the model generates a reply with; a cancelled one is not prepared to its end.

    Raises SettingsError for settings that are invalid for this model or in combination.
    """
    check_settings(ask, facts.n_vocab)
    rare = ask.sampling.rare
    limits = masks(vocab, ask.grammar, ask.thoughts, is_cancelled)
    if rare.min_tokens:  # first, so that a grammar whose text is complete may end
        limits.insert(0, LengthMask(rare.min_tokens, vocab.control_tokens.ends, vocab.n_vocab))
    breakers = vocab.breakers(rare.dry_sequence_breakers) if rare.has_dry else NO_BREAKERS
    sampler = Sampler(ask.sampling, together(limits), breakers=breakers)
    if ask.surprise_limit is not None:
        sampler.resume(ask.surprise_limit, len(ask.reply_tokens))
    widths = widths_of(sampler, options.is_exact_asked)
    if options.fast or widths is Widths.PREFER_EXACT:
        sampler.tolerance = facts.exactness.difference
    report = None if ask.n_logprobs is None else sampler.report(ask.n_logprobs, ask.after_sampling)
    expected = vocab.encode(ask.prediction, special=False) if ask.prediction else ()
    pieces = shown_pieces(vocab, ask.grammar)
    return Binding(sampler, facts.exactness, widths, pieces, vocab.ends, report, expected, adapters)


def adapters_of(ask: Ask, loaded: LoadedAdapters) -> Adapters:
    """Return the LoRA adapters of a request. Raises SettingsError for an unknown id, or a scale that is no number."""
    for number, scale in ask.lora or ():
        check(f"the scale of adapter {number}", scale, math.isfinite(scale), "a number")
    try:
        return loaded.named(None if ask.lora is None else dict(ask.lora))
    except KeyError as unknown:
        n = len(loaded.keys)
        known = f"ids go from 0 to {n - 1}" if n else "this model has none: name some with `--lora` when it is loaded"
        raise SettingsError(f"lora names the adapter {unknown}, but {known}.") from None


def check_settings(ask: Ask, n_vocab: int) -> None:
    """Check a request's settings. Raises SettingsError."""
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
