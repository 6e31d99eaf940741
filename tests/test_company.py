"""Replies that share passes: which do, what a pass is worth to each, and that each says what it says alone."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import pytest

from bench.instruments.company import alone, begun, in_company, n_different
from runtime.backends.shared import SharedBackend
from runtime.core.draft import Draft, Logits, Tokens
from runtime.core.errors import SettingsError
from runtime.engine import Chunk, Grammar, Message, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import load_registry
from runtime.sampling.sampler import Sampler
from runtime.speculative.company import MOST_READ, Company
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.costs import PassCosts
from runtime.speculative.control.decision import Decision
from runtime.speculative.control.joint_passes import BLURRED, NARROWEST, STALL
from runtime.speculative.step import Due, RequestState

GREEDY, SEEDED = Sampling(temperature=0.0), Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=5)
QUESTIONS = ("What does os.path.join do?", "How do I read a file line by line?", "What is a list comprehension?")
JSON = Grammar("json_object")
CASES = [
    (question, sampling, grammar) for question in QUESTIONS for sampling in (GREEDY, SEEDED) for grammar in (None, JSON)
]


class Passes:
    """What Company asks of a backend."""

    def __init__(self, n_cells: int = 100, slots: int = 4) -> None:
        self.n_cells, self.slots, self.n_seats, self.held = n_cells, slots, slots, 0

    def fits(self, lengths: Iterable[int]) -> bool:
        return sum(lengths) <= self.n_cells

    def n_cached(self, context: Tokens) -> int:
        return min(self.held, len(context) - 1)

    def forward_all(self, asked: Sequence[tuple[Tokens, Draft]]) -> list[Logits]:
        raise AssertionError


def reply(n: int, *, exact_only: bool = False, unread: Tokens | None = None) -> RequestState:
    """One whose next step has a context of `n` tokens; 0: its prompt is being read."""
    due = Due(np.zeros(n, dtype=np.int32), Sampler(GREEDY), 0, 9) if n else None
    return RequestState(exact_only=exact_only, due=lambda: due, unread=lambda: unread)


def company(*replies: RequestState, exact_rows: int = sys.maxsize, **passes: int) -> Company:
    controller = Controller(costs(1.0, 1.2, 1.4, 1.6, 1.8), {}, max_k=2)
    made = Company(Passes(**passes), exact_rows, controller.passes)  # type: ignore[arg-type]
    for each in replies:
        made.join(each)
    return made


def waiting(
    company: Company, request: RequestState, n_worth: int = 99, n_rows: int = 1, n_read: int = 0
) -> list[RequestState]:
    return [other for other, _ in company.waiting(request, 10, n_rows, n_read, lambda n: min(n, n_worth))]


def test_those_that_wait_for_their_next_step_share_a_pass() -> None:
    first, second, third, reading, served = reply(10), reply(10), reply(10), reply(0), reply(10)
    served.made = SettingsError("")
    together = company(first, second, third, reading, served)
    assert waiting(together, first) == [second, third]
    assert waiting(together, first, n_worth=2) == [second]
    assert waiting(together, first, n_worth=1) == []
    together.leave(second)
    assert waiting(together, first) == [third]
    assert waiting(company(first), first) == []
    assert waiting(company(first, second, slots=1), first) == []


def test_only_as_many_as_fit_and_do_not_disturb_each_other_share_one() -> None:
    first, second, third = (reply(40, exact_only=number == 1) for number in range(3))
    assert waiting(company(first, second, third), first) == [second, third]
    assert waiting(company(first, second, third, n_cells=60), first) == [second]
    assert waiting(company(first, second, third, exact_rows=2), second) == [first]
    assert waiting(company(first, second, third, exact_rows=1), first) == [third]  # neither can be predicted
    assert waiting(company(first, second, exact_rows=13), first, n_rows=13) == []  # a prompt is wider


def test_the_draft_tokens_of_a_pass_are_divided() -> None:
    first, second = (reply(10, exact_only=True) for _ in range(2))
    members = [(each, each.due()) for each in (first, second)]
    assert company(exact_rows=8).room(members, 12) == 6  # type: ignore[arg-type]
    assert company(exact_rows=1).room(members, 12) == 0  # type: ignore[arg-type]
    assert company().room(members, 12) == 12  # type: ignore[arg-type]


def test_what_reads_prompts_has_no_rows_beside_a_reply_for_which_width_counts() -> None:
    first, second = reply(10, exact_only=True), reply(10)
    together = company(first, second, exact_rows=8)
    assert waiting(together, first) == [second]
    assert waiting(together, first, n_read=1) == waiting(together, second, n_read=1) == []
    late = second.due()._replace(n_unread=2)  # type: ignore[union-attr]
    second.due = lambda: late
    assert waiting(together, first) == []
    assert waiting(company(first, second), first, n_read=1) == [second]


def test_other_prompts_are_read_with_one_as_far_as_there_is_room() -> None:
    first, second, third = (reply(0, unread=np.zeros(n, dtype=np.int32)) for n in (9, 20, 30))
    together = company(first, second, third)
    n_rows = MOST_READ - 25
    assert [len(each) for each in together.others_reading(first, 9, [], n_rows)] == [20, 5]
    together = company(third, second, first)
    assert [len(each) for each in together.others_reading(first, 9, [], n_rows)] == [20, 5]  # the shorter one first
    assert together.others_reading(first, 9, [], MOST_READ) == []
    assert company(first, second, exact_rows=13).others_reading(first, 9, [], n_rows) == []
    assert company(first, second, slots=1).others_reading(first, 9, [], n_rows) == []


def costs(*seconds: float) -> PassCosts:
    found = PassCosts()
    for width, each in enumerate(seconds, start=1):
        found.set(width, each)
    return found


def test_a_reply_pays_its_part_of_a_plain_pass_and_all_of_its_draft() -> None:
    controller = Controller(costs(1.0, 1.2, 1.4, 1.6, 1.8), {}, max_k=2)
    controller.begin(0, n_together=2)
    assert [controller.passes.shares[k] for k in range(3)] == pytest.approx([0.6, 0.8, 1.0])
    assert controller.passes.joint.worth(2, [0.6, 0.8, 1.0]) == pytest.approx([0.6, 0.9, 1.2])  # the other waits, too
    assert controller.plain_rate == pytest.approx(1 / 0.6)
    assert controller.plain_alone == pytest.approx(1.0)
    controller.begin(0)
    assert controller.passes.shares[0] == pytest.approx(1.0)


def test_what_drafts_add_to_shared_passes_is_learned_from_few_of_them() -> None:
    controller = Controller(costs(1.0, 1.2, 1.4, 1.6, 1.8), {}, max_k=2)
    controller.begin(0, n_together=2)
    for _ in range(50):
        controller.passes.learn((), 2, 0, 2.4)  # twice what was believed, and so all others
    controller.begin(0, n_together=2)
    assert controller.passes.shares[2] - controller.passes.shares[0] < 0.8
    for _ in range(4):
        controller.passes.learn((), 4, 0, 6.0)
    controller.begin(0, n_together=2)
    assert controller.passes.shares[0] == pytest.approx(1.2, rel=0.02)
    assert controller.passes.shares[2] - controller.passes.shares[0] > 2.4  # of 3.6


def test_drafters_are_valued_anew_where_clearly_more_or_fewer_share_a_pass() -> None:
    controller = Controller(costs(*(1.0 + 0.2 * width for width in range(12))), {"model": 0.1}, max_k=4)
    state = controller.states["model"]

    def is_anew(n_together: int) -> bool:
        before = state.policy
        controller.begin(0, n_together=n_together)
        return state.policy is not before

    assert [is_anew(n) for n in (6, 5, 6, 7, 3, 3, 1)] == [True, False, False, False, True, False, True]


def test_replies_share_passes_unless_drafts_for_one_alone_bring_more() -> None:
    controller = Controller(costs(1.0, 1.5, 2.0, 2.5), {}, max_k=2)
    controller.begin(0)
    assert controller.n_worth(4) == 4
    controller.passes.joint.gains[1] = 1.7  # four share a pass of 2.5: 1.6 times
    chosen = [controller.n_worth(4) for _ in range(64)]
    assert set(chosen) == {1, 4}
    assert chosen.count(4) == 2  # a look now and then
    controller.passes.joint.gains[4] = 1.2
    assert controller.n_worth(4) == 4


def test_rows_that_cost_like_passes_are_no_reason_to_take_turns() -> None:
    controller = Controller(costs(1.0, 2.5, 4.0, 5.5), {}, max_k=2)
    controller.begin(0)
    assert controller.n_worth(3) == 3


def test_prompts_are_read_in_pieces_that_others_can_wait_for() -> None:
    controller = Controller(costs(1.0, 1.5), {}, max_k=2)
    controller.begin(0)
    controller.passes.joint.learn_read(10, 0.2)  # a row takes a fiftieth
    assert controller.passes.joint.n_readable(2, 0, 384) == int((STALL - 1) * 1.5 / 0.02)
    assert controller.passes.joint.n_readable(2, 0, 40) == 40
    for _ in range(99):
        controller.passes.joint.learn_read(1, 1.0)
    assert controller.passes.joint.n_readable(2, 0, 384) == NARROWEST
    assert controller.passes.joint.n_readable(2, 0, 3) == 3


def test_how_much_is_read_beside_replies_follows_what_their_passes_take() -> None:
    controller = Controller(costs(1.0, 1.5), {}, max_k=2)
    controller.begin(0)
    joint = controller.passes.joint
    joint.learn_read(10, 0.2)
    for _ in range(9):
        joint.learn([0, 0], 0, 0, 3.0)  # twice what was believed, as where many cells are looked at
    assert joint.n_readable(2, 0, 384) == pytest.approx((STALL - 1) * 3.0 / 0.02, rel=0.1)
    before = joint.n_readable(2, 0, 384)
    joint.learn([2, 2], 0, 30, 5.6)  # drafts make it longer, and no row of the prompt dearer
    assert joint.n_readable(2, 0, 999) == pytest.approx((STALL - 1) * 5.0 / 0.02, rel=0.01)
    joint.learn([0, 0], 0, 30, 3.6)
    assert joint.n_readable(2, 0, 384) == pytest.approx(before, rel=0.1)


def test_after_many_passes_that_did_both_it_is_not_known_what_each_takes() -> None:
    joint = Controller(costs(1.0, 1.5), {}, max_k=2).passes.joint
    assert joint.is_blurred
    joint.learn_read(10, 0.2)
    assert not joint.is_blurred
    for _ in range(BLURRED):
        assert not joint.is_blurred
        joint.learn([0, 0], 0, 10, 1.7)
    assert joint.is_blurred


@pytest.fixture(scope="module")
def engine() -> Iterator[LoadedEngine]:
    opened = LoadedEngine(load_registry()["demo"], Options(threads=1, slots=5))
    yield opened
    opened.close()


def test_the_demo_shares_passes_exactly(engine: LoadedEngine) -> None:
    assert engine.facts.shares_passes
    assert engine.facts.exactness.together
    assert isinstance(engine._loaded.backend, SharedBackend)
    assert engine.turn_seconds == 0


@pytest.mark.parametrize("most", [2, 5])
def test_replies_in_company_say_what_each_says_alone(engine: LoadedEngine, most: int) -> None:
    """Greedy, with a seed, in a form; some are given up on the way."""
    whole = alone(engine, CASES, 40)
    together = in_company(engine, CASES, 40, most, seed=most)
    assert len(together) == len(CASES)
    assert not n_different(together, whole)
    assert sum(told.is_whole for told in together.values()) > len(CASES) // 2


@pytest.mark.parametrize("drafters", [("model",), ("ngram",), ("suffix",), ()])
def test_whatever_drafts_for_them(drafters: tuple[str, ...]) -> None:
    """As many tokens as may be, so that most are wrong."""
    opened = LoadedEngine(load_registry()["demo"], Options(threads=1, slots=4, drafters=drafters, fixed_k=3))
    whole = alone(opened, CASES[::2], 30)
    assert not n_different(in_company(opened, CASES[::2], 30, 3, seed=1), whole)
    opened.close()


def test_more_replies_than_conversations_are_held() -> None:
    opened = LoadedEngine(load_registry()["demo"], Options(threads=1, slots=2, drafters=("ngram",)))
    whole = alone(opened, CASES[::3], 30)
    assert not n_different(in_company(opened, CASES[::3], 30, 4, seed=1), whole)
    opened.close()


def begin_to_speak(reply: Iterator[Chunk]) -> None:
    while not next(reply).tokens:
        pass


def test_replies_that_wait_have_rows_of_one_pass(engine: LoadedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.loop.controller, "n_worth", lambda n: n)  # whatever one alone would bring
    cases = [(question, GREEDY, None) for question in QUESTIONS]
    replies = [begun(engine, case, 30) for case in cases]
    for each in replies:
        begin_to_speak(each)
    target = engine._loaded.backend
    counted, forward = [0], target._decode

    def decode(batch: object) -> None:
        counted[0] += 1
        forward(batch)

    target._decode = decode  # type: ignore[method-assign]
    n_tokens = sum(len(next(each).tokens) for _ in range(4) for each in replies)
    del target._decode
    assert n_tokens >= 12
    assert counted[0] <= 5


def test_cores_are_watched_until_the_last_reply_has_ended(
    engine: LoadedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, told = engine.loop.controller.passes.threads, list[str]()
    assert threads is not None
    for name in ("pause", "resume"):
        monkeypatch.setattr(threads, name, partial(told.append, name))
    first, second = (begun(engine, (question, GREEDY, None), 3) for question in QUESTIONS[:2])
    begin_to_speak(first)
    begin_to_speak(second)
    list(first)
    assert set(told) == {"resume"}
    list(second)
    assert (told.count("pause"), told[-1]) == (1, "pause")


def test_a_draft_model_drafts_for_all_in_its_passes() -> None:
    opened = LoadedEngine(load_registry()["demo"], Options(threads=1, slots=4, drafters=("model",), fixed_k=3))
    replies = [begun(opened, (question, GREEDY, None), 60) for question in QUESTIONS]
    for each in replies:
        begin_to_speak(each)
    assert opened._loaded.draft is not None
    drafting = opened._loaded.draft.backend
    assert isinstance(drafting, SharedBackend)
    counted, forward = list[int](), drafting._decode
    opened.loop.controller.n_worth = lambda n: n  # type: ignore[method-assign]  # whatever one alone would bring
    drafting._decode = lambda batch: counted.append(batch.n_tokens) or forward(batch)  # type: ignore[method-assign, func-returns-value]
    n_drafted = 0
    for _ in range(3):
        for each in replies:
            chunk = next(each)
            n_drafted += chunk.made.n_drafted if chunk.made else 0
    assert n_drafted >= 18
    assert len(counted) <= 12  # three a round, and what each lacked of what was said before
    opened.close()


def test_a_reply_that_breaks_leaves_the_others_alone(engine: LoadedEngine) -> None:
    """A form that demands what is forbidden is its own reply's error."""
    with_b = [token for token in range(engine.vocab.n_vocab) if b"b" in engine.token_bytes(token)]
    impossible = Sampling(temperature=0.0, logit_bias=tuple((token, -math.inf) for token in with_b))
    cases = [(QUESTIONS[0], GREEDY, None), (QUESTIONS[1], impossible, Grammar("regex", "(ac){3}b"))]
    whole = alone(engine, cases[:1], 20)[0]
    good, bad = (begun(engine, case, 20) for case in cases)
    said, errors = list[int](), list[Exception]()
    for _ in range(60):
        said += next(good, None).tokens if not said or len(said) < len(whole) else ()  # type: ignore[union-attr]
        try:
            next(bad, None)
        except SettingsError as error:
            errors.append(error)
    assert errors
    assert said == whole


def test_a_long_prompt_is_read_while_others_speak(engine: LoadedEngine) -> None:
    """In pieces, each in a pass that has their tokens too; the text is the same."""
    speaker, long = (QUESTIONS[0], GREEDY, None), (" ".join(QUESTIONS) * 12, GREEDY, None)
    first = begun(engine, speaker, 30)
    said = list[int]()
    while not said:
        said += next(first).tokens
    second, pieces, meanwhile = begun(engine, long, 30), 0, 0
    answer = list[int]()
    while chunk := next(second, None):
        answer += chunk.tokens
        pieces += not chunk.tokens
        spoken = next(first, None)
        said += spoken.tokens if spoken else ()
        meanwhile += len(spoken.tokens) if spoken and not answer else 0
    said += [token for chunk in first for token in chunk.tokens]
    assert [said, answer] == alone(engine, [speaker, long], 30)
    assert pieces > 3
    assert meanwhile > 0


def test_now_and_then_a_long_prompt_is_read_without_others_tokens(
    engine: LoadedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then their tokens have a pass of their own."""
    company, read = engine.loop.company, list[int]()
    assert company is not None
    learn_read = company.learn_read
    monkeypatch.setattr(company, "learn_read", lambda n, took: read.append(n) or learn_read(n, took))  # type: ignore[func-returns-value]
    monkeypatch.setattr(engine.loop.controller.passes.joint, "_n_mixed", BLURRED)
    first = begun(engine, (QUESTIONS[0], GREEDY, None), 60)
    begin_to_speak(first)
    next(first)
    read.clear()
    second = begun(engine, (" ".join(QUESTIONS[::-1]) * 12, GREEDY, None), 5)
    pieces, meanwhile = 0, 0
    while not next(second).tokens:
        pieces += 1
        spoken = next(first, None)
        meanwhile += len(spoken.tokens) if spoken else 0
    assert 0 < len(read) < pieces
    assert meanwhile > 0
    for each in (first, second):
        each.close()  # type: ignore[attr-defined]


def test_where_rows_disturb_each_other_only_those_share_passes_that_may(
    engine: LoadedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those whose text can be predicted have passes of their own."""
    assert engine.loop.company is not None
    monkeypatch.setattr(engine.loop.company, "exact_rows", 1)
    monkeypatch.setattr(engine.loop.controller, "n_worth", lambda n: n)  # whatever passes cost here and now
    free = Sampling(temperature=0.8)
    replies = [begun(engine, (QUESTIONS[0], sampling, None), 200) for sampling in (GREEDY, SEEDED, free, free)]
    for each in replies:
        begin_to_speak(each)
    shared = list[int]()
    forward = engine.loop.company.forward
    monkeypatch.setattr(
        engine.loop.company,
        "forward",
        lambda asked: shared.append(len(asked)) or forward(asked),  # type: ignore[func-returns-value]
    )
    for _ in range(3):
        for each in replies:
            next(each, None)
    assert set(shared) == {2}
    for each in replies:
        each.close()  # type: ignore[attr-defined]


def test_the_messages_of_a_conversation_are_those_of_one(engine: LoadedEngine) -> None:
    """A second turn beside another reply finds its first one."""
    first = [Message("user", QUESTIONS[0])]
    text = "".join(chunk.text for chunk in engine.reply(first, GREEDY, 20))
    begin_to_speak(begun(engine, (QUESTIONS[1], GREEDY, None), 30))
    turn = [*first, Message("assistant", text), Message("user", QUESTIONS[2])]
    chunks = list(engine.reply(turn, GREEDY, 5, pauses=True))
    assert chunks[-1].stats is not None
    assert chunks[-1].stats.cached_n > 20


def test_in_company_too_steps_are_made_without_asking_anybody(
    engine: LoadedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reply has such steps of its own, and says what it says alone."""
    cases = [(question, sampling, None) for question in QUESTIONS for sampling in (GREEDY, SEEDED)]
    whole, asked = alone(engine, cases, 40), list[str]()
    controller = engine.loop.controller
    monkeypatch.setattr(controller, "n_worth", lambda n: n)  # whatever passes cost here and now
    monkeypatch.setattr(controller, "is_usual", lambda seconds: True)
    monkeypatch.setattr(controller, "decide", lambda name: asked.append(name) or Decision.SKIP)  # type: ignore[func-returns-value]

    def n_asked(n_idle: int) -> int:
        """Questions to drafters where so many steps after each may be made without."""
        asked.clear()
        monkeypatch.setattr(controller, "n_idle", lambda names: n_idle)
        assert not n_different(in_company(engine, cases, 40, most=3, seed=1), whole)
        return len(asked)

    assert n_asked(5) < 0.4 * n_asked(0)
