"""Queries to workers on other machines in llama.cpp's RPC protocol: availability, version, memory, latency.

The library ends its process if a worker does not respond correctly, so every worker is queried this way before it is
used. Knows sockets and ggml-rpc.cpp; needs no library.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

from runtime.core.errors import ModelError, NoMemoryError

MAJOR, MINOR = 7, 0  # RPC_PROTO_*_VERSION in ggml-rpc.h of the llama.cpp that is used here
ALLOC_BUFFER, GET_ALIGNMENT, GET_MAX_SIZE, GET_BASE, SET_TENSOR = 0, 1, 2, 3, 6  # enum rpc_cmd
GET_MEMORY, HELLO, DEVICE_COUNT = 11, 14, 15
CAPABILITIES = bytes(24)  # of the connection: none but TCP
UNLIMITED, ALIGNED = 2**64 - 1, 64  # bytes: a processor's largest buffer, and its largest alignment
MAX_DEVICES = 64
CONNECT, ANSWER = 5.0, 5.0  # timeouts in seconds
TIMES = 9  # requests, of which the round trip is the median
LOAD = 2**23  # bytes sent to measure the bandwidth
TENSOR = struct.Struct("<QIQ4I4Ii16ii10QQQQ64si")  # rpc_tensor


class WorkerError(ModelError):
    """A worker cannot be used."""


class WorkerBusyError(WorkerError, NoMemoryError):
    """Another program seems to use the worker. Whatever frees memory, such as unloading a model, may free it too."""


@dataclass(frozen=True, slots=True)
class WorkerDevice:
    """A device of a worker: bytes of memory, and whether it is a processor, to whose kernels the usual rules apply."""

    free: int
    total: int
    is_processor: bool


@dataclass(frozen=True, slots=True)
class RpcWorker:
    """A worker that responded."""

    address: str
    version: tuple[int, int, int]
    devices: tuple[WorkerDevice, ...]
    round_trip: float  # seconds
    bandwidth: float = 0.0  # bytes per second to it; 0: not measured

    @property
    def is_processor(self) -> bool:
        """Whether all of its devices are processors."""
        return all(device.is_processor for device in self.devices)


def ask(address: str, measures: bool = False) -> RpcWorker:
    """Query a worker; with `measures`, also measure the bandwidth to it. Raises WorkerError."""
    with connected(address) as line:
        version = line.hello()
        (n_devices,) = line.ask(DEVICE_COUNT, b"", "<I")
        if not 0 < n_devices <= MAX_DEVICES:
            raise nonsense(address)
        devices = tuple(line.device(i) for i in range(n_devices))
        return RpcWorker(address, version, devices, line.round_trip(), line.bandwidth() if measures else 0.0)


class Line:
    """A connection to a worker, which serves one client at a time."""

    def __init__(self, address: str, connection: socket.socket) -> None:
        self._address, self._connection = address, connection

    def hello(self) -> tuple[int, int, int]:
        """Return the worker's protocol version. Raises WorkerError if it is incompatible with ours."""
        major, minor, patch, *_ = self.ask(HELLO, CAPABILITIES, "<3Bx24s")
        if major != MAJOR or minor > MINOR:
            raise WorkerError(
                f"The worker {self._address} uses version {major}.{minor}.{patch} of llama.cpp's protocol, and this "
                f"machine {MAJOR}.{MINOR}. Install the same llama-cpp-python on both."
            )
        return major, minor, patch

    def device(self, i: int) -> WorkerDevice:
        """Return the worker's device number `i`."""
        number = struct.pack("<I", i)
        free, total = self.ask(GET_MEMORY, number, "<QQ")
        (alignment,), (largest,) = self.ask(GET_ALIGNMENT, number, "<Q"), self.ask(GET_MAX_SIZE, number, "<Q")
        # The protocol does not report a device's kind, but processors report all of their memory as free
        is_processor = free == total and alignment <= ALIGNED and largest == UNLIMITED
        return WorkerDevice(free, total, is_processor)

    def round_trip(self) -> float:
        """Return the median time in seconds from a request to its response."""
        return median(self._timed() for _ in range(TIMES))

    def _timed(self) -> float:
        began = time.perf_counter()
        self.ask(DEVICE_COUNT, b"", "<I")
        return time.perf_counter() - began

    def bandwidth(self) -> float:
        """Return the bytes per second to a buffer of its first device; 0 if it cannot allocate one."""
        buffer, size = self.ask(ALLOC_BUFFER, struct.pack("<IQ", 0, LOAD), "<QQ")
        if not buffer or size < LOAD:
            return 0.0
        (base,) = self.ask(GET_BASE, struct.pack("<Q", buffer), "<Q")
        message = tensor_of(buffer, base, LOAD) + bytes(9) + bytes(LOAD)  # do not cache it; offset 0
        began = time.perf_counter()
        self._send(SET_TENSOR, message)
        self.ask(DEVICE_COUNT, b"", "<I")
        return LOAD / (time.perf_counter() - began)  # the worker frees the buffer when the connection ends

    def ask(self, command: int, message: bytes, form: str) -> tuple[int, ...]:
        """Send a command; return the fields of its response, unpacked by `form`. Raises WorkerError."""
        self._send(command, message)
        size = struct.calcsize(form)
        if struct.unpack("<Q", self._receive(8))[0] != size:
            raise nonsense(self._address)
        return struct.unpack(form, self._receive(size))

    def _send(self, command: int, message: bytes) -> None:
        self._connection.sendall(struct.pack("<BQ", command, len(message)) + message)

    def _receive(self, n: int) -> bytes:
        found = b""
        while len(found) < n:
            part = self._connection.recv(n - len(found))
            if not part:
                raise nonsense(self._address)
            found += part
        return found


@contextmanager
def connected(address: str) -> Iterator[Line]:
    """Yield a connection to a worker. Raises WorkerError for every failure on it."""
    host, _, port = address.rpartition(":")
    try:
        place = socket.gethostbyname(host), int(port)  # resolves names as llama.cpp does
        connection = socket.create_connection(place, CONNECT)
    except (OSError, UnicodeError) as error:
        why = (getattr(error, "strerror", None) or "it does not answer").lower()
        raise WorkerError(
            f"The worker {address} cannot be reached ({why}). Start `slipstream worker` there, and check the address."
        ) from error
    with connection:
        connection.settimeout(ANSWER)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            yield Line(address, connection)
        except TimeoutError as error:
            raise WorkerBusyError(
                f"The worker {address} does not answer: it serves one program at a time and another has it, or it is "
                "not a llama.cpp worker. End the other one, or start `slipstream worker` there."
            ) from error
        except OSError as error:
            raise nonsense(address) from error


def nonsense(address: str) -> WorkerError:
    """Return the error for a server that uses another protocol."""
    return WorkerError(
        f"The program at {address} is not a worker of version {MAJOR}.{MINOR} of llama.cpp's protocol. Install the "
        "same llama-cpp-python there, and start `slipstream worker`."
    )


def tensor_of(buffer: int, base: int, n_bytes: int) -> bytes:
    """Return the protocol's description of a row of bytes at the beginning of a worker's buffer."""
    sizes = (n_bytes, 1, 1, 1), (1, n_bytes, n_bytes, n_bytes)
    int8 = 24  # GGML_TYPE_I8
    return TENSOR.pack(1, int8, buffer, *sizes[0], *sizes[1], 0, *[0] * 16, 0, *[0] * 10, 0, 0, base, b"probe", 0)
