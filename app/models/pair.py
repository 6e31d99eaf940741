"""`slipstream models pair`: tries the draft models on this machine and shows in numbers which one pays.

Knows the terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

from app.chats.database import latest_replies
from app.terminal import gigabytes, print_note, print_text
from runtime.core.errors import SlipstreamError
from runtime.core.outside import expanded
from runtime.engine import Engine
from runtime.engine.paired import Trial, note_failure, remembered
from runtime.engine.pairing import Target, best_of, candidates
from runtime.loading import cache_types, layout
from runtime.loading.cache_types import CacheTrial
from runtime.loading.layout import LayoutTrial, compare
from runtime.models.hub.cache import cached
from runtime.models.model_files import hub_name
from runtime.models.registry import load_registry, local_pair
from runtime.training import made_drafts
from runtime.training.trimmed_drafts import Trimmer, promise

T = TypeVar("T", CacheTrial, LayoutTrial)


def pair_up(name: str, folders: list[Path], make: bool = False) -> bool:
    """Find draft models, refuse or measure them, and keep the best. With `make`, also make drafts from the target
    itself. Return whether the result holds until other models are found; it does not where other programs computed
    meanwhile and none paid.
    """
    target = Target(local_pair(name, load_registry()))
    if why := target.undraftable:
        print_text(f"Nothing can draft for {target.pair.target.name}: {why}. It uses plain decode, so nothing is lost.")
        return True
    try:
        return search(target, folders, make)
    except SlipstreamError as error:
        note_failure(target.pair.target, str(error))
        raise


def search(target: Target, folders: list[Path], make: bool) -> bool:
    """Try the models and keep the best; see `pair_up`. Raises SlipstreamError."""
    usual = usual_candidates(target.pair.target)
    is_settled = settle(target.pair.target)
    given = [path for folder in folders for path in sorted(expanded(folder).rglob("*.gguf"))]
    kept = [made_drafts.whole(path) for path in [remembered(target.pair.target)] if path]
    found = candidates(target.pair.target, [*kept, *given, *usual])
    try:
        fit = list(fitting(target, [*found, *(path for path in (made(target) if make else ()) if path not in found)]))
        trials = measure(target, fit)
        told, measured = verdict(target, trials, len(found)), successes(trials)
        holds = best_of(measured) is not None or all(trial.is_calm for trial in measured.values())
        told += "" if holds else " Other programs used the processor meanwhile, so all of it is tried again later."
        target.keep(measured, usual if holds else (), told)
    finally:
        made_drafts.discard(target.pair.target, remembered(target.pair.target))
    print_text(told)
    return holds and is_settled


def settle(target: Path) -> bool:
    """Compare what remains to be compared of the target itself. Return whether all of that is settled."""
    return all([settle_types(target), settle_layout(target)])


def settle_types(target: Path) -> bool:
    """Compare the types of the target's cache if its load had no time for that. Return whether that is settled."""
    is_pending = cache_types.is_pending(target)
    return not is_pending or settled(target, "types of its cache", cache_types.retried, keep_types)


def settle_layout(target: Path) -> bool:
    """Compare both layouts of the weights, once. Return whether that is settled."""
    is_pending = layout.remembered(target) is None
    return not is_pending or settled(target, "layouts of its weights", compare, keep_layout)


def settled(target: Path, what: str, make: Callable[[Path], T], keep: Callable[[Path, T], None]) -> bool:
    """Make a trial and keep it for the next start. Return whether that is settled: not where other programs computed
    meanwhile.
    """
    try:
        trial = make(target)
    except SlipstreamError as error:
        say(str(error))
        return True
    if trial.is_calm:
        keep(target, trial)
    else:
        say(f"{target.name}: other programs used the processor, so the {what} are compared later.")
    return trial.is_calm


def keep_types(target: Path, trial: CacheTrial) -> None:
    """Remember and report which types are faster."""
    cache_types.remember(target, trial)
    say(f"{target.name}: {trial}.")


def keep_layout(target: Path, trial: LayoutTrial) -> None:
    """Remember which layout is better, and report it where there is a choice."""
    layout.remember(target, trial)
    if trial.fast_width < trial.tried:
        when = "from now on" if layout.has_seeds(target) else "once replies have seeds"
        taken = f"and it is used {when}" if trial.prefers_exact else "and it is off by default"
        say(f"{target.name}: {trial.promise}, {taken}.")


def usual_candidates(target: Path) -> list[Path]:
    """Return the models that are tried without being named: next to the target, in the hub's cache, in models.toml."""
    pairs = load_registry().values()
    named = [path for pair in pairs for path in pair.files if not hub_name(path)]
    return candidates(target, [*(file.path for file in cached()), *named])


def made(target: Target) -> Iterator[Path]:
    """Make smaller copies of the target, and report those that cannot be made."""
    path = target.pair.target
    for recipe in made_drafts.makeable(path, target.facts):
        say(f"Making a smaller copy of {path.name}: {recipe.name} ...")
        try:
            yield made_drafts.make(path, target.facts, recipe)
        except SlipstreamError as error:
            say(str(error))


def fitting(target: Target, found: Iterable[Path]) -> Iterable[Path]:
    """Yield the models that can draft, and report why the others cannot."""
    for path in found:
        if why := target.refusal(path):
            say(f"{path}: no: {why}")
        else:
            yield path


def measure(target: Target, fit: list[Path]) -> dict[Path, Trial | SlipstreamError]:
    """Measure each model, and its copy with fewer words if that may pay. Return each one's result, or why it cannot
    draft. Those with another vocabulary are measured only if none with the target's pays: they are right less often.
    """
    trials: dict[Path, Trial | SlipstreamError] = {}
    if not fit:
        return trials
    foreign = [path for path in fit if target.is_foreign(path)]
    plain = target.open(None)
    try:
        ids = partial(plain.tokenize, special=False)
        trimmer = Trimmer(target.pair.target, lambda: map(ids, latest_replies()))
        for path in [*(path for path in fit if path not in foreign), *foreign]:
            if path in foreign and best_of(successes(trials)):
                say(f"{path}: not tried: its vocabulary is another one, and a draft model without that difference pays")
                continue
            for each in (path, *(trimmed(trimmer, path) if path not in foreign else ())):
                say(f"{each} ({gigabytes(each.stat().st_size)}): measuring ...")
                trials[each] = tried(target, plain, each)
                say(f"{each}: {outcome(trials[each], trials[path] if each != path else None)}")
    finally:
        plain.close()
    return trials


def tried(target: Target, plain: Engine, path: Path) -> Trial | SlipstreamError:
    """Return the trial of one model, or the error."""
    try:
        return target.try_out(plain, path)
    except SlipstreamError as error:
        return error


def outcome(trial: Trial | SlipstreamError, whole: Trial | SlipstreamError | None = None) -> str:
    """Return a model's result in words. For a copy, it is compared with the `whole` model."""
    if not isinstance(trial, Trial):
        return f"no: {trial}"
    if not trial.is_known:
        return in_short(trial)
    comparison = (
        f" ({whole.acceptance:.0%} with the whole vocabulary)" if isinstance(whole, Trial) and whole.is_known else ""
    )
    return f"{in_short(trial)}, {trial.acceptance:.0%} of its draft tokens accepted{comparison}"


def successes(trials: Mapping[Path, Trial | SlipstreamError]) -> dict[Path, Trial]:
    """Return the models that could be measured."""
    return {path: trial for path, trial in trials.items() if isinstance(trial, Trial)}


def trimmed(trimmer: Trimmer, path: Path) -> Iterator[Path]:
    """Yield the copy of the model with fewer words if it reads clearly fewer bytes. Report why it cannot be made."""
    try:
        if what := promise(path):
            say(f"Making a copy of {path.name} with {what} ...")
            yield trimmer.make(path)
    except SlipstreamError as error:
        say(str(error))


def verdict(target: Target, trials: Mapping[Path, Trial | SlipstreamError], n_found: int) -> str:
    """Return the result of the search in one sentence."""
    name, measured = target.pair.target.name, successes(trials)
    if best := best_of(measured):
        return (
            f"Kept: {best} drafts for {name}, {measured[best].ratio:.2f} times as fast as without it. `--draft auto` "
            "uses it from now on."
        )
    if trials:
        found = "; ".join(f"{path.name}: {in_short(trial)}" for path, trial in trials.items())
        return f"No draft model pays for {name} here ({found}), so none is used."
    looked = (
        f"None of the {n_found} models that were found fits and can pay here" if n_found else "No other model was found"
    )
    return (
        f"{looked}. Fetch a small model of the same family with `slipstream models pull`, or name a folder with --from."
    )


def in_short(trial: Trial | SlipstreamError) -> str:
    """Return a model's result, or why it cannot draft, as a clause."""
    if isinstance(trial, Trial) and not trial.is_known:
        return f"it was rarely used{trial.costs and f', since {trial.costs}'}"
    if isinstance(trial, Trial):
        return f"{trial.ratio:.2f} times the speed without it"
    return str(trial).removeprefix("the draft model was left out, because ").removesuffix(".")


def say(text: str) -> None:
    """Print progress on standard error. Only the verdict goes to standard output."""
    print_note(text)
