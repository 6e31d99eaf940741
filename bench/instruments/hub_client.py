"""Changes of the hub's client for tests and benchmarks: the one place that names its private modules, as of
huggingface_hub 2.4.0.

If one is gone, find where `http_backoff` sleeps, and the code that pages through lists.
"""

from __future__ import annotations

import time
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING

from huggingface_hub.utils import _http, _pagination
from huggingface_hub.utils._http import default_client_factory

if TYPE_CHECKING:
    import pytest

__all__ = ["ask_once", "default_client_factory", "never_wait"]


def never_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the waiting times between the client's retries."""
    monkeypatch.setattr(_http, "time", SimpleNamespace(**vars(time) | {"sleep": lambda seconds: None}))


def ask_once() -> None:
    """Remove the client's retries for lists, for the rest of the process."""
    _pagination.http_backoff = partial(_http.http_backoff, max_retries=0)
