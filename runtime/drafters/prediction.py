"""Drafts from text that the caller expects back, such as an editor's file of which the reply is a changed copy.

The reply is followed through the expected text token by token. After a difference the place is found again by the last
few tokens: a long match may lie far off, a short one must be near. Knows token ids; knows no editor and no text.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from runtime.core.draft import NO_DRAFT, Draft, Tokens
from runtime.core.drafter import Budget, Drafter
from runtime.drafters.registry import Cost, Registered

LONGEST = 8  # tokens of a match by which the place is found again
REACH = 8  # a match that is a token longer may lie this many times as far off
MOST = 4  # replies that are followed at a time
GIVEN = 2  # tokens in step that the caller's word is worth
TRUSTED = 4  # tokens in step after which the place is taken for certain
# 1 - confidence right after nothing was in step, and what each token in step leaves of it
DOUBT, DOUBT_PER_TOKEN = 0.6, 0.6


@Registered(
    "prediction", Cost.GIVEN, label="the given file", colour="primary", is_usual=True, place=4,
    unmeasured="it guesses only where the reply is known beforehand",
)  # fmt: skip
class PredictionDrafter(Drafter):
    """Proposes how the expected text goes on."""

    is_model_free = True

    def __init__(self) -> None:
        self._followers: list[Follower] = []  # of replies, the newest last

    def takes_part(self, expected: Sequence[int], has_grammar: bool) -> bool:
        """Takes part only in a reply of which something is expected."""
        return bool(expected)

    def begin(self, context: Tokens, expected: Sequence[int]) -> None:
        """The reply starts where the expected text does, until its tokens show otherwise."""
        self._followers = [*self._followers[1 - MOST :], Follower(context, expected)]

    def propose(self, context: Tokens, budget: Budget) -> Draft:
        """A chain of what comes next in the expected text; empty while the place is lost."""
        if not self._followers:
            return NO_DRAFT
        newest_first = reversed(self._followers)
        follower = next((follower for follower in newest_first if follower.belongs_to(context)), self._followers[-1])
        return follower.propose(context, budget)


class Follower:
    """The place of one reply in its expected text."""

    def __init__(self, prompt: Tokens, expected: Sequence[int]) -> None:
        self._prompt = prompt.copy()
        self._expected: Tokens = np.array(expected, dtype=np.int32)
        self._n = len(prompt)  # tokens of the context that it was followed through
        self._n_in_step = GIVEN  # of them in step; 0: the place is lost
        self._at = 0  # place in the expected text
        self._left = self._level = (
            0  # where it was left: as if the reply had put tokens in; as if it had replaced as many
        )

    def belongs_to(self, context: Tokens) -> bool:
        """Does `context` begin with its prompt?"""
        return len(context) >= len(self._prompt) and bool((context[: len(self._prompt)] == self._prompt).all())

    def propose(self, context: Tokens, budget: Budget) -> Draft:
        """A chain of what comes next in the expected text; empty while the place is lost."""
        if not len(self._expected):
            return NO_DRAFT
        self._follow(context)
        following = self._expected[self._at : self._at + budget.max_k].tolist() if self._n_in_step else []
        k, doubt = 0, DOUBT * DOUBT_PER_TOKEN**self._n_in_step
        while k < len(following) and budget.should_continue(1 - doubt):
            k, doubt = k + 1, doubt * DOUBT_PER_TOKEN
        return Draft(tuple(following[:k]))

    def _follow(self, context: Tokens) -> None:
        """Goes on in the expected text by the tokens that are new in `context`, or looks for the place again."""
        if len(context) == self._n:
            return
        n_new, self._n = max(0, len(context) - self._n), len(context)
        n_same = self._n_same(context[len(context) - n_new :]) if self._n_in_step else 0
        self._at, self._level = self._at + n_same, self._level + n_new
        self._n_in_step += n_same
        if n_same < n_new or not n_new:  # none: the context is shorter, because turns were left out of it
            if self._n_in_step >= TRUSTED:
                self._left, self._level = self._at, self._at + n_new - n_same
            self._find(context)

    def _n_same(self, new: Tokens) -> int:
        """How many of the first of `new` come next in the expected text."""
        following = self._expected[self._at : self._at + len(new)]
        differs = following != new[: len(following)]
        return int(differs.argmax()) if differs.any() else len(following)

    def _find(self, context: Tokens) -> None:
        """Sets the place to the best match of the end of `context`, by length and distance from where it should be."""
        self._n_in_step, best = 0, 1.0
        places = np.flatnonzero(self._expected == context[-1]) + 1
        for length in range(1, min(LONGEST, len(context)) + 1):
            if length > 1:
                places = places[places >= length]
                places = places[self._expected[places - length] == context[-length]]
            if not len(places):
                return
            distance = np.minimum(abs(places - self._left), abs(places - self._level))
            nearest = int(distance.argmin())
            if (merit := REACH ** (length - 1) / (1 + distance[nearest])) >= best:
                self._at, self._n_in_step, best = int(places[nearest]), length, merit
