"""Waiting for what another thread or process does: for a condition, never for a time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

# Seconds until something must have happened on a busy machine; more where one is emulated
PATIENCE = float(os.environ.get("TESTS_PATIENCE", "120"))


def wait_for(is_so: Callable[[], object], meanwhile: Callable[[], object] = lambda: None) -> None:
    """Does `meanwhile` again and again until that is so; fails when it takes too long."""
    ends = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < ends, "what was waited for did not happen"
        meanwhile()
        time.sleep(0.005)
