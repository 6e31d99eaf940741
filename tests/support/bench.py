"""Made-up results of `slipstream bench`."""

from __future__ import annotations

from typing import Any

from app.cli.bench_plan import ADAPTIVE, PLAIN, Plan
from app.cli.bench_results import Results, Step, TimedReply

PLAN = Plan(("model", "ngram"), kinds=("question", "prose"), ks=(2, 4), runs=2, n_prompts=1)
SECONDS = {PLAIN: 0.2, ADAPTIVE: 0.1, "model K=2": 0.125, "model K=4": 0.16, "ngram K=2": 0.25, "ngram K=4": 0.4}
STEPS: tuple[Step, ...] = ((0.02, "model", 4, 4), (0.01, "model", 4, 1), (0.01, "none", 0, 0))
FACTS = {
    "machine": "A <fast> machine",
    "system": "Linux",
    "versions": "slipstream 0",
    "target": "<script>alert(1)</script>.gguf, 1 MB",
    "draft": "none",
    "settings": "5 rounds",
    "date": "2026-01-01 00:00",
}


def made(plan: Plan = PLAN, **more: Any) -> Results:
    """Twenty tokens a reply; the second round is three times as slow in all ways, and prose is written best without
    drafts.
    """
    results = Results(
        plan, n_compared=40, costs={1: 0.002, 2: 0.003, 4: 0.0035}, exactness="exact up to width 9", **more
    )
    for number in (1, 2):
        for cell in plan.cells:
            for way in plan.ways:
                seconds = (
                    0.19
                    if cell.kind == "prose" and way.name == PLAIN
                    else 0.2
                    if cell.kind == "prose"
                    else SECONDS[way.name]
                )
                results.samples.append(
                    TimedReply(way.name, cell, 0, number, 20, seconds * (3 if number == 2 else 1), STEPS)
                )
    return results
