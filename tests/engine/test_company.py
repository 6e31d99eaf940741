"""Replies that share passes: which do, what a pass is worth to each, and that each says what it says alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

import pytest

from bench.instruments.concurrent_replies import Case, Collected, Concurrent, alone, concurrently, n_different
from bench.instruments.heuristics import tuned
from runtime.backends.shared import SharedBackend
from runtime.core.errors import SettingsError
from runtime.engine import Chunk, Grammar, Message, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import load_registry
from runtime.speculative.control.decision import Choice, Decision

GREEDY, SEEDED = Sampling(temperature=0.0), Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=5)
QUESTIONS = ("What does os.path.join do?", "How do I read a file line by line?", "What is a list comprehension?")
JSON = Grammar("json_object")
CASES = [
    (question, sampling, grammar) for question in QUESTIONS for sampling in (GREEDY, SEEDED) for grammar in (None, JSON)
]


@pytest.fixture(scope="module")
def engine() -> Iterator[LoadedEngine]:
    opened = LoadedEngine(load_registry()["demo"], Options(threads=1, slots=5))
    yield opened
    opened.close()


def test_the_demo_shares_passes_exactly(engine: LoadedEngine) -> None:
    assert engine.facts.shares_passes
    assert engine.facts.exactness.together
    assert isinstance(engine._loaded.backend, SharedBackend)
    assert engine.core.scheduler._sharing


@pytest.mark.parametrize("most", [2, 5])
def test_replies_in_company_say_what_each_says_alone(engine: LoadedEngine, most: int) -> None:
    """Greedy, with a seed, in a form; some are given up on the way."""
    whole = alone(engine, CASES, 40)
    together = concurrently(engine, CASES, 40, most, seed=most)
    assert len(together) == len(CASES)
    assert not n_different(together, whole)
    assert sum(told.is_whole for told in together.values()) > len(CASES) // 2


@pytest.mark.parametrize("drafters", [("model",), ("ngram",), ("suffix",), ()])
def test_whatever_drafts_for_them(drafters: tuple[str, ...]) -> None:
    """As many tokens as may be, so that most are wrong."""
    opened = LoadedEngine(load_registry()["demo"], Options(threads=1, slots=4, drafters=drafters, fixed_k=3))
    whole = alone(opened, CASES[::2], 30)
    assert not n_different(concurrently(opened, CASES[::2], 30, 3, seed=1), whole)
    opened.close()


def test_more_replies_than_conversations_are_held() -> None:
    opened = LoadedEngine(load_registry()["demo"], Options(threads=1, slots=2, drafters=("ngram",)))
    whole = alone(opened, CASES[::3], 30)
    assert not n_different(concurrently(opened, CASES[::3], 30, 4, seed=1), whole)
    opened.close()


def begun(engine: LoadedEngine, cases: Sequence[Case], most: int, least: int = 1) -> tuple[Concurrent, list[Collected]]:
    together = Concurrent(engine)
    told = [together.add(case, most) for case in cases]
    together.until(lambda: all(len(each.tokens) >= least or each.is_over for each in told))
    return together, told


def counted(monkeypatch: pytest.MonkeyPatch, backend: SharedBackend) -> list[int]:
    """Rows of each pass from now on."""
    rows, forward = list[int](), backend._decode
    monkeypatch.setattr(backend, "_decode", lambda batch: rows.append(batch.n_tokens) or forward(batch))  # type: ignore[func-returns-value]
    return rows


def test_replies_that_wait_have_rows_of_one_pass(engine: LoadedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    together, told = begun(engine, [(question, GREEDY, None) for question in QUESTIONS], 30)
    assert isinstance(engine._loaded.backend, SharedBackend)
    rows, before = counted(monkeypatch, engine._loaded.backend), [len(each.tokens) for each in told]
    for _ in range(4):
        together.step()
    assert all(len(each.tokens) >= n + 4 or each.is_over for each, n in zip(told, before, strict=True))
    assert len(rows) <= 5
    together.leave_all()


def test_cores_are_watched_until_the_last_reply_has_ended(
    engine: LoadedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, noted = engine.decoder.controller.passes.threads, list[str]()
    assert threads is not None
    for name in ("pause", "resume"):
        monkeypatch.setattr(threads, name, partial(noted.append, name))
    together, (first, second) = begun(engine, [(QUESTIONS[0], GREEDY, None), (QUESTIONS[1], SEEDED, None)], 3)
    together.leave(first)
    assert set(noted) == {"resume"}
    together.until(lambda: second.is_over)
    assert (noted.count("pause"), noted[-1]) == (1, "pause")


def test_a_draft_model_drafts_for_all_in_its_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = LoadedEngine(load_registry()["demo"], Options(threads=1, slots=4, drafters=("model",), fixed_k=3))
    together, _ = begun(opened, [(question, GREEDY, None) for question in QUESTIONS], 60)
    assert opened._loaded.draft is not None
    drafting = opened._loaded.draft.backend
    assert isinstance(drafting, SharedBackend)
    rows = counted(monkeypatch, drafting)
    n_drafted = 0
    for _ in range(3):
        for _, came in opened.step():
            n_drafted += came.made.n_drafted if isinstance(came, Chunk) and came.made else 0
    assert n_drafted >= 18
    assert len(rows) <= 12  # three a step, and what each lacked of what was said before
    together.leave_all()
    opened.close()


def test_a_reply_that_breaks_leaves_the_others_alone(engine: LoadedEngine) -> None:
    """A form that demands what is forbidden is its own reply's error."""
    with_b = [token for token in range(engine.vocab.n_vocab) if b"b" in engine.token_bytes(token)]
    impossible = Sampling(temperature=0.0, logit_bias=tuple((token, -math.inf) for token in with_b))
    cases = [(QUESTIONS[0], GREEDY, None), (QUESTIONS[1], impossible, Grammar("regex", "(ac){3}b"))]
    whole = alone(engine, cases[:1], 20)[0]
    together = Concurrent(engine)
    good, bad = (together.add(case, 20) for case in cases)
    together.until(lambda: good.is_over and bad.is_over)
    assert isinstance(bad.error, SettingsError)
    assert good.tokens == whole


def test_a_long_prompt_is_read_while_others_speak(engine: LoadedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """In pieces, each in a pass that has their tokens too; the text is the same."""
    monkeypatch.setattr(engine.decoder.controller.passes.joint, "n_readable", lambda *_: 64)  # whatever it costs here
    speaker, long = (QUESTIONS[0], GREEDY, None), (" ".join(QUESTIONS) * 12, GREEDY, None)
    together, (first,) = begun(engine, [speaker], 60, least=4)  # well under way, or a prompt is read whole
    n_before, second = len(first.tokens), together.add(long, 30)
    together.until(lambda: second.tokens)
    assert second.n_pieces > 3 < len(first.tokens) - n_before
    together.until(lambda: first.is_over and second.is_over)
    assert [first.tokens, second.tokens] == [*alone(engine, [speaker], 60), *alone(engine, [long], 30)]


def test_where_rows_disturb_each_other_only_those_share_passes_that_may(
    engine: LoadedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those whose text can be predicted have passes of their own."""
    assert engine.decoder.target.shared is not None
    monkeypatch.setattr(engine.decoder.target, "shared", engine.decoder.target.shared._replace(exact_rows=1))
    free = Sampling(temperature=0.8)
    together, told = begun(engine, [(QUESTIONS[0], sampling, None) for sampling in (GREEDY, SEEDED, free, free)], 200)
    before = [len(each.tokens) for each in told]
    for _ in range(3):
        together.step()
    assert all(len(each.tokens) > n for each, n in zip(told, before, strict=True))
    together.leave_all()


def test_the_messages_of_a_conversation_are_those_of_one(engine: LoadedEngine) -> None:
    """A second turn beside another reply finds its first one."""
    first = [Message("user", QUESTIONS[0])]
    text = "".join(chunk.text for chunk in engine.reply(first, GREEDY, 20))
    together, _ = begun(engine, [(QUESTIONS[1], GREEDY, None)], 30)
    turn = [*first, Message("assistant", text), Message("user", QUESTIONS[2])]
    chunks = list(engine.reply(turn, GREEDY, 5))
    assert chunks[-1].stats is not None
    assert chunks[-1].stats.cached_n > 20
    together.leave_all()


def test_in_company_too_steps_are_made_without_asking_anybody(
    engine: LoadedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reply has such steps of its own, and says what it says alone."""
    cases = [(question, sampling, None) for question in QUESTIONS for sampling in (GREEDY, SEEDED)]
    whole, asked = alone(engine, cases, 40), list[str]()
    controller = engine.decoder.controller
    monkeypatch.setattr(
        controller,
        "choose",
        lambda terms, name, can_score=True: asked.append(name) or Choice(Decision.SKIP),  # type: ignore[func-returns-value]
    )

    def n_asked(n_idle: int) -> int:
        """Questions to drafters where so many steps after each may be made without."""
        asked.clear()
        monkeypatch.setattr(controller, "n_idle", lambda terms: n_idle)
        with tuned({"unusual_pass": math.inf}):
            assert not n_different(concurrently(engine, cases, 40, most=3, seed=1), whole)
        return len(asked)

    assert n_asked(5) < 0.4 * n_asked(0)
