"""Servers for tests and benchmarks: `slipstream serve` until a block ends, a relay that delays, a hub's raw answers.

Also changes of the hub's client: the one place that names its private modules, as of huggingface_hub 2.4.0. If one is
gone, find where `http_backoff` sleeps, and the code that pages through lists.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import get_context
from queue import SimpleQueue
from tempfile import TemporaryFile
from types import SimpleNamespace
from typing import TYPE_CHECKING

import httpx2
from huggingface_hub.utils import _http, _pagination
from huggingface_hub.utils._http import default_client_factory

if TYPE_CHECKING:
    import pytest

LOADING = 120  # maximal seconds to load


def free_port() -> int:
    """Return an unused port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextmanager
def serving(pair: str, more: list[str]) -> Iterator[str]:
    """Yield the address of a server of its own."""
    port = free_port()
    command = [sys.executable, "-m", "app.cli", "serve", pair, "--port", str(port), "--quiet", *more]
    # An unread pipe would fill up and block the server
    with TemporaryFile("w+") as log, subprocess.Popen(command, stderr=log, text=True) as server:
        try:
            wait_until_loaded(f"http://127.0.0.1:{port}", server)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait()
            log.seek(0)
            complaints = log.read().strip().splitlines()[1:]
            print("\n".join(complaints) if complaints else "the server said nothing else")


def wait_until_loaded(url: str, server: subprocess.Popen[str]) -> None:
    """Wait until the server is loaded. Raises SystemExit if it ends or takes too long."""
    end = time.monotonic() + LOADING
    # Only one, as creating clients keeps a core busy while the server times its passes
    with httpx2.Client(trust_env=False) as client:
        while server.poll() is None and time.monotonic() < end:
            with suppress(httpx2.HTTPError):
                if client.get(f"{url}/health").status_code == 200:
                    return
            time.sleep(0.1)
    raise SystemExit("The server did not start. Run `slipstream serve` to see why.")


SIZE = 2**18  # maximal bytes per read
Late = tuple[float, bytes]  # time of sending (time.perf_counter), and data; b"": the end


def relay(listening: socket.socket, port: int, seconds: float) -> None:
    """Forward every connection to that port of this machine, until the process is ended."""
    while True:
        here, _ = listening.accept()
        there = socket.create_connection(("127.0.0.1", port))
        for source, sink in ((here, there), (there, here)):
            source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            late = SimpleQueue[Late]()
            threading.Thread(target=take, args=(source, late, seconds), daemon=True).start()
            threading.Thread(target=give, args=(sink, late), daemon=True).start()


def take(source: socket.socket, late: SimpleQueue[Late], seconds: float) -> None:
    """Receive data and queue it with its time of sending."""
    data = b"more"
    while data:
        try:
            data = source.recv(SIZE)
        except OSError:
            data = b""
        late.put((time.perf_counter() + seconds, data))


def give(sink: socket.socket, late: SimpleQueue[Late]) -> None:
    """Send the queued data at its time, and then the end."""
    while True:
        send_at, data = late.get()
        time.sleep(max(0.0, send_at - time.perf_counter()))
        with suppress(OSError):
            if data:
                sink.sendall(data)
                continue
            sink.shutdown(socket.SHUT_WR)
        return


@contextmanager
def delayed(port: int, seconds: float) -> Iterator[int]:
    """Yield the port of a relay to that port, in a process of its own; without a delay, the port itself."""
    if not seconds:
        yield port
        return
    with socket.create_server(("127.0.0.1", 0)) as listening:
        process = get_context("fork").Process(target=relay, args=(listening, port, seconds), daemon=True)
        process.start()
        try:
            yield listening.getsockname()[1]
        finally:
            process.kill()
            process.join()


def http(body: bytes, *headers: bytes, status: bytes = b"200 OK", length: bytes | None = None) -> bytes:
    """Return a response with that body; `length` is the declared length, the true one by default."""
    n = str(len(body)).encode() if length is None else length
    return b"\r\n".join([b"HTTP/1.1 " + status, b"Connection: close", b"Content-Length: " + n, *headers, b"", body])


__all__ = ["ask_once", "default_client_factory", "never_wait"]


def never_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the waiting times between the client's retries."""
    monkeypatch.setattr(_http, "time", SimpleNamespace(**vars(time) | {"sleep": lambda seconds: None}))


def ask_once() -> None:
    """Remove the client's retries for lists, for the rest of the process."""
    _pagination.http_backoff = partial(_http.http_backoff, max_retries=0)
