"""One step of decoding: choose, propose, forward, verify, learn. Plain decode is the empty draft.

Knows token ids only; which tokens end a reply, and text, are the engine's. What a reply has to ask of the target, the
drafters or the controller it asks here.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from runtime.core.backend import Backend
from runtime.core.draft import NO_DRAFT, Draft, Logits, Tokens, merge
from runtime.core.drafter import Drafter
from runtime.core.errors import SlipstreamError
from runtime.sampling.logits import Report
from runtime.sampling.sampler import Sampler
from runtime.speculative.company import Company, Member
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.passes import Took
from runtime.speculative.control.reasons import Reason
from runtime.speculative.control.threads import Threads
from runtime.speculative.degradation import Degradation
from runtime.speculative.lineup import Lineup
from runtime.speculative.proposals import Asked, Proposal, Proposer, outcome
from runtime.speculative.step import Due, RequestState, Step
from runtime.speculative.verify import verify

MOST_READ = 384  # tokens of prompts that are read in one pass
INEXACT = Reason("exactness", "passes over several rows round otherwise than plain decode here")


class Prepared(NamedTuple):
    """A reply's step before its pass."""

    request: RequestState
    due: Due
    proposals: Sequence[Proposal]
    draft: Draft
    is_idle: bool  # was nobody asked?
    seconds: float  # that it took


class SpecLoop:
    """A target, the drafters offered to it in order of cost, and the controller that chooses among them."""

    def __init__(
        self,
        backend: Backend,
        drafters: Sequence[Drafter],
        controller: Controller,
        branches: int = 0,
        threads: Threads | None = None,
        degradation: Degradation | None = None,
        exact_rows: int = sys.maxsize,
        company: Company | None = None,
    ) -> None:
        self.backend, self.controller, self._passes = backend, controller, controller.passes
        # Side branches per draft token; all proposals then form one tree
        self.branches = branches if backend.can_branch else 0
        self._proposer = Proposer(controller, threads, self.branches)
        self.lineup = Lineup(drafters, controller, backend, degradation)
        self._passes.threads = threads
        self.company = company  # of replies that share passes, where that can be
        self._n_together = 1  # replies of the pass that is made
        self._n_reading = 0  # tokens of prompts that it reads
        # The reply that is being made
        self.request = RequestState(drafters={drafter.name for drafter in drafters})
        self.exact_rows = exact_rows  # of a pass, up to which it rounds as plain decode does
        self.rows_at: Callable[[int], int] = lambda n_context: exact_rows  # the same after so many tokens
        self.inexact = INEXACT  # why a reply that can be predicted is plain, if it is for that
        self.switch_seconds = 0.0  # that the last change from one reply to another took
        self.n_read_passes = 0  # passes so far that read prompts

    def n_cached(self, context: Tokens) -> int:
        """How many of the first tokens of a prompt need no decoding."""
        return self.backend.n_cached(context)

    def prefill(self, request: RequestState, context: Tokens, end: int) -> None:
        """Reads the first `end` tokens of a prompt, as far as that was not done yet; others that wait take part."""
        n_rows = end - self.backend.n_cached(context)
        if n_rows <= 0:
            return
        self.n_read_passes += 1
        waiting = self._waiting(request, end, n_rows, lambda n: n, n_rows)
        reads = [context[:end], *self._others_reading(request, end, waiting, n_rows)]
        if waiting:
            self._make(waiting, reads)
        else:
            self._turn_to(request, context)
            self._read(reads)

    def _others_reading(
        self, request: RequestState, n_tokens: int, waiting: Sequence[Member], n_rows: int
    ) -> list[Tokens]:
        """Prompts of other replies as far as a pass reads them that has `n_rows` for this one, of `n_tokens`."""
        if not self.company:
            return []
        room = self.piece(request, n_tokens, MOST_READ) - n_rows - sum(due.n_unread for _, due in waiting)
        return self.company.others_reading(request, n_tokens, waiting, room)

    def _read(self, contexts: Sequence[Tokens]) -> None:
        """Reads prompts so far in one pass."""
        if self.company and len(contexts) > 1:
            self.company.forward([(each, NO_DRAFT) for each in contexts])
        else:
            self.backend.forward(contexts[0])

    def piece(self, request: RequestState, n_tokens: int, most: int) -> int:
        """How many of a prompt's tokens, up to `most`, are read at once: where others are made, no more than they can
        wait for.
        """
        n = self.company.n_speaking(request) if self.company else 0
        return min(most, self._passes.joint.n_readable(n, n_tokens, MOST_READ)) if n else most

    @property
    def is_alone(self) -> bool:
        """Is a single reply being made?"""
        return self.company is None or self.company.n_replies < 2

    def join(self, request: RequestState) -> None:
        """A reply is to be made, whose prompt is read first."""
        if self.company:
            self.company.join(request)

    def leave(self, request: RequestState) -> None:
        """It is not made any more."""
        if self.company:
            self.company.leave(request)
        if self._passes.threads and not (self.company and self.company.n_replies):
            self._passes.threads.pause()

    def begin(
        self,
        request: RequestState,
        context: Tokens,
        expected: Sequence[int] = (),
        has_grammar: bool = False,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """A prompt is read and its reply begins; drafters read it too, where that will repay itself in the reply."""
        self.request, self._n_together = request, 1 if self.is_alone else self._n_together
        most = self._most_drafted(request, len(context))
        self.controller.begin(len(context), most=most, n_together=self._n_together)
        if self._passes.threads:
            self._passes.threads.resume()
        self.lineup.begin(request, context, expected, has_grammar, is_cancelled)

    def _most_drafted(self, request: RequestState, n_context: int) -> int:
        """Draft tokens of a pass of that reply after so many tokens at most."""
        most = self.controller.max_k
        return min(most, self.rows_at(n_context) - 1) if request.exact_only else most

    def finish(self, context: Tokens, n_prompt: int) -> None:
        """A reply has ended, or was broken off: it is what follows the first `n_prompt` tokens of `context`."""
        self.lineup.finish(context, n_prompt)

    def _turn_to(self, request: RequestState, context: Tokens) -> None:
        """The next pass is that reply's, perhaps with others; what memory asks for is given up before it.

        Memory is read seldom; while something is given up, it is seen in every step whether it is back.
        """
        self._switch_to(request, context)
        watch = self.lineup.degradation
        if watch is not None and (watch.reason or watch.monitor.clock() >= watch.monitor.next_look):
            self.lineup.degrade(request, context)

    def _switch_to(self, request: RequestState, context: Tokens) -> None:
        """That reply continues after steps of another one; what was held of it is made ready in no step's time."""
        if request is self.request:
            return
        began, self.request = time.perf_counter(), request
        if self._n_together == 1:  # what a pass of several needs, it makes ready itself
            self.backend.resume(context)
        self.lineup.resume(request, context)
        self.switch_seconds = time.perf_counter() - began

    def step(
        self,
        request: RequestState,
        context: Tokens,
        sampler: Sampler,
        position: int,
        most: int,
        report: Report | None = None,
        n_unread: int = 0,
    ) -> Step:
        """Decodes one to `most` tokens after `context` [n]; its last `position` tokens are the reply's.

        `report` says how likely they were, where that is asked. Others that wait may have rows of the same pass: their
        steps are kept until they ask. A pass that reads `n_unread` tokens before the last has no draft.
        """
        if request.made is None:
            waiting = self._waiting(request, len(context), 1, self.controller.n_worth, n_unread)
            # Who has hardly begun waits for those who came with it: prompts are read fastest together
            is_new = position <= request.n_early
            reads = self._others_reading(request, len(context), waiting, 1 + n_unread) if is_new else []
            self.n_read_passes += bool(reads or n_unread or any(due.n_unread for _, due in waiting))
            self._make([(request, Due(context, sampler, position, most, report, n_unread)), *waiting], reads)
        made, request.made = request.made, None
        if not isinstance(made, Step):
            raise made or AssertionError("a pass without its reply")
        return made

    def _waiting(
        self, request: RequestState, n_tokens: int, n_rows: int, n_worth: Callable[[int], int], n_read: int
    ) -> list[Member]:
        """The other replies that have rows of a pass with `n_rows` for this one, of `n_tokens`, which reads `n_read` of
        its prompt: of those whose prompts are to be read in it as many as others can wait for.
        """
        found = list[Member]()
        for each, due in self.company.waiting(request, n_tokens, n_rows, n_worth) if self.company else ():
            if due.n_unread and n_read + due.n_unread > self.piece(each, n_tokens, MOST_READ):
                continue
            found.append((each, due))
            n_read += due.n_unread
        return found

    def _make(self, members: Sequence[Member], reads: Sequence[Tokens] = ()) -> None:
        """Makes a pass for the next steps of these replies, which are kept with them; it also reads prompts so far."""
        self._passes.set_clock()
        self._n_together, room = len(members), self.controller.max_k
        if self.company and len(members) > 1:
            room = self.company.room(members, room)
        self._turn_to(members[0][0], members[0][1].context)
        ready = self._prepare_all(members, room)
        if len(members) == len(ready) == 1 and not reads:
            only = ready[0]
            logits, took = self._passes.time(lambda: self.backend.forward(only.due.context, only.draft))
            if only.due.n_unread:  # what it took beyond a plain pass is the prompt's
                took = took._replace(seconds=min(took.seconds, self._passes.shares[0] or took.seconds))
            only.request.made = self._conclude(only, logits, took.seconds, took)
        elif ready:
            all_logits, took = self._passes.time(lambda: self._forward(ready, reads))
            self._conclude_all(ready, all_logits, took)

    def _prepare_all(self, members: Sequence[Member], room: int) -> list[Prepared]:
        """What is drafted for these replies, at most `room` tokens in all; one that fails is told so."""
        ready, later = list[Prepared](), dict[int, Asked]()
        for request, due in members:
            asked: list[Asked] | None = [] if len(members) > 1 else None
            try:
                ready.append(self._prepare(request, due, room, asked))
            except SlipstreamError as error:
                request.made = error
                continue
            room -= len(ready[-1].draft.tokens)
            if asked:
                later[len(ready) - 1] = asked[0]
        return self._draft_together(ready, later, room) if later and room > 0 else ready

    def _draft_together(self, ready: list[Prepared], later: Mapping[int, Asked], room: int) -> list[Prepared]:
        """Adds what is drafted for several of them at once."""
        clock = self._passes.clock
        began = clock()
        proposals, broken = self._proposer.propose_together(list(later.values()), room)
        for drafter, error in broken:
            self.lineup.drop(drafter, self.request, error)
        seconds = (clock() - began) / len(later)
        for i, proposal in zip(later, proposals, strict=False):
            each = ready[i]
            ready[i] = each._replace(
                proposals=[*each.proposals, proposal], draft=proposal.draft, seconds=each.seconds + seconds
            )
        return ready

    def _prepare(self, request: RequestState, due: Due, room: int, later: list[Asked] | None = None) -> Prepared:
        """What is drafted for a reply, at most `room` tokens, but for what is left for `later`."""
        is_idle = request.n_idle > 0 and self._passes.n_together == self._n_together
        if not is_idle:
            self._switch_to(request, due.context)
        clock = self._passes.clock
        began = clock()
        due.sampler.begin(due.context, due.position)
        proposals, draft = ([], NO_DRAFT) if is_idle else self._propose(request, due, room, later)
        return Prepared(request, due, proposals, draft, is_idle, clock() - began)

    def _forward(self, ready: Sequence[Prepared], reads: Sequence[Tokens]) -> list[Logits]:
        """The logits of each, from one pass that several share."""
        assert self.company is not None
        asked = [(each.due.context, each.draft) for each in ready]
        self._n_reading = sum(len(each) - self.backend.n_cached(each) for each in reads)
        self._n_reading += sum(each.due.n_unread for each in ready)
        return self.company.forward([*asked, *((each, NO_DRAFT) for each in reads)])

    def _conclude_all(self, ready: Sequence[Prepared], all_logits: Sequence[Logits], took: Took) -> None:
        """Every reply has its share of the pass that they had together; an error is its own."""
        width = sum(1 + len(each.draft.tokens) for each in ready)
        n_context = sum(len(each.due.context) for each in ready) // len(ready)
        usual = [self._passes.shares[len(each.draft.tokens)] for each in ready]
        self._passes.joint.learn_drafts([len(each.draft.tokens) for each in ready])
        if self._n_reading:
            self._passes.joint.learn_read(self._n_reading, took.seconds - sum(usual))
            took = took._replace(seconds=min(took.seconds, sum(usual)))  # the rest is the prompts'
        else:
            self._passes.note((), width, n_context, took)
        for each, logits, own in zip(ready, all_logits, usual, strict=False):
            try:
                each.request.made = self._conclude(each, logits, took.seconds * own / sum(usual), took)
            except SlipstreamError as error:
                each.request.made = error

    def _conclude(self, ready: Prepared, logits: Logits, share: float, took: Took) -> Step:
        """Verifies a reply's draft after a pass of which it had a `share` [s], and learns from that."""
        began = self._passes.clock()
        request, due, proposals, draft, is_idle, drafting = ready
        self.controller.set_kind(request.kind)
        verdict = verify(draft, logits, due.sampler)
        for drafter in self.lineup.observers:
            drafter.observe(draft, logits)
        rows = [0, *(node + 1 for node in verdict.accepted)]
        each_logprobs = due.report(logits[rows], verdict.tokens) if due.report else ()
        names = tuple([proposal.name for proposal in proposals if proposal.draft.tokens])
        rest = drafting + self._passes.clock() - began
        if due.n_unread:
            pass  # what reads a prompt says nothing of other passes
        elif is_idle and self.controller.is_usual(share):
            request.n_idle -= 1
            self.controller.idle(rest + share)
        else:
            outcomes = [outcome(proposal, verdict.tokens) for proposal in proposals]
            self.controller.learn(outcomes, len(verdict.tokens), drafting, share, rest + share)
            if self._n_together == 1:
                self._passes.note_alone(names, 1 + len(draft.tokens), len(due.context), took)
            request.n_idle = self._steps_to_idle(request, names)
            for drafter in self.lineup.resting:
                drafter.rest(self.controller.n_unasked(drafter.name))
        n_accepted, times = len(verdict.accepted), (drafting, took.seconds, rest + took.seconds)
        return Step(verdict.tokens, n_accepted, len(draft.tokens), names, *times, each_logprobs, self._n_together)

    def _no_room(self, n_context: int) -> Reason | None:
        """Why nothing can be drafted after so many tokens, where there is more to say than that the reply ends."""
        n = self.backend.n_rewindable
        if n_context < n or n in (0, self.backend.n_ctx):
            return None
        return Reason("memory", f"drafts end at {n} tokens, because sliding windows are kept short for want of memory")

    def _propose(
        self, request: RequestState, due: Due, room: int, later: list[Asked] | None
    ) -> tuple[list[Proposal], Draft]:
        """What the drafters of this reply propose for its step, and the draft of it, of at most `room` tokens; one that
        breaks is dropped. What is drafted for several at once is left for `later`.
        """
        context, sampler = due.context, due.sampler
        self.controller.set_kind(request.kind)
        most_drafted = self._most_drafted(request, len(context))
        self.controller.begin(len(context), sampler.is_coupled, most_drafted, self._n_together)
        room = min(room, most_drafted, due.most - 1, self.backend.n_rewindable - len(context))
        if room <= 0:
            request.left_out = self._no_room(len(context)) or request.left_out
        if room <= 0 or due.n_unread or not self.lineup.drafters:
            return [], NO_DRAFT
        proposals, broken = self._proposer.propose(
            self.lineup.drafters, request.drafters, context, sampler, room, later
        )
        for drafter, error in broken:
            self.lineup.drop(drafter, request, error)
        used = [proposal.draft for proposal in proposals if proposal.draft.tokens]
        return proposals, merge(used).first(room) if used else NO_DRAFT

    def _steps_to_idle(self, request: RequestState, names: tuple[str, ...]) -> int:
        """From now on, in which none of a reply's drafters need be asked; `names` had a draft in this one."""
        if names or self._passes.is_on_trial:
            return 0
        return self.controller.n_idle([each.name for each in self.lineup.drafters if each.name in request.drafters])

    @property
    def plain_rate(self) -> float:
        """Tokens per second of plain decode by itself, as measured here."""
        return self.controller.plain_alone

    @property
    def is_exact_only(self) -> bool:
        """Are replies whose text can be predicted kept to passes that round as plain decode does?"""
        return self.exact_rows < sys.maxsize

    def set_waiting(self, n: int) -> None:
        """So many replies wait for the steps that are made from now on."""
        self.controller.n_waiting = n

    def why_plain(self) -> Reason:
        """Why the last step was plain."""
        reason = self.lineup.shortage or self.lineup.failed or self.request.left_out
        if reason is None and self.lineup.drafters and self.request.exact_only and self.exact_rows < 2:
            return self.inexact
        return reason or self.controller.reason()
