"""One step of decoding: choose, propose, forward, verify, learn. Plain decode is the empty draft.

Knows token ids only; which tokens end a reply, and text, are the engine's. What a reply has to ask of the target, the
drafters or the controller it asks here.
"""

from __future__ import annotations

import sys
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
from runtime.speculative.control.explain import Why
from runtime.speculative.control.passes import Took
from runtime.speculative.control.reasons import Reason
from runtime.speculative.control.threads import Threads
from runtime.speculative.degradation import Degradation
from runtime.speculative.lineup import Lineup
from runtime.speculative.proposals import Asked, Proposal, Proposer, confidences, outcome
from runtime.speculative.step import Due, RequestState, Step
from runtime.speculative.verify import verify

INEXACT = Reason("exactness", "passes over several rows round otherwise than plain decode here")
READ, ENDS = "the pass read the prompt's last tokens as well", "there was room for one token"


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
        self.lineup = Lineup(drafters, controller, backend, degradation)
        self._proposer = Proposer(controller, self.lineup, threads, self.branches)
        self._passes.threads = threads
        self.company = company  # of replies that share passes, where that can be
        self._n_together = 1  # replies of the pass that is made
        self.exact_rows = exact_rows  # of a pass, up to which it rounds as plain decode does
        self.rows_at: Callable[[int], int] = lambda n_context: exact_rows  # the same after so many tokens
        self.inexact = INEXACT  # why a reply that can be predicted is plain, if it is for that
        self.n_read_passes = 0  # passes so far that read prompts

    @property
    def request(self) -> RequestState:
        """The reply that is being made."""
        return self.lineup.request

    def n_cached(self, context: Tokens) -> int:
        """How many of the first tokens of a prompt need no decoding."""
        return self.backend.n_cached(context)

    def prefill(self, request: RequestState, context: Tokens, end: int) -> None:
        """Reads the first `end` tokens of a prompt, as far as that was not done yet; others that wait take part."""
        n_rows = end - self.backend.n_cached(context)
        if n_rows <= 0:
            return
        self.n_read_passes += 1
        reads, is_read = [context[:end]], False
        if self.company:
            waiting = self.company.waiting(request, end, n_rows, n_rows, lambda n: n)
            reads += self.company.others_reading(request, end, waiting, n_rows)
            is_read = bool(waiting) and not self.company.reads_apart
            if waiting:
                self._make(waiting, reads if is_read else ())
        if not is_read:
            self._turn_to(request, context)
            self._read(reads)

    def _read(self, contexts: Sequence[Tokens]) -> None:
        """Reads prompts so far in one pass."""
        company = self.company
        if company is None:
            self.backend.forward(contexts[0])
            return
        n_rows = sum(len(each) - self.backend.n_cached(each) for each in contexts)
        _, took = self._passes.time(lambda: company.forward([(each, NO_DRAFT) for each in contexts]))
        company.learn_read(n_rows, took)

    def piece(self, request: RequestState, n_tokens: int, most: int) -> int:
        """How many of a prompt's tokens, up to `most`, are read at once."""
        return self.company.piece(request, n_tokens, most) if self.company else most

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
        self._n_together = 1 if self.is_alone else self._n_together
        self.controller.begin(len(context), most=self._most_drafted(request, len(context)), n_together=self._n_together)
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
            self.lineup.degrade(context)

    def _switch_to(self, request: RequestState, context: Tokens) -> None:
        if request is not self.lineup.request:
            self.lineup.turn_to(request, context, self._n_together == 1)

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
            members, reads = [(request, Due(context, sampler, position, most, report, n_unread))], list[Tokens]()
            if self.company:
                n, n_rows = len(context), 1 + n_unread
                waiting = self.company.waiting(request, n, n_rows, n_unread, self.controller.n_worth)
                if position <= request.n_early:
                    # Who has hardly begun waits for those who came with it: prompts are read fastest together
                    reads = self.company.others_reading(request, n, waiting, n_rows)
                members += waiting
            self.n_read_passes += bool(reads or any(due.n_unread for _, due in members))
            self._make(members, reads)
        made, request.made = request.made, None
        if not isinstance(made, Step):
            raise made or AssertionError("a pass without its reply")
        return made

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
            elif self.company:
                self.company.learn([len(only.draft.tokens)], len(only.due.context), took)
            only.request.made = self._conclude(only, logits, took.seconds, took)
        elif ready:
            (all_logits, n_read), took = self._passes.time(lambda: self._forward(ready, reads))
            self._conclude_all(ready, all_logits, took, n_read)

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
        began = self._passes.clock()
        proposals = self._proposer.propose_together(list(later.values()), room)
        seconds = (self._passes.clock() - began) / len(later)
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
        began = self._passes.clock()
        due.sampler.begin(due.context, due.position)
        proposals, draft = ([], NO_DRAFT) if is_idle else self._propose(request, due, room, later)
        return Prepared(request, due, proposals, draft, is_idle, self._passes.clock() - began)

    def _forward(self, ready: Sequence[Prepared], reads: Sequence[Tokens]) -> tuple[list[Logits], int]:
        """The logits of each, from one pass that several share, and how many tokens of prompts it read."""
        assert self.company is not None
        asked = [(each.due.context, each.draft) for each in ready]
        n_read = sum(len(each) - self.backend.n_cached(each) for each in reads)
        n_read += sum(each.due.n_unread for each in ready)
        return self.company.forward([*asked, *((each, NO_DRAFT) for each in reads)]), n_read

    def _conclude_all(self, ready: Sequence[Prepared], all_logits: Sequence[Logits], took: Took, n_read: int) -> None:
        """Every reply has its share of the pass that they had together; an error is its own."""
        assert self.company is not None
        n_context = sum(len(each.due.context) for each in ready) // len(ready)
        shares, took = self.company.shares([len(each.draft.tokens) for each in ready], n_context, took, n_read)
        for each, logits, share in zip(ready, all_logits, shares, strict=False):
            try:
                each.request.made = self._conclude(each, logits, share, took)
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
        why = self._why(ready) if request.is_traced else None
        return Step(verdict.tokens, n_accepted, len(draft.tokens), names, *times, each_logprobs, self._n_together, why)

    def _why(self, ready: Prepared) -> Why:
        """What is known of a step."""
        request, due, proposals, draft = ready[:4]
        reason = READ if due.n_unread else ENDS if due.most < 2 else "" if draft else self.why_plain(request).text
        return Why(len(due.context), confidences(proposals, draft), reason, self.controller.plain_alone)

    def _no_room(self, n_context: int) -> Reason | None:
        """Why nothing can be drafted after so many tokens, where there is more to say than that the reply ends."""
        n = self.backend.n_rewindable
        if n_context < n or n in (0, self.backend.n_ctx):
            return None
        return Reason("memory", f"drafts end at {n} tokens, because sliding windows are kept short for want of memory")

    def _propose(
        self, request: RequestState, due: Due, room: int, later: list[Asked] | None
    ) -> tuple[list[Proposal], Draft]:
        """What the drafters of this reply propose for its step, and the draft of it, of at most `room` tokens. What is
        drafted for several at once is left for `later`.
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
        proposals = self._proposer.propose(request, context, sampler, room, later)
        used = [proposal.draft for proposal in proposals if proposal.draft.tokens]
        return proposals, merge(used).first(room) if used else NO_DRAFT

    def _steps_to_idle(self, request: RequestState, names: tuple[str, ...]) -> int:
        """From now on, in which none of a reply's drafters need be asked; `names` had a draft in this one."""
        if names or self._passes.is_on_trial:
            return 0
        return self.controller.n_idle([each.name for each in self.lineup.drafters if each.name in request.drafters])

    @property
    def is_exact_only(self) -> bool:
        """Are replies whose text can be predicted kept to passes that round as plain decode does?"""
        return self.exact_rows < sys.maxsize

    def why_plain(self, request: RequestState | None = None) -> Reason:
        """Why the last step was plain, of that reply or of the one that is being made."""
        request = request or self.request
        reason = self.lineup.shortage or self.lineup.failed or request.left_out
        if reason is None and self.lineup.drafters and request.exact_only and self.exact_rows < 2:
            return self.inexact
        return reason or self.controller.reason()
