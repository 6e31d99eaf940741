"""A hub of the test's own, spoken to by the real client: serves repositories, and misbehaves as told."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Behaviour:
    """What the hub has and how it serves it."""

    files: dict[str, bytes]  # "owner/repo/path" -> content
    status: int = 200  # of every answer
    headers: dict[str, str] = field(default_factory=dict)  # of every answer
    cut_after: int = 0  # bytes of each answer with content, after which the connection ends
    cuts: int = 0  # how many answers are cut
    spoil: bool = False  # serves other bytes than those promised
    lie: int = 0  # bytes by which the announced size is wrong
    drip: float = 0.0  # seconds between pieces
    has_ranges: bool = True  # serves the rest of a file where the rest is asked for
    token: str = ""  # without which nothing is served
    asked: Counter[str] = field(default_factory=Counter)  # method and what became of it
    ranges: list[str] = field(default_factory=list)

    def repo(self, name: str) -> dict[str, bytes]:
        """Its files by path."""
        return {path.removeprefix(name + "/"): data for path, data in self.files.items() if path.startswith(name + "/")}


class Handler(BaseHTTPRequestHandler):
    """One request."""

    behaviour: Behaviour
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:  # the base class's name
        self.answer(has_body=False)

    def do_GET(self) -> None:
        self.answer(has_body=True)

    def answer(self, *, has_body: bool) -> None:
        how, path = self.behaviour, unquote(urlsplit(self.path).path).strip("/")
        how.asked[self.command] += 1
        if how.token and self.headers.get("authorization") != f"Bearer {how.token}":
            self.send(401, {"X-Error-Code": "GatedRepo", "X-Error-Message": "gated"}, b"", has_body=has_body)
        elif how.status != 200:
            self.send(how.status, how.headers, b"", has_body=has_body)
        elif path.startswith("api/models"):
            self.api(path.removeprefix("api/models").strip("/"))
        elif (
            "/resolve/" in path
            and (data := how.files.get(path.replace("/resolve/main", "").replace(f"/resolve/{COMMIT}", ""))) is not None
        ):
            self.content(data, has_body=has_body)
        else:
            self.send(404, {"X-Error-Code": "EntryNotFound"}, b"", has_body=has_body)

    def api(self, repo: str) -> None:
        files = self.behaviour.repo(repo)
        entry = {
            "id": repo,
            "sha": COMMIT,
            "downloads": 3,
            "gated": False,
            "siblings": [{"rfilename": name, "size": len(data)} for name, data in files.items()],
        }
        if repo and not files:
            self.send(404, {"X-Error-Code": "RepoNotFound"}, b"", has_body=True)
        else:
            repos = sorted({"/".join(path.split("/")[:2]) for path in self.behaviour.files})
            found = entry if repo else [{**entry, "id": name} for name in repos if "small" in name]
            self.send(200, {"Content-Type": "application/json"}, json.dumps(found).encode(), has_body=True)

    def content(self, data: bytes, *, has_body: bool) -> None:
        how, start = self.behaviour, 0
        if how.has_ranges and (wanted := self.headers.get("range", "")):
            how.ranges.append(wanted)
            start = int(wanted.removeprefix("bytes=").partition("-")[0])
        headers = {
            "ETag": f'"{hashlib.sha256(data).hexdigest()}"',
            "X-Repo-Commit": COMMIT,
            "X-Linked-Size": str(len(data) + how.lie),
            "Accept-Ranges": "bytes",
            **({"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"} if start else {}),
        }
        served = bytes(255 - byte for byte in data) if how.spoil else data
        self.send(206 if start else 200, headers, served[start:], has_body=has_body)

    def send(self, status: int, headers: dict[str, str], body: bytes, *, has_body: bool) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if has_body:
            self.send_body(body)

    def send_body(self, body: bytes) -> None:
        how = self.behaviour
        is_cut = how.cuts > 0 and len(body) > how.cut_after > 0
        for at in range(0, how.cut_after if is_cut else len(body), 4096):
            self.wfile.write(body[at : min(at + 4096, how.cut_after if is_cut else len(body))])
            time.sleep(how.drip)
        if is_cut:
            how.cuts -= 1
            self.wfile.flush()
            self.close_connection = True


class Server(ThreadingHTTPServer):
    """Says nothing about clients that hang up: some are made to."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # handed on as they are


@contextmanager
def serving(behaviour: Behaviour) -> Iterator[str]:
    """The address of such a hub, until the block ends."""
    server = Server(("127.0.0.1", 0), type("Bound", (Handler,), {"behaviour": behaviour}))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
