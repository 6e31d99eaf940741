"""What binds a reply's tokens: a grammar, and how long it may think. Knows a vocabulary; makes no token."""

from __future__ import annotations

from collections.abc import Mapping

from runtime.backends.vocab import Vocab
from runtime.sampling.grammar import Grammar, GrammarMask, compile_grammar, taken_tokens
from runtime.sampling.sampler import TokenMask
from runtime.sampling.thoughts import ThoughtBudget, ThoughtMask


def masks(vocab: Vocab, grammar: Grammar | None, thoughts: ThoughtBudget | None) -> list[TokenMask]:
    """Return the masks of a reply. Raises SettingsError for a grammar that is not valid."""
    found: list[TokenMask] = []
    if thoughts:
        pieces = shown_pieces(vocab, grammar)
        found.append(ThoughtMask(thoughts, closing(thoughts.end, vocab, grammar), pieces.__getitem__, vocab.n_vocab))
    if grammar:  # the last: a call that was begun in a thought is not broken off
        control = vocab.control_tokens
        matcher = compile_grammar(grammar, vocab.grammar_tokenizer, control)
        found.append(GrammarMask(matcher, vocab.n_vocab, control.ends, vocab.text_or_name))
    return found


def shown_pieces(vocab: Vocab, grammar: Grammar | None) -> Mapping[int, bytes]:
    """Return what tokens add to the text of a reply: with a grammar it has no control token but those it asks for."""
    return vocab.named_pieces if grammar else vocab.pieces


def closing(mark: str, vocab: Vocab, grammar: Grammar | None) -> list[int]:
    """Return the tokens of the mark that ends a thought; as text where it is a control token that the grammar lacks."""
    ids = vocab.encode(mark, special=True)
    control = {token for token in ids if not vocab.pieces[token]} if grammar else set[int]()
    is_spelled = grammar is not None and not control <= taken_tokens(grammar, vocab.control_tokens)
    return vocab.encode(mark, special=False) if is_spelled else ids
