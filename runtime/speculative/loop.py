"""One step of decoding: choose, propose, forward, verify, learn. Plain decode is the empty draft.

Knows token ids only; which tokens end a reply, and text, are the engine's. What a reply has to ask of the target, the
drafters or the controller it asks here.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from runtime.core.backend import Backend
from runtime.core.draft import NO_DRAFT, Draft, Logits, Tokens, merge
from runtime.core.drafter import Drafter
from runtime.core.errors import SlipstreamError
from runtime.sampling.logits import Report
from runtime.sampling.sampler import Sampler
from runtime.speculative.company import Company, Member
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.reasons import Reason
from runtime.speculative.control.threads import Threads
from runtime.speculative.degradation import Change, Degradation
from runtime.speculative.proposals import Asked, Proposal, Proposer, outcome
from runtime.speculative.step import Due, RequestState, Step
from runtime.speculative.verify import verify

MOST_READ = 384  # tokens of prompts that are read in one pass
PIECE = 256  # tokens that a drafter reads between two looks at whether to go on
INEXACT = Reason("exactness", "passes over several rows round otherwise than plain decode here")
NEGLIGIBLE = 64  # tokens to be read that are not worth a thought
Ask = Callable[[Drafter, Tokens, Sampler, int], Proposal]


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
        self.backend, self.controller, self.threads = backend, controller, threads
        # Side branches per draft token; all proposals then form one tree
        self.branches = branches if backend.can_branch else 0
        self._proposer = Proposer(controller, threads, self.branches)
        self._order = [drafter.name for drafter in drafters]
        self.company = company  # of replies that share passes, where that can be
        self._n_together = 1  # replies of the pass that is made
        self._n_reading = 0  # tokens of prompts that it reads
        self.request = RequestState(drafters=set(self._order))  # of the reply that is being made
        self._set_drafters(drafters)
        self.degradation = degradation
        self.exact_rows = exact_rows  # of a pass, up to which it rounds as plain decode does
        self.rows_at: Callable[[int], int] = lambda n_context: exact_rows  # the same after so many tokens
        self.inexact = INEXACT  # why a reply that can be predicted is plain, if it is for that
        self.failed: Reason | None = None  # set when a drafter broke and was dropped
        self.shortage: Reason | None = None  # set when memory took drafters away, during this reply or before
        self.switch_seconds = 0.0  # that the last change from one reply to another took
        self.is_far = False  # do workers make the passes?
        self._made = set[int]()  # widths of the passes that they made
        self.n_read_passes = 0  # passes so far that read prompts

    def _set_drafters(self, drafters: Iterable[Drafter]) -> None:
        """Sets the drafters that take part from now on, in order of cost."""
        self.drafters = sorted(drafters, key=lambda each: self._order.index(each.name))
        self._observers = [each for each in self.drafters if type(each).observe is not Drafter.observe]
        self._resting = [each for each in self.drafters if type(each).rest is not Drafter.rest]
        self.request.n_idle = 0

    def n_cached(self, context: Tokens) -> int:
        """How many of the first tokens of a prompt need no decoding."""
        return self.backend.n_cached(context)

    def prefill(self, request: RequestState, context: Tokens, end: int) -> None:
        """Reads the first `end` tokens of a prompt, as far as that was not done yet; others that wait take part."""
        n_rows = end - self.backend.n_cached(context)
        if n_rows <= 0:
            return
        self.n_read_passes += 1
        waiting = self._waiting(request, end, n_rows, lambda n: n)
        reads = [context[:end], *self._others_reading(request, end, waiting, n_rows)]
        if waiting:
            self._make(waiting, reads)
        else:
            self._switch_to(request, context)
            self._degrade_if_due(context)
            self._read(reads)

    def _others_reading(
        self, request: RequestState, n_tokens: int, waiting: Sequence[Member], n_rows: int
    ) -> list[Tokens]:
        """Prompts of other replies as far as a pass reads them that has `n_rows` for this one, of `n_tokens`."""
        if not self.company:
            return []
        return self.company.others_reading(
            request, n_tokens, waiting, self.piece(request, n_tokens, MOST_READ) - n_rows
        )

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
        return min(most, self.controller.joint.n_readable(n, n_tokens, MOST_READ)) if n else most

    def join(self, request: RequestState) -> None:
        """A reply is to be made, whose prompt is read first."""
        if self.company:
            self.company.join(request)

    def leave(self, request: RequestState) -> None:
        """It is not made any more."""
        if self.company:
            self.company.leave(request)

    def begin(
        self,
        request: RequestState,
        context: Tokens,
        expected: Sequence[int] = (),
        has_grammar: bool = False,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """A prompt is read and its reply begins; drafters read it too, where that will repay itself in the reply."""
        self.request, self.shortage = request, self.degradation.reason if self.degradation else None
        request.drafters, request.left_out, request.n_idle = set(), None, 0
        self._n_together = 1
        self.controller.begin(len(context), most=self._most_drafted(request, len(context)))
        for drafter in list(self.drafters):
            if drafter.takes_part(expected, has_grammar):
                drafter.begin(context, expected)
                self._admit(drafter, context, is_cancelled)

    def _most_drafted(self, request: RequestState, n_context: int) -> int:
        """Draft tokens of a pass of that reply after so many tokens at most."""
        most = self.controller.max_k
        return min(most, self.rows_at(n_context) - 1) if request.exact_only else most

    def finish(self, context: Tokens, n_prompt: int) -> None:
        """A reply has ended, or was broken off: it is what follows the first `n_prompt` tokens of `context`."""
        for drafter in self.drafters:
            drafter.finish(context, n_prompt)

    def _admit(self, drafter: Drafter, context: Tokens, is_cancelled: Callable[[], bool] = lambda: False) -> None:
        """Lets a drafter take part in the reply, unless reading the prompt costs it more than it will save."""
        self.request.drafters.add(drafter.name)
        n_uncached = drafter.n_uncached(context)
        if n_uncached <= NEGLIGIBLE:
            return
        if self.controller.repays(drafter.name, n_uncached, self.request.n_reply):
            self._prefill_drafter(drafter, context, n_uncached, is_cancelled)
        else:
            self.request.drafters.remove(drafter.name)
            why = f"the {drafter.name} drafter would have to read {n_uncached} tokens, more than this reply repays"
            self.request.left_out = Reason("cost", why)

    def _prefill_drafter(
        self, drafter: Drafter, context: Tokens, n_uncached: int, is_cancelled: Callable[[], bool]
    ) -> None:
        """Has a drafter read the prompt in pieces, so that it can be cancelled."""
        began, n = time.perf_counter(), len(context)
        try:
            for end in [*range(n - n_uncached + PIECE, n, PIECE), n]:
                if is_cancelled():
                    return
                drafter.prefill(context[:end], n)
        except SlipstreamError as error:
            self._drop(drafter, error)
        else:
            self.controller.states[drafter.name].learn_prefill(n_uncached, time.perf_counter() - began)

    def _switch_to(self, request: RequestState, context: Tokens) -> None:
        """That reply continues after steps of another one; what was held of it is made ready in no step's time."""
        if request is self.request:
            return
        began, self.request = time.perf_counter(), request
        self.backend.resume(context)
        for drafter in list(self.drafters):
            if drafter.name in request.drafters:
                drafter.resume(context)
        self.switch_seconds = time.perf_counter() - began

    def _degrade_if_due(self, context: Tokens) -> None:
        """Memory is read seldom; while something is given up, it is seen in every step whether it is back."""
        degradation = self.degradation
        if degradation is None:
            return
        if degradation.reason or degradation.monitor.clock() >= degradation.monitor.next_look:
            self.degrade(context)

    def degrade(self, context: Tokens | None = None) -> None:
        """Gives up, or takes back, what memory asks for; what comes back in mid-reply reads its `context` first."""
        if self.degradation is not None:
            self._take_change(self.degradation.update(self.drafters), context)

    def renew_draft(self) -> None:
        """Between two replies: the draft model or head is opened again, as its file is now."""
        if self.degradation is None:
            return
        change = self.degradation.renew(self.drafters)
        for drafter in change.suspended:
            self.controller.states[drafter.name].renew()
        self._take_change(change)

    def _take_change(self, change: Change, context: Tokens | None = None) -> None:
        """Drafters go and come back; a `context` is read by those that do."""
        if change.slots is not None:
            self.backend.set_slots(change.slots)
        for drafter in change.suspended:
            self.controller.suspend(drafter.name)
        for drafter in change.restored:
            self.controller.unsuspend(drafter.name)
        left = [drafter for drafter in self.drafters if drafter not in change.suspended]
        self._set_drafters([*left, *change.restored])
        if context is not None:
            for drafter in change.restored:
                self._admit(drafter, context)
        reason = self.degradation.reason if self.degradation else None
        self.shortage, self.failed = reason or self.shortage, change.failed or self.failed

    def step(
        self,
        request: RequestState,
        context: Tokens,
        sampler: Sampler,
        position: int,
        most: int,
        report: Report | None = None,
    ) -> Step:
        """Decodes one to `most` tokens after `context` [n]; its last `position` tokens are the reply's.

        `report` says how likely they were, where that is asked. Others that wait may have rows of the same pass: their
        steps are kept until they ask.
        """
        if request.made is None:
            waiting = self._waiting(request, len(context), 1, self.controller.n_worth)
            # Whose first token is still to come waits for those who came with it: prompts are read fastest together
            reads = [] if position else self._others_reading(request, len(context), waiting, 1)
            self.n_read_passes += bool(reads)
            self._make([(request, Due(context, sampler, position, most, report)), *waiting], reads)
        made, request.made = request.made, None
        if not isinstance(made, Step):
            raise made or AssertionError("a pass without its reply")
        return made

    def _waiting(
        self, request: RequestState, n_tokens: int, n_rows: int, n_worth: Callable[[int], int]
    ) -> list[Member]:
        """The other replies that have rows of a pass with `n_rows` for this one, of `n_tokens`."""
        return self.company.waiting(request, n_tokens, n_rows, n_worth) if self.company else []

    def _make(self, members: Sequence[Member], reads: Sequence[Tokens] = ()) -> None:
        """Makes a pass for the next steps of these replies, which are kept with them; it also reads prompts so far."""
        self.controller.clock = self.threads.clock if self.threads else time.perf_counter
        self._n_together, room = len(members), self.controller.max_k
        if self.company and len(members) > 1:
            room = self.company.room(members, room)
        self._switch_to(members[0][0], members[0][1].context)
        self._degrade_if_due(members[0][1].context)
        ready = self._prepare_all(members, room)
        if self.threads:
            self.threads.set()
        began, had = self.controller.clock(), time.process_time()
        if len(members) == len(ready) == 1 and not reads:
            logits = self.backend.forward(ready[0].due.context, ready[0].draft)
            seconds, had = self.controller.clock() - began, time.process_time() - had
            ready[0].request.made = self._conclude(ready[0], logits, seconds, seconds, had)
        elif ready:
            all_logits = self._forward(ready, reads)
            seconds, had = self.controller.clock() - began, time.process_time() - had
            self._conclude_all(ready, all_logits, seconds, had, reads)

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
        clock = self.controller.clock
        began = clock()
        proposals, broken = self._proposer.propose_together(list(later.values()), room)
        for drafter, error in broken:
            self._drop(drafter, error)
        seconds = (clock() - began) / len(later)
        for i, proposal in zip(later, proposals, strict=False):
            each = ready[i]
            ready[i] = each._replace(
                proposals=[*each.proposals, proposal], draft=proposal.draft, seconds=each.seconds + seconds
            )
        return ready

    def _prepare(self, request: RequestState, due: Due, room: int, later: list[Asked] | None = None) -> Prepared:
        """What is drafted for a reply, at most `room` tokens, but for what is left for `later`."""
        is_idle = request.n_idle > 0 and self.controller.n_together == self._n_together
        if not is_idle:
            self._switch_to(request, due.context)
        clock = self.controller.clock
        began = clock()
        due.sampler.begin(due.context, due.position)
        proposals, draft = ([], NO_DRAFT) if is_idle else self._propose(request, due, room, later)
        return Prepared(request, due, proposals, draft, is_idle, clock() - began)

    def _forward(self, ready: Sequence[Prepared], reads: Sequence[Tokens]) -> list[Logits]:
        """The logits of each, from one pass that several share."""
        assert self.company is not None
        asked = [(each.due.context, each.draft) for each in ready]
        self._n_reading = sum(len(each) - self.backend.n_cached(each) for each in reads)
        return self.company.forward([*asked, *((each, NO_DRAFT) for each in reads)])

    def _conclude_all(
        self,
        ready: Sequence[Prepared],
        all_logits: Sequence[Logits],
        seconds: float,
        had: float,
        reads: Sequence[Tokens],
    ) -> None:
        """Every reply has its share of the pass that they had together; an error is its own."""
        width = sum(1 + len(each.draft.tokens) for each in ready)
        n_context = sum(len(each.due.context) for each in ready) // len(ready)
        usual = [self.controller.own_seconds(len(each.draft.tokens)) for each in ready]
        self.controller.joint.learn_drafts([len(each.draft.tokens) for each in ready])
        if reads:
            self.controller.joint.learn_read(self._n_reading, seconds - sum(usual))
            seconds = min(seconds, sum(usual))  # the rest is the prompts'
        else:
            self._learn_cost((), width, n_context, seconds, had / max(seconds, 1e-9))
        for each, logits, own in zip(ready, all_logits, usual, strict=False):
            try:
                each.request.made = self._conclude(each, logits, seconds * own / sum(usual), seconds, had)
            except SlipstreamError as error:
                each.request.made = error

    def _conclude(self, ready: Prepared, logits: Logits, share: float, seconds: float, had: float) -> Step:
        """Verifies a reply's draft after a pass of so many seconds, of which it had a `share`, and learns from that."""
        began = self.controller.clock()
        request, due, proposals, draft, is_idle, drafting = ready
        self.controller.set_kind(request.kind)
        verdict = verify(draft, logits, due.sampler)
        for drafter in self._observers:
            drafter.observe(draft, logits)
        rows = [0, *(node + 1 for node in verdict.accepted)]
        each_logprobs = due.report(logits[rows], verdict.tokens) if due.report else ()
        names = tuple([proposal.name for proposal in proposals if proposal.draft.tokens])
        rest = drafting + self.controller.clock() - began
        if is_idle and self.controller.is_usual(share):
            request.n_idle -= 1
            self.controller.idle(rest + share)
        else:
            outcomes = [outcome(proposal, verdict.tokens) for proposal in proposals]
            self.controller.learn(outcomes, len(verdict.tokens), drafting, share, rest + share)
            self._learn_pass(names, 1 + len(draft.tokens), len(due.context), seconds, had)
            request.n_idle = self._steps_to_idle(request, names)
            for drafter in self._resting:
                drafter.rest(self.controller.n_unasked(drafter.name))
        n_accepted, times = len(verdict.accepted), (drafting, seconds, rest + seconds)
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
        if room <= 0 or not self.drafters:
            return [], NO_DRAFT
        proposals, broken = self._proposer.propose(self.drafters, request.drafters, context, sampler, room, later)
        for drafter, error in broken:
            self._drop(drafter, error)
        used = [proposal.draft for proposal in proposals if proposal.draft.tokens]
        return proposals, merge(used).first(room) if used else NO_DRAFT

    def _learn_pass(self, names: tuple[str, ...], width: int, n_context: int, seconds: float, worked: float) -> None:
        """Takes in what a reply's own pass over the tokens of `names` cost, for which all threads together `worked` so
        long.
        """
        if self._n_together == 1 and (names or self.controller.is_steady):
            self._learn_cost(names, width, n_context, seconds, worked / max(seconds, 1e-9))

    def _steps_to_idle(self, request: RequestState, names: tuple[str, ...]) -> int:
        """From now on, in which none of a reply's drafters need be asked; `names` had a draft in this one."""
        if names or (self.threads and self.threads.one.is_on_trial):
            return 0
        return self.controller.n_idle([drafter.name for drafter in self.drafters if drafter.name in request.drafters])

    def _learn_cost(self, drafters: tuple[str, ...], width: int, n_context: int, seconds: float, n_had: float) -> None:
        """Learns what a pass cost whose threads had `n_had` cores, unless it tried a number of threads that was not
        taken. The first pass of a width asks workers much that they are asked only once.
        """
        if self.is_far and width not in self._made:
            self._made.add(width)
            return
        change: float | None = 1.0
        if self.threads:
            expected = self.controller.costs_of(drafters, width).seconds(width, n_context)
            change = self.threads.observe(width, seconds, expected, n_had)
        if change == 1.0:
            self.controller.learn_pass(drafters, width, n_context, seconds)
        elif change is not None:
            self.controller.scale((lambda w: w == 1) if width == 1 else (lambda w: w > 1), change)

    def _drop(self, drafter: Drafter, error: SlipstreamError) -> None:
        """Goes on without a drafter that broke."""
        self._set_drafters(each for each in self.drafters if each is not drafter)
        drafter.close()
        self.controller.drop(drafter.name)
        self.failed = Reason("draft-error", f"the {drafter.name} drafter failed: {error}")

    @property
    def plain_rate(self) -> float:
        """Tokens per second of plain decode by itself, as measured here."""
        return self.controller.plain_alone

    @property
    def is_exact_only(self) -> bool:
        """Are replies whose text can be predicted kept to passes that round as plain decode does?"""
        return self.exact_rows < sys.maxsize

    @property
    def is_impaired(self) -> bool:
        """Is a drafter lacking, for want of memory or because it broke?"""
        return bool(self.shortage or self.failed)

    @property
    def memory_level(self) -> str:
        """How short memory is, as far as the drafters are kept to it."""
        return self.degradation.level.name if self.degradation else "OK"

    @property
    def given_up(self) -> str:
        """What is given up for want of memory and why, with numbers; "" while nothing is."""
        reason = self.degradation.reason if self.degradation else None
        return reason.text if reason else ""

    def set_waiting(self, n: int) -> None:
        """So many replies wait for the steps that are made from now on."""
        self.controller.n_waiting = n

    def why_plain(self) -> Reason:
        """Why the last step was plain."""
        reason = self.shortage or self.failed or self.request.left_out
        if reason is None and self.drafters and self.request.exact_only and self.exact_rows < 2:
            return self.inexact
        return reason or self.controller.reason()
