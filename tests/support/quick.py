"""What `make test` looks at of long lists; the rest is marked `slow`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest

# One family of each kind: dense, sliding window, latent attention, sinks and experts, recurrent, both at once
FAMILIES = ("llama", "gemma3", "deepseek2", "gptoss", "mamba2", "qwen35")


def others_slow(values: Iterable[Any], quick: Collection[Any]) -> list[Any]:
    """Return parameters for `parametrize`, of which all but the quick ones are marked `slow`."""
    return [pytest.param(value, marks=() if value in quick else pytest.mark.slow) for value in values]
