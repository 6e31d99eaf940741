"""llama.cpp's RPC backend: registers workers as devices, chooses a model's devices, and serves as a worker for others.

Calls the library; `workers` queries whether a worker is available.
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
_held = Counter[str]()  # number of pairs on each worker
_registered: dict[str, list[int]] = {}  # handles of devices by the worker's address


def is_built_in() -> bool:
    """Return whether the library was compiled with RPC."""
    return bool(_backend())


def _backend() -> int | None:
    library.start()
    found: int | None = ggml.ggml_backend_reg_by_name(NAME)
    return found


def require() -> None:
    """Check that the library was compiled with RPC. Raises SettingsError."""
    if not is_built_in():
        raise SettingsError(
            "llama.cpp is compiled without RPC here, so there can be no workers. `slipstream doctor` shows the command "
            "that compiles it with RPC."
        )


def _function(name: bytes, result: Any, *arguments: Any) -> Any:
    """Return one of the backend's own functions. Raises SettingsError where the library was compiled without it."""
    require()
    return ctypes.CFUNCTYPE(result, *arguments)(ggml.ggml_backend_reg_get_proc_address(_backend(), name))


def register(worker: RpcWorker) -> None:
    """Register the devices of a worker that has just responded, once. Raises SettingsError."""
    if worker.address in _registered:
        return
    add = _function(b"ggml_backend_rpc_add_server", ctypes.c_void_p, ctypes.c_char_p)
    known = set(library.device_handles())
    ggml.ggml_backend_register(add(worker.address.encode()))
    _registered[worker.address] = [device for device in library.device_handles() if device not in known]
    if worker.is_processor:
        library.note_processors(_registered[worker.address])


def hold(addresses: Sequence[str]) -> Callable[[], None]:
    """Record that this process is connected to these workers, which serve nobody else; return a function to end it."""
    _held.update(addresses)
    return lambda: _held.subtract(addresses)


def is_held(address: str) -> bool:
    """Return whether this process is connected to that worker."""
    return _held[address] > 0


def placement(workers: Sequence[str]) -> Any:
    """Return the devices for a model, in the library's form: those of these workers, and this machine's own.

    None where no worker was ever registered: then all devices are this machine's.
    """
    if not _registered:
        return None
    far = {device for devices in _registered.values() for device in devices}
    near = [device for device in library.device_handles() if device not in far and not library.is_processor(device)]
    chosen = [device for worker in workers for device in _registered.get(worker, ())] + near
    return (ctypes.c_void_p * (len(chosen) + 1))(*chosen)  # a null pointer ends the list


def serve(host: str, port: int, n_threads: int, cache: str) -> None:
    """Compute for other machines until the process is ended; return if it cannot listen.

    The library's messages go to standard output. Raises SettingsError.
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
