"""Which replies have rows of one pass: those that wait for their next step, as many as bring most tokens per second,
and prompts as far as these can wait for them.

Knows replies, what passes cost and what fits together; chooses no draft.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence

from runtime.core.backend import SharedPasses
from runtime.core.draft import Draft, Logits, Tokens
from runtime.speculative.control.passes import Passes, Took
from runtime.speculative.step import Due, RequestState

MOST_READ = 384  # tokens of prompts that are read in one pass
Member = tuple[RequestState, Due]


class Company:
    """The replies that are being made with one target. Up to `exact_rows` rows of a pass round as they do alone."""

    def __init__(self, passes: SharedPasses, exact_rows: int, costs: Passes) -> None:
        self.passes, self.exact_rows, self._costs = passes, exact_rows, costs
        self._replies: list[RequestState] = []

    def join(self, request: RequestState) -> None:
        """A reply begins."""
        if request not in self._replies:
            self._replies.append(request)

    def leave(self, request: RequestState) -> None:
        """It has ended."""
        self._replies = [each for each in self._replies if each is not request]

    @property
    def n_replies(self) -> int:
        """Replies that are being made."""
        return len(self._replies)

    def n_speaking(self, request: RequestState) -> int:
        """The other replies that are well under way."""
        if len(self._replies) < 2 or self.passes.slots == 1:
            return 0
        others = ((each, each.due()) for each in self._replies if each is not request)
        return sum(due is not None and due.position > each.n_early for each, due in others)

    def piece(self, request: RequestState, n_tokens: int, most: int) -> int:
        """How many of a prompt's tokens, up to `most`, are read at once: where others are made, no more than they can
        wait for.
        """
        n = self.n_speaking(request)
        return min(most, self._costs.joint.n_readable(n, n_tokens, MOST_READ)) if n else most

    def others_reading(
        self, request: RequestState, n_tokens: int, members: Sequence[Member], n_rows: int
    ) -> list[Tokens]:
        """Prompts of other replies as far as they are read in a pass that has `n_rows` for this one, of `n_tokens`, and
        some for those `members`: short ones, such as completions that somebody waits for, go first.
        """
        room = self.piece(request, n_tokens, MOST_READ) - n_rows - sum(due.n_unread for _, due in members)
        found, lengths = list[Tokens](), [n_tokens, *(len(due.context) for _, due in members)]
        if self.exact_rows < sys.maxsize or self.passes.slots == 1 or room <= 0:
            return found
        prompts = (each.unread() for each in self._replies if each is not request)
        lacking = [(len(each) - self.passes.n_cached(each), each) for each in prompts if each is not None]
        for n_lacking, prompt in sorted(lacking, key=lambda each: each[0]):
            n = min(n_lacking, room)
            end = len(prompt) - n_lacking + n
            if n > 0 and self.passes.fits([*lengths, end]):
                found.append(prompt[:end])
                lengths.append(end)
                room -= n
        return found

    @property
    def reads_apart(self) -> bool:
        """Is a prompt to be read without others' tokens for once, so that it is known what each takes?"""
        return self._costs.joint.is_blurred

    def learn_read(self, n_rows: int, took: Took) -> None:
        """A pass read so many tokens of prompts and did nothing else."""
        if self.n_replies > 1:
            self._costs.joint.learn_read(n_rows, took.seconds)

    def learn(self, n_drafted: Sequence[int], n_context: int, took: Took, n_read: int = 0) -> None:
        """A pass had the next tokens of these replies, with so many draft tokens, and `n_read` of prompts."""
        if self.n_replies > 1:
            self._costs.joint.learn(n_drafted, n_context, n_read, took.seconds)

    def forward(self, asked: Sequence[tuple[Tokens, Draft]]) -> list[Logits]:
        """The logits of each of these contexts and drafts, from one pass."""
        return self.passes.forward_all(asked)

    def waiting(
        self, request: RequestState, n_tokens: int, n_rows: int, n_read: int, n_worth: Callable[[int], int]
    ) -> list[Member]:
        """The others that may have rows of a pass with `n_rows` for that reply of `n_tokens`, of which `n_read` are its
        prompt's; `n_worth` says how many of so many replies bring most.
        """
        if len(self._replies) < 2 or self.passes.slots == 1:
            return []
        others = (each for each in self._replies if each is not request and each.made is None)
        found = [(other, due) for other in others if (due := other.due())]
        found = found[: n_worth(1 + len(found)) - 1] if found else []
        found = self._undisturbed(request, n_rows, n_read, found)
        while found and not self.passes.fits([n_tokens, *(len(due.context) for _, due in found)]):
            found.pop()
        return self._bearable(n_tokens, n_read, found)

    def _bearable(self, n_tokens: int, n_read: int, found: list[Member]) -> list[Member]:
        """Of those whose prompts are to be read in the pass as many as others can wait for."""
        left = list[Member]()
        for other, due in found:
            if due.n_unread and n_read + due.n_unread > self.piece(other, n_tokens, MOST_READ):
                continue
            left.append((other, due))
            n_read += due.n_unread
        return left

    def _undisturbed(self, request: RequestState, n_rows: int, n_read: int, found: list[Member]) -> list[Member]:
        """Those whose rounding others do not change where that counts, nor they that of the reply's `n_rows`, of which
        `n_read` are its prompt's.
        """
        most = self._most_rows([request, *(other for other, _ in found)])
        if most < sys.maxsize:
            # How many rows read a prompt is not certain: what is cached of it may be lost before the pass
            most *= not n_read
            found = [member for member in found if not member[1].n_unread]
        if n_rows + len(found) <= most:
            return found
        if request.exact_only:
            return found[: max(0, most - n_rows)]
        return [member for member in found if not member[0].exact_only]

    def shares(self, n_drafted: Sequence[int], n_context: int, took: Took, n_read: int) -> tuple[list[float], Took]:
        """The seconds that each of these replies, with so many draft tokens, pays of a pass that they had together, and
        what it took without the `n_read` tokens of prompts that it read; both are learned.
        """
        usual = [self._costs.shares[n] for n in n_drafted]
        self._costs.joint.learn_drafts(n_drafted)
        self.learn(n_drafted, n_context, took, n_read)
        if n_read:
            took = took._replace(seconds=min(took.seconds, sum(usual)))
        else:
            self._costs.note((), len(n_drafted) + sum(n_drafted), n_context, took)
        return [took.seconds * own / sum(usual) for own in usual], took

    def _most_rows(self, requests: Iterable[RequestState]) -> int:
        return self.exact_rows if any(request.exact_only for request in requests) else sys.maxsize

    def room(self, members: Sequence[Member], most: int) -> int:
        """Draft tokens, up to `most`, that a pass of these replies may have in all."""
        return max(0, min(most, self._most_rows(request for request, _ in members) - len(members)))
