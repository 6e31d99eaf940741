"""A hub that answers with bytes of the test's own, whether or not they are HTTP, at the pace that it likes."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from bench.instruments.servers import http
from tests.support.hub_server import COMMIT

Answer = Callable[[bytes], bytes]  # of a request's head


def as_json(value: object) -> bytes:
    """An answer of that value."""
    return http(json.dumps(value).encode(), b"Content-Type: application/json")


def model(**changes: object) -> bytes:
    """The description of a model, with mistakes."""
    usual = {"id": "owner/small", "sha": COMMIT, "siblings": [{"rfilename": "small.gguf", "size": 5}]}
    return as_json(usual | changes)


@contextmanager
def answering(answer: Answer, drip: float = 0.0, drips: Callable[[bytes], bool] = bool) -> Iterator[str]:
    """The address of such a hub until the block ends; requests that `drips` names get a byte in `drip` seconds."""
    ended = threading.Event()

    def serve(client: socket.socket) -> None:
        with client, suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                if not (came := client.recv(65536)):
                    return
                head += came
            data, pause = answer(head), drip if drips(head) else 0.0
            size = 1 if pause else len(data) or 1
            for at in range(0, len(data), size):
                client.sendall(data[at : at + size])
                if ended.wait(pause):
                    return

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        ended.set()
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
