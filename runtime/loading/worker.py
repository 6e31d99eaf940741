"""Measures workers on other machines, and runs this machine as one. Prints nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from platformdirs import user_cache_path

from runtime.backends.workers import WorkerError, ask
from runtime.core.cores import n_cores


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """Measurements of a worker, or its problem."""

    address: str
    problem: str = ""
    n_devices: int = 0
    is_processor: bool = False
    free_bytes: int = 0
    total_bytes: int = 0
    round_trip_seconds: float = 0.0
    bytes_per_second: float = 0.0  # to the worker; 0: unknown


def require() -> None:
    """Raise SettingsError if llama.cpp was compiled without RPC."""
    from runtime.backends import rpc

    rpc.require()


def serve(address: str, port: int, threads: int | None, keeps_tensors: bool) -> None:
    """Serve as a worker at that IPv4 address; returns if it cannot listen. Raises SettingsError."""
    from runtime.backends import rpc

    cache = ""
    if keeps_tensors:
        folder = user_cache_path("slipstream") / "tensors"
        folder.mkdir(parents=True, exist_ok=True)
        cache = str(folder)
    rpc.serve(address, port, threads or n_cores(), cache)


def look_at(addresses: Sequence[str]) -> list[WorkerFacts]:
    """Return each worker's memory, round trip and bandwidth."""
    return [look_at_one(address) for address in addresses]


def look_at_one(address: str) -> WorkerFacts:
    """Return one worker's measurements."""
    try:
        found = ask(address, measures=True)
    except WorkerError as error:
        return WorkerFacts(address, str(error))
    return WorkerFacts(
        address,
        n_devices=len(found.devices),
        is_processor=found.is_processor,
        free_bytes=sum(device.free for device in found.devices),
        total_bytes=sum(device.total for device in found.devices),
        round_trip_seconds=found.round_trip,
        bytes_per_second=found.bandwidth,
    )
