"""Requests to another server: responses as data, and every failure as one sentence that names the server.

Knows HTTP; knows no model and no conversation.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Any, NoReturn

import httpx2

from runtime.core.errors import ContextError, ModelError
from runtime.models.proxies import FAULTS, PASSWORD, client, proxy_of

CONNECT = 5.0  # seconds to connect
ANSWER = 10.0  # seconds for a response that needs no model
MAX_BYTES = 2**24  # bytes of a response, or of one event of a stream
ERRNO = re.compile(r"^\[Errno -?\d+\] ")
LONGEST_REASON = 300  # characters of another server's error message
LOADING = b"loading"  # in the refusal of a server that is still loading its model: ours, and llama.cpp's
TOO_LONG = (b"context_length_exceeded", b"exceed_context_size_error", b"maximum context length")


class UpstreamError(ModelError):
    """Another server cannot be reached, refuses a request, or sends an invalid response.

    `status` is that of its response; 0: there was none. With `is_loading`, it responds once its model is loaded.
    """

    def __init__(self, message: str, status: int = 0, is_loading: bool = False) -> None:
        super().__init__(message)
        self.status, self.is_loading = status, is_loading


class Connection:
    """Sends requests to one server at its `base`, with the `key` from the environment variable `key_name` if any."""

    def __init__(self, base: str, key: str = "", key_name: str = "") -> None:
        self.base, self._key_name, self.has_key = base, key_name, bool(key := key.strip())
        if not (key.isascii() and key.isprintable()):
            raise UpstreamError(f"{key_name} has characters that no key may have. Put the right one into it.")
        self.root = base.removesuffix("/v1")
        self._headers = {"authorization": f"Bearer {key}"} if key else {}

    @property
    def name(self) -> str:
        """The server, and the proxy that is asked for it, as the beginning of a sentence."""
        proxy = proxy_of(self.base)
        return f"The server at {self.base}" + (f", asked through the proxy {proxy}," if proxy else "")

    def client(self) -> httpx2.Client:
        """Return a client for one request: if that is cancelled, its connection ends. Raises SettingsError.

        It follows no redirects, which would carry the key away.
        """
        timeout = httpx2.Timeout(None, connect=CONNECT)
        return client(self.base, headers=self._headers, timeout=timeout, follow_redirects=False)

    def get(self, url: str) -> bytes:
        """Return the body of the response at that address. Raises UpstreamError."""
        try:
            with self.client() as client, client.stream("GET", url, timeout=ANSWER) as answer:
                self.check(answer)
                return self.body(answer)
        except (*FAULTS, ssl.SSLError) as error:
            raise self.unreachable(error) from error

    def get_json(self, url: str) -> dict[str, Any]:
        """Return the JSON object at that address. Raises UpstreamError."""
        return self.object_of(self.get(url))

    def object_of(self, text: str | bytes) -> dict[str, Any]:
        """Return the JSON object in that text. Raises UpstreamError."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self.nonsense()
        return found

    def body(self, answer: httpx2.Response) -> bytes:
        """Return the whole body of a response. Raises UpstreamError where it is longer than MAX_BYTES."""
        parts = bytearray()
        for part in answer.iter_bytes():
            parts += part
            if len(parts) > MAX_BYTES:
                raise self.nonsense()
        return bytes(parts)

    def check(self, answer: httpx2.Response) -> None:
        """Check that a response is no refusal. Raises UpstreamError, or ContextError for a prompt that is too long."""
        if answer.status_code != 200:
            self.refuse(answer.status_code, self.body(answer))

    def refuse(self, status: int, body: bytes) -> NoReturn:
        """Raise the error for a refusal, whose body has the reason."""
        reason = reason_in(body)
        if any(mark in body for mark in TOO_LONG):
            raise ContextError(f"{self.name} says that the conversation is too long ({reason}). Shorten it.")
        if status == 407:
            raise UpstreamError(f"{self.name} cannot be reached: {PASSWORD}", status)
        if status in (401, 403):
            what = "refuses" if self.has_key else "requires"
            raise UpstreamError(f"{self.name} {what} a key. Put the right one into {self._key_name}.", status)
        if 300 <= status < 400:
            raise UpstreamError(f"{self.name} redirects to another address. Use that one.", status)
        if status == 404:
            raise UpstreamError(
                f"{self.name} has no such address or model{brackets(reason)}. Check both: most addresses end in /v1.",
                status,
            )
        if status in (0, 503):  # 0: in the middle of a reply
            raise UpstreamError(
                f"{self.name} cannot answer now{brackets(reason)}. Try again later.",
                status,
                is_loading=LOADING in body.lower(),
            )
        why = brackets(reason) or f" with status {status}"
        raise UpstreamError(f"{self.name} refuses the request{why}. Change it, or try again later.", status)

    def nonsense(self) -> UpstreamError:
        """Return the error for an invalid response."""
        return UpstreamError(f"{self.name} does not have OpenAI's interface. Check the address: most end in /v1.")

    def unreachable(self, error: Exception) -> UpstreamError:
        """Return the error for a missing response."""
        if isinstance(error, httpx2.TimeoutException):
            why = "it does not answer"
        elif isinstance(error, (httpx2.InvalidURL, httpx2.UnsupportedProtocol)):
            why = "that is not an address"
        elif isinstance(error, (httpx2.ProtocolError, httpx2.DecodingError, httpx2.StreamError)):
            why = "its answer is not HTTP, or incomplete"
        else:
            why = ERRNO.sub("", first_line(str(error))).lower() or type(error).__name__
        remedy = "Check the proxy, or list the server in NO_PROXY" if proxy_of(self.base) else "Check the address"
        return UpstreamError(f"{self.name} cannot be reached ({why}). {remedy}, and that it runs.")

    def broken(self) -> UpstreamError:
        """Return the error for a reply that ended in the middle."""
        return UpstreamError(
            f"{self.name} closed the connection in the middle of the reply. Ask again, or continue the reply."
        )


class EventStream:
    """The events of one response, read on one thread and stopped from any."""

    def __init__(self, connection: Connection, path: str, body: dict[str, Any]) -> None:
        self._connection, self._url, self._body = connection, connection.base + path, body
        self._sockets: list[socket.socket] = []
        self._is_stopped = False

    def events(self) -> Generator[dict[str, Any], None, None]:
        """Yield the objects of the stream, or the one object of another response; end early if it was stopped.

        Raises UpstreamError and ContextError.
        """
        connection, has_begun = self._connection, False
        try:
            with (
                connection.client() as client,
                client.stream("POST", self._url, json=self._body, extensions={"trace": self._note}) as answer,
            ):
                connection.check(answer)
                if kind_of(answer) != "text/event-stream":
                    yield self._understood(connection.body(answer))
                    return
                for data in self._data(answer):
                    yield self._understood(data)
                    has_begun = True
        except httpx2.SSEError as error:
            raise connection.nonsense() from error
        except (*FAULTS, OSError) as error:
            if not self._is_stopped:
                raise (connection.broken() if has_begun else connection.unreachable(error)) from error

    def _note(self, name: str, info: dict[str, Any]) -> None:
        """Record the sockets, because only shutting one down wakes a thread that reads from it."""
        if name.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._sockets.append(info["return_value"].get_extra_info("socket"))
            if self._is_stopped:
                self.stop()

    def stop(self) -> None:
        """Cancel the rest of the response, which the server notices."""
        self._is_stopped = True
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _data(self, answer: httpx2.Response) -> Iterator[bytes]:
        """Yield the data of each event that has some, up to the one that ends the stream."""
        answer.encoding = "utf-8-sig"  # events are UTF-8 whatever the header says, and may begin with a byte-order mark
        for event in httpx2.EventSource(answer, MAX_BYTES):
            if (data := event.data.strip()) == "[DONE]":
                return
            if data:
                yield data.encode()

    def _understood(self, data: bytes) -> dict[str, Any]:
        """Return the object in the data of an event. Raises UpstreamError and ContextError, also for an error event."""
        found = self._connection.object_of(data)
        if error := found.get("error"):
            status = error.get("code") if isinstance(error, dict) else 0
            self._connection.refuse(status if isinstance(status, int) else 0, data)
        return found


def kind_of(answer: httpx2.Response) -> str:
    """Return the media type of a response, without parameters; "" if it names none."""
    return str(answer.headers.get("content-type", "")).partition(";")[0].strip().lower()


def reason_in(body: bytes) -> str:
    """Return the reason in the body of a refusal, in any of the usual forms; "" where it has another form."""
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
    """Return the first line, shortened, without characters that control a terminal."""
    line = "".join(character for character in text.strip().split("\n")[0] if character.isprintable())
    return line[:LONGEST_REASON].rstrip(".")


def brackets(text: str) -> str:
    """Return the text in brackets; "" for an empty text."""
    return f" ({text})" if text else ""
