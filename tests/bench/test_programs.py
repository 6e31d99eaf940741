"""Every program and instrument of bench/ can be imported: a name that the app lost would show at its next run only."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import pytest

import bench
from bench.step import microseconds_per_crossing

MODULES = [each.name for each in pkgutil.walk_packages(bench.__path__, "bench.") if not each.name.endswith("__main__")]
OURS = "app", "bench", "demo", "runtime", "tests"


def test_all_can_be_imported() -> None:
    assert len(MODULES) > 40
    for name in MODULES:
        try:
            import_module(name)
        except ModuleNotFoundError as error:  # of an extra that is not installed
            if (error.name or "").split(".")[0] in OURS:
                pytest.fail(f"{name}: {error}")


@pytest.mark.slow
def test_steps_in_another_process_are_timed() -> None:
    """Through the host of the models' process, whose ways with an engine change."""
    assert microseconds_per_crossing(n_read=0, n_steps=5) > 0
