"""One reply in a process of its own, as a command generates it.

Usage: `python -m bench.instruments.reply_once JOB`, where JOB is a JSON object. Prints the seconds per token of the
reply, prompt included, up to the first chunk that reaches each of MARKS tokens, and of the whole; and its slowest
passes. Knows the engine; compares nothing.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGUFReader

from app.settings import read_settings
from runtime.drafters.registry import usual
from runtime.engine import Message, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import Pair


def hopeless(draft: Path, path: Path, seed: int = 1) -> Path:
    """Write a copy of `draft` with shuffled rows in its matrices."""
    shutil.copyfile(draft, path)
    rng = np.random.default_rng(seed)
    for tensor in GGUFReader(path, "r+").tensors:
        if len(tensor.data.shape) > 1:
            tensor.data[:] = tensor.data[rng.permutation(len(tensor.data))]
    return path


MARKS = 1, 20, 60, 200  # tokens
WHOLE = 0  # the mark of the whole reply


@dataclass(frozen=True, slots=True)
class Job:
    """A question and a pair; without drafters it is plain decode."""

    target: str
    draft: str | None
    drafters: tuple[str, ...] | None  # None: the usual
    question: str
    is_raw: bool
    temperature: float
    seed: int


@dataclass(frozen=True, slots=True)
class Timed:
    """The timings of a reply."""

    seconds: dict[int, float]  # per token, up to each reached mark, and of the whole
    own: dict[int, float]  # the same in CPU time of the replying thread
    n: int
    text: str  # a checksum
    drafted: int
    accepted: int
    worst: list[tuple[float, str, int, int]]  # the slowest passes: seconds, drafter, drafted, tokens


def timed(engine: LoadedEngine, job: Job) -> Timed:
    """Generate the reply and return its timings."""
    asked = job.question if job.is_raw else [Message("user", job.question)]
    marks, seconds, own, n, text = list(MARKS), dict[int, float](), dict[int, float](), 0, ""
    began, worked = time.perf_counter(), time.thread_time()
    for chunk in engine.reply(asked, Sampling(job.temperature, seed=job.seed), MARKS[-1]):
        n, text = n + len(chunk.tokens), text + chunk.text
        while marks and n >= marks[0]:
            mark = marks.pop(0)
            seconds[mark], own[mark] = (time.perf_counter() - began) / n, (time.thread_time() - worked) / n
    seconds[WHOLE], own[WHOLE] = (time.perf_counter() - began) / max(n, 1), (time.thread_time() - worked) / max(n, 1)
    slowest = sorted(engine.passes(), key=lambda each: -each.seconds)[:3]
    worst = [(round(each.seconds, 4), each.drafter, each.n_drafted, each.n_tokens) for each in slowest]
    drafted, accepted = (sum(getattr(each, name) for each in engine.passes()) for name in ("n_drafted", "n_accepted"))
    return Timed(seconds, own, n, hashlib.sha256(text.encode()).hexdigest()[:12], drafted, accepted, worst)


def main() -> None:
    """Load, generate one reply, print."""
    job = Job(**json.loads(sys.argv[1]))
    drafters = tuple(usual() if job.drafters is None else job.drafters)
    pair = Pair("first", Path(job.target), Path(job.draft) if job.draft else None, context=2048, drafters=drafters)
    engine = LoadedEngine(pair, Options(drafters=drafters, prompt_bytes=read_settings().prompt_cache_bytes))
    try:
        found = timed(engine, job)
    finally:
        engine.close()
    print(json.dumps({name: getattr(found, name) for name in found.__slots__}))


if __name__ == "__main__":
    main()
