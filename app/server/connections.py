"""Uvicorn's connection to a client, and which parser reads its requests."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol


class AddressedConnection(H11Protocol):
    """A connection whose requests h11 reads, with the client's address from the transport where the socket no longer
    has it.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Record the client's address."""
        super().connection_made(transport)
        self.client = self.client or address_of(transport)


def address_of(transport: asyncio.BaseTransport) -> tuple[str, int] | None:
    """Return the client's address as the transport knows it; None for a Unix socket."""
    peer = transport.get_extra_info("peername")
    return (str(peer[0]), int(peer[1])) if isinstance(peer, tuple) else None


def connection_class() -> type[asyncio.Protocol]:
    """Return what reads requests: httptools with our own bounds, or h11, which is slower, where that is missing."""
    try:
        from app.server.fast_connection import FastConnection
    except ImportError:
        return AddressedConnection
    return FastConnection
