"""Draft models of another vocabulary: shared words, contexts that are carried over, and texts that do not change."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.instruments.laws import OTHER_WORDS, WORDS
from bench.instruments.shapes import TINY, write_random
from bench.instruments.toy import ToyVocab
from runtime.backends.model import LlamaModel
from runtime.backends.translated import TranslatedBackend, TranslatedSharedBackend, translated, writable_share
from runtime.backends.translation import NOWHERE, SharedWords, Translator
from runtime.backends.vocab import Vocab
from runtime.core.draft import Draft, PassInput, Tokens
from runtime.core.errors import VocabError
from runtime.engine import Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.loading.draft import drafting_context
from runtime.models.registry import load_registry
from tests.support.vocabulary import opened_vocabulary

ROOT = Path(__file__).parents[2]
TEXT = 'def f(x):\n    """Größe, 字, 😀 and 1,234."""\n    return os.path.join("a", x)\n' * 4
SETTINGS = {
    "greedy": Sampling(temperature=0),
    "seeded": Sampling(temperature=0.8, seed=3),
    "penalised": Sampling(temperature=0, repetition_penalty=1.3),
}


@pytest.fixture(scope="module")
def target() -> Iterator[Vocab]:
    with opened_vocabulary(ROOT / "demo/target.gguf") as found:
        yield found


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random draft model that shares bytes with the demo, and some words by chance."""
    return write_random(tmp_path_factory.mktemp("other") / "other.gguf", replace(TINY, vocab=600), spelled="e")


@pytest.fixture(scope="module")
def draft(other: Path) -> Iterator[LlamaModel]:
    with closing(LlamaModel(other)) as model:
        yield model


def translator(target: Vocab, draft: Vocab) -> Translator:
    return Translator(SharedWords(target, draft), target, draft)


def spelled(vocab: Vocab, tokens: Tokens) -> bytes:
    return b"".join(vocab.pieces[int(token)] for token in tokens)


def context_of(target: Vocab, text: str = TEXT) -> Tokens:
    return np.array(target.encode(text, special=False), dtype=np.int32)


def test_words_are_shared_by_their_bytes_each_once() -> None:
    words = SharedWords(ToyVocab(WORDS), ToyVocab(OTHER_WORDS))  # type: ignore[arg-type]
    assert words.to_draft.tolist() == [1, 0, 3, -1, 2, -1]
    assert [*zip(words.targets.tolist(), words.drafts.tolist(), strict=True)] == [(0, 1), (1, 0), (2, 3), (4, 2)]
    assert 0 < words.share < 1


def test_one_model_shares_all_its_words_with_itself(target: Vocab) -> None:
    words = SharedWords(target, target)
    text = [token for token in range(target.n_vocab) if target.pieces[token]]
    assert (words.to_draft[text] >= 0).all()
    assert words.share == 1
    assert words.to_draft[target.end] == target.end
    assert len(set(words.targets.tolist())) == len(words.targets) == len(set(words.drafts.tolist()))


def test_a_context_says_the_same_in_both_vocabularies(target: Vocab, draft: LlamaModel) -> None:
    translate, context = translator(target, draft.vocab), context_of(target)
    rng, whole = random.Random(2), list(context)
    for _ in range(60):  # contexts that grow, are cut, and go on otherwise, as in a chat with rejected drafts
        n = rng.randrange(1, len(whole))
        tokens = [*whole[:n], *(rng.randrange(target.n_vocab) for _ in range(rng.randrange(5)))]
        found = translate(np.array([each for each in tokens if target.pieces[each]], dtype=np.int32))
        assert spelled(draft.vocab, found.draft) == spelled(target, found.target)
        for i in np.flatnonzero(found.ends != NOWHERE):
            assert spelled(draft.vocab, found.draft[: found.ends[i]]) == spelled(target, found.target[:i])


def test_a_prompt_is_tokenized_as_the_draft_model_would(target: Vocab, draft: LlamaModel) -> None:
    found = translator(target, draft.vocab)(context_of(target))
    assert found.draft.tolist() == draft.vocab.encode(TEXT, special=False)


def test_half_a_character_is_bytes_until_the_rest_follows(target: Vocab, draft: LlamaModel) -> None:
    translate = translator(target, draft.vocab)
    tokens = context_of(target, "a😀b")
    for n in range(1, len(tokens) + 1):
        found = translate(tokens[:n])
        assert spelled(draft.vocab, found.draft) == spelled(target, tokens[:n])


def test_control_tokens_go_by_their_names_and_ends_by_their_meaning(target: Vocab, draft: LlamaModel) -> None:
    translate = translator(target, draft.vocab)
    assert translate(np.array([target.end], np.int32)).draft.tolist() == [draft.vocab.end]
    name = next(mark for mark in target.marks if mark.is_control and mark.token not in (target.end, target.eos))
    assert spelled(draft.vocab, translate(np.array([name.token], np.int32)).draft) == name.text.encode()


@pytest.mark.parametrize("n_seats", [1, 3])
def test_its_cache_stays_as_a_context_goes_on(target: Vocab, draft: LlamaModel, n_seats: int) -> None:
    with closing(translated(drafting_context(draft, None, 1024, n_seats), target, 8)) as backend:
        context = context_of(target)
        backend.forward(context[:-6])
        for n in range(len(context) - 5, len(context) + 1):
            before = backend.inner.n_decoded
            logits = backend.forward(context[:n])
            assert backend.inner.n_decoded - before <= 4  # one word, unless the draft model spells it
            assert logits.shape == (1, target.n_vocab)
        assert len(context) - backend.n_cached(context) <= 4
        assert backend.n_cached(context[:40]) >= 36


def test_rows_are_the_draft_models_own_where_words_are_shared(target: Vocab, draft: LlamaModel) -> None:
    inner = drafting_context(draft, None, 1024, 2)
    with closing(translated(inner, target, 8)) as backend:
        context = context_of(target)[:50]
        logits = backend.forward(context)[0].copy()
        words, own = backend.words, inner.forward(backend.in_draft(context))[0]
        assert np.array_equal(logits[words.targets], own[words.drafts])
        assert (np.delete(logits, words.targets) < -1e29).all()
        drafted = Draft(tuple(int(token) for token in words.targets[5:8]))
        rows = backend.forward(context, drafted).copy()
        after = np.append(context, drafted.tokens).astype(np.int32)
        assert np.array_equal(rows[0], logits)
        assert np.array_equal(rows[3], backend.forward(after)[0])


def test_several_conversations_share_a_pass(target: Vocab, draft: LlamaModel) -> None:
    with closing(translated(drafting_context(draft, None, 512, 3), target, 8)) as backend:
        assert isinstance(backend, TranslatedSharedBackend)
        backend.set_slots(3)
        contexts = [context_of(target)[start:50] for start in (0, 7, 21)]
        alone = [backend.forward(each).copy() for each in contexts]
        together = backend.forward_all([PassInput(each) for each in contexts])
        for one, many in zip(alone, together, strict=True):
            assert np.abs(one - many)[one > -1e29].max() < 0.05


def test_a_context_longer_than_its_own_is_read_in_part(target: Vocab, draft: LlamaModel) -> None:
    with closing(translated(drafting_context(draft, None, 128, 1), target, 8)) as backend:
        context = context_of(target, TEXT * 3)
        assert len(backend.in_draft(context)) <= 120
        backend.forward(context)
        assert backend.n_cached(context) >= len(context) - 4


def test_vocabularies_that_share_almost_nothing_are_refused(draft: LlamaModel) -> None:
    far: Any = ToyVocab([b"qzx", b"zzq", b"e" * 7, b"the", b" a", b"re", b"on"])
    with closing(drafting_context(draft, None, 128, 1)) as inner, pytest.raises(VocabError, match="of usual text"):
        TranslatedBackend(inner, far, 8)


@pytest.fixture(scope="module")
def plain() -> Iterator[LoadedEngine]:
    with closing(LoadedEngine(replace(load_registry()["demo"], draft=None), Options(threads=1, drafters=()))) as engine:
        yield engine


@pytest.fixture(scope="module")
def foreign(other: Path) -> Iterator[LoadedEngine]:
    pair = replace(load_registry()["demo"], draft=other)
    with closing(LoadedEngine(pair, Options(threads=1, drafters=("model",), fixed_k=3))) as engine:
        yield engine


@pytest.mark.parametrize("name", SETTINGS)
def test_the_text_is_plain_decodes(plain: LoadedEngine, foreign: LoadedEngine, name: str) -> None:
    def text_of(engine: LoadedEngine) -> tuple[str, int]:
        chunks = [*engine.reply("What does os.path.join do? Größe 😀", SETTINGS[name], 60)]
        assert chunks[-1].stats is not None
        return "".join(chunk.text for chunk in chunks), chunks[-1].stats.draft_n

    (expected, _), (found, n_drafted) = text_of(plain), text_of(foreign)
    assert found == expected
    assert n_drafted > 10
    assert "another vocabulary and can write" in foreign.facts.remark
    assert writable_share(foreign.decoder.active.drafters[0].backend) < 1  # type: ignore[attr-defined]


def test_the_bundled_draft_model_is_not_translated() -> None:
    with closing(LoadedEngine(load_registry()["demo"], Options(threads=1, drafters=("model",), fixed_k=2))) as engine:
        assert writable_share(engine.decoder.active.drafters[0].backend) == 1  # type: ignore[attr-defined]
