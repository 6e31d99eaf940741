"""HTTP connections whose clients are known by their address, also where they have been reset already."""

from __future__ import annotations

from asyncio import Transport

from uvicorn.protocols.http.h11_impl import H11Protocol


class AddressedConnection(H11Protocol):
    """Uvicorn's connection, which asks the socket for the address and not the transport that was given it."""

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """As uvicorn does."""
        super().connection_made(transport)
        if self.client is None and isinstance(peer := transport.get_extra_info("peername"), tuple):
            self.client = (str(peer[0]), int(peer[1]))
