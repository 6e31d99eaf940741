"""Passes of replies that use no adapter round as the model's own do; those of others are plain where theirs do not."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.instruments.shapes import TINY
from runtime.backends.contexts import open_backend
from runtime.backends.model import LlamaModel
from runtime.engine import Chunk, Options, Sampling
from runtime.engine.engine import Ask
from runtime.engine.loaded import LoadedEngine
from runtime.loading.exactness import Exactness, Roundings
from runtime.models.adapters import Adapter
from runtime.models.registry import load_registry, with_files
from tests.loading.test_exactness import is_demo_exact
from tests.support.adapters import write_adapter, write_adapter_for, write_base

PROMPT = "List the days of the week, then the months, then the days of the week."
Scales = tuple[tuple[int, float], ...]
ON: Scales = ((0, 0.3),)


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For the bundled target, whose own passes are exact at every width; its matrices are floats."""
    base = with_files(load_registry()["demo"]).target
    return write_adapter_for(base, tmp_path_factory.mktemp("adapted") / "adapter.gguf")


def opened(adapters: tuple[Adapter, ...], **options: object) -> LoadedEngine:
    known = {"n_ctx": 512, "threads": 1, "slots": 3} | options
    pair = load_registry()["demo"]
    return LoadedEngine(replace(pair, lora=adapters), Options(**known))  # type: ignore[arg-type]


def replies(engine: LoadedEngine, wishes: list[Scales]) -> list[Chunk]:
    """The tokens of all chunks of each reply, in its last one; they are made at the same time."""
    found: list[list[Chunk]] = [[] for _ in wishes]

    def sink(i: int) -> Callable[[Chunk | Exception], None]:
        return lambda came: found[i].append(came) if isinstance(came, Chunk) else pytest.fail(str(came))

    for i, lora in enumerate(wishes):
        engine.add(Ask(PROMPT, Sampling(temperature=0.7, seed=5), 40, lora=lora), sink(i))
    while not engine.is_idle:
        engine.step()
    return [replace(each[-1], tokens=tuple(token for chunk in each for token in chunk.tokens)) for each in found]


def n_drafted(chunk: Chunk) -> int:
    assert chunk.stats is not None
    return chunk.stats.draft_n


def test_a_reply_without_adapters_drafts_beside_one_with_them_and_both_say_what_plain_decode_says(
    adapter: Path,
) -> None:
    with closing(opened((), drafters=())) as plain:
        bare = replies(plain, [()])[0].tokens
    with closing(opened((Adapter(adapter),), drafters=())) as plain:
        adapted = replies(plain, [ON])[0].tokens
    assert bare != adapted
    with closing(opened((Adapter(adapter),), fixed_k=3)) as engine:
        alone = [replies(engine, [wish])[0] for wish in ((), ON)]
        assert "`--fast`" in engine.explain().why_plain
        together = replies(engine, [(), ON, (), ON])
    assert [each.tokens for each in (*alone, *together)] == [bare, adapted] * 3
    assert n_drafted(alone[1]) == 0
    assert (n_drafted(alone[0]) > 0) == is_demo_exact()


def test_what_is_said_of_the_engine_is_of_its_usual_adapters(adapter: Path) -> None:
    widths = []
    for scale in (0.0, 0.5):
        with closing(opened((Adapter(adapter, scale),), drafters=())) as engine:
            widths.append(engine.facts.exactness.width)
    assert widths[1] == 1
    assert (widths[0] > 1) == is_demo_exact()


def test_exactness_goes_by_the_adapters_of_a_reply() -> None:
    found = Roundings(Exactness(9, 9), Exactness(1, 9, prefill=False))
    assert found.are_exact(())
    assert not found.are_exact((("any", 0.5),))


def test_two_at_once_are_added_in_the_order_of_their_contents_wherever_they_lie(tmp_path: Path) -> None:
    """llama.cpp keeps them in a map by address, whose order of two follows from that in which they were added."""
    base = write_base(tmp_path / "base.gguf")
    files = [Adapter(write_adapter(tmp_path / f"{seed}.gguf", seed)) for seed in (1, 2)]
    text, places = np.arange(4, 44, dtype=np.int32) % TINY.vocab, set[bool]()
    found, other, models = set[bytes](), set[bytes](), list[LlamaModel]()
    for i in range(12):
        models.append(model := LlamaModel(base))  # which keep their memory, so that the next one lies elsewhere
        model.load_adapters(files if i % 2 else files[::-1])
        both = model.adapters.named(None)
        first, second = (ctypes.cast(model.adapters.handles[key], ctypes.c_void_p).value or 0 for key, _ in both)
        places.add(first < second)
        for adapters, those in ((both, found), (both[::-1], other)):
            context = open_backend(model, 128, 4, 64)  # one that has both leaves them as they are
            context.set_threads(1, 1)
            context.use(adapters)
            those.add(context.forward(text).tobytes())
            context.close()
    for model in models:
        model.close()
    assert places == {True, False}
    assert len(found) == len(other) == 1
    assert found != other
