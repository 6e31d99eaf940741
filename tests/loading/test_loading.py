"""What is checked and measured when a pair is opened."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.instruments.toy import ToyBackend
from runtime.backends.contexts import open_backend
from runtime.backends.library import load_error
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.core.errors import ModelError, NoMemoryError, VocabError
from runtime.engine import Message, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.loading import calibration
from runtime.loading.loaded_pair import LoadedPair
from runtime.loading.pass_timing import thread_counts
from runtime.loading.profile_cache import ProfileCache
from runtime.models.drafting import HeaderVocab, compare_vocabularies
from runtime.models.facts import WORDS
from runtime.models.gguf_types import Strings
from runtime.models.header import Header
from runtime.models.registry import load_registry


class Words:
    """A vocabulary of given words."""

    def __init__(self, *words: str) -> None:
        self.words, self.n_vocab = words, len(words)

    def text(self, token: int) -> str:
        return self.words[token]


def in_a_header(*words: str) -> HeaderVocab:
    """The same as a file has them."""
    return HeaderVocab(
        Header(
            {WORDS: Strings(len(words), b"".join(struct.pack("<Q", len(word)) + word.encode() for word in words))},
            (),
            0,
        )
    )


Spelled = Callable[..., Words | HeaderVocab]
either = pytest.mark.parametrize("spelled", [Words, in_a_header])


def refusal(target: Words | HeaderVocab, draft: Words | HeaderVocab) -> str:
    """Why a draft with that vocabulary is refused; "" where it is not."""
    try:
        compare_vocabularies(target, draft, "big.gguf", "small.gguf")
    except VocabError as error:
        return str(error)
    return ""


@either
@pytest.mark.parametrize("theirs", [("a", "x", "y"), ("a", "x")])
def test_a_different_word_is_named(spelled: Spelled, theirs: tuple[str, ...]) -> None:
    found = refusal(spelled("a", "b", "c"), spelled(*theirs))
    assert "small.gguf cannot draft for big.gguf: token 1 is 'b' in the target and 'x' in the draft" in found


@either
def test_a_longer_tail_is_harmless_either_way(spelled: Spelled) -> None:
    assert refusal(spelled("a", "b"), spelled("a", "b", "pad")) == ""
    assert refusal(spelled("a", "b", "pad"), spelled("a", "b")) == ""


def test_words_that_agree_are_not_even_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HeaderVocab, "text", lambda self, token: pytest.fail("a word was read"))
    assert refusal(in_a_header("a", "", "b"), in_a_header("a", "")) == ""


def test_threads_worth_trying_fit_the_machine() -> None:
    assert thread_counts()[0] == 1
    assert thread_counts()[-1] <= (os.cpu_count() or 1)


def test_every_choice_was_measured() -> None:
    loaded = LoadedPair(load_registry()["demo"], Options())
    costs = loaded.decoder.controller.passes.costs.widths(0)
    assert costs[1] > 0
    assert loaded.decoder.controller.states["model"].times.rest > 0
    loaded.close()
    loaded.close()


def test_the_second_load_remembers_and_a_machine_that_changed_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, memo, taken = ToyBackend(), ProfileCache("key", tmp_path), list[int]()
    real = calibration.take
    monkeypatch.setattr(calibration, "take", lambda *args: taken.append(1) or real(*args))
    first = calibration.calibrate(backend, 5, [1], memo)
    monkeypatch.setattr(calibration, "timed", lambda *args: first.pass_seconds[1])
    assert calibration.calibrate(backend, 5, [1], memo) == first
    assert len(taken) == 1
    monkeypatch.setattr(calibration, "timed", lambda *args: 3 * first.pass_seconds[1])
    calibration.calibrate(backend, 5, [1], memo)
    assert len(taken) == 2
    for broken in (
        {},
        {"pass_seconds": 3},
        {"one": 1, "many": 1, "draft": 1, "pass_seconds": {"2": 1.0}, "draft_seconds": 0.0},
    ):
        memo.write(broken)
        assert calibration.remembered(memo) is None


def test_threads_that_a_busy_machine_chose_are_chosen_again_on_an_idle_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Threaded(ToyBackend):
        def set_threads(self, one: int, many: int) -> None:
            self.n = one

    backend, memo, seconds = Threaded(), ProfileCache("key", tmp_path), {1: 1.0, 2: 8.0}
    monkeypatch.setattr(calibration, "timed", lambda *args: seconds[backend.n])
    monkeypatch.setattr("runtime.loading.pass_timing.timed", lambda *args: seconds[backend.n])
    assert calibration.calibrate(backend, 5, [1, 2], memo).one == 1
    assert (calibration.calibrate(backend, 5, [1, 2], memo).one, backend.n) == (1, 1)
    seconds[2] = 0.5
    assert (calibration.calibrate(backend, 5, [1, 2], memo).one, backend.n) == (2, 2)


def test_progress_is_reported_for_both_models_and_may_stop_the_load() -> None:
    seen: dict[str, float] = {}
    LoadedPair(load_registry()["demo"], Options(), lambda what, share: seen.update({what: share}) is None).close()
    assert seen == {"target": 1.0, "draft": 1.0}
    with pytest.raises(KeyboardInterrupt):
        LoadedPair(load_registry()["demo"], Options(), lambda what, share: False)


def test_a_draft_that_fails_to_load_frees_the_target(tmp_path: Path) -> None:
    pair = replace(load_registry()["demo"], draft=tmp_path / "missing.gguf")
    with pytest.raises(ModelError, match="There is no file"):
        LoadedEngine(pair)


@pytest.mark.parametrize(
    "broken",
    [ModelError("No context of 2056 tokens could be made for draft.gguf. Try a smaller context."), MemoryError()],
)
def test_a_draft_for_which_memory_runs_out_on_the_way_is_left_out_with_a_reason(
    monkeypatch: pytest.MonkeyPatch, broken: Exception
) -> None:
    closed: list[Path] = []

    def no_room(model: LlamaModel, *args: Any, **named: Any) -> LlamaBackend:
        if model.path.name == "draft.gguf":
            raise broken
        return open_backend(model, *args, **named)

    real = LlamaModel.close
    monkeypatch.setattr("runtime.loading.draft.open_backend", no_room)
    monkeypatch.setattr(LlamaModel, "close", lambda model: (closed.append(model.path), real(model))[1])
    engine = LoadedEngine(load_registry()["demo"], Options(threads=1, drafters=("model", "ngram")))
    assert [path.name for path in closed] == ["draft.gguf"]
    assert engine.facts.left_out.startswith("the draft model was left out: ")
    assert (str(broken).rstrip(".") or "MemoryError") in engine.facts.left_out
    *_, last = engine.reply([Message("user", "What does os.path.join do?")], Sampling(temperature=0), 20)
    assert last.stats is not None
    assert last.stats.predicted_n == 20
    assert last.stats.reason is not None
    assert last.stats.reason.code == "draft-error"
    engine.close()


def test_weights_for_which_memory_runs_out_are_told_from_a_damaged_file() -> None:
    path = Path("draft.gguf")
    assert isinstance(load_error(path, ["error loading model: unable to allocate CPU buffer"]), NoMemoryError)
    assert not isinstance(
        load_error(path, ["error loading model: tensor 'a' data is not within the file bounds"]), NoMemoryError
    )


class NoWayBack(LlamaBackend):
    """A context that cannot drop tokens, as a recurrent model's."""

    def __init__(self, model: LlamaModel, n_ctx: int, n_rows: int, n_batch: int, *more: bool) -> None:
        super().__init__(model, n_ctx, n_rows, n_batch)
        self.n_rewindable = 0


def test_an_architecture_that_cannot_rewind_decodes_plainly_and_loads_no_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.loading.opening.open_backend", NoWayBack)
    seen: set[str] = set()
    loaded = LoadedPair(load_registry()["demo"], Options(), lambda what, share: seen.add(what) is None)
    assert (loaded.decoder.active.drafters, seen, loaded.decoder.why_plain().code) == ([], {"target"}, "architecture")
    loaded.close()


@pytest.mark.parametrize(
    "sampling", [Sampling(temperature=0), Sampling(temperature=1.2, seed=3)], ids=["greedy", "seeded"]
)
def test_a_draft_model_that_sees_little_of_the_context_changes_no_text(sampling: Sampling) -> None:
    pair, said = load_registry()["demo"], list[str]()
    for options in (
        Options(drafters=(), threads=1),
        Options(drafters=("model",), threads=1, fixed_k=3, draft_window=32),
    ):
        engine = LoadedEngine(pair, options)
        chunks = list(engine.reply([Message("user", "What does os.path.join do?")], sampling, 90))
        said.append("".join(chunk.text for chunk in chunks))
        engine.close()
    assert said[0] == said[1]
    assert chunks[-1].stats is not None
    assert chunks[-1].stats.prompt_n + chunks[-1].stats.predicted_n > 2 * 32
    assert chunks[-1].stats.draft_n_accepted > 0
