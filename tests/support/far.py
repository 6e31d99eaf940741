"""Workers: sockets that speak llama.cpp's RPC as a test wants, and real ones where a build with RPC is at hand."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from runtime.backends.workers import (
    ALLOC_BUFFER,
    DEVICE_COUNT,
    GET_ALIGNMENT,
    GET_BASE,
    GET_MAX_SIZE,
    GET_MEMORY,
    HELLO,
    LOAD,
    MAJOR,
    SET_TENSOR,
    TENSOR,
    UNLIMITED,
)
from runtime.loading.worker import look_at_one
from tests.support.waiting import wait_for

BUILD = os.environ.get("SLIPSTREAM_RPC_BUILD", "")
needs_rpc = pytest.mark.skipif(
    not BUILD,
    reason="Needs llama.cpp with RPC: SLIPSTREAM_RPC_BUILD names the folder of its libraries (docs/machines.md).",
)
GIB = 2**30
Speak = Callable[[socket.socket], None]


def receive(line: socket.socket, n: int) -> bytes:
    found = b""
    while len(found) < n:
        if not (part := line.recv(n - len(found))):
            raise ConnectionError
        found += part
    return found


def worker_of(
    version: tuple[int, int, int] = (MAJOR, 0, 0), free: int = 8 * GIB, total: int = 8 * GIB, alignment: int = 32
) -> Speak:
    """One that answers as llama.cpp's does, with one device."""

    def speak(line: socket.socket) -> None:
        answers = {
            HELLO: struct.pack("<4B24x", *version, 0),
            DEVICE_COUNT: struct.pack("<I", 1),
            GET_MEMORY: struct.pack("<QQ", free, total),
            GET_ALIGNMENT: struct.pack("<Q", alignment),
            GET_MAX_SIZE: struct.pack("<Q", UNLIMITED),
            ALLOC_BUFFER: struct.pack("<QQ", 7, LOAD),
            GET_BASE: struct.pack("<Q", 4096),
        }
        while True:
            command, size = struct.unpack("<BQ", receive(line, 9))
            body = receive(line, size)
            if command == SET_TENSOR:
                assert len(body) == TENSOR.size + 9 + LOAD
            else:
                line.sendall(struct.pack("<Q", len(answers[command])) + answers[command])

    return speak


@contextmanager
def speaking(speak: Speak, port: int = 0) -> Iterator[str]:
    """The address of a socket at which every connection is spoken to like that."""
    with socket.create_server(("127.0.0.1", port)) as server:

        def serve() -> None:
            while True:
                try:
                    line, _ = server.accept()
                except OSError:
                    return
                with closing(line):
                    try:
                        speak(line)
                    except ConnectionError:
                        continue

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


@contextmanager
def real_worker(port: int) -> Iterator[subprocess.Popen[bytes]]:
    """`slipstream worker` with the build that has RPC."""
    command = [sys.executable, "-m", "app.cli", "worker", "--port", str(port), "--threads", "1"]
    environment = os.environ | {"LLAMA_CPP_LIB_PATH": BUILD}
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        command, env=environment, cwd=root, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as own:
        try:
            wait_for(lambda: not look_at_one(f"127.0.0.1:{port}").problem)
            yield own
        finally:
            own.kill()
