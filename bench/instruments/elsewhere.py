"""Runs a function in a process of its own, which releases all its memory and libraries."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any


def elsewhere(function: Callable[..., Any], *arguments: object) -> Any:
    """Return the result of the function in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()
