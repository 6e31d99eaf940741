"""`system_fingerprint`: constant while nothing changes that decides a seeded reply."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import version

from runtime.engine import Engine


def fingerprint(engine: Engine) -> str:
    """Return the hash of the program's and the library's version, the model and its context. It begins like llama.cpp's
    build names.
    """
    parts = (*versions(), engine.pair.name, engine.facts.content or engine.pair.upstream)
    numbers = engine.facts.n_bytes, engine.facts.n_ctx, engine.facts.is_reproducible
    return "b" + hashlib.sha256(repr((parts, numbers)).encode()).hexdigest()[:10]


@cache
def versions() -> tuple[str, str]:
    """Return the versions of the program and of llama-cpp-python. Reading them takes milliseconds."""
    return version("slipstream"), version("llama-cpp-python")
