"""Finds the available model that drafts best for a target: compares vocabularies, measures the rest with the real
engine, and stores the best.

Knows headers, engines and times; the caller supplies the candidates.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from runtime.conversation.chat_template import Message
from runtime.core.errors import DraftError, SlipstreamError
from runtime.engine import Engine, Sampling
from runtime.engine.paired import Trial, memo_of, named, summary, trial_of
from runtime.engine.stats import Stats
from runtime.loading.neighbours import Neighbours
from runtime.models.drafting import HeaderVocab, are_alike, why_undraftable
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.heads import drafter_of, unfit
from runtime.models.registry import Pair
from runtime.models.shards import is_first_shard
from runtime.models.trimmed import bytes_per_token, is_worth_it, trim_of
from runtime.speculative.control.explain import Explanation
from runtime.training.made_drafts import whole

if TYPE_CHECKING:
    from runtime.engine.loaded import LoadedEngine

BUDGET = 8.0  # seconds for one candidate, without its loading
LARGEST = 0.5  # share of the target's bytes per token that a draft model may read; above, it can hardly pay
WIDEST = 9  # rows of the widest pass that is reported
LEFT_OUT = "cost", "draft-error", "memory"  # codes of the reasons for a draft that is not active
MAX_TOKENS, LEAST_TOKENS = 48, 8  # of a reply, at most; and of one that counts, at least
PROMPTS = (
    "Explain in a few sentences how a bicycle stays upright.",
    "Write a Python function that counts the words in a text file.",
    "List the months of the year with their number of days.",
    "Summarise: The meeting began at nine. Two plans were compared, and the cheaper one was chosen after an hour.",
    "What does a hash table do, and when is it slow?",
)


class Target:
    """A model for which a draft model is searched."""

    def __init__(self, pair: Pair, prompts: Sequence[str] = PROMPTS) -> None:
        self.pair, self.prompts = replace(pair, draft=None), prompts
        self.facts = ModelFacts(read_model_header(pair.target))
        self._vocab = HeaderVocab(self.facts.header)

    @property
    def undraftable(self) -> str:
        """The reason why nothing can draft for it; "" if that is possible."""
        return why_undraftable(self.facts)

    def refusal(self, path: Path) -> str:
        """Return the reason why a file cannot draft; "" if it can, perhaps with another vocabulary."""
        try:
            facts = ModelFacts(read_model_header(path))
            if drafter_of(facts):
                return unfit(facts, self.facts, path)
            if trim := trim_of(facts):
                return f"it is a copy of {trim.source} with fewer words; name that, and a copy is made again"
            n_bytes = bytes_per_token(facts) if is_worth_it(path, facts) else facts.n_bytes_per_token
            if n_bytes > LARGEST * self.facts.n_bytes_per_token:
                share = n_bytes / max(1, self.facts.n_bytes_per_token)
                return f"it reads {share:.0%} of what the target reads for a token, so it can hardly pay"
            if not facts.n_bytes or not facts.n_vocab:
                return "it has no weights or no vocabulary"
            return why_undraftable(facts) if facts.pooling.is_pooled else ""
        except SlipstreamError as error:
            return str(error)

    def is_foreign(self, path: Path) -> bool:
        """Return whether a draft model has another vocabulary than the target, as its header spells it."""
        facts = ModelFacts(read_model_header(path))
        return not (drafter_of(facts) or are_alike(self._vocab, HeaderVocab(facts.header)))

    def open(self, draft: Path | None) -> LoadedEngine:
        """Return an engine with that draft model, or without any."""
        from runtime.engine.loaded import LoadedEngine  # the library, which most callers do not need

        return LoadedEngine(replace(self.pair, draft=draft))

    @staticmethod
    def pass_seconds(plain: LoadedEngine) -> list[float]:
        """Return the seconds of an engine's passes over 1, 2, ... rows, as measured when it was loaded."""
        return plain.decoder.controller.passes.costs.up_to(WIDEST, 0)

    def try_out(self, plain: Engine, draft: Path) -> Trial:
        """Measure a draft model in turns with an engine without it, so that a busy moment affects both.

        Raises SlipstreamError.
        """
        engine, ends = self.open(draft), time.perf_counter() + BUDGET
        sampling, others, is_calm = drafted(engine), Neighbours(), True
        ratios: list[float] = []
        seen: list[Stats] = []
        try:
            self._require_draft(engine, draft)
            for prompt in [*self.prompts] * 4:
                before, after = (self._answer(each, prompt, sampling) for each in (plain, engine))
                if min(before.predicted_n, after.predicted_n) >= LEAST_TOKENS:
                    ratios.append(after.predicted_per_second / before.predicted_per_second)
                    seen.append(after)
                is_calm = others.are_calm() and is_calm
                if time.perf_counter() > ends:
                    break
            known = engine.explain()
        finally:
            engine.close()
        own = [each for stats in seen for each in stats.steps if each.drafter == drafter_in(draft)]
        n_tokens = sum(stats.predicted_n for stats in seen)
        trial = trial_of(ratios, [stats.predicted_per_second for stats in seen], own, n_tokens)
        return replace(trial, costs=costs_of(known, drafter_in(draft), trial.guess_seconds), is_calm=is_calm)

    @staticmethod
    def _require_draft(engine: LoadedEngine, draft: Path) -> None:
        """Raise DraftError if the engine runs without the draft that it was opened with."""
        active = engine.decoder.active
        is_there = drafter_in(draft) in [each.name for each in active.drafters]
        if not is_there and (failed := active.failed) and failed.code in LEFT_OUT:
            raise DraftError(failed.text)

    def _answer(self, engine: Engine, prompt: str, sampling: Sampling) -> Stats:
        """Generate a short reply, and return its statistics."""
        asked = [Message("user", prompt)] if self.facts.has_template else prompt
        *_, last = engine.reply(asked, sampling, MAX_TOKENS)
        assert last.stats is not None
        return last.stats

    def keep(self, trials: Mapping[Path, Trial], found: Iterable[Path] = (), verdict: str = "") -> Path | None:
        """Store the draft model with the largest gain, or that none pays, for this file, device and build, and return
        it.

        The verdict in words and a digest of the candidates are stored as well.
        """
        best = best_of(trials)
        kept = named("draft", best) | named("source", whole(best)) if best else {"draft": ""}
        memo_of(self.pair.target).write(kept | {"found": summary(found), "verdict": verdict})
        return best


def drafted(engine: Engine) -> Sampling:
    """Return sampling settings under which drafts are used.

    Temperature is 0, except where passes over several tokens round differently. There the defaults apply, since only
    sampled replies are drafted then.
    """
    return Sampling(temperature=0.0) if engine.facts.exactness.width > 1 else Sampling()


def costs_of(known: Explanation, name: str, measured: float = 0.0) -> str:
    """Return the times of a draft token of that drafter, its verification and a plain token, in a clause; "" if
    unknown.

    `measured` is the seconds of its draft tokens in the trial. Only if it made none, the estimate is returned.
    """
    seconds = measured or next((each.rest_seconds for each in known.drafters if each.name == name), 0.0)
    if not seconds or len(known.pass_seconds) < 2:
        return ""
    plain, check = 1e3 * known.pass_seconds[0], 1e3 * (known.pass_seconds[1] - known.pass_seconds[0])
    takes = "takes" if measured else "is expected to take"
    return f"one {takes} {1e3 * seconds:.3g} ms and checking it {check:.3g} ms more, a plain token {plain:.3g} ms"


def drafter_in(draft: Path) -> str:
    """Return the name of the drafter for a file."""
    return drafter_of(ModelFacts(read_model_header(draft))) or "model"


def best_of(trials: Mapping[Path, Trial]) -> Path | None:
    """Return the draft model with the largest gain, of those that pay; None if none does."""
    paying = [path for path, trial in trials.items() if trial.pays]
    return max(paying, key=lambda path: trials[path].ratio, default=None)


def candidates(target: Path, others: Iterable[Path]) -> list[Path]:
    """Return GGUF files in the target's folder, and `others`: each once, models only, without the target itself."""
    found = {
        path.resolve(): path
        for path in (*sorted(target.parent.glob("*.gguf")), *others)
        if path.is_file() and is_first_shard(path.name)
    }
    return [path for real, path in found.items() if real != target.resolve()]
