"""Stores responses in memory, so that a client can continue a conversation by id.

Must not know a model.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from app.server.errors import ApiError
from app.server.openai.responses_input import InputItem, ItemReference
from app.server.wire import Event

MAX_NUMBER = 256
MAX_BYTES = 64 * 2**20  # of their conversations as JSON, each counted in full
MAX_AGE = 24 * 3600.0  # seconds


@dataclass(frozen=True, slots=True)
class KeptResponse:
    """A response's body and the conversation up to its end."""

    body: Event
    items: tuple[InputItem, ...]
    n_bytes: int
    kept_at: float


class KeptResponses:
    """The latest responses, limited by number, size and age."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[str, KeptResponse] = OrderedDict()
        self._n_bytes, self._lock = 0, threading.RLock()  # responses end on any thread

    def keep(self, response_id: str, body: Event, items: Iterable[InputItem]) -> None:
        """Store a response, and remove the oldest ones beyond the limits."""
        conversation = tuple(items)
        n_bytes = sum(len(item.model_dump_json()) for item in conversation)
        with self._lock:
            self._kept[response_id] = KeptResponse(body, conversation, n_bytes, self._clock())
            self._n_bytes += n_bytes
            while len(self._kept) > MAX_NUMBER or self._n_bytes > MAX_BYTES:
                self._forget_oldest()

    def find(self, response_id: str) -> KeptResponse | None:
        """Return a response, or None if it was never stored or has been removed."""
        with self._lock:
            while self._kept and next(iter(self._kept.values())).kept_at < self._clock() - MAX_AGE:
                self._forget_oldest()
            return self._kept.get(response_id)

    def resolved(self, items: Sequence[InputItem]) -> list[InputItem]:
        """Return the items with those that references point to in their places. Raises ApiError."""
        if not any(isinstance(item, ItemReference) for item in items):
            return [*items]
        with self._lock:
            known = {item.id: item for kept in self._kept.values() for item in kept.items}
        if any(isinstance(item, ItemReference) and item.id not in known for item in items):
            message = "An item_reference names an item that is not kept here. Send the item itself."
            raise ApiError(404, message, "input")
        return [known[item.id] if isinstance(item, ItemReference) else item for item in items]

    def _forget_oldest(self) -> None:
        _, kept = self._kept.popitem(last=False)
        self._n_bytes -= kept.n_bytes
