"""Single replies through the scheduler, with the models here or in a process that is lost."""

from __future__ import annotations

import math

from runtime.core.limits import Limits
from runtime.sampling.settings import Sampling
from tests.support.alone import Request, alone
from tests.support.scheduling import scheduling
from tests.support.toy_engine import Setup

GREEDY = Sampling(temperature=0.0, seed=0)


def test_a_reply_that_is_left_before_it_was_read_is_not_made() -> None:
    with scheduling(Setup(), n_ahead=math.inf) as made:
        made.leave(made.add(Request((1, 2, 3), GREEDY, 9)))
        assert made.left_over() == []


def test_what_the_cache_lost_is_read_again_as_before_where_width_changes_rounding() -> None:
    with scheduling(Setup("shared", ("model",), fixed_k=3, exact_rows=4), n_ahead=None) as made:
        replies = [made.add(Request((1, 2, 3, first), GREEDY, 30)) for first in range(1, 4)]
        for n in range(300):
            if n % 25 == 24:
                made._toy.backends[0]._clear()  # the cache is lost
            for reply in replies:
                if not reply.is_over:
                    made.read(reply)
        assert [reply.said for reply in replies] == [alone(reply.request) for reply in replies]


def test_losses_between_replies_do_not_add_up() -> None:
    """The process is found to be lost by each of many replies."""
    with scheduling(Setup("shared", ("model",), fixed_k=3), n_ahead=math.inf) as made:
        for n in range(5):
            made.crash()
            reply = made.add(Request((1, 2, 3, n + 1), GREEDY, 10))
            while not reply.is_over:
                made.read(reply)
            assert reply.said == alone(reply.request)


def test_who_waits_while_the_process_is_lost_is_neither_refused_nor_blamed() -> None:
    """However often: only what runs can be why."""
    with scheduling(Setup("shared", limits=Limits(1, 1)), n_ahead=3) as made:
        long, short = Request((1, 2), GREEDY, 90), Request((1, 2), GREEDY, 90, is_short=True)
        requests = [long, short, Request((3,), GREEDY, 9)]
        replies = [made.add(each) for each in requests]
        for _ in range(4):
            for each in replies[:2] * 8:
                if not each.is_over:
                    made.read(each)
            assert not replies[2].has_begun
            made.crash()
        for each in replies:
            while not each.is_over:
                made.read(each)
        assert [each.said for each in replies] == [alone(each) for each in requests]
