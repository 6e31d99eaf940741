"""Copies of draft models with fewer words: exact, used over the whole vocabulary, gone where they cannot be right."""

from __future__ import annotations

import errno
import io
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import llama_cpp.llama_cpp as lib
import numpy as np
import pytest

from app.models.info import Machine, describe
from bench.instruments.architectures.writer import write_family
from bench.instruments.planted import FIRST_WORD, plant, word
from bench.instruments.shapes import K_QUANTS, TINY, Shape, requantize, write_random
from runtime.backends import trimmed as trimmed_backends
from runtime.backends.model import LlamaModel
from runtime.backends.trimmed import TrimmedWords, open_trimmed
from runtime.core.draft import Draft, PassInput
from runtime.core.errors import DraftError, ModelError
from runtime.engine import Grammar, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models import trimmed
from runtime.models.facts import ModelFacts
from runtime.models.header import Header, read_header
from runtime.models.heads import wanted_by
from runtime.models.registry import Pair
from runtime.models.trimmed import Trim, choose, is_worth_it, n_kept, pieces, trim_of, write
from runtime.training import trimmed_drafts
from runtime.training.trimmed_drafts import are_alike, is_copy, prove

VOCABULARY = 4096
N_KEPT = VOCABULARY // 4
SMALL = replace(TINY, vocab=VOCABULARY)
WAYS = {
    "greedy": Sampling(temperature=0),
    "seeded": Sampling(temperature=0.8, seed=3),
    "penalised": Sampling(temperature=0, repetition_penalty=1.3),
}


@pytest.fixture(scope="module", autouse=True)
def _small_vocabularies() -> Iterator[None]:
    """Have copies too, so that models can be tiny."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trimmed, "MIN_TOKENS", 64)
        yield


def facts_of(path: Path) -> ModelFacts:
    return ModelFacts(read_header(path))


def kept_of(path: Path) -> Trim:
    trim = trim_of(facts_of(path))
    assert trim is not None
    return trim


def copy_of(source: Path, said: tuple[int, ...] = ()) -> Path:
    """A copy beside the source; `said` are tokens that replies had."""
    facts, path = facts_of(source), source.with_name(f"{source.stem}-words.gguf")
    write(source, path, choose(facts, np.bincount(said, minlength=facts.n_vocab)))
    return path


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A pair whose draft model is mostly right, and reads nothing but its table."""
    return plant(tmp_path_factory.mktemp("planted"), replace(SMALL, layers=4), SMALL, 0.9, words=128)


def model_of_type(folder: Path, kind: str) -> Path:
    source = write_random(folder / "q8_0.gguf", replace(K_QUANTS, vocab=VOCABULARY))
    file_types = {
        "f32": lib.LLAMA_FTYPE_ALL_F32,
        "f16": lib.LLAMA_FTYPE_MOSTLY_F16,
        "q4_0": lib.LLAMA_FTYPE_MOSTLY_Q4_0,
    }
    file_types |= {"q4_k": lib.LLAMA_FTYPE_MOSTLY_Q4_K_M, "q2_k": lib.LLAMA_FTYPE_MOSTLY_Q2_K}
    return source if kind == "q8_0" else requantize(source, file_types[kind], folder / f"{kind}.gguf")


@pytest.mark.parametrize("kind", ["f32", "f16", "q8_0", "q4_0", "q4_k", "q2_k"])
def test_a_copy_gives_what_the_whole_model_gives_bit_for_bit(kind: str, tmp_path: Path) -> None:
    source = model_of_type(tmp_path, kind)
    assert are_alike(source, copy_of(source, (VOCABULARY - 1, 2000)))


@pytest.mark.parametrize("family", ["gemma3", "gemma2", "phi2", "qwen2", "qwen3moe", "deepseek2", "granite"])
def test_vectors_stand_for_words_however_the_graph_scales_them(family: str, tmp_path: Path) -> None:
    source = write_family(family, tmp_path)
    path = copy_of(source, (500, 400, 300))
    assert are_alike(source, path)
    assert len(kept_of(path).kept) == n_kept(facts_of(source)) == 128


def test_a_copy_that_is_wrong_is_found_out_and_removed(tmp_path: Path) -> None:
    source = write_random(tmp_path / "whole.gguf", SMALL)
    path = copy_of(source)
    prove(source, path)
    facts = facts_of(path)
    table = next(tensor for tensor in facts.header.tensors if tensor.name == "token_embd.weight")
    with path.open("r+b") as file:
        file.seek(facts.header.data_start + table.offset)
        file.write(bytes(table.n_bytes // 2))
    with pytest.raises(ModelError, match="gives wrong results with this build"):
        prove(source, path)
    assert not path.exists()


def test_words_that_replies_had_are_kept_then_the_first_ones_and_always_what_ends_a_text(tmp_path: Path) -> None:
    facts = facts_of(write_random(tmp_path / "whole.gguf", SMALL))
    counts = np.zeros(VOCABULARY, dtype=np.int64)
    counts[2000:VOCABULARY] = np.arange(VOCABULARY - 2000)
    kept = choose(facts, counts)
    assert len(kept) == N_KEPT
    assert kept.tolist() == [256, *range(VOCABULARY - N_KEPT + 1, VOCABULARY)]  # 256 is the end mark
    assert choose(facts, counts * 0).tolist() == list(range(N_KEPT))


def test_only_models_are_copied_whose_table_is_much_of_what_they_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = write_random(tmp_path / "wide.gguf", Shape(256, 8, 4, 4, 1024, VOCABULARY))
    assert not is_worth_it(wide, facts_of(wide))
    path = write_random(tmp_path / "small.gguf", SMALL)
    assert is_worth_it(path, facts_of(path))
    assert not is_worth_it(tmp_path / "small-00001-of-00002.gguf", facts_of(path))
    assert not is_worth_it(path, facts_of(copy_of(path)))  # there is nothing left to trim
    monkeypatch.setattr(trimmed, "MIN_TOKENS", N_KEPT + 1)
    assert not is_worth_it(path, facts_of(path))


@pytest.mark.parametrize("family", ["gemma3n", "gemma4", "qwen35", "lfm2", "mamba", "glm4moe"])
def test_architectures_in_which_vectors_do_not_stand_for_words_are_left_alone(family: str, tmp_path: Path) -> None:
    path = write_family(family, tmp_path)
    assert not is_worth_it(path, facts_of(path))


def asked(pair: Pair, draft: Path | None, said: str, **options: object) -> dict[str, tuple[tuple[int, ...], int, int]]:
    """Tokens, drafted and accepted ones of a reply in each way."""
    drafters = ("model",) if draft else ()
    given = Options(threads=1, drafters=drafters, fixed_k=3, **options)  # type: ignore[arg-type]
    engine = LoadedEngine(replace(pair, draft=draft), given)
    try:
        found = {}
        for way, sampling in WAYS.items():
            chunks = list(engine.reply(said, sampling, 24))
            stats = chunks[-1].stats
            assert stats is not None
            tokens = tuple(token for chunk in chunks for token in chunk.tokens)
            found[way] = tokens, stats.draft_n, stats.draft_n_accepted
        return found
    finally:
        engine.close()


@pytest.mark.parametrize("slots", [1, 3])
def test_the_text_is_the_same_and_the_copy_guesses_as_the_whole_model_does(planted: Pair, slots: int) -> None:
    assert planted.draft is not None
    copy = copy_of(planted.draft)
    said = f"Go on after {word(VOCABULARY - 7)} {word(FIRST_WORD + 5)}"  # the first of which the copy does not have
    plain, whole, trimmed_ = (asked(planted, draft, said, slots=slots) for draft in (None, planted.draft, copy))
    assert whole == trimmed_
    for way in WAYS:
        assert plain[way][0] == trimmed_[way][0]
    assert trimmed_["greedy"][2] > 10


def test_words_that_a_copy_lacks_are_never_guessed_and_said_all_the_same(planted: Pair) -> None:
    assert planted.draft is not None
    others = tuple(token for token in range(600, VOCABULARY))  # the walk's words are not among what was said
    copy = copy_of(planted.draft, others)
    assert kept_of(copy).kept[1] >= 600
    said = f"Go on after {word(FIRST_WORD + 5)}"
    plain, trimmed_ = (asked(planted, draft, said) for draft in (None, copy))
    assert [plain[way][0] for way in WAYS] == [trimmed_[way][0] for way in WAYS]
    assert trimmed_["greedy"][2] == 0


def test_a_grammar_that_allows_none_of_its_words_ends_no_reply(planted: Pair) -> None:
    assert planted.draft is not None
    copy = copy_of(planted.draft, tuple(range(600, VOCABULARY)))
    engine = LoadedEngine(replace(planted, draft=copy), Options(threads=1, drafters=("model",), fixed_k=3))
    try:
        chunks = list(engine.reply("Go on", Sampling(temperature=0), 8, grammar=Grammar("regex", "(ba|be)+")))
        assert set("".join(chunk.text for chunk in chunks)) <= set("abe")
    finally:
        engine.close()


def test_many_rows_and_contexts_that_go_back_are_those_of_the_whole_model(tmp_path: Path) -> None:
    source = write_random(tmp_path / "whole.gguf", SMALL)
    path = copy_of(source)
    trim, rng = kept_of(path), np.random.default_rng(5)
    models = LlamaModel(source), LlamaModel(path)
    whole = trimmed_backends.LlamaBackend(models[0], 128, 4, 16)
    copy = open_trimmed(models[1], trim, 128, 4, 16)
    text = rng.integers(0, VOCABULARY, 60).astype(np.int32)
    text[40:] = rng.choice(trim.kept, 20)
    for n, k in ((50, 3), (45, 0), (59, 1), (3, 2), (60, 3)):
        draft = Draft(tuple(text[:k].tolist()))
        expected, found = whole.forward(text[:n], draft), copy.forward(text[:n], draft)
        assert found.shape == expected.shape
        assert np.array_equal(found[:, trim.kept], expected[:, trim.kept])
        others = np.delete(found, trim.kept, axis=1)
        assert (others == trimmed_backends.NEVER).all()
    for each in (whole, copy, *models):
        each.close()


def test_conversations_share_passes_of_a_copy(tmp_path: Path) -> None:
    source = write_random(tmp_path / "whole.gguf", SMALL)
    path = copy_of(source)
    trim, rng = kept_of(path), np.random.default_rng(6)
    models = LlamaModel(source), LlamaModel(path)
    whole = trimmed_backends.SharedBackend(models[0], 128, 1, 64, n_seats=3)
    copy = open_trimmed(models[1], trim, 128, 1, 64, n_seats=3)
    assert isinstance(copy, trimmed_backends.TrimmedSharedBackend)
    texts = [rng.integers(0, n, 40).astype(np.int32) for n in (VOCABULARY, N_KEPT, VOCABULARY)]
    for backend in (whole, copy):
        backend.set_slots(3)
    for n in (20, 21, 30, 25):
        asked = [PassInput(text[: n + i]) for i, text in enumerate(texts)]
        for expected, found in zip(whole.forward_all(asked), copy.forward_all(asked), strict=True):
            assert np.array_equal(found[:, trim.kept], expected[:, trim.kept])
    for each in (whole, copy, *models):
        each.close()


def test_a_library_that_takes_no_vectors_is_found_out_at_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = copy_of(write_random(tmp_path / "whole.gguf", SMALL))
    model = LlamaModel(path)
    right = TrimmedWords.vectors
    monkeypatch.setattr(TrimmedWords, "vectors", lambda self, tokens: right(self, tokens) * np.float32(1.5))
    with pytest.raises(DraftError, match="cannot take embeddings as input"):
        open_trimmed(model, kept_of(path), 128, 1, 16)
    model.close()


@pytest.mark.parametrize("what", ["gone", "changed"])
def test_a_copy_whose_whole_file_is_another_is_left_out_in_a_sentence(planted: Pair, what: str, tmp_path: Path) -> None:
    assert planted.draft is not None
    source = tmp_path / "whole.gguf"
    shutil.copy(planted.draft, source)
    copy = copy_of(source)
    source.unlink() if what == "gone" else os.utime(source, (1, 1))
    engine = LoadedEngine(replace(planted, draft=copy), Options(threads=1, n_ctx=256))
    try:
        assert engine.pair.draft == copy
        stats = list(engine.reply("Go on", Sampling(temperature=0), 4))[-1].stats
        assert stats is not None
        assert "lacks words that are in" in str(engine.decoder.active.failed)
        assert stats.draft_n == 0 or "model" not in stats.by_drafter
    finally:
        engine.close()


def test_nothing_is_left_where_a_copy_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_random(tmp_path / "whole.gguf", SMALL)

    def is_full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", is_full)
    with pytest.raises(ModelError, match=r"could not be written to .* \(No space left on device\)\. Free some room"):
        copy_of(source)
    assert list(tmp_path.iterdir()) == [source]


def test_there_must_be_room_before_a_copy_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda place: shutil._ntuple_diskusage(1, 1, 1000))  # type: ignore[attr-defined]
    with pytest.raises(ModelError, match=r"no room for a copy of x\.gguf with fewer words\. Free 0\.1 GB"):
        trimmed_drafts.make_room(tmp_path, Path("x.gguf"), 50_000_000)


@pytest.mark.parametrize("what", ["changes", "is cut off"])
def test_a_source_that_is_another_meanwhile_gives_no_copy(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_random(tmp_path / "whole.gguf", SMALL)

    def meddled(whole: BinaryIO, header: Header, trim: Trim) -> object:
        if what == "changes":
            os.utime(source, (1, 1))
            return pieces(whole, header, trim)
        return pieces(io.BytesIO(whole.read(5000)), header, trim)

    monkeypatch.setattr(trimmed, "pieces", meddled)
    with pytest.raises(ModelError, match=r"was changed while|became shorter while"):
        copy_of(source)
    assert list(tmp_path.iterdir()) == [source]


def test_a_copy_is_the_same_only_with_its_words_and_its_source(tmp_path: Path) -> None:
    source = write_random(tmp_path / "whole.gguf", SMALL)
    path = copy_of(source)
    kept = kept_of(path).kept
    assert is_copy(path, source, kept)
    assert not is_copy(path, source, kept + 1)
    assert not is_copy(path, path, kept)
    assert not is_copy(tmp_path / "none.gguf", source, kept)
    os.utime(source, (1, 1))
    assert not is_copy(path, source, kept)


def changed(path: Path, change: Callable[[np.ndarray[tuple[int], np.dtype[np.int32]]], None]) -> ModelFacts:
    """The header of a copy whose kept words were meddled with."""
    data, kept = bytearray(path.read_bytes()), kept_of(path).kept
    at = data.index(kept.tobytes())
    change(kept)
    data[at : at + kept.nbytes] = kept.tobytes()
    path.write_bytes(data)
    return facts_of(path)


@pytest.mark.parametrize(("place", "token"), [(0, -1), (5, 4), (7, 3)])
def test_words_that_make_no_sense_are_no_copy(place: int, token: int, tmp_path: Path) -> None:
    path = copy_of(write_random(tmp_path / "whole.gguf", SMALL))

    def meddle(kept: np.ndarray[tuple[int], np.dtype[np.int32]]) -> None:
        kept[place] = token

    assert trim_of(changed(path, meddle)) is None


def test_words_beyond_the_whole_vocabulary_are_refused(planted: Pair, tmp_path: Path) -> None:
    assert planted.draft is not None
    source = tmp_path / "whole.gguf"
    shutil.copy(planted.draft, source)
    path = copy_of(source)

    def meddle(kept: np.ndarray[tuple[int], np.dtype[np.int32]]) -> None:
        kept[-1] = VOCABULARY

    changed(path, meddle)
    engine = LoadedEngine(replace(planted, draft=path), Options(threads=1, n_ctx=256))
    try:
        assert "does not have" in str(engine.decoder.active.failed)
    finally:
        engine.close()


def test_a_copy_is_a_sound_file_that_says_what_it_is(tmp_path: Path) -> None:
    source = write_random(tmp_path / "whole.gguf", SMALL)
    path = copy_of(source)
    whole, copy = facts_of(source), facts_of(path)
    assert (copy.n_layers, copy.n_context, copy.n_vocab) == (whole.n_layers, whole.n_context, 0)
    assert copy.n_bytes_per_token == trimmed.bytes_per_token(whole)
    assert kept_of(path).source == source
    assert wanted_by(copy) == f"a copy of {source} with fewer words, for its targets"
    assert describe(path, copy, Machine(1.0))["vocabulary"] == N_KEPT
    assert struct.unpack("<4sI", path.read_bytes()[:8]) == (b"GGUF", 3)
