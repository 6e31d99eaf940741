"""What fails of one reply ends that one with its error; others go on in the same process, with the same text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import llama_cpp.llama_cpp as lib
import pytest

from runtime.conversation.prompt import Ids
from runtime.core.errors import ModelError, TemplateError
from runtime.engine.binding import bound
from runtime.engine.engine import Ask
from runtime.engine.output import Chunk
from runtime.engine.sequence import Sequence
from runtime.loading.options import Options
from runtime.sampling.settings import Sampling
from tests.support.alone import Request, alone
from tests.support.read_reply import Reply
from tests.support.scheduling import Scheduling, scheduling
from tests.support.toy_engine import N_CTX, Setup, ToyEngine
from tests.support.toy_library import FAILED

GREEDY = Sampling(temperature=0.0, seed=0)
PROMPTS = (1, 2, 1, 1), (1, 2, 3, 2), (1, 2, 4, 3)  # whose replies are long
GUILTY = 6, 6, 6  # what only the prompt of the guilty one has
REFUSED = TemplateError("The model's chat template refuses these messages.")
SETUPS = [Setup("shared"), Setup("shared", ("model",), fixed_k=3), Setup("turns", ("ngram",))]


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*given: object, **named: object) -> Any:
        raise error

    return fail


def break_sampler(sequence: Sequence, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sequence.binding.sampler, "begin", raising(ZeroDivisionError("sampler")))


def break_choice(sequence: Sequence, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sequence.binding.sampler, "choose", raising(ZeroDivisionError("choice")))


def break_text(sequence: Sequence, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sequence.text, "feed", raising(ZeroDivisionError("text")))


def break_limits(sequence: Sequence, patch: pytest.MonkeyPatch) -> None:
    """As a template does that refuses the shortened conversation."""
    patch.setattr(sequence, "_look_at_limits", raising(REFUSED))


def break_end(sequence: Sequence, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sequence.text, "finish", raising(ZeroDivisionError("end")))


def break_numbers(sequence: Sequence, patch: pytest.MonkeyPatch) -> None:
    sequence.stats.steps.append(None)  # type: ignore[arg-type]


BREAKS = [break_sampler, break_choice, break_text, break_limits, break_end, break_numbers]


def finish(made: Scheduling, replies: list[Reply]) -> None:
    for _ in range(500):
        for each in replies:
            if not each.is_over:
                made.read(each)
    assert all(each.is_over for each in replies)


def three(made: Scheduling, guilty: tuple[int, ...] = PROMPTS[1]) -> list[Reply]:
    return [made.add(Request(prompt, GREEDY, 40)) for prompt in (PROMPTS[0], guilty, PROMPTS[2])]


def goes_on(made: Scheduling, replies: list[Reply]) -> bool:
    """Does each but the second one say what it says alone, in the same process?"""
    finish(made, replies)
    assert [each.said for each in replies[::2]] == [alone(each.request) for each in replies[::2]]
    assert made.left_over() == []
    return made._process is None or made._process.code is None


@pytest.mark.parametrize("setup", SETUPS, ids=["shared", "drafts", "turns"])
@pytest.mark.parametrize("breaks", BREAKS)
def test_an_error_ends_the_reply_that_it_is_of(breaks: Any, setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    with scheduling(setup, n_ahead=1) as made:
        replies = three(made)
        while not replies[1].said.tokens:
            for each in replies:
                made.read(each)
        process = made._process
        (sequence,) = (each for each in made._toy.core.scheduler.sequences if each.tokens[2] == PROMPTS[1][2])
        breaks(sequence, monkeypatch)
        assert goes_on(made, replies)
        assert isinstance(replies[1].error, TemplateError if breaks is break_limits else Exception)
        assert made._process is process


@pytest.mark.parametrize("setup", SETUPS, ids=["shared", "drafts", "turns"])
def test_a_pass_that_fails_because_of_one_sequence_ends_that_one(setup: Setup) -> None:
    with scheduling(setup, n_ahead=math.inf) as made:
        decode = lib.llama_decode

        def failing(context: Any, batch: Any) -> int:
            tokens = tuple(batch.token[i] for i in range(batch.n_tokens))
            is_guilty = any(tokens[i : i + 3] == GUILTY for i in range(len(tokens)))
            return FAILED if is_guilty else decode(context, batch)

        made._patch.setattr(lib, "llama_decode", failing)
        replies = three(made, (*GUILTY, 1))
        assert goes_on(made, replies)
        assert isinstance(replies[1].error, ModelError)


def test_a_pass_that_fails_once_ends_none_of_its_sequences_if_each_goes_on_alone() -> None:
    with scheduling(Setup("shared"), n_ahead=None) as made:
        replies = three(made)
        for _ in range(3):
            for each in replies:
                made.read(each)
        made.fail_in_pass(1)
        assert goes_on(made, replies)
        assert made.n_failed == 1
        assert replies[1].said == alone(replies[1].request)


def test_what_fails_where_drafting_begins_ends_one_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    with scheduling(Setup("shared", ("model",), fixed_k=3), n_ahead=math.inf) as made:
        begin = made._toy.decoder.active.begin

        def failing(state: Any, context: Any, *more: Any) -> Iterator[None]:
            if tuple(context[:3]) == GUILTY:
                raise ZeroDivisionError("drafting")
            yield from begin(state, context, *more)

        monkeypatch.setattr(made._toy.decoder.active, "begin", failing)
        replies = three(made, (*GUILTY, 1))
        assert goes_on(made, replies)
        assert "drafting" in str(replies[1].error)


def test_what_cannot_be_learned_of_a_reply_is_lost_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with scheduling(Setup("shared"), n_ahead=math.inf) as made:
        monkeypatch.setattr(made._toy.decoder, "finish", raising(OSError("the disk is full")))
        replies = three(made)
        assert goes_on(made, replies)
        assert replies[1].said == alone(replies[1].request)
    assert "Nothing was learned" in caplog.text


def test_a_reply_that_goes_on_in_a_smaller_context_ends_there() -> None:
    """As after a loss, when less memory is left."""
    with scheduling(Setup(), n_ahead=None) as made:
        engine, came = made.engine, list[Chunk | Exception]()
        assert isinstance(engine, ToyEngine)
        said = tuple(1 + i % 6 for i in range(2 * N_CTX))
        engine.add(Ask(Ids((1, 2, 3)), GREEDY, reply_tokens=said, stops=("never",)), came.append)
        while not engine.core.is_idle:
            engine.step()
        last = came[-1]
        assert isinstance(last, Chunk)
        assert (last.finish_reason, last.text) == ("length", "")
        assert f"The context of {N_CTX} tokens is full" in last.notice


def test_text_that_was_held_back_is_told_where_a_reply_ends_in_a_smaller_context() -> None:
    with scheduling(Setup(), n_ahead=None) as made:
        engine = made.engine
        assert isinstance(engine, ToyEngine)
        ask = Ask(Ids((1,)), GREEDY, reply_tokens=(1, 2, 3, 1, 2), stops=("abd",))  # which is "abcab"
        window: Any = SimpleNamespace(n_ctx=4, shrink=lambda n: [1], notice="")
        sequence = Sequence(1, ask, [1], window, bound(ask, engine.vocab, engine.facts, Options()))
        assert sequence.finish_reason == "length"
        assert sequence.buffer.n == 4
        assert sequence.end().text == "ab"  # what came before was told already
