"""Questions about images, through the engine and its process."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.backends.stored import prefix_store
from runtime.core.errors import PictureError, SettingsError
from runtime.engine import Chunk, Message, Options, Pictured, Prompt, Sampling, mark_of, stored_states, with_images
from runtime.engine.engine import Ask, Engine
from runtime.engine.loaded import LoadedEngine
from runtime.engine.process.client import EngineProcess
from runtime.loading import eyes
from runtime.models.registry import Pair
from tests.support import pictures
from tests.support.eyes import needs_mtmd, width_of, write_projector, write_target

PHOTO, OTHER = (pictures.png(pictures.noise(80, 48, seed)) for seed in (1, 2))
SEEDED = Sampling(temperature=0.9, seed=7)
N_CTX = 512
pytestmark = needs_mtmd


def pair_in(folder: Path, kind: str = "mlp") -> Pair:
    """A model with a draft model and an encoder that is found in its folder."""
    (folder / "draft").mkdir()
    target = write_target(folder, kind)
    write_projector(folder / "mmproj-any.gguf", kind, width_of(target))
    draft = write_target(folder / "draft", kind)
    return Pair("seeing", target, draft, context=N_CTX)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return pair_in(tmp_path_factory.mktemp("seeing"))


@pytest.fixture(scope="module")
def engine(pair: Pair) -> Iterator[LoadedEngine]:
    found = LoadedEngine(pair, Options(N_CTX, threads=1, slots=3))
    yield found
    found.close()


def question(*images: bytes, text: str = "What is it?") -> Prompt:
    """A conversation with images."""
    return with_images([Message("user", "\n".join([*map(mark_of, images), text]))], images)


def said(engine: Engine, prompt: Prompt, n: int = 24) -> tuple[list[int], Chunk]:
    """The tokens of a reply with a seed, and its last chunk."""
    chunks = list(engine.reply(prompt, SEEDED, n))
    return [token for chunk in chunks for token in chunk.tokens], chunks[-1]


def test_the_reply_depends_on_the_image_and_the_facts_tell_that_it_sees(engine: LoadedEngine) -> None:
    assert engine.facts.vision == "mlp"
    first, last = said(engine, question(PHOTO))
    assert last.stats is not None
    assert last.stats.prompt_n == len(engine.encode(question(PHOTO)))
    assert said(engine, question(PHOTO))[0] == first
    assert first_logprob(engine, question(PHOTO)) == first_logprob(engine, question(PHOTO))
    assert first_logprob(engine, question(PHOTO)) != first_logprob(engine, question(OTHER))


def first_logprob(engine: Engine, prompt: Prompt) -> float:
    """The log probability of the likeliest token, which is for the tiny models more different than texts are."""
    chunk = next(chunk for chunk in engine.reply(prompt, SEEDED, 1, n_logprobs=1) if chunk.logprobs)
    return chunk.logprobs[0].top[0][1]


@pytest.mark.parametrize("kind", ["mlp", "gemma3", "qwen2vl_merger", "qwen3vl_merger"])
def test_the_text_of_a_seed_is_the_same_with_any_drafter(tmp_path: Path, kind: str) -> None:
    pair = pair_in(tmp_path, kind)
    found, n_drafted = list[list[int]](), 0
    for drafters in ((), ("ngram",), ("model",), ("lookahead",), ("model", "ngram", "layerskip")):
        fixed_k = 3 if drafters else None
        engine = LoadedEngine(pair, Options(N_CTX, drafters, threads=1, fixed_k=fixed_k))
        text = "the same again, the same again, the same again"
        tokens, last = said(engine, question(PHOTO, text=text), 40)
        engine.close()
        found.append(tokens)
        n_drafted += last.stats.draft_n if last.stats else 0
    assert all(tokens == found[0] for tokens in found)
    assert n_drafted > 0


@pytest.mark.parametrize("kind", ["mlp", "gemma3", "qwen2vl_merger"])
def test_the_targets_own_layers_draft_after_an_image(tmp_path: Path, kind: str) -> None:
    pair, found = replace(pair_in(tmp_path, kind), draft=None, exit_layer=1), list[list[int]]()
    for drafters in ((), ("layerskip",)):
        engine = LoadedEngine(pair, Options(N_CTX, drafters, threads=1, fixed_k=3 if drafters else None))
        tokens, last = said(engine, question(PHOTO, text="the same again"), 40)
        engine.close()
        found.append(tokens)
        assert last.stats is not None
        assert ("layerskip" in last.stats.by_drafter) == bool(drafters)
    assert found[0] == found[1]


def test_the_next_question_reads_no_image_again(engine: LoadedEngine) -> None:
    prompt = [Message("user", f"{mark_of(PHOTO)}\nWhat is it?")]
    tokens, _ = said(engine, with_images(prompt, [PHOTO]))
    reply = b"".join(engine.token_bytes(token) for token in tokens).decode("utf8", "replace")
    longer = [*prompt, Message("assistant", reply), Message("user", "And now?")]
    _, last = said(engine, with_images(longer, [PHOTO]))
    assert last.stats is not None
    assert last.stats.cached_n >= len([token for token in engine.encode(question(PHOTO)) if token < 0])


def test_a_stored_conversation_has_its_images(pair: Pair, engine: LoadedEngine, tmp_path: Path) -> None:
    whole, _ = said(engine, question(PHOTO))
    n, _ = engine.conversation("save", 0, str(tmp_path / "slot"))
    other = LoadedEngine(pair, Options(N_CTX, threads=1, slots=3))
    assert other.conversation("restore", 0, str(tmp_path / "slot"))[0] == n
    tokens, last = said(other, question(PHOTO))
    other.close()
    assert tokens == whole
    assert last.stats is not None
    assert last.stats.cached_n == last.stats.prompt_n - 1


@pytest.mark.parametrize("kind", ["mlp", "gemma3", "qwen3vl_merger"])
def test_the_prompt_cache_on_disk_has_images(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_store, "folder", lambda: tmp_path)
    monkeypatch.setattr(stored_states, "THRESHOLDS", stored_states.Worth(seconds=0.0, gain=0.0))
    pair, how = pair_in(tmp_path, kind), Options(N_CTX, (), threads=1, prompt_bytes=10**9)
    words = "This is the beginning of a long question about what there is to see, and how it has become what it is."
    prompts = [question(photo, text=words) for photo in (PHOTO, OTHER)]
    found, n_read = list[list[int]](), list[int]()
    for prompt in (*prompts, *prompts):
        engine = LoadedEngine(pair, how)
        tokens, last = said(engine, prompt, 12)
        n_image = len([token for token in engine.encode(prompt) if token < 0])
        engine.close()
        assert last.stats is not None
        found.append(tokens)
        n_read.append(last.stats.prompt_n - last.stats.cached_n)
    assert found[2:] == found[:2]
    assert min(n_read[:2]) > n_image
    assert max(n_read[2:]) < n_image


def test_a_mark_without_its_image_is_text(engine: LoadedEngine) -> None:
    assert min(engine.encode([Message("user", mark_of(PHOTO))])) >= 0
    assert min(engine.encode(question(PHOTO))) < 0
    other = Pictured([Message("user", mark_of(PHOTO))], (OTHER,))
    assert min(engine.encode(other)) >= 0


def test_penalties_look_at_text_only(engine: LoadedEngine) -> None:
    penalised = Sampling(temperature=0.5, seed=3, repetition_penalty=1.3, penalty_last_n=-1)
    assert list(engine.reply(question(PHOTO), penalised, 8))[-1].finish_reason in ("length", "stop")


@pytest.mark.parametrize("kind", ["mlp", "gemma3", "qwen2vl_merger", "qwen3vl_merger"])
def test_replies_about_images_share_passes_and_are_those_alone(tmp_path: Path, kind: str) -> None:
    engine = LoadedEngine(pair_in(tmp_path, kind), Options(N_CTX, threads=1, slots=3))
    prompts = question(PHOTO), question(OTHER, text="And this, which has more to read before it is answered?"), "Hello"
    alone = [said(engine, prompt)[0] for prompt in prompts]
    found: dict[int, list[int]] = {}
    for _ in prompts:
        engine.conversation("erase", 0)
    for prompt in prompts:
        tokens = list[int]()
        number = engine.add(Ask(prompt, SEEDED, 24), lambda output, tokens=tokens: tokens.extend(output.tokens))
        found[number] = tokens
    while not engine.is_idle:
        engine.step()
    engine.close()
    assert [*found.values()] == alone


def test_a_lost_process_encodes_the_image_again(pair: Pair, said: list[str]) -> None:
    engine = EngineProcess(pair, Options(N_CTX, threads=1, slots=2), say=said.append)
    whole = [token for chunk in engine.reply(question(PHOTO), SEEDED, 60) for token in chunk.tokens]
    parts: list[int] = []
    for chunk in engine.reply(question(PHOTO), SEEDED, 60):
        if chunk.tokens and not parts:
            os.kill(engine.kept.current._process.pid, signal.SIGKILL)
        parts += chunk.tokens
    engine.close()
    assert parts == whole
    assert said


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"<svg/>", "an SVG"),
        (pictures.png(pictures.noise(8, 8), size=(100_000, 100_000)), "100000 x 100000"),
        (pictures.gif(2), "animated"),
        (PHOTO[:-30], "damaged"),
        (pictures.png(pictures.noise(8, 8), data=b"\x09" * (8 * 25)), "damaged"),
    ],
)
def test_a_picture_that_cannot_be_read_is_a_sentence_and_nothing_is_lost(
    engine: LoadedEngine, data: bytes, message: str
) -> None:
    with pytest.raises(PictureError, match=message):
        list(engine.reply(question(data), SEEDED, 4))
    assert said(engine, question(PHOTO), 4)[0]


def test_a_model_without_eyes_says_so(pair: Pair) -> None:
    engine = LoadedEngine(pair, Options(N_CTX, (), threads=1, sees_images=False))
    with pytest.raises(SettingsError, match="cannot see images"):
        list(engine.reply(question(PHOTO), SEEDED, 4))
    engine.close()


def test_the_encoder_computes_with_the_usual_threads(
    pair: Pair, engine: LoadedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with mtmd's own four, which on fewer cores wait for each other."""
    threads = list[int]()
    monkeypatch.setattr(eyes, "VisionEncoder", lambda path, model, n, uses_gpu: threads.append(n))
    monkeypatch.setattr(eyes, "usual_threads", lambda: 7)
    for options in (Options(N_CTX), Options(N_CTX, threads=3)):
        eyes.open_eyes(engine._loaded.target, pair, options, lambda *_: True)
    assert threads == [7, 3]
