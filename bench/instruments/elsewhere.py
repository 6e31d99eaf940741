"""A process of its own for one question: what it loads and takes is gone with the answer."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any


def elsewhere(function: Callable[..., Any], *arguments: object) -> Any:
    """What the function returns when a fresh process calls it."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()
