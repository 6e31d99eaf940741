"""llama.cpp's RPC backend: workers made devices of this process, which devices a model may lie on, and this machine as
a worker for others.

Asks the library; who is there is asked in `workers`.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from runtime.backends import library
from runtime.backends.private_llama import ggml
from runtime.backends.workers import RpcWorker
from runtime.core.errors import SettingsError

NAME = b"RPC"
_held = Counter[str]()  # pairs on each worker
_registered: dict[str, list[int]] = {}  # handles of devices by the worker's address


def is_built_in() -> bool:
    """Was the library compiled with it?"""
    return bool(_backend())


def _backend() -> int | None:
    library.start()
    found: int | None = ggml.ggml_backend_reg_by_name(NAME)
    return found


def require() -> None:
    """Raises SettingsError where the library was compiled without it."""
    if not is_built_in():
        raise SettingsError(
            "llama.cpp is compiled without RPC here, so there can be no workers. `slipstream doctor` has the command "
            "that compiles it with that."
        )


def _function(name: bytes, result: Any, *arguments: Any) -> Any:
    """One of the backend's own functions. Raises SettingsError where the library was compiled without it."""
    require()
    return ctypes.CFUNCTYPE(result, *arguments)(ggml.ggml_backend_reg_get_proc_address(_backend(), name))


def register(worker: RpcWorker) -> None:
    """Makes the devices of a worker that has just answered the library's, once. Raises SettingsError."""
    if worker.address in _registered:
        return
    add = _function(b"ggml_backend_rpc_add_server", ctypes.c_void_p, ctypes.c_char_p)
    known = set(library.device_handles())
    ggml.ggml_backend_register(add(worker.address.encode()))
    _registered[worker.address] = [device for device in library.device_handles() if device not in known]
    if worker.is_processor:
        library.note_processors(_registered[worker.address])


def hold(addresses: Sequence[str]) -> Callable[[], None]:
    """Says that this process has lines to these workers, which serve nobody else meanwhile. Returns what ends that."""
    _held.update(addresses)
    return lambda: _held.subtract(addresses)


def is_held(address: str) -> bool:
    """Has this process a line to that worker?"""
    return _held[address] > 0


def placement(workers: Sequence[str]) -> Any:
    """The devices on which a model may lie, as the library takes them: those of these workers, and this machine's own.

    None where no worker was ever registered: then all are this machine's.
    """
    if not _registered:
        return None
    far = {device for devices in _registered.values() for device in devices}
    near = [device for device in library.device_handles() if device not in far and not library.is_processor(device)]
    chosen = [device for worker in workers for device in _registered.get(worker, ())] + near
    return (ctypes.c_void_p * (len(chosen) + 1))(*chosen)  # the last one, which is none, ends it


def serve(host: str, port: int, n_threads: int, cache: str) -> None:
    """Computes for others until the process is ended; returns where it cannot listen. What it says goes to standard
    output. Raises SettingsError.
    """
    pointers = ctypes.POINTER(ctypes.c_void_p)
    start = _function(
        b"ggml_backend_rpc_start_server", None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t,
        pointers,
    )  # fmt: skip
    found = library.device_handles()
    devices = [device for device in found if not library.is_processor(device)] or found[-1:]  # the processor is last
    handles = (ctypes.c_void_p * len(devices))(*devices)
    start(f"{host}:{port}".encode(), cache.encode() or None, n_threads, len(devices), handles)
