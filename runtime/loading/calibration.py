"""Cost of passes and the fastest threads here: measured at the first load, cached, and measured again after a change.

Also the most that a draft model could save at these costs: if even fully accepted drafts would not pay, it is not
loaded. Knows backends and times; the controller makes its choices with them.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace

from runtime.core.backend import Backend
from runtime.core.cores import Clock, wall
from runtime.loading.pass_timing import Pass, fastest_threads, measure, pass_runner, timed
from runtime.loading.profile_cache import ProfileCache
from runtime.speculative.control.costs import PassCosts
from runtime.speculative.control.policy import best_case

BUDGET = 1.5  # seconds for all measurements of a model
FAR_BUDGET, FAR_PASSES = 6.0, 50  # minimum seconds and plain passes, where each pass goes over a network
MAX_THREADS, MAX_PASS_SECONDS = 4096, 3600.0  # plausible limits of threads and of the seconds of a pass
HOLDS = 0.75, 1.33  # ratios to the cached time within which a plain pass is unchanged


@dataclass(frozen=True, slots=True)
class Calibration:
    """The fastest numbers of threads for passes of one row and of several, and the seconds of a pass by width.

    `after` is the additional seconds of a plain pass that follows a wider one.
    """

    one: int
    many: int
    pass_seconds: dict[int, float]
    after: float = 0.0

    def scaled(self, factor: float) -> Calibration:
        """Return the calibration with all times multiplied by `factor`."""
        scaled = {width: factor * seconds for width, seconds in self.pass_seconds.items()}
        return replace(self, pass_seconds=scaled, after=factor * self.after)

    def padded(self, rows: int) -> Calibration:
        """Return the calibration for passes that are all padded to at least `rows` rows."""
        seconds = self.costs().seconds(max(1, rows), 0)
        padded = {w: max(seconds, s) if w < rows else s for w, s in self.pass_seconds.items()}
        return replace(self, pass_seconds=padded, after=self.after if rows < 2 else 0.0)

    def costs(self) -> PassCosts:
        """Return the times as a cost model that continues to learn."""
        costs = PassCosts()
        for width, seconds in self.pass_seconds.items():
            costs.set(width, seconds)
        costs.set_after(self.after)
        costs.doubt()
        return costs


def calibrate(
    backend: Backend,
    max_width: int,
    counts: list[int],
    cache: ProfileCache,
    clock: Clock = wall,
    is_far: bool = False,
) -> Calibration:
    """Return the calibration of a backend, and set its threads.

    Takes BUDGET seconds, more where workers run the passes, or only a few passes while the cached calibration holds.
    """
    calibration = remembered(cache)
    change = change_since(calibration, backend, clock) if calibration else 0.0
    if (
        calibration is not None
        and HOLDS[0] < change < HOLDS[1]
        and not wants_more_threads(calibration.scaled(change), backend, max(counts))
    ):
        return calibration.scaled(change)
    calibration = take(backend, max_width, counts, clock, is_far)
    cache.write(asdict(calibration))
    backend.set_threads(calibration.one, calibration.many)
    return calibration


def remembered(cache: ProfileCache) -> Calibration | None:
    """Return the last calibration from the cache, if it can be read and is plausible."""
    found = cache.read_as(Calibration)
    if found is None or min(found.one, found.many) < 1 or max(found.one, found.many) > MAX_THREADS:
        return None
    widths, seconds = found.pass_seconds.keys(), found.pass_seconds.values()
    may_be = min(widths, default=0) == 1 and min(seconds) > 0 and 0 <= found.after <= max(seconds) < MAX_PASS_SECONDS
    return found if may_be else None


def change_since(calibration: Calibration, backend: Backend, clock: Clock) -> float:
    """Return the ratio of a plain pass's time now to its calibrated time; set the backend's threads.

    A busy or throttled machine counts as another machine.
    """
    backend.set_threads(calibration.one, calibration.many)
    run = pass_runner(backend, clock)
    run(1)
    return timed(run, 1, 5, float("inf")) / calibration.pass_seconds[1]


def wants_more_threads(
    calibration: Calibration, backend: Backend, most: int, n_passes: int = 3, clearly: float = 0.9
) -> bool:
    """Return whether `n_passes` plain passes with `most` threads take less than `clearly` times as long now.

    If so, fewer threads were chosen because the machine was busy, which it no longer is.
    """
    if calibration.one >= most:
        return False
    backend.set_threads(most, most)
    run = pass_runner(backend)
    run(1)
    is_faster = timed(run, 1, n_passes, float("inf")) < clearly * calibration.pass_seconds[1]
    backend.set_threads(calibration.one, calibration.many)
    return is_faster


def take(backend: Backend, max_width: int, counts: list[int], clock: Clock, is_far: bool = False) -> Calibration:
    """Measure everything: threads first, because passes depend on them."""
    began, run = time.perf_counter(), pass_runner(backend, clock)
    one = many = fastest_threads(counts, lambda n: backend.set_threads(n, n), run, 1, began + 0.25 * BUDGET)
    if max_width > 1:
        many = fastest_threads(
            counts, lambda n: backend.set_threads(one, n), run, min(4, max_width), began + 0.5 * BUDGET
        )
    backend.set_threads(one, many)
    costs = PassCosts()
    measure(costs, run, max_width, began + (far_budget(run) if is_far else BUDGET), warms=is_far)
    return Calibration(one, many, costs.widths(0), costs.after)


def far_budget(run: Pass) -> float:
    """Return the seconds for timing passes over several rows on workers, at any network distance.

    The first pass of a width takes as long as several, because it includes requests that are made only once.
    """
    run(1)
    return max(FAR_BUDGET, FAR_PASSES * run(1))


# Number of starts in a row that must find it cannot pay before it is no longer opened, because one may have been slowed
# down. Every AGAIN-th start measures it again, because both may have been
AGREED, AGAIN = 2, 16


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of past starts: a draft token's time as a share of a plain pass's.

    `n_agreed` is the number of starts in a row that found it cannot pay.
    """

    share: float
    n_agreed: int
    why: str = ""  # in a sentence, with the times that the last of these starts measured
    rate: float = 1.0  # highest acceptance rate


def why_never(costs: PassCosts, draft_seconds: float, max_k: int, rate: float = 1.0) -> str:
    """Return why drafts of up to `max_k` tokens cannot pay even at the acceptance `rate`; "" where they can.

    `draft_seconds` is the time of a draft token, `costs` those of the target's passes.
    """
    if not {1, 2, min(4, max_k + 1)} <= costs.widths(0).keys():
        return ""  # too little was measured, as for a model with long passes
    passes = costs.up_to(max_k + 1, 0)
    k, times = best_case(draft_seconds, draft_seconds, passes, rate)
    if times > 1:
        return ""
    draft, check, plain = (1e3 * each for each in (draft_seconds, (passes[k] - passes[0]) / k, passes[0]))
    at = "at any acceptance rate" if rate == 1 else f"as it can write {rate:.0%} of the words"
    return (
        f"it cannot pay here {at}: a draft token takes {draft:.3g} ms and checking one "
        f"{check:.3g} ms more, a plain token {plain:.3g} ms"
    )


def known_never(cache: ProfileCache, costs: PassCosts, max_k: int) -> str:
    """Return why it cannot pay by the agreed result of earlier starts and the present costs, and count this start.

    The reason has the times that were measured then. Return "" where that is open or must be measured again.
    """
    found = cache.read_as(Finding)
    if found is None or found.n_agreed < AGREED or found.n_agreed % AGAIN == 0 or not found.share > 0:
        return ""
    why = why_never(costs, found.share * costs.seconds(1, 0), max_k, found.rate)
    if why:
        cache.write(asdict(replace(found, n_agreed=found.n_agreed + 1)))
    return found.why if why and found.why else why


def found_never(cache: ProfileCache, costs: PassCosts, draft_seconds: float, max_k: int, rate: float = 1.0) -> str:
    """Return why it cannot pay by this start's measurement, and cache the result; "" where it can.

    `rate` is the highest acceptance rate: with another vocabulary, the share of text that the draft model can write.
    """
    why, before = why_never(costs, draft_seconds, max_k, rate), cache.read_as(Finding)
    n_agreed = 1 + (before.n_agreed if before else 0) if why else 0
    cache.write(asdict(Finding(draft_seconds / costs.seconds(1, 0), n_agreed, why, rate)))
    return why
