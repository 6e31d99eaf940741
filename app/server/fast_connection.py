"""A connection whose requests httptools parses, which takes a fraction of h11's time but bounds nothing: the bounds are
here. Not imported where httptools is missing.

Must not know an endpoint.
"""

from __future__ import annotations

from asyncio import Transport
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.server.connections import AddressedConnection, address_of

MAX_UNFINISHED = 2**16  # bytes of a request line with headers, or between two pieces of a body, before they are whole
MAX_AHEAD = 64  # requests that a client may send before it has the answer to the one before
REFUSAL = "Invalid HTTP request received."


class FastConnection(HttpToolsProtocol):
    """Uvicorn's connection with bounds: on headers, on what surrounds a body, and on requests sent ahead. As with h11,
    a request is answered although what follows is no HTTP, and ends when its client leaves although others follow.
    """

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._answered: RequestResponseCycle | None = None  # the request that is being answered, or was last
        self._n_unfinished, self._has_advanced = 0, False  # bytes since a part of a request was whole; whether one came
        self._is_head, self._is_broken = False, False  # headers come; what comes now is no HTTP

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Record the client's address."""
        super().connection_made(transport)
        self.client = self.client or address_of(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the request that is being answered, and forget those after it."""
        self.pipeline.clear()
        if self._answered is not None and not self._answered.response_complete:
            self._answered.disconnected = True
            self._answered.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came, unless it follows what is no HTTP."""
        if self._is_broken:
            return
        self._unset_keepalive_if_required()
        self._has_advanced = False
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._leave_to_h11(data[offer.args[0] :])
            return
        except httptools.HttpParserError:
            self.send_400_response(REFUSAL)
        self._n_unfinished = 0 if self._has_advanced else self._n_unfinished + len(data)
        if self._n_unfinished > MAX_UNFINISHED and not self._is_broken:
            self.send_400_response(REFUSAL)

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._is_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; one after the body counts for nothing."""
        if self._is_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin the answer, or let it wait for the one before. Raises ValueError, for which the parser ends the
        connection.
        """
        self._is_head, self._has_advanced = False, True
        n_hosts = sum(name == b"host" for name, _ in self.headers)
        if n_hosts != 1 and (n_hosts or self.parser.get_http_version() == "1.1"):
            raise ValueError("a request names one host")
        if len(self.pipeline) >= MAX_AHEAD:
            raise ValueError("too many requests at once")
        super().on_headers_complete()

    def _should_upgrade(self) -> bool:
        return True  # begin no request that offers another protocol

    def _leave_to_h11(self, rest: bytes) -> None:
        """Let h11 read a request that offers another protocol, as Java's client does, and all after it: httptools does
        not read its body.
        """
        if self._answered is not None and not self._answered.response_complete:
            self.send_400_response(REFUSAL)
            return
        self._is_broken = True
        self.connections.discard(self)
        line = f"{self.scope['method']} {self.url.decode('latin-1')} HTTP/{self.scope['http_version']}"
        head = [line.encode("latin-1"), *(name + b": " + value for name, value in self.headers), b"", b""]
        other = AddressedConnection(self.config, self.server_state, self.app_state)
        other.connection_made(self.transport)
        self.transport.set_protocol(other)
        other.data_received(b"\r\n".join(head) + rest)

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body."""
        self._has_advanced = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._has_advanced = True
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def send_400_response(self, msg: str) -> None:
        """Refuse what came and close: at once, or after the answer to a whole request before it."""
        self._is_broken = True
        self.pipeline.clear()
        answered = self._answered
        if answered is None or answered.response_complete:
            super().send_400_response(msg)
        elif answered.more_body and answered.response_started:
            self.transport.close()
        elif answered.more_body:
            answered.disconnected = True  # which says nothing more
            answered.message_event.set()
            super().send_400_response(msg)
        else:
            answered.keep_alive = False
