"""A relay that delays traffic in each direction, as a network would.

Bandwidth is not limited: bytes sent together arrive together. Knows sockets and the clock.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from queue import SimpleQueue

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
