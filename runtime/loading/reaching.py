"""Queries workers, waits for lost ones, and registers them as devices.

Knows workers and a time limit; their layers are planned elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from runtime.backends import rpc
from runtime.backends.workers import RpcWorker, WorkerError, ask

POLL_SECONDS = 0.5  # seconds between two queries of a missing worker


def reach(
    addresses: Sequence[str], timeout: float, should_continue: Callable[[], bool]
) -> tuple[tuple[str, ...], WorkerError | None]:
    """Return the workers that respond within `timeout` seconds, and the error of one that does not.

    Raises WorkerError for a missing worker if `timeout` is 0, SettingsError without RPC, and KeyboardInterrupt if
    `should_continue` returns False.
    """
    rpc.require()
    deadline = time.monotonic() + timeout
    found: dict[str, RpcWorker | None] = {address: None for address in addresses if rpc.is_held(address)}
    while True:
        missing = ask_all([address for address in addresses if address not in found], found)
        if missing is None or time.monotonic() >= deadline:
            break
        if not should_continue():
            raise KeyboardInterrupt
        time.sleep(POLL_SECONDS)
    if missing and not timeout:
        raise missing
    for worker in filter(None, found.values()):
        rpc.register(worker)
    return tuple(address for address in addresses if address in found), missing


def ask_all(addresses: Sequence[str], found: dict[str, RpcWorker | None]) -> WorkerError | None:
    """Add the workers that respond to `found`; return the error of the first that does not."""
    missing: WorkerError | None = None
    for address in addresses:
        try:
            found[address] = ask(address)
        except WorkerError as error:
            missing = missing or error
    return missing
