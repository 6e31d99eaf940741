"""Whether replies are faster here, why, the draft model or the search for one, and how to make them faster: sentences
and a picture for everyone.

Knows the numbers of a reply, the controller's explanation and the stored result of a search; knows no widgets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from textual.content import Content

from app.models.search_process import is_searched
from app.terminal import clean
from app.tui.numbers import ALIKE, DISTURBED, LEAST, acceptance, guess_seconds, is_elsewhere, sources, times
from runtime.drafters.registry import Needs, find
from runtime.engine import Engine
from runtime.engine.paired import last_verdict, remembered
from runtime.engine.stats import Stats
from runtime.models.adapters import told
from runtime.speculative.control.explain import DrafterFacts, Explanation

BAR = 32  # characters of the longest bar
SEVERAL = 4  # tokens of the pass whose cost is shown
DECIMAL = 20.0  # tokens per second, from which on they are told without a decimal
OFTEN = 0.6  # acceptance rate, from which on other drafts would not help much


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
            return "What could make this model faster is being tried in the background."
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
    remark = engine.facts.remark  # about its vocabulary
    about_words = remark and f" {remark[0].upper()}{remark[1:]}."
    return f"{name} guesses here. {cost(stats, explanation, drafting)}{about_words}"


def about_adapters(engine: Engine | None) -> str:
    """Return a sentence on the LoRA adapters of the model and their scales; "" if there is none."""
    known = clean(told(engine.pair.lora, with_off=True)) if engine else ""
    return f"The model runs with {known}; draft models guess without." if known else ""


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
    spent = f"took {1e3 * seconds:.3g} ms" if seconds else f"is expected to take {1e3 * drafting.rest_seconds:.3g} ms"
    return f"A guess {spent}; a token of the model alone takes {1e3 * explanation.pass_seconds[0]:.3g} ms."


def is_faster(stats: Stats) -> str:
    """Return a sentence on whether the last reply on screen was faster than plain decode."""
    if not stats.predicted_n:
        return "There are no numbers here yet; after the next reply you see whether it was faster."
    ratio, speed = times(stats), stats.predicted_per_second
    if ratio is None:
        return no_comparison(stats)
    alone = f"the {figure(speed / ratio)} tokens a second of the model alone"
    if abs(ratio - 1) <= ALIKE:
        return f"Neither faster nor slower: the last reply came at {figure(speed)}, about {alone}."
    answer = "Yes" if ratio > 1 else "No"
    return f"{answer}: the last reply came {ratio:.2f} times as fast, {figure(speed)} instead of {alone}."


def figure(value: float) -> str:
    """Return a number of tokens; tokens per second have a decimal where a whole number would hide a difference."""
    return f"{value:.1f}" if isinstance(value, float) and value < DECIMAL else f"{value:.0f}"


def no_comparison(stats: Stats) -> str:
    """Return the reason why that reply cannot be compared."""
    if stats.held_up >= DISTURBED:
        return (
            f"Hard to say: other programs took {stats.held_up:.0%} of the time of the last reply, so a comparison "
            "would not be fair."
        )
    if stats.predicted_n < LEAST:
        return f"Too early to say: the last reply was shorter than the {LEAST} tokens that a comparison takes."
    if stats.plain_per_second:
        speed = f"{figure(stats.predicted_per_second)} tokens a second"
        return f"There was little to guess from, so the last reply came as fast as the model writes alone: {speed}."
    return "Hard to say: how fast the model is alone was not measured."


def is_upstream(stats: Stats, engine: Engine | None) -> bool:
    """Return whether another server decides about drafts: for that reply, or for coming ones if there is none yet."""
    return is_elsewhere(stats) or bool(not stats.steps and engine is not None and engine.facts.upstream)


def because(stats: Stats, explanation: Explanation, engine: Engine | None) -> str:
    """Return a sentence on the reason."""
    if is_upstream(stats, engine):
        return f"{explanation.why_plain}."
    if not stats.steps:
        return (
            "Guesses at the next words are checked several at a time, which can cost less than writing them one by one."
        )
    reason = f": {why}" if (why := why_so_few(stats, explanation, engine)) else ""
    if not stats.draft_n:
        return f"The model wrote every token by itself{reason}."
    if (right := acceptance(stats)) is None:
        return too_few(stats, reason)
    text = f"{right:.0%} of the guesses from {sources(stats).most_common(1)[0][0]} were right"
    if 2 * stats.drafters["none"] > stats.n_passes:
        return f"{text}, but most passes had no guess{reason}."
    n = round(stats.tokens_per_target_pass, 1)
    return f"{text}, and each pass brought {f'{n} tokens instead of 1' if n > 1 else 'hardly more than 1 token'}."


def too_few(stats: Stats, reason: str) -> str:
    """Return a sentence on guesses that are too few to say how often they are right, with the reason if most tokens
    were not guessed.
    """
    share = (
        f"{stats.draft_n} of the reply's {stats.predicted_n} tokens {'was' if stats.draft_n == 1 else 'were'} guessed"
    )
    return f"Only {share}{reason}." if 2 * stats.draft_n < stats.predicted_n else f"{share}: too few to judge by."


def why_so_few(stats: Stats, explanation: Explanation, engine: Engine | None) -> str:
    """Return the reason for passes without guesses; "" if the sentence about the draft model has it."""
    reason = stats.reason.text if stats.reason is not None else explanation.why_plain
    is_told = engine is not None and engine.pair.draft is not None and reason in lack_of(engine)
    return "" if is_told else reason


def faster_still(stats: Stats, explanation: Explanation, engine: Engine | None, search: SearchState) -> str:
    """Return a sentence on what would help, the surest first."""
    if is_upstream(stats, engine):
        return "The other server decides that."
    if engine is not None and engine.status.given_up:
        return f"More free memory would make it faster{'' if engine.pair.draft else f': {engine.status.given_up}'}."
    if stats.held_up >= DISTURBED:
        return "It would be faster without the other programs that compute at the same time."
    if explanation.fixed_k is not None:
        return "Without --fixed-k the number of guesses is chosen by measurement."
    may_search = not search.sentence and (engine is None or engine.facts.can_draft)
    return other_guesses(stats, explanation, may_search) or cheaper_passes(explanation)


def other_guesses(stats: Stats, explanation: Explanation, may_search: bool) -> str:
    """Return advice on better drafts: a search for a draft model only if it may find one, "" if most are accepted."""
    if may_search and all(each.is_model_free for each in explanation.drafters):
        return "A small model that guesses would help: `slipstream models pair` finds the one that pays here."
    if (right := acceptance(stats)) is not None and right < OFTEN:
        return "Text that is easier to guess is faster: lists, code, and edits of earlier text in the chat."
    return ""


def cheaper_passes(explanation: Explanation) -> str:
    """Return advice for the case of good drafts."""
    widths = explanation.pass_seconds
    if len(widths) >= SEVERAL and widths[0] and (cost := widths[SEVERAL - 1] / widths[0]) > SEVERAL / 2:
        return (
            f"Checking {SEVERAL} tokens takes {cost:.1f} times as long as 1 on this machine: where that is cheaper, as "
            "on a graphics card, it would be faster."
        )
    return "A smaller model or a stronger quantization would help most; the guesses already bring about all they can."


def picture(stats: Stats) -> Content:
    """Return bars for the speeds of the last reply and of plain decode; without a comparison, for tokens by source."""
    ratio, speed = times(stats), stats.predicted_per_second
    if ratio is not None:
        return bars([("the model alone", speed / ratio), ("with guesses", speed)], "tok/s")
    if is_elsewhere(stats) and not stats.draft_n:  # that server may have drafted without reporting it
        return Content("")
    written = stats.predicted_n - stats.draft_n_accepted
    return bars([("written", written), ("guessed right", stats.draft_n_accepted)], "tokens") if written else Content("")


def bars(rows: Sequence[tuple[str, float]], unit: str) -> Content:
    """Return two bars, the second in color."""
    most = max(value for _, value in rows)
    lines = [
        Content.assemble(f"{name:>16}  ", ("█" * round(BAR * value / most), color), f"  {figure(value)} {unit}\n")
        for (name, value), color in zip(rows, ("$foreground 40%", "$success"), strict=True)
    ]
    return Content.assemble(*lines)


def three_sentences(stats: Stats, explanation: Explanation, engine: Engine | None) -> list[tuple[str, str]]:
    """Return the questions and their answers, also about a draft model if there is one or a search for one."""
    search = state_of(engine)
    draft = about_draft(stats, explanation, engine, search)
    return [
        ("Is it faster?", is_faster(stats)),
        ("Why?", because(stats, explanation, engine)),
        *([("Is there a draft model?", draft)] if draft else []),
        *([("Which adapters are on?", adapters)] if (adapters := about_adapters(engine)) else []),
        ("What would make it faster?", faster_still(stats, explanation, engine, search)),
    ]
