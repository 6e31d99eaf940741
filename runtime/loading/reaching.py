"""Workers are asked whether they are there, waited for where one was lost, and made devices.

Knows workers and patience; what lies on them is planned elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from runtime.backends import rpc
from runtime.backends.workers import RpcWorker, WorkerError, ask

LOOK = 0.5  # seconds between two looks at whether one is there again


def reach(
    addresses: Sequence[str], patience: float, goes_on: Callable[[], bool]
) -> tuple[tuple[str, ...], WorkerError | None]:
    """The workers that answer, and what is wrong with one that does not within that time.

    Raises WorkerError where none may be missing, SettingsError without RPC, and KeyboardInterrupt where
    nobody wants to go on.
    """
    rpc.require()
    deadline = time.monotonic() + patience
    found: dict[str, RpcWorker | None] = {address: None for address in addresses if rpc.is_held(address)}
    while True:
        missing = ask_all([address for address in addresses if address not in found], found)
        if missing is None or time.monotonic() >= deadline:
            break
        if not goes_on():
            raise KeyboardInterrupt
        time.sleep(LOOK)
    if missing and not patience:
        raise missing
    for worker in filter(None, found.values()):
        rpc.register(worker)
    return tuple(address for address in addresses if address in found), missing


def ask_all(addresses: Sequence[str], found: dict[str, RpcWorker | None]) -> WorkerError | None:
    """Adds those that answer; returns what is wrong with the first that does not."""
    missing: WorkerError | None = None
    for address in addresses:
        try:
            found[address] = ask(address)
        except WorkerError as error:
            missing = missing or error
    return missing
