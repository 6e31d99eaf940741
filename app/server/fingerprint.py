"""`system_fingerprint`: the same as long as nothing has changed that decides a seeded reply."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import version

from runtime.engine import Engine


def fingerprint(engine: Engine) -> str:
    """Of the program, the library that runs the model, the model and its context. It begins like llama.cpp's builds."""
    parts = (*versions(), engine.pair.name, engine.pair.target.name or engine.pair.upstream)
    numbers = engine.facts.n_bytes, engine.facts.n_ctx, engine.facts.is_reproducible
    return "b" + hashlib.sha256(repr((parts, numbers)).encode()).hexdigest()[:10]


@cache
def versions() -> tuple[str, str]:
    """Of the program and the library; to read them takes milliseconds."""
    return version("slipstream"), version("llama-cpp-python")
