"""What is made of losses of the process with the models, by place and time."""

from __future__ import annotations

import pytest

from runtime.core.errors import ModelError
from runtime.engine.process import kept as module
from runtime.engine.process.kept import Losses
from runtime.engine.process.model_process import ProcessLostError
from runtime.loading.options import Options

LOST = ProcessLostError("it was ended by SIGKILL")


def test_the_third_at_a_place_is_told_and_drafts_are_left_out_first() -> None:
    losses = Losses(Options())
    losses.note(LOST, "here", "x.gguf")
    losses.note(LOST, "there", "x.gguf")
    assert losses.options == Options()
    losses.note(LOST, "here", "x.gguf")
    assert losses.options == Options(drafters=())
    with pytest.raises(ModelError, match=r"x\.gguf cannot be run.*3 times.*SIGKILL"):
        losses.note(LOST, "here", "x.gguf")


def test_the_second_is_where_nothing_drafts() -> None:
    losses = Losses(Options(drafters=()))
    losses.note(LOST, "here", "x.gguf")
    with pytest.raises(ModelError, match="2 times"):
        losses.note(LOST, "here", "x.gguf")


def test_a_place_that_was_passed_is_forgiven_unless_drafts_were_left_out_for_it() -> None:
    losses = Losses(Options())
    for _ in range(4):
        losses.note(LOST, "load", "x.gguf")
        losses.forgive("load")
    assert losses.options == Options()
    losses.note(LOST, "load", "x.gguf")
    losses.note(LOST, "load", "x.gguf")
    losses.forgive("load")
    assert losses.options == Options(drafters=())


def test_a_minute_later_nothing_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    losses = Losses(Options())
    for _ in range(4):
        losses.note(LOST, "here", "x.gguf")
        now += module.MEMORY / 2
    assert losses.options == Options()


def test_what_was_disabled_comes_back_after_a_while_and_later_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    losses, waits = Losses(Options()), list[float]()
    for _ in range(3):
        losses.note(LOST, object(), "x.gguf")
        began = now
        while not losses.is_past:
            now += 1
        waits.append(now - began)
        losses.restored()
    assert waits == [module.MEMORY * n + 1 for n in (1, 2, 4)]


def test_a_gpu_is_left_alone_before_drafts_are() -> None:
    lost = ProcessLostError("it was ended by SIGABRT")
    lost.has_gpu = True
    losses, said = Losses(Options()), list[tuple[Options, str]]()
    for _ in range(3):
        losses.note(lost, "here", "x.gguf")
        said.append((losses.options, losses.consequence))
    assert [options for options, _ in said] == [
        Options(),
        Options(without_gpu=True),
        Options(without_gpu=True, drafters=()),
    ]
    assert ["GPU" in text for _, text in said] == [False, True, True]
    with pytest.raises(ModelError, match="4 times"):
        losses.note(LOST, "here", "x.gguf")


def test_who_asked_for_no_gpu_keeps_to_that() -> None:
    losses = Losses(Options(without_gpu=True))
    losses.note(LOST, "here", "x.gguf")
    losses.note(LOST, "here", "x.gguf")
    assert losses.options == Options(without_gpu=True, drafters=())
