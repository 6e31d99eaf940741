"""Requests to another server: answers as data, whatever goes wrong as one sentence that names the server.

Knows HTTP; knows no model and no conversation.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NoReturn

import httpx2

from runtime.core.errors import ContextError, ModelError

CONNECT = 5.0  # seconds to reach it
ANSWER = 10.0  # seconds for an answer that needs no model
MOST = 2**24  # bytes of an answer, or of one event of a stream
ERRNO = re.compile(r"^\[Errno -?\d+\] ")
LONGEST_REASON = 300  # characters of what another server says
LOADING = b"loading"  # in the refusal of a server whose model is not there yet: ours, and llama.cpp's
TOO_LONG = (b"context_length_exceeded", b"exceed_context_size_error", b"maximum context length")


class UpstreamError(ModelError):
    """Another server cannot be asked, refuses, or answers nonsense. `status`: that of its answer; 0: there was none.
    `is_loading`: it answers as soon as its model is there.
    """

    def __init__(self, message: str, status: int = 0, is_loading: bool = False) -> None:
        super().__init__(message)
        self.status, self.is_loading = status, is_loading


class Connection:
    """Asks one server at its `base`, with a key from the environment variable `key_name` where that is set."""

    def __init__(self, base: str, key: str = "", key_name: str = "") -> None:
        self.base, self._key_name, self.has_key = base, key_name, bool(key)
        self.root = base.removesuffix("/v1")
        self._headers = {"authorization": f"Bearer {key}"} if key else {}

    def client(self) -> httpx2.Client:
        """One for one request: where that is given up, so is its connection. Redirections would carry the key away."""
        timeout = httpx2.Timeout(None, connect=CONNECT)
        return httpx2.Client(headers=self._headers, timeout=timeout, follow_redirects=False)

    def get(self, url: str) -> bytes:
        """What it answers there. Raises UpstreamError."""
        try:
            with self.client() as client, client.stream("GET", url, timeout=ANSWER) as answer:
                self.check(answer)
                return self.body(answer)
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, ssl.SSLError) as error:
            raise self.unreachable(error) from error

    def get_json(self, url: str) -> dict[str, Any]:
        """The JSON object that it answers there. Raises UpstreamError."""
        return self.object_of(self.get(url))

    def object_of(self, text: str | bytes) -> dict[str, Any]:
        """The JSON object in that text. Raises UpstreamError."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self.nonsense()
        return found

    def body(self, answer: httpx2.Response) -> bytes:
        """All of an answer. Raises UpstreamError where it has no end."""
        parts = bytearray()
        for part in answer.iter_bytes():
            parts += part
            if len(parts) > MOST:
                raise self.nonsense()
        return bytes(parts)

    def check(self, answer: httpx2.Response) -> None:
        """Raises UpstreamError, or ContextError for a prompt that is too long, where it refuses."""
        if answer.status_code != 200:
            self.refuse(answer.status_code, self.body(answer))

    def refuse(self, status: int, body: bytes) -> NoReturn:
        """Raises what a refusal means, whose body says why."""
        reason = reason_in(body)
        if any(mark in body for mark in TOO_LONG):
            raise ContextError(
                f"The server at {self.base} says that the conversation is too long ({reason}). Shorten it."
            )
        if status in (401, 403):
            what = "refuses" if self.has_key else "wants"
            raise UpstreamError(
                f"The server at {self.base} {what} a key. Put the right one into {self._key_name}.", status
            )
        if 300 <= status < 400:
            raise UpstreamError(f"The server at {self.base} sends on to another address. Name that one.", status)
        if status == 404:
            raise UpstreamError(
                f"The server at {self.base} has no such address or model{brackets(reason)}. Check both: most addresses "
                "end in /v1.",
                status,
            )
        if status in (0, 503):  # 0: in the middle of a reply
            raise UpstreamError(
                f"The server at {self.base} cannot answer now{brackets(reason)}. Try again later.",
                status,
                is_loading=LOADING in body.lower(),
            )
        said = brackets(reason) or f" with status {status}"
        raise UpstreamError(
            f"The server at {self.base} refuses the request{said}. Change it, or try again later.", status
        )

    def nonsense(self) -> UpstreamError:
        """For an answer that means nothing."""
        return UpstreamError(
            f"What the server at {self.base} answers is not OpenAI's interface. Check the address: most end in /v1."
        )

    def unreachable(self, error: Exception) -> UpstreamError:
        """For an answer that did not come."""
        if isinstance(error, httpx2.TimeoutException):
            why = "it does not answer"
        elif isinstance(error, (httpx2.InvalidURL, httpx2.UnsupportedProtocol)):
            why = "that is no address"
        elif isinstance(error, (httpx2.ProtocolError, httpx2.DecodingError, httpx2.StreamError)):
            why = "what it says is not HTTP, or it broke off"
        else:
            why = ERRNO.sub("", first_line(str(error))).lower() or type(error).__name__
        return UpstreamError(f"The server at {self.base} cannot be asked ({why}). Check the address, and that it runs.")

    def broken(self) -> UpstreamError:
        """For a reply that ended in the middle."""
        return UpstreamError(
            f"The server at {self.base} broke off in the middle of the reply. What has come is all there is; ask "
            "again, or have it continued."
        )


class EventStream:
    """The events of one answer, read on one thread and stopped from any."""

    def __init__(self, connection: Connection, path: str, body: dict[str, Any]) -> None:
        self._connection, self._url, self._body = connection, connection.base + path, body
        self._sockets: list[socket.socket] = []
        self._is_stopped = False

    def events(self) -> Iterator[dict[str, Any]]:
        """The objects of the stream, or the one that was answered instead of a stream; ends early when it was stopped.

        Raises UpstreamError and ContextError.
        """
        connection, has_begun = self._connection, False
        try:
            with (
                connection.client() as client,
                client.stream("POST", self._url, json=self._body, extensions={"trace": self._note}) as answer,
            ):
                connection.check(answer)
                if "event-stream" not in answer.headers.get("content-type", ""):
                    yield self._understood(connection.body(answer))
                    return
                for data in self._data(answer):
                    yield self._understood(data)
                    has_begun = True
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError) as error:
            if not self._is_stopped:
                raise (connection.broken() if has_begun else connection.unreachable(error)) from error

    def _note(self, name: str, info: dict[str, Any]) -> None:
        """Remembers the sockets, as nothing else wakes who reads from one."""
        if name.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._sockets.append(info["return_value"].get_extra_info("socket"))
            if self._is_stopped:
                self.stop()

    def stop(self) -> None:
        """Nobody wants the rest; the server sees that."""
        self._is_stopped = True
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _data(self, answer: httpx2.Response) -> Iterator[bytes]:
        """The data of each event, up to the one that ends them."""
        held = b""
        for part in answer.iter_bytes():
            *lines, held = (held + part).split(b"\n")
            if len(held) > MOST:
                raise self._connection.nonsense()
            for line in lines:
                name, _, data = line.strip().partition(b":")
                if name == b"data" and data.strip() == b"[DONE]":
                    return
                if name == b"data":
                    yield data.strip()

    def _understood(self, data: bytes) -> dict[str, Any]:
        """The object in the data of an event. Raises UpstreamError, and what an error in a stream means."""
        found = self._connection.object_of(data)
        if error := found.get("error"):
            status = error.get("code") if isinstance(error, dict) else 0
            self._connection.refuse(status if isinstance(status, int) else 0, data)
        return found


def reason_in(body: bytes) -> str:
    """What a refusal says, by whichever of the usual forms it is written in; "" where that is not known."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    error = found.get("error", found) if isinstance(found, dict) else {}
    if isinstance(error, str):
        return first_line(error)
    parts = [error.get(name) for name in ("message", "detail", "type", "code")] if isinstance(error, dict) else []
    return next((first_line(part) for part in parts if isinstance(part, str)), "")


def first_line(text: str) -> str:
    """The first line, without what a terminal would act on."""
    line = "".join(character for character in text.strip().split("\n")[0] if character.isprintable())
    return line[:LONGEST_REASON].rstrip(".")


def brackets(text: str) -> str:
    """The text in brackets, where there is any."""
    return f" ({text})" if text else ""
