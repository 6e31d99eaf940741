"""One step of decoding a batch: propose, forward, verify, learn. Plain decode is the empty draft.

Knows token ids only. The scheduler chooses the sequences of a step, and the engine decides which tokens end a reply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from runtime.core.draft import Logits, PassInput, Tokens
from runtime.core.drafter import NO_DRAFTER, Drafter
from runtime.speculative.active_drafters import ActiveDrafters
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.explain import Why
from runtime.speculative.control.passes import PassTime
from runtime.speculative.control.reasons import Reason
from runtime.speculative.control.threads import Threads
from runtime.speculative.control.tuning import TUNING
from runtime.speculative.degradation import Degradation
from runtime.speculative.drafting import Drafting
from runtime.speculative.step import DraftingState, Step, StepInput, StepPlan, Widths
from runtime.speculative.target import TargetPasses

WHY_IDLE = "it did not help recently, so it is skipped for a few passes"
WHY_PREFILL, WHY_LAST_TOKEN = "the pass also read the prompt's last tokens", "there was room for one token"

Result = Step | Exception


class Decoder:
    """A target, its drafters in order of cost, and the controller that chooses among them."""

    def __init__(
        self,
        target: TargetPasses,
        drafters: Sequence[Drafter],
        controller: Controller,
        threads: Threads | None = None,
        degradation: Degradation | None = None,
    ) -> None:
        self.target, self.controller, self._passes = target, controller, controller.passes
        self.active = ActiveDrafters(drafters, controller, target.backend, degradation)
        self.drafting = Drafting(target, controller, self.active, threads)
        self._passes.threads = threads

    def read(self, prompts: Sequence[PassInput], n_sequences: int = 1) -> None:
        """Prefill the uncached tokens of `prompts` in one pass. Raises the errors of the pass."""
        self._passes.set_clock()
        self._watch_memory(None)
        n_rows = self.target.n_unread(prompts)
        _, took = self._passes.time(lambda: self.target.forward(prompts))
        if n_sequences > 1 and self.target.shared:
            self._passes.joint.learn_read(n_rows, took.seconds)
        self.drafting.current = None

    def begin(
        self,
        state: DraftingState,
        context: Tokens,
        expected: Sequence[int] = (),
        has_grammar: bool = False,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Begin a reply to `context` [n]; drafters prefill it too if the reply is long enough to repay that. Return
        whether that was its last piece; if not, it is to be called again, and other sequences may have steps first.
        """
        if self._passes.threads:
            self._passes.threads.resume()
        self.drafting.current, state.reading.context = state, context
        state.beginning = state.beginning or self.active.begin(state, context, expected, has_grammar, is_cancelled)
        try:
            state.has_begun = bool(next(state.beginning, True))
        except Exception:
            state.beginning = None  # else it would end here the next time
            raise
        self.drafting.current = state if state.has_begun else None
        return state.has_begun

    def finish(self, context: Tokens, n_prompt: int) -> None:
        """End a reply, complete or not: the tokens of `context` after the first `n_prompt`."""
        self.active.finish(context, n_prompt)

    def rest(self) -> None:
        """Note that no sequence is left: the use of cores by other processes is not measured until the next reply."""
        if self._passes.threads:
            self._passes.threads.pause()

    def step(self, batch: Sequence[StepInput], prompts: Sequence[PassInput] = (), n_sequences: int = 1) -> list[Result]:
        """Run one pass that decodes these sequences and prefills `prompts`. `n_sequences` counts all active sequences,
        in this pass or not.

        Returns for each input its step or its own error. Raises the errors of the pass.
        """
        self._passes.set_clock()
        self._watch_memory(batch[0])
        errors, ready = self.drafting.propose(batch)
        results: dict[int, Result] = {**errors}
        if ready:
            n_read = self.target.n_unread(prompts) + sum(each.asked.n_unread for each in ready)
            asked = [pass_input(each) for each in ready]
            all_logits, took = self._passes.time(lambda: self.target.forward([*asked, *prompts]))
            shares, took = self._shares(ready, took, n_read, n_sequences)
            for each, logits, share in zip(ready, all_logits, shares, strict=False):
                try:
                    results[each.number] = self._verify(each, logits, share, took, len(batch))
                except Exception as error:  # of this sequence alone
                    results[each.number] = error
        if prompts:
            self.drafting.current = None
        return [results[number] for number in range(len(batch))]

    def _watch_memory(self, first: StepInput | None) -> None:
        """Suspend or restore drafters before a pass, as memory requires.

        The memory level is read at intervals. While drafters are suspended, every step checks whether they can be
        restored; restored ones join the `first` sequence.
        """
        watch = self.active.degradation
        if watch is not None and (watch.reason or watch.monitor.clock() >= watch.monitor.next_look):
            self.active.degrade(*(first[:2] if first else ()))

    def _shares(
        self, ready: Sequence[StepPlan], took: PassTime, n_read: int, n_sequences: int
    ) -> tuple[list[float], PassTime]:
        """Return each sequence's share of a pass in seconds, and the pass time without the `n_read` prompt tokens. The
        cost model of shared passes is updated.
        """
        n_drafted = [len(each.draft.tokens) for each in ready]
        n_context = sum(len(each.asked.context) for each in ready) // len(ready)
        if n_sequences > 1 and self.target.shared:
            self._passes.joint.learn(n_drafted, n_context, n_read, took.seconds)
        usual = [each.terms.shares[n] for each, n in zip(ready, n_drafted, strict=True)]
        return self._passes.divide(usual, n_drafted, n_context, n_read, took)

    def _verify(self, ready: StepPlan, logits: Logits, share: float, took: PassTime, n_together: int) -> Step:
        """Verify a sequence's draft after a pass, and learn from the outcome. `share` is its part of the pass [s]."""
        began, asked, draft = self._passes.clock(), ready.asked, ready.draft
        if self.active.drafters:
            self.controller.set_kind(*asked.state.kind)
        verdict = asked.state.rule.verify(draft, logits, asked.sampler)
        for drafter in self.active.observers:
            drafter.observe(draft, logits)
        rows = [0, *(node + 1 for node in verdict.accepted)]
        logprobs = asked.report(logits[rows], verdict.tokens) if asked.report else ()
        rest = ready.seconds + self._passes.clock() - began
        if not asked.n_unread:  # a pass that also reads a prompt does not predict the time of other passes
            self._learn(ready, verdict.tokens, share, rest, took, n_together)
        n_accepted, times = len(verdict.accepted), (ready.seconds, took.seconds, rest + took.seconds)
        name = ready.used.name if ready.used else NO_DRAFTER
        why = self._why(ready) if asked.state.is_traced else None
        return Step(verdict.tokens, n_accepted, len(draft.tokens), name, *times, logprobs, n_together, why)

    def _learn(
        self, ready: StepPlan, tokens: tuple[int, ...], share: float, rest: float, took: PassTime, n_together: int
    ) -> None:
        """Learn from a step that generated `tokens`: `share` seconds of the pass, `rest` seconds of drafting and
        verification.
        """
        state, terms, used, draft = ready.asked.state, ready.terms, ready.used, ready.draft
        if ready.is_idle and share < TUNING.unusual_pass * terms.shares[0]:
            state.n_idle -= 1
            self.controller.idle(rest + share)
            return
        outcomes = [each.outcome(tokens, each is used) for each in ready.proposals]
        self.controller.learn(terms, ready.choices, outcomes, len(tokens), ready.seconds, share, rest + share)
        if n_together == 1:
            name = used.name if used else NO_DRAFTER
            self._passes.note_alone(name, 1 + len(draft.tokens), len(ready.asked.context), took)
        is_busy = bool(draft) or self._passes.is_settling
        state.n_idle = 0 if is_busy else self.controller.n_idle(terms)
        for drafter in self.active.resting:
            drafter.rest(self.controller.n_unasked(terms, drafter.name))

    def _why(self, ready: StepPlan) -> Why:
        """Return the trace entry of a step."""
        asked, used = ready.asked, ready.used
        reason = (
            WHY_PREFILL
            if asked.n_unread
            else WHY_LAST_TOKEN
            if asked.most < 2
            else ""
            if used
            else self.why_plain(asked.state).text
        )
        unasked = dict.fromkeys(asked.state.drafters, WHY_IDLE) if ready.is_idle else ready.unasked
        drafted = tuple(each.name for each in ready.proposals)
        confidences, n_context = used.draft_confidences if used else (), len(asked.context)
        return Why(n_context, confidences, reason, self.controller.plain_alone(n_context), drafted, unasked)

    def why_plain(self, state: DraftingState | None = None) -> Reason:
        """Return why the last step of a sequence was plain; by default, of the sequence that was decoded last."""
        state = state or self.drafting.current or DraftingState()
        reason = self.active.shortage or self.active.failed or state.left_out
        target = self.target.of(state.kind.adapters)
        if reason is None and self.active.drafters and state.widths is Widths.EXACT and target.exact_rows < 2:
            return target.inexact
        return reason or self.controller.reason(state.terms)


def pass_input(plan: StepPlan) -> PassInput:
    """Return the context and the draft to verify, for the pass."""
    state = plan.asked.state
    return PassInput(plan.asked.context, plan.draft, state.widths is Widths.EXACT, state.kind.adapters)
