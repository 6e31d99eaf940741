"""The conditions of a benchmark: machine, versions, models, settings. Knows no measurements."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

import psutil

from app.bench.plan import Plan
from runtime.engine import Options
from runtime.models.registry import Pair


@dataclass(frozen=True, slots=True)
class Facts:
    """The conditions in words, in display order."""

    machine: str
    system: str
    versions: str
    target: str
    draft: str
    settings: str
    date: str

    @classmethod
    def of(cls, pair: Pair, options: Options, plan: Plan) -> Facts:
        """Return the facts of this machine, now."""
        versions = (
            f"slipstream {version('slipstream')}, llama-cpp-python {version('llama-cpp-python')}, Python "
            f"{platform.python_version()}"
        )
        draft = describe_file(pair.draft) if pair.draft and "model" in plan.drafters else "none"
        system = f"{platform.system()} {platform.release()}"
        return cls(
            machine(),
            system,
            versions,
            describe_file(pair.target),
            draft,
            settings(options, plan),
            f"{datetime.now():%Y-%m-%d %H:%M}",
        )


def machine() -> str:
    """Return the processor, the usable cores and the memory, in words."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf8", errors="replace").splitlines() if info.exists() else []
    name = next(
        (line.partition(": ")[2] for line in lines if line.startswith("model name")),
        platform.processor() or platform.machine(),
    )
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {n_cores} cores, {psutil.virtual_memory().total / 2**30:.0f} GiB"


def describe_file(path: Path) -> str:
    """Return a file's name and size."""
    return f"{path.name}, {path.stat().st_size / 1e6:,.1f} MB"


def settings(options: Options, plan: Plan) -> str:
    """Return the size of a round, and the options that were not left to measurement."""
    rounds = (
        f"{plan.runs} rounds of {plan.n_prompts} prompt{'s' * (plan.n_prompts > 1)} per kind, up to {plan.max_tokens} "
        "tokens each"
    )
    given = [
        f"context {options.n_ctx}" if options.n_ctx else "",
        f"threads {options.threads}" if options.threads else "threads by measurement",
        "exact kernels" if options.exact else "",
    ]
    return ", ".join([rounds, *filter(None, given)])
