"""The benefit of each heuristic of the controller: the same worlds with and without it.

All times are the traces' own. Knows no model and no clock.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from bench.instruments.timing import report
from bench.instruments.traces import Trace, World
from bench.instruments.worlds import made_up_worlds, times_plain, together, worlds
from runtime.speculative.control.tuning import TUNING

NEVER = 10**9  # steps, passes or tokens
# By description: the numbers of `Tuning` that disable the heuristic
HEURISTICS: dict[str, Mapping[str, float]] = {
    "plain passes amid drafts": {
        "first_plain_run": NEVER,
        "least_plain_interval": NEVER,
        "most_plain_interval": NEVER,
    },
    "what a step with a draft takes beyond its parts is a cost": {"unexplained_weight": 0.0},
    "probes have credit at the first start": {"first_probes": 0.0},
    "the interval between probes doubles": {"last_probe": 8},
    "right probes are verified, and become longer": {"sure_probes": NEVER},
    "a draft that is held up is verified as it is": {"held_up": math.inf},
    "first tokens are expected to be like all others": {"pooled_tokens": 0.0},
    "a time far off counts once two agree": {"spike": NEVER},
    "an offset follows the last tokens": {"offset_step": 0.0},
    "the offset fades": {"offset_decay": 1.0},
    "a change of one width's time is all widths'": {"shared_drift": 0.0},
    "drafters are valued only when there is news": {"news": -1.0},
    "values are settled in rounds": {"rounds": 1},
    "what probes may cost is kept between starts": {"most_credit": 0.0},
}

# What `bench.simulate` does not cover
OF_LOOKUPS: dict[str, Mapping[str, float]] = {
    "a plain pass after a wider one takes longer": {"leaving": 0.0},
    "inexact passes must gain 5%": {"inexact_gain": 1.0},
}


Seconds = tuple[dict[str, float], dict[str, float]]  # of worlds of one text, and of concurrent texts, by name


class Worth(NamedTuple):
    """Speed relative to other numbers: the mean over worlds of one text and of concurrent texts, and the worlds with
    the largest and smallest ratio.
    """

    alone: float
    together: float
    most: tuple[float, str]
    least: tuple[float, str]


@contextmanager
def tuned(changes: Mapping[str, float]) -> Iterator[None]:
    """Change numbers of `Tuning` inside the block."""
    before = {name: getattr(TUNING, name) for name in changes}
    try:
        for name, value in changes.items():
            object.__setattr__(TUNING, name, value)
        yield
    finally:
        for name, value in before.items():
            object.__setattr__(TUNING, name, value)


def recorded_seconds(traces: Sequence[Trace]) -> Seconds:
    """Return the seconds of each recorded text by itself, and of four concurrent copies of it."""
    alone = {trace.name: World(trace.name, [trace]).lived() for trace in traces}
    return alone, {f"4 times {trace.name}": 1 / times_plain([trace] * 4) for trace in traces}


def synthetic_seconds(n_tokens: int, n_seeds: int) -> Seconds:
    """Return the seconds of each synthetic world of one text, and of concurrent texts, summed over its seeds."""
    alone, joint = dict[str, float](), dict[str, float]()
    for seed in range(n_seeds):
        for world in (*made_up_worlds(n_tokens, seed), *worlds(n_tokens, seed)):
            alone[world.name] = alone.get(world.name, 0.0) + world.lived()
        for name, ratio in together(n_tokens // 4, seed):
            joint[name] = joint.get(name, 0.0) + 1 / ratio()
    return alone, joint


def halved_and_doubled(value: float) -> tuple[float, float]:
    """Return both; whole numbers stay whole and above 0. For a share above a half, its distance to 1 is doubled and
    halved.
    """
    if isinstance(value, int):
        return max(1, value // 2), 2 * value
    return (2 * value - 1, (1 + value) / 2) if 0.5 < value < 1 else (value / 2, 2 * value)


def worth(changes: Mapping[str, float], base: Seconds, measure: Callable[[], Seconds]) -> Worth:
    """Return the speed with the numbers of the `base` relative to that with `changes`."""
    with tuned(changes):
        without = measure()
    alone, joint = (
        {where: missing[where] / each for where, each in whole.items()}
        for whole, missing in zip(base, without, strict=True)
    )
    found = {**alone, **joint}
    most, least = max(found, key=found.__getitem__), min(found, key=found.__getitem__)
    means = statistics.geometric_mean(alone.values()), statistics.geometric_mean(joint.values())
    return Worth(*means, (found[most], most), (found[least], least))


def report_changes(
    changes: Mapping[str, Mapping[str, float]],
    measure: Callable[[], Seconds],
    groups: tuple[str, str] = ("one text", "several"),
) -> None:
    """Print a row for each change: the speed of the current controller relative to the changed one."""
    base, rows, summary = measure(), list[list[str]](), dict[str, object]()
    for name, numbers in changes.items():
        found = worth(numbers, base, measure)
        extremes = (f"{times:.3f} {where}" for times, where in (found.most, found.least))
        rows.append([name, f"{found.alone:.4f}", f"{found.together:.4f}", *extremes])
        summary[name] = [round(each, 4) for each in (found.alone, found.together, found.most[0], found.least[0])]
    columns = ["without, or with", *groups, "most", "least"]
    report("the controller / without a heuristic, simulated", columns, rows, summary)
