"""`python -m bench.rules`: what it counts of drafts whose outcome is known."""

from __future__ import annotations

import numpy as np

from bench.rules import Both, toy
from runtime.core.draft import Distribution, Draft
from runtime.sampling.sampler import Sampler
from runtime.sampling.settings import Sampling


def test_a_draft_model_that_is_the_target_is_accepted_whole_by_either_rule() -> None:
    both = Both(n_times=3)
    toy(both, k=4, blur=0.0, n_tokens=100)
    assert both.per_pass == (5, 5)
    assert both.figures == ["20", "1.00", "5.000", "5.000", "1.000"]


def test_a_token_is_tried_where_all_before_it_were_accepted_and_drafts_that_were_not_sampled_do_not_count() -> None:
    """The target excludes the second of three tokens, so it is tried and the third is not."""
    both, sampler = Both(n_times=2), Sampler(Sampling(1.0))
    rows, even = np.zeros((4, 3), dtype=np.float32), Distribution(np.arange(3), np.full(3, 1 / 3))
    rows[1, 2] = -np.inf
    both.verify(Draft((0, 2, 1)), rows, sampler)
    assert both.n_passes == 0
    both.verify(Draft((0, 2, 1), None, (even, even, even)), rows, sampler)
    assert (both.n_passes, both.n_tried, both.accepted[False], both.per_pass[0]) == (1, 2, 1, 2)
