"""Replies that come, are read quickly or slowly, cancelled, left and broken off by crashes and failing passes, in any
order: each says what it says alone, ends for the right reason, and leaves nothing behind.

`SLIPSTREAM_LONG_TESTS=1` tries far more orders.
"""

from __future__ import annotations

import math
import os
import sys
from contextlib import ExitStack

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from runtime.core.errors import BusyError
from runtime.core.limits import UNLIMITED, Limits
from runtime.sampling.settings import Sampling
from tests.support.alone import Request, Said, alone, told
from tests.support.read_reply import Reply
from tests.support.scheduling import Scheduling, scheduling
from tests.support.toy_engine import N_CTX, N_SEATS, PIECES, Setup
from tests.support.toy_library import N_VOCAB

IS_LONG = "SLIPSTREAM_LONG_TESTS" in os.environ
MOST_REPLIES = N_SEATS + 2  # at once: more than can be held, where all passes round alike
MOST_CRASHES = 2  # of which none is taken for the fault of a reply
# Reads of a reply that bring nothing, while others have what was made ahead for them; while it may not run yet
MOST_WAITED, MOST_WAITED_IN_LINE = 16 * MOST_REPLIES, 2 * N_CTX * MOST_REPLIES
MOST_READS = 400  # to the end of any reply

GREEDY = Sampling(temperature=0.0, seed=0)
tokens = st.integers(1, N_VOCAB - 1)
setups = st.builds(
    Setup,
    st.sampled_from(["shared", "shared", "turns", "trees"]),
    st.sampled_from([("model",), ("model", "ngram"), ("ngram",), ()]),
    st.sampled_from([4, None, 1]),
    st.sampled_from([sys.maxsize, 4]),
    st.sampled_from([UNLIMITED, UNLIMITED, Limits(1, 1), Limits(2, 1), Limits(1, 3), Limits(1, 0)]),
    st.sampled_from([N_SEATS, N_SEATS, N_SEATS, 1]),
)
samplings = st.one_of(
    st.just(GREEDY),
    st.just(Sampling(temperature=0.0)),  # up to rounding
    st.builds(lambda seed: Sampling(temperature=1.0, seed=seed), st.integers(0, 3)),
    st.just(Sampling(temperature=1.0)),
)
stops = st.lists(st.text("abcdefg", min_size=1, max_size=2), max_size=2).map(tuple)
limits = st.one_of(st.integers(0, 40), st.none())
passes = st.integers(1, 8)
numbers = st.integers(0, MOST_REPLIES)
mishaps = st.sampled_from(["cancel in a pass", "cancel", "fail in a pass", "crash in a pass", "crash", "leave"])


class Scheduler(RuleBasedStateMachine):
    """Some replies, and what is known of each."""

    scheduling: Scheduling

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()

    @initialize(setup=setups, n_ahead=st.sampled_from([None, None, 3, math.inf]))
    def load(self, setup: Setup, n_ahead: float | None) -> None:
        self.scheduling, self.setup = self.stack.enter_context(scheduling(setup, n_ahead)), setup
        self.most_replies = MOST_REPLIES if setup.exact_rows == sys.maxsize else N_SEATS
        self.expected = dict[Reply, Said]()
        self.texts: list[list[int]] = [[1, 2, 3] * 8]  # that prompts may begin with
        self.n_crashes = self.n_errors = 0
        self.has_short = False

    @property
    def replies(self) -> list[Reply]:
        return self.scheduling.replies

    def has_replies(self) -> bool:
        return bool(self.replies)

    @precondition(lambda self: len(self.replies) < self.most_replies)
    @rule(
        text=st.integers(0, 9),
        n_shared=st.integers(0, N_CTX),
        more=st.lists(tokens, min_size=1, max_size=60),
        sampling=samplings,
        max_tokens=limits,
        stops=stops,
        is_short=st.booleans(),
        lora=st.sampled_from([None, None, ((0, 0.1),), ((0, 0.2),)]),
    )
    def add(
        self,
        text: int,
        n_shared: int,
        more: list[int],
        sampling: Sampling,
        max_tokens: int | None,
        stops: tuple[str, ...],
        is_short: bool = False,
        lora: tuple[tuple[int, float], ...] | None = None,
    ) -> None:
        prompt = [*self.texts[text % len(self.texts)][:n_shared], *more]
        prompt = prompt[: N_CTX - 1]
        request = Request(tuple(prompt), sampling, max_tokens, stops, is_short, lora)
        self.has_short |= is_short
        reply = self.scheduling.add(request)
        if request.is_predictable and (sampling.seed is not None or self.setup.exact_rows == sys.maxsize):
            self.expected[reply] = alone(request)
        self.texts.append(prompt)

    @precondition(has_replies)
    @rule(number=numbers, n=st.integers(1, 12))
    def read(self, number: int, n: int) -> None:
        """One reader is quick, the others are slow."""
        reply = self.replies[number % len(self.replies)]
        for _ in range(n):
            self.read_once(reply)

    @precondition(has_replies)
    @rule(n=st.integers(1, 10), slow=st.integers(0, 2 * MOST_REPLIES))
    def read_in_turns(self, n: int, slow: int) -> None:
        """All are read but for one, perhaps."""
        readers = [reply for i, reply in enumerate(self.replies) if i != slow]
        for _ in range(n):
            for reply in readers:
                self.read_once(reply)

    @precondition(has_replies)
    @rule(what=mishaps, number=numbers, n=passes)
    def mishap(self, what: str, number: int, n: int) -> None:
        """Something happens now, or in one of the passes that are made for that reply."""
        reply, scheduling = self.replies[number % len(self.replies)], self.scheduling
        self.n_crashes += what.startswith("crash")
        if what.startswith("crash") and self.n_crashes > MOST_CRASHES:
            return
        if what == "cancel":
            reply.is_cancelled = True
        elif what == "leave":
            scheduling.leave(reply)
            return
        elif what == "crash":
            scheduling.crash()
        else:
            {
                "cancel in a pass": lambda: scheduling.cancel_in_pass(reply, n),
                "crash in a pass": lambda: scheduling.crash_in_pass(n),
                "fail in a pass": lambda: scheduling.fail_in_pass(n),
            }[what]()
        for _ in range(n):
            self.read_once(reply)

    @precondition(has_replies)
    @rule()
    def read_to_the_end(self) -> None:
        for _ in range(MOST_READS):
            for reply in list(self.replies):
                self.read_once(reply)
        assert not self.replies

    def read_once(self, reply: Reply) -> None:
        if reply.is_over:
            return
        self.scheduling.read(reply)
        in_turns = self.setup.kind != "shared" or self.setup.n_slots == 1
        may_run = reply.has_begun and not (in_turns and self.has_short) and self.setup.n_slots > 1
        assert reply.n_waited <= (MOST_WAITED if may_run else MOST_WAITED_IN_LINE), "it starves"
        assert reply.n_unwanted <= self.scheduling.most_unwanted, "it goes on although it was cancelled"
        self.check(reply)

    def check(self, reply: Reply) -> None:
        """What was said is what is said alone, as far as it came; one without a seed ends where its tokens say so."""
        said, request, expected = reply.said, reply.request, self.expected.get(reply)
        assert letters(said.tokens).startswith(said.text)
        if expected is not None:
            assert said.tokens == expected.tokens[: len(said.tokens)]
        if isinstance(reply.error, BusyError):
            assert not said.tokens
            assert self.setup.limits != UNLIMITED
        elif reply.error is not None:
            self.n_errors += 1
        elif said.reason == "cancelled":
            assert reply.is_cancelled
        elif reply.is_over:
            assert said == (expected or told(request, lambda so_far: said.tokens[len(so_far)]))
            self.texts.append([*request.prompt, *said.tokens])

    @invariant()
    def the_cache_is_as_the_books_say(self) -> None:
        self.scheduling.check_cache()

    @invariant()
    def no_more_run_than_may(self) -> None:
        self.scheduling.check_limits()

    @invariant()
    def nobody_waits_for_others_for_longer_than_may_be(self) -> None:
        assert self.scheduling.fairness.wrongs == []

    @invariant()
    def nothing_is_kept_of_replies_that_have_ended(self) -> None:
        assert self.replies or self.scheduling.left_over() == []

    @invariant()
    def only_passes_that_fail_are_errors(self) -> None:
        assert self.n_errors <= self.scheduling.n_failed

    def teardown(self) -> None:
        if not hasattr(self, "scheduling"):
            return
        with self.stack:
            self.read_to_the_end()
            self.add(0, 0, [1, 2, 3, 4] * (N_CTX // 4 - 1), GREEDY, None, ())  # needs all cells
            self.read_to_the_end()


def letters(said: list[int]) -> str:
    return "".join(PIECES[token].decode() for token in said)


TestScheduling = Scheduler.TestCase
TestScheduling.settings = settings(
    max_examples=3000 if IS_LONG else 25,
    stateful_step_count=60 if IS_LONG else 40,
    deadline=None,
    derandomize=not IS_LONG,
    database=None,
    report_multiple_bugs=False,
    phases=(Phase.generate, Phase.shrink) if IS_LONG else (Phase.generate,),  # shrinking takes minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
