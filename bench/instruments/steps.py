"""Single steps of one sequence, for tests and benchmarks of a decoder."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from runtime.core.draft import Tokens
from runtime.sampling.sampler import Sampler
from runtime.speculative.decoder import Decoder
from runtime.speculative.step import DraftingState, Step, StepInput
from runtime.speculative.verify import rule_of

STATES: WeakKeyDictionary[Decoder, DraftingState] = WeakKeyDictionary()


def state_of(decoder: Decoder) -> DraftingState:
    """Return the state of the last sequence, or else of one for which all drafters are enabled."""
    return decoder.drafting.current or STATES.setdefault(
        decoder, DraftingState(drafters={each.name for each in decoder.active.drafters})
    )


def one_step(
    decoder: Decoder, context: Tokens, sampler: Sampler, position: int, most: int, state: DraftingState | None = None
) -> Step:
    """Return one step after `context` [n]. Raises the step's error."""
    state = state or state_of(decoder)
    state.rule = rule_of(sampler)
    (made,) = decoder.step([StepInput(state, context, sampler, position, most)])
    if isinstance(made, Step):
        return made
    raise made
