"""Follows a reply through a source of which it may be a changed copy, and says how the copy goes on.

Reply and source are aligned token by token as the reply grows. After a difference the place is found again by the last
few tokens: a long match may lie far off, a short one must be near. Knows token ids; knows no text.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from runtime.core.draft import Draft, Tokens
from runtime.core.drafter import Budget
from runtime.drafters.replacements import BEFORE, CONFIRMED, Replacements, SourcePlace

LONGEST = 8  # tokens of a match by which the place is found again, and of what is replaced
REACH = 8  # a match that is a token longer may lie this many times as far off
TRUSTED = 4  # tokens in step after which the place is taken for certain
LEAP = 64  # new tokens at once, as after other drafters' turns, that are not aligned one by one


class Follower:
    """The place of one reply in its source. `n_in_step`: tokens by which it is believed to begin as that does."""

    def __init__(self, prompt: Tokens, source: Sequence[int] | Tokens, n_in_step: int = 0) -> None:
        self._prompt = prompt.tobytes()
        tokens = array("i", np.array(source, dtype=np.int32).tobytes())
        self._source: Tokens = np.frombuffer(tokens, dtype=np.int32)
        self.replacements = Replacements()
        self._place = SourcePlace(tokens, self.replacements)
        self._n = len(prompt)  # tokens of the context that it was followed through
        self.n_in_step = n_in_step  # of them; 0: the place is lost
        # Where it was left, as if the reply had put tokens in, or replaced as many; tokens of the context then
        self._left, self._level, self._n_left = 0, 0, self._n
        self._is_open = False  # is what stands in place of the source's tokens not known yet?

    def belongs_to(self, context: Tokens) -> bool:
        """Whether `context` [n] begins with its prompt."""
        return context[: len(self._prompt) // context.itemsize].tobytes() == self._prompt

    def propose(self, context: Tokens, budget: Budget) -> Draft:
        """Return a chain of what comes next in the copy; empty while the place is lost. After n tokens in step the next
        one is in step with a chance of n / (n + 1), much as by Laplace's rule of succession.
        """
        self.follow(context)
        n_in_step, should_continue = self.n_in_step, budget.should_continue
        ahead = self._place.ahead(budget.max_k) if self.n_in_step else []
        for n, (_, chance) in enumerate(ahead):
            if not should_continue(chance * (n_in_step + n) / (n_in_step + n + 1)):
                del ahead[n:]
                break
        return Draft(tuple([token for token, _ in ahead]))

    def follow(self, context: Tokens) -> None:
        """Go on in the source by the tokens that are new in `context` [n], or look for the place again."""
        if len(context) == self._n:
            return
        if not 0 < len(context) - self._n <= LEAP:  # or turns were left out of it
            self._n, self.n_in_step, self._is_open = len(context), 0, False
            self._find(context)
            return
        for n in range(self._n + 1, len(context) + 1):
            self._take(context[:n])
        self._n = len(context)

    def _take(self, context: Tokens) -> None:
        """Go on by the last token of `context`."""
        before = self._place.at
        self._level += 1
        if self.n_in_step and self._place.take(int(context[-1])):
            self.n_in_step += 1
            if self._is_open and self.n_in_step >= CONFIRMED:
                self._learn(context)
            return
        if self.n_in_step >= TRUSTED:
            self._left, self._level, self._n_left, self._is_open = before, before + 1, len(context) - 1, True
        self._find(context)

    def _learn(self, context: Tokens) -> None:
        """Take what the reply had since the place was left for a replacement of what the source had."""
        self._is_open = False
        n_same = self.n_in_step
        old = self._source[self._left : self._place.at - n_same]
        new = context[self._n_left : len(context) - n_same]
        if self._place.at - n_same < self._left or len(context) - n_same < self._n_left:
            return
        if max(len(old), len(new)) <= LONGEST:
            before = self._source[max(0, self._left - BEFORE) : self._left].tolist()
            self.replacements.learn((*before, *old.tolist()), (*before, *new.tolist()))
            self.replacements.learn(tuple(old.tolist()), tuple(new.tolist()))

    def _find(self, context: Tokens) -> None:
        """Set the place to the best match of the end of `context`, by length and distance from where it should be."""
        self.n_in_step, best = 0, 1.0
        places = np.flatnonzero(self._source == context[-1]) + 1
        for length in range(1, min(LONGEST, len(context)) + 1):
            if length > 1:
                places = places[places >= length]
                places = places[self._source[places - length] == context[-length]]
            if not len(places):
                return
            distance = np.minimum(abs(places - self._left), abs(places - self._level))
            nearest = int(distance.argmin())
            if (merit := REACH ** (length - 1) / (1 + distance[nearest])) >= best:
                self._place.go_to(int(places[nearest]))
                self.n_in_step, best = length, merit


class Followers:
    """Those of the last MOST replies, several of which may be made at a time."""

    MOST = 12

    def __init__(self) -> None:
        self._all: list[Follower] = []  # the newest last

    def add(self, follower: Follower) -> None:
        """Add that of a reply which begins; the oldest may give way."""
        self._all = [*self._all[1 - self.MOST :], follower]

    def of(self, context: Tokens) -> Follower | None:
        """Return the newest whose reply `context` [n] is; the newest of all where turns were left out of it."""
        newest_first = reversed(self._all)
        return next((each for each in newest_first if each.belongs_to(context)), self._all[-1] if self._all else None)
