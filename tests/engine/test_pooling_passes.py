"""How texts are divided into passes, and which models' vectors may be cut: no model is needed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from app.server.pooling import PoolingTask
from runtime.backends.pooling import rows_for
from runtime.core.errors import ModelError
from runtime.engine.pooling import Pooling
from runtime.models.pooling import is_nested


def test_a_pass_holds_short_texts_together_and_long_ones_alone() -> None:
    pooling = Pooling(n_rows=10, n_texts=3)
    assert [pooling.n_fitting(each) for each in ([1, 1, 1, 1], [4, 5, 2], [12, 1], [9, 1], [])] == [3, 2, 1, 2, 0]
    assert Pooling().n_fitting([3, 2]) == 1


@pytest.mark.parametrize(("n_vocab", "rows"), [(30_522, 512), (151_936, 384), (262_144, 256), (10**7, 64)])
def test_a_large_vocabulary_makes_passes_short(n_vocab: int, rows: int) -> None:
    assert rows_for(n_vocab) == rows


@pytest.mark.parametrize(
    ("names", "tags", "expected"),
    [
        (["nomic-embed-text-v1.5"], [], True),
        (["Nomic Embed Text v1.5"], [], True),
        (["Qwen3 Embedding 0.6B"], [], True),
        (["all-MiniLM-L6-v2"], [], False),
        (["nomic-embed-text-v1"], [], False),
        (["any"], ["sentence-similarity", "Matryoshka"], True),
    ],
)
def test_models_whose_vectors_may_be_cut_are_known(names: list[str], tags: list[str], expected: bool) -> None:
    assert is_nested(names, tags) == expected


class Counting:
    """An engine whose vectors are the first token of each text, and that records its passes."""

    facts = SimpleNamespace(n_vocab=100, n_ctx=100, pooling=Pooling(n_rows=8, n_texts=4))

    def __init__(self) -> None:
        self.passes: list[list[list[int]]] = []

    def embed(self, inputs: list[list[int]]) -> Any:
        self.passes.append(inputs)
        return np.array([ids[:1] for ids in inputs], np.float32)


def task_of(engine: Any, tokens: list[list[int]]) -> PoolingTask:
    return PoolingTask(engine, "input", lambda: tokens)


def run(task: PoolingTask, engine: Any, should_stop: Any = lambda: False) -> list[Any]:
    return [*task.steps(engine, should_stop)]


def test_work_for_a_client_that_has_left_stops_between_passes() -> None:
    engine = Counting()
    task = task_of(engine, [[1] * 5 for _ in range(50)])
    chunks = run(task, engine, lambda: len(engine.passes) >= 3)
    assert len(engine.passes) == 3
    assert chunks[-1].finish_reason == "cancelled"
    assert chunks[-1].stats.embedded_n == 3


def test_results_are_in_the_order_of_the_texts() -> None:
    engine = Counting()
    task = task_of(engine, [[7] * 6, [8], [9] * 20, [3] * 2, [4] * 4])
    assert run(task, engine)[-1].finish_reason == "stop"
    assert task.scores == [7, 8, 9, 3, 4]
    assert [sum(map(len, each)) for each in engine.passes] == [7, 6, 20]


def test_those_who_wait_share_the_pass_of_another() -> None:
    engine = Counting()
    tasks = [task_of(engine, [[n, n]]) for n in (11, 12, 13)]
    long = task_of(engine, [[20] * 8, [21]])
    run(tasks[0], engine)
    assert len(engine.passes) == 1
    assert [run(each, engine)[-1].stats.embedded_n for each in tasks[1:]] == [1, 1]
    run(long, engine)
    assert [task.scores for task in (*tasks, long)] == [[11], [12], [13], [20, 21]]
    assert 1 < len(engine.passes) <= 3


def test_nothing_is_computed_for_those_who_are_gone() -> None:
    engine = Counting()
    gone = task_of(engine, [[5]])
    del gone
    run(task_of(engine, [[6]]), engine)
    assert engine.passes == [[[6]]]


def test_a_pass_that_fails_takes_nothing_from_those_who_shared_it() -> None:
    class Failing(Counting):
        def embed(self, inputs: list[list[int]]) -> Any:
            found = super().embed(inputs)
            if len(self.passes) == 1:
                raise ModelError("It failed. Try again.")
            return found

    engine = Failing()
    first, second = task_of(engine, [[1]]), task_of(engine, [[2]])
    with pytest.raises(ModelError):
        run(first, engine)
    run(second, engine)
    assert second.scores == [2]
