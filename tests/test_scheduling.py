"""Replies that come, are read quickly or slowly, cancelled, left and broken off by crashes and failing passes, in any
order: each says what it says alone, ends for the right reason, and leaves nothing behind.

`SLIPSTREAM_LONG_TESTS=1` tries far more orders.
"""

from __future__ import annotations

import math
import os
import sys

from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from runtime.sampling.sampler import Sampling
from tests.support.scheduling import Reply, Request, Said, Scheduling, alone, told
from tests.support.toy_engine import N_CTX, N_SEATS, PIECES, Setup
from tests.support.toy_library import N_VOCAB

IS_LONG = "SLIPSTREAM_LONG_TESTS" in os.environ
MOST_REPLIES = N_SEATS + 2  # at once: more than can be held
MOST_CRASHES = 2  # of which none is taken for the fault of a reply
MOST_WAITED = 12  # reads of a reply that bring nothing, however many others there are
MOST_READS = 200  # to the end of any reply

tokens = st.integers(1, N_VOCAB - 1)
setups = st.builds(
    Setup,
    st.sampled_from(["shared", "shared", "turns", "trees"]),
    st.sampled_from([(), ("ngram",), ("model",), ("model", "ngram")]),
    st.sampled_from([None, 1, 4]),
    st.sampled_from([sys.maxsize, sys.maxsize, 4]),
)
samplings = st.one_of(
    st.just(Sampling(temperature=0.0)),
    st.builds(lambda seed: Sampling(temperature=1.0, seed=seed), st.integers(0, 3)),
    st.just(Sampling(temperature=1.0)),
)
stops = st.lists(st.text("abcdefg", min_size=1, max_size=2), max_size=2).map(tuple)
limits = st.one_of(st.integers(0, 40), st.none())
passes = st.integers(1, 8)


class Scheduler(RuleBasedStateMachine):
    """Some replies, and what is known of each."""

    scheduling: Scheduling

    @initialize(setup=setups, n_ahead=st.sampled_from([None, 1, 3, math.inf]))
    def load(self, setup: Setup, n_ahead: float | None) -> None:
        self.scheduling = Scheduling(setup, n_ahead)
        self.expected = dict[Reply, Said]()
        self.texts: list[list[int]] = [[1, 2, 3] * 8]  # that prompts may begin with
        self.n_crashes = self.n_errors = 0

    @property
    def replies(self) -> list[Reply]:
        return self.scheduling.replies

    def has_replies(self) -> bool:
        return bool(self.replies)

    @precondition(lambda self: len(self.replies) < MOST_REPLIES)
    @rule(
        text=st.integers(0, 9),
        n_shared=st.integers(0, N_CTX),
        more=st.lists(tokens, min_size=1, max_size=60),
        sampling=samplings,
        max_tokens=limits,
        stops=stops,
    )
    def add(
        self, text: int, n_shared: int, more: list[int], sampling: Sampling, max_tokens: int | None, stops: tuple[str]
    ) -> None:
        prompt = [*self.texts[text % len(self.texts)][:n_shared], *more]
        assume(len(prompt) < N_CTX)
        request = Request(tuple(prompt), sampling, max_tokens, stops)
        reply = self.scheduling.add(request)
        if request.is_predictable:
            self.expected[reply] = alone(request)
        self.texts.append(prompt)

    @precondition(has_replies)
    @rule(number=st.integers(0, MOST_REPLIES), n=st.integers(1, 12))
    def read(self, number: int, n: int) -> None:
        reply = self.replies[number % len(self.replies)]
        for _ in range(n):
            if not reply.is_over:
                self.read_once(reply)

    @precondition(has_replies)
    @rule(n=st.integers(1, 6), skipped=st.integers(0, 2 * MOST_REPLIES))
    def read_in_turns(self, n: int, skipped: int) -> None:
        readers = [reply for i, reply in enumerate(self.replies) if i != skipped]
        for _ in range(n):
            for reply in readers:
                if not reply.is_over:
                    self.read_once(reply)

    def read_once(self, reply: Reply) -> None:
        self.scheduling.read(reply)
        assert reply.n_waited <= MOST_WAITED, "it starves"
        self.check(reply)

    def check(self, reply: Reply) -> None:
        said, request = reply.said, reply.request
        expected = self.expected.get(reply)
        if expected is None:
            expected = told(request, lambda so_far: said.tokens[len(so_far)] if len(so_far) < len(said.tokens) else 1)
        assert said.tokens == expected.tokens[: len(said.tokens)]
        assert letters(said.tokens).startswith(said.text)
        if reply.error is not None:
            self.n_errors += 1
        elif said.reason == "cancelled":
            assert reply.is_cancelled
        elif reply.is_over:
            assert said == expected
            self.texts.append([*request.prompt, *said.tokens])

    @precondition(has_replies)
    @rule(number=st.integers(0, MOST_REPLIES))
    def cancel(self, number: int) -> None:
        self.replies[number % len(self.replies)].is_cancelled = True

    @precondition(has_replies)
    @rule(number=st.integers(0, MOST_REPLIES), n=passes)
    def cancel_in_pass(self, number: int, n: int) -> None:
        self.scheduling.cancel_in_pass(self.replies[number % len(self.replies)], n)

    @precondition(has_replies)
    @rule(number=st.integers(0, MOST_REPLIES))
    def leave(self, number: int) -> None:
        self.scheduling.leave(self.replies[number % len(self.replies)])

    @precondition(lambda self: self.n_crashes < MOST_CRASHES)
    @rule()
    def crash(self) -> None:
        self.n_crashes += 1
        self.scheduling.crash()

    @precondition(lambda self: self.n_crashes < MOST_CRASHES)
    @rule(n=passes)
    def crash_in_pass(self, n: int) -> None:
        self.n_crashes += 1
        self.scheduling.crash_in_pass(n)

    @rule(n=passes)
    def fail_in_pass(self, n: int) -> None:
        self.scheduling.fail_in_pass(n)

    @precondition(has_replies)
    @rule()
    def read_to_the_end(self) -> None:
        for reply in list(self.replies):
            for _ in range(MOST_READS):
                if not reply.is_over:
                    self.read_once(reply)
            assert reply.is_over

    @invariant()
    def the_cache_is_as_the_books_say(self) -> None:
        self.scheduling.check_cache()

    @invariant()
    def nothing_is_kept_of_replies_that_have_ended(self) -> None:
        assert self.replies or not self.scheduling.left_over()

    @invariant()
    def only_passes_that_fail_are_errors(self) -> None:
        assert self.n_errors <= self.scheduling.n_failed

    def teardown(self) -> None:
        if not hasattr(self, "scheduling"):
            return
        try:
            self.read_to_the_end()
            self.add(0, 0, [1, 2, 3, 4] * (N_CTX // 4 - 1), Sampling(temperature=0.0), None, ())  # type: ignore[arg-type]
            self.read_to_the_end()
        finally:
            self.scheduling.end()


def letters(said: list[int]) -> str:
    return "".join(PIECES[token].decode() for token in said)


TestScheduling = Scheduler.TestCase
TestScheduling.settings = settings(
    max_examples=3000 if IS_LONG else 30,
    stateful_step_count=60 if IS_LONG else 40,
    deadline=None,
    derandomize=not IS_LONG,
    database=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
