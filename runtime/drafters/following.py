"""Aligns a reply with a source text of which it may be an edited copy, and proposes the continuation of the copy.

Reply and source are aligned token by token as the reply grows. After a difference the position in the source is found
again by the last few tokens: a long match may be far away, a short one must be near. Knows token ids; knows no text.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from runtime.core.draft import Draft, Tokens
from runtime.core.drafter import Budget
from runtime.drafters.renames import Spelling, renamed
from runtime.drafters.replacements import BEFORE, CONFIRMED, Replacements, SourcePlace

MAX_MATCH = 8  # most tokens of a match used for realignment, and of a replacement
REACH = 8  # a match one token longer may be this many times as far away
TRUSTED = 4  # aligned tokens after which the position is taken as certain
AFTER_BLOCK = 0.5  # probability that a copy of a block of code goes on after it
LEAP = 64  # most new tokens per call that are aligned one by one; more come, for example, from other drafters' turns


class Follower:
    """The position of one reply in its source. `n_in_step`: tokens that are assumed to be aligned at the start."""

    def __init__(
        self, prompt: Tokens, source: Sequence[int] | Tokens, n_in_step: int = 0, spelling: Spelling | None = None
    ) -> None:
        self._prompt, self._spelling = prompt.tobytes(), spelling
        tokens = array("i", np.array(source, dtype=np.int32).tobytes())
        self._source: Tokens = np.frombuffer(tokens, dtype=np.int32)
        self.replacements = Replacements()
        self._place = SourcePlace(tokens, self.replacements)
        self._n = len(prompt)  # context tokens processed so far
        self.n_in_step = n_in_step  # the last tokens of them that are aligned; 0: the position is lost
        # Position of the last difference if the reply inserted tokens, or if it replaced as many; context length then
        self._left, self._level, self._n_left = 0, 0, self._n
        self._is_open = False  # whether the end of the current difference is not known yet

    def belongs_to(self, context: Tokens) -> bool:
        """Return whether `context` [n] begins with the prompt of this reply."""
        return context[: len(self._prompt) // context.itemsize].tobytes() == self._prompt

    def propose(self, context: Tokens, budget: Budget) -> Draft:
        """Return a chain that continues the copy; empty while the position is lost.

        After n aligned tokens the next one is aligned with probability n / (n + 1), close to Laplace's rule of
        succession.
        """
        self.follow(context)
        n_in_step, should_continue = self.n_in_step, budget.should_continue
        ahead = self._place.ahead(budget.max_k) if self.n_in_step else []
        tokens = [token for token, _ in ahead]
        for n, (_, chance) in enumerate(ahead):
            is_after = self._spelling and self._spelling.ends_block(tokens, n)
            if not should_continue(chance * (AFTER_BLOCK if is_after else 1) * (n_in_step + n) / (n_in_step + n + 1)):
                del tokens[n:]
                break
        return Draft(tuple(tokens))

    def follow(self, context: Tokens) -> None:
        """Advance in the source by the new tokens of `context` [n], or search for the position again."""
        if len(context) == self._n:
            return
        if not 0 < len(context) - self._n <= LEAP:  # also the case if turns were dropped from the context
            self._n, self.n_in_step, self._is_open = len(context), 0, False
            self._find(context)
            return
        for n in range(self._n + 1, len(context) + 1):
            self._take(context[:n])
        self._n = len(context)

    def _take(self, context: Tokens) -> None:
        """Advance by the last token of `context`."""
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
        """Learn the tokens of the reply since the difference as a replacement of the source's tokens."""
        self._is_open = False
        n_same = self.n_in_step
        old = self._source[self._left : self._place.at - n_same]
        new = context[self._n_left : len(context) - n_same]
        if self._place.at - n_same < self._left or len(context) - n_same < self._n_left:
            return
        if max(len(old), len(new)) <= MAX_MATCH:
            before = self._source[max(0, self._left - BEFORE) : self._left].tolist()
            self.replacements.learn((*before, *old.tolist()), (*before, *new.tolist()))
            self.replacements.learn(tuple(old.tolist()), tuple(new.tolist()))
            if self._spelling:
                end = self._place.at - n_same
                self.replacements.expect(renamed(self._spelling, self._place.source, self._left, end, new.tolist()))

    def _find(self, context: Tokens) -> None:
        """Set the position to the best match of the end of `context`, by length and distance from the expected one."""
        self.n_in_step, best = 0, 1.0
        places = np.flatnonzero(self._source == context[-1]) + 1
        for length in range(1, min(MAX_MATCH, len(context)) + 1):
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
    """The followers of the last MOST replies, several of which may be generated at the same time."""

    MOST = 12

    def __init__(self) -> None:
        self._all: list[Follower] = []  # the newest last

    def add(self, follower: Follower) -> None:
        """Add the follower of a new reply; the oldest may be dropped."""
        self._all = [*self._all[1 - self.MOST :], follower]

    def of(self, context: Tokens) -> Follower | None:
        """Return the newest follower whose prompt begins `context` [n].

        If there is none, as when turns were dropped from the context, return the newest of all.
        """
        newest_first = reversed(self._all)
        return next((each for each in newest_first if each.belongs_to(context)), self._all[-1] if self._all else None)
