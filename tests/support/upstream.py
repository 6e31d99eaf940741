"""Servers that are none of ours: on a real socket, each path answers what a test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

JSON, EVENTS = "application/json", "text/event-stream"


@dataclass
class Answer:
    """What a path answers: parts that are sent one after the other, and then the connection is closed."""

    parts: Iterable[bytes]
    status: int = 200
    kind: str = JSON


@dataclass
class Elsewhere:
    """A server, what it answers by path, and what it was asked."""

    answers: dict[str, Callable[[], Answer]]
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    was_left: threading.Event = field(default_factory=threading.Event)


def as_json(value: object, status: int = 200) -> Answer:
    return Answer([json.dumps(value).encode()], status)


def as_events(*events: object, ends: bool = True) -> Answer:
    lines = [f"data: {json.dumps(event)}\n\n".encode() for event in events]
    return Answer([*lines, *[b"data: [DONE]\n\n"] * ends], kind=EVENTS)


def delta(finish_reason: str | None = None, **fields: object) -> dict[str, Any]:
    """An event of a chat."""
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish_reason}]}


def models(*names: str, **more: object) -> Callable[[], Answer]:
    """A list of models."""
    return lambda: as_json({"data": [{"id": name, **more} for name in names]})


@contextmanager
def elsewhere(answers: dict[str, Callable[[], Answer]]) -> Iterator[Elsewhere]:
    """A server that answers so until the block ends."""
    here = Elsewhere(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            here.keys.append(self.headers.get("authorization", ""))
            answer = here.answers.get(self.path, lambda: as_json({"error": {"message": "no such path"}}, 404))()
            self.send_response(answer.status)
            self.send_header("content-type", answer.kind)
            if 300 <= answer.status < 400:
                self.send_header("location", "http://127.0.0.1:1/")
            self.end_headers()
            try:
                for part in answer.parts:
                    self.wfile.write(part)
            except OSError:
                here.was_left.set()

        def do_POST(self) -> None:
            here.bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.do_GET()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    here.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield here
    finally:
        server.shutdown()
        thread.join()
        with suppress(OSError):
            server.server_close()
