"""The draft model of the loaded one, or the search for it, in a sentence for everyone.

Knows the pair, the numbers of a reply and the stored result of the search; knows no widgets and runs no search.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from app.models.search_process import is_searched
from app.tui.numbers import guess_seconds
from app.tui.pieces import clean
from runtime.drafters.registry import Needs, find
from runtime.engine import Engine
from runtime.engine.stats import Stats
from runtime.speculative.control.explain import DrafterFacts, Explanation
from runtime.tools.paired import last_verdict, remembered


@dataclass(frozen=True, slots=True)
class SearchState:
    """The state of the search for a target's draft model."""

    is_running: bool = False
    found: Path | None = None  # the draft model that pays
    verdict: str = ""  # of the last search, in a sentence

    @property
    def sentence(self) -> str:
        """The state in a sentence; "" if there was no search."""
        if self.is_running:
            return "The models on this machine are being tried as draft models in the background."
        if self.found is not None:
            name = clean(self.found.name)
            return f"{name} was found. It guesses from the next load of this model on, unless `--draft off` is given."
        return clean(self.verdict)


def state_of(engine: Engine | None) -> SearchState:
    """Return the state of the search for the loaded model."""
    if engine is None or not engine.pair.target or engine.facts.upstream:
        return SearchState()
    target = engine.pair.target
    return SearchState(is_searched(target), remembered(target), last_verdict(target))


def about_draft(stats: Stats, explanation: Explanation, engine: Engine | None, search: SearchState) -> str:
    """Return a sentence on the draft model: its cost, or why it is left out, or the search for one; "" if there is
    nothing to report.
    """
    if engine is None or engine.pair.draft is None:
        return search.sentence
    name, drafting = clean(engine.pair.draft.name), model_drafter(explanation)
    if drafting is None:
        reason = lack_of(engine)
        return f"{name} is not used{': ' * bool(reason)}{reason}."
    return f"{name} guesses here. {cost(stats, explanation, drafting)}"


def lack_of(engine: Engine) -> str:
    """Return why a part of the pair is missing now; "" if none is."""
    return str(engine.status.given_up or engine.facts.left_out)


def model_drafter(explanation: Explanation) -> DrafterFacts | None:
    """Return the facts of the draft model or head, if one is in use."""
    known = [(each, find(each.name)) for each in explanation.drafters]
    return next((each for each, drafter in known if drafter and drafter.needs in (Needs.DRAFT, Needs.HEAD)), None)


def cost(stats: Stats, explanation: Explanation, drafting: DrafterFacts) -> str:
    """Return the time of a guess, as measured in the reply if it had any, and of a token without guesses."""
    seconds = guess_seconds(stats).get(drafting.name, 0.0)
    told = f"took {1e3 * seconds:.3g} ms" if seconds else f"is expected to take {1e3 * drafting.rest_seconds:.3g} ms"
    return f"A guess {told}; a token of the model alone takes {1e3 * explanation.pass_seconds[0]:.3g} ms."
