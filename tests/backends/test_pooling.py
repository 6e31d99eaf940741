"""Embedding and reranking models, against NumPy: each text's own vector or score, whatever it shares a pass with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.instruments.architectures.families import FAMILIES
from bench.instruments.architectures.writer import header, random_tensors, write_family
from runtime.backends.model import LlamaModel
from runtime.backends.pooling import Pooler
from runtime.core.errors import ContextError, ModelError, SettingsError
from runtime.engine import ChatPrompt, Message, Options, Sampling
from runtime.engine.pooled import PooledEngine, pools
from runtime.engine.process.client import EngineProcess
from runtime.models.registry import Pair
from tests.support.encoders import LONGEST, outputs, score, vector, write_encoder, write_last, written

ONE = Options(threads=1)
TEXTS = ["a short text", "b", "It is a longer text, of more words than the others.", "word " * 90]


def opened(path: Path, options: Options = ONE) -> PooledEngine:
    return PooledEngine(Pair(path.stem, path, context=0), options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def encoder(folder: Path) -> Iterator[tuple[PooledEngine, Any]]:
    path, tensors = write_encoder(folder)
    with closing(opened(path)) as engine:
        yield engine, tensors


@pytest.fixture(scope="module")
def reranker(folder: Path) -> Iterator[tuple[PooledEngine, Any]]:
    path, tensors = write_encoder(folder, ranks=True)
    with closing(opened(path)) as engine:
        yield engine, tensors


@pytest.fixture(scope="module")
def last(folder: Path) -> Iterator[PooledEngine]:
    with closing(opened(write_last(folder))) as engine:
        yield engine


def test_texts_that_share_a_pass_have_the_vectors_of_their_tokens(encoder: tuple[PooledEngine, Any]) -> None:
    engine, tensors = encoder
    inputs = engine.texts_to_ids(TEXTS)
    found = engine.embed(inputs)
    assert [float(row @ vector(tensors, ids)) for row, ids in zip(found, inputs, strict=True)] == pytest.approx([1] * 4)
    assert np.linalg.norm(found, axis=1) == pytest.approx(np.ones(4))
    for ids, row in zip(inputs, found, strict=True):
        assert np.allclose(engine.embed([ids])[0], row, atol=1e-3)


def test_a_text_is_read_between_the_tokens_that_the_model_expects(encoder: tuple[PooledEngine, Any]) -> None:
    engine, _ = encoder
    (ids,) = engine.texts_to_ids(["ab"])
    assert [engine.token_text(each) for each in (ids[0], ids[-1])] == ["[CLS]", "[SEP]"]
    assert ids[1:-1] == engine.tokenize("ab")
    assert engine.tokenize("ab", bos=True) == ids


def test_a_name_of_a_control_token_in_a_text_is_text(encoder: tuple[PooledEngine, Any]) -> None:
    engine, _ = encoder
    (ids,) = engine.texts_to_ids(["a [SEP] b"])
    assert ids.count(ids[-1]) == 1


def test_a_long_text_is_refused_or_cut_before_its_last_mark(encoder: tuple[PooledEngine, Any]) -> None:
    engine, tensors = encoder
    assert engine.facts.n_ctx == LONGEST
    (whole,) = engine.texts_to_ids(["x " * 700])
    with pytest.raises(ContextError, match="must have from 1 to 512"):
        engine.embed([whole])
    with pytest.raises(ContextError, match="at least"):
        engine.texts_to_ids(["x " * 100_000])
    for text in ("x " * 700, "x " * 100_000):
        (cut,) = engine.texts_to_ids([text], cuts=True)
        assert cut == [*whole[: LONGEST - 1], whole[-1]]
    assert float(engine.embed([cut])[0] @ vector(tensors, cut)) == pytest.approx(1, abs=1e-5)


def test_a_context_grows_for_a_long_pass_and_shrinks_again(folder: Path) -> None:
    path, _ = write_encoder(folder, name="again")
    model = LlamaModel(path)
    pooler = Pooler(model, LONGEST)
    many = [[2, 77, 3]] * 60 + [[2, *[78] * 400, 3]]
    assert pooler.pool(many).shape == (61, 128)
    before = pooler.pool([[2, 77, 3]])
    pooler.shrink()
    assert np.array_equal(pooler.pool([[2, 77, 3]]), before)
    pooler.close()
    model.close()


def test_where_the_last_token_counts_a_text_may_be_read_in_pieces(last: PooledEngine, folder: Path) -> None:
    rng = np.random.default_rng(5)
    long = rng.integers(0, 500, 1300).tolist()
    apart = last.embed([long])[0]
    model = LlamaModel(folder / "qwen-embedding.gguf")
    pooler = Pooler(model, 2048)
    pooler.n_rows = 2048  # so that it is one piece
    pooler.close()
    assert float(pooler.pool([long])[0] @ apart) == pytest.approx(1, abs=1e-3)
    pooler.close()
    model.close()
    assert float(last.embed([long[-40:]])[0] @ apart) < 0.999


def test_a_models_texts_in_one_pass_do_not_see_each_other(last: PooledEngine) -> None:
    alone = [last.embed([ids])[0] for ids in ([5, 6, 7], [9, 8])]
    assert np.allclose(last.embed([[5, 6, 7], [9, 8]]), alone, atol=1e-3)


def test_scores_are_those_of_the_classifier(reranker: tuple[PooledEngine, Any]) -> None:
    engine, tensors = reranker
    pairs = engine.pairs_to_ids("hello", TEXTS)
    expected = [score(tensors, ids) for ids in pairs]
    assert engine.embed(pairs)[:, 0] == pytest.approx(expected, abs=0.02)
    assert max(expected) - min(expected) > 0.2


def test_a_pair_has_the_marks_that_llama_cpp_puts_around_it(reranker: tuple[PooledEngine, Any]) -> None:
    engine, _ = reranker
    (ids,) = engine.pairs_to_ids("a", ["b"])
    assert [engine.token_text(each).strip() for each in ids] == ["[CLS]", "a", "[SEP]", "b"]


def test_a_file_with_a_prompt_for_pairs_is_asked_by_it(folder: Path) -> None:
    with closing(opened(write_last(folder, ranks=True))) as engine:
        ids = engine.pairs_to_ids("what <|im_end|>", ["this {query}", "that"])
        prompt = "".join(map(engine.token_text, ids[0]))
        assert "<Query>: what <|im_end|>\n<Document>: this {query}<|im_end|>" in prompt
        scores = engine.embed(ids)[:, 0]
        assert ((scores > 0) & (scores < 1)).all()
        assert float(engine.embed(ids[1:])[0, 0]) == pytest.approx(float(scores[1]), abs=1e-3)


@pytest.mark.parametrize("name", ["bert", "embeddinggemma", "qwen3embedding"])
def test_each_family_is_recognized_and_makes_vectors(name: str, tmp_path: Path) -> None:
    path = write_family(name, tmp_path)
    assert pools(Pair("x", path))
    with closing(opened(path, Options(threads=1, n_ctx=256))) as engine:
        found = engine.embed(engine.texts_to_ids(["hello", "an old bridge"]))
        assert np.linalg.norm(found, axis=1) == pytest.approx(np.ones(2), abs=1e-5)
        assert engine.facts.pooling is not None
        assert engine.facts.pooling.is_nested == (name == "embeddinggemma")


def test_a_model_that_writes_text_is_none_of_them(tmp_path: Path) -> None:
    assert not pools(Pair("x", write_family("qwen3", tmp_path)))
    assert not pools(Pair("x", tmp_path / "missing.gguf"))


def test_it_writes_no_text_and_says_so(encoder: tuple[PooledEngine, Any], reranker: tuple[PooledEngine, Any]) -> None:
    for engine, kind in ((encoder[0], "embedding"), (reranker[0], "reranking")):
        for prompt in ("hello", ChatPrompt((Message("user", "hello"),))):
            with pytest.raises(SettingsError, match=f"is an? {kind} model"):
                list(engine.reply(prompt, Sampling(), 3))
            with pytest.raises(SettingsError, match=f"is an? {kind} model"):
                engine.encode(prompt)
    with pytest.raises(SettingsError, match="scores no documents"):
        encoder[0].pairs_to_ids("a", ["b"])


def test_a_reranking_model_without_its_classifier_is_refused(tmp_path: Path) -> None:
    family = FAMILIES["bert"]
    path = tmp_path / "headless.gguf"
    writer = header(path, "x", replace(family, metadata={**family.metadata, "pooling_type": 4}))
    with pytest.raises(ModelError, match=r"headless\.gguf is a reranking model without its classifier\. Convert"):
        opened(written(writer, path, random_tensors("bert", tmp_path)))


def test_another_process_answers_alike(encoder: tuple[PooledEngine, Any]) -> None:
    engine, _ = encoder
    with closing(EngineProcess(engine.pair, ONE)) as far:
        inputs = far.texts_to_ids(TEXTS)
        assert inputs == engine.texts_to_ids(TEXTS)
        assert np.allclose(far.embed(inputs), engine.embed(inputs), atol=1e-3)
        assert far.facts.pooling == engine.facts.pooling
        with pytest.raises(SettingsError, match="is an embedding model"):
            list(far.reply("hello", Sampling(), 3))


def test_the_reference_looks_both_ways(encoder: tuple[PooledEngine, Any]) -> None:
    _, tensors = encoder
    assert not np.allclose(outputs(tensors, [2, 77, 3], 4)[0], outputs(tensors, [2, 78, 3], 4)[0], atol=1e-3)
