"""After a complete call, all that begins no other one means the end; with drafts and seeds as without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from runtime.backends.vocab import Vocab
from runtime.conversation.calls import Function, call_grammar
from runtime.conversation.calls.known import HERMES
from runtime.core.draft import Logits
from runtime.engine import Message, Sampling
from runtime.engine.binding import masks
from runtime.sampling.grammar import Grammar
from runtime.sampling.masks import TokenMask, keep_allowed
from tests.conftest import OpenEngine
from tests.support.calls import read
from tests.support.vocabulary import opened_vocabulary

WEATHER = Function("get_weather", {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Lima"}}'
WHOLE, COMPLETE = f"{CALL}\n</tool_call>", (CALL, f"{CALL}\n</tool_call>", f"{CALL}\n</tool_call>\n")


@pytest.fixture(scope="module")
def vocab() -> Iterator[Vocab]:
    with opened_vocabulary(Path(__file__).parents[2] / "demo/target.gguf") as found:
        yield found


def grammar_of(parallel: bool = True, required: bool = True) -> Grammar:
    return call_grammar(HERMES, [WEATHER], required=required, parallel=parallel)


def mask_after(vocab: Vocab, text: str, **how: bool) -> TokenMask:
    """Return the mask of a reply that has this text so far."""
    (mask,) = masks(vocab, grammar_of(**how), None)
    mask.begin(np.array(vocab.encode(text, special=False), dtype=np.int32))
    return mask


def row_of(vocab: Vocab, **logits: float) -> Logits:
    """Return a row in which the tokens that begin these texts have these logits, and all others next to nothing."""
    row = np.full(vocab.n_vocab, -20.0, dtype=np.float32)
    for text, logit in logits.items():
        row[vocab.end if text == "end" else vocab.encode(TEXTS[text], special=False)[0]] = logit
    return row


TEXTS = {"word": "The", "mark": "<tool_call>", "brace": "{", "closing": "\n"}


@pytest.mark.parametrize("text", COMPLETE)
def test_what_is_no_other_call_is_the_end(vocab: Vocab, text: str) -> None:
    mask, row = mask_after(vocab, text), row_of(vocab, word=5.0, mark=3.0, closing=2.0, end=0.0)
    before = np.exp(row - row.max())
    keep_allowed(row, mask, ())
    after = np.exp(row - row.max())
    assert int(row.argmax()) == vocab.end
    allowed = mask.allowed(())
    rest = before[~allowed].sum() - before[vocab.encode("{", special=False)[0]]  # which would begin a call
    assert after[vocab.end] / after.sum() == pytest.approx((before[vocab.end] + rest) / before.sum(), rel=1e-3)


@pytest.mark.parametrize("text", COMPLETE)
def test_a_call_without_its_mark_is_another_call(vocab: Vocab, text: str) -> None:
    mask, row = mask_after(vocab, text), row_of(vocab, brace=5.0, word=3.0, end=0.0)
    keep_allowed(row, mask, ())
    assert int(row.argmax()) != vocab.end
    assert mask.allowed(())[int(row.argmax())]


def test_one_call_is_the_end_where_there_may_be_no_other(vocab: Vocab) -> None:
    mask, row = mask_after(vocab, WHOLE, parallel=False), row_of(vocab, brace=5.0, end=0.0)
    keep_allowed(row, mask, ())
    assert int(row.argmax()) == vocab.end


@pytest.mark.parametrize(("text", "required"), [(CALL[:-8], True), ("", True), ("The", False), ("", False)])
def test_elsewhere_what_is_not_allowed_is_left_out(vocab: Vocab, text: str, required: bool) -> None:
    mask = mask_after(vocab, text, required=required)
    assert mask.choice(()) is None
    row = row_of(vocab, word=5.0, end=0.0)
    whole = row.copy()
    keep_allowed(row, mask, ())
    allowed = mask.allowed(())
    assert np.array_equal(row[allowed], whole[allowed])
    assert (row[~allowed] == -np.inf).all()


@pytest.mark.parametrize("text", COMPLETE)
@pytest.mark.parametrize("sizes", [(10**6,), (1,), (2, 3, 7)])
def test_a_reply_that_ends_there_is_read_as_the_call(text: str, sizes: tuple[int, ...]) -> None:
    content, calls = read(HERMES, text, sizes)
    assert (content.strip(), [*calls]) == ("", [("get_weather", {"city": "Lima"})])


def test_seeded_replies_are_the_same_with_drafts(open_demo: OpenEngine) -> None:
    plain, drafting = open_demo(drafters=()), open_demo(drafters=("model", "ngram", "grammar"), fixed_k=3)
    asked, n_drafted = [Message("user", "What is the weather in Lima and Oslo?")], 0
    for seed in range(8):
        sampling, texts = Sampling(temperature=0.0 if seed == 0 else 1.0, seed=seed), list[str]()
        for engine in (plain, drafting):
            chunks = [*engine.reply(asked, sampling, 120, grammar=grammar_of())]
            texts.append("".join(chunk.text for chunk in chunks))
        assert chunks[-1].stats is not None
        n_drafted += chunks[-1].stats.draft_n
        assert texts[0] == texts[1]
    assert n_drafted > 20
