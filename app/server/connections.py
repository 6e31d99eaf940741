"""HTTP connections that know their client's address even after a reset."""

from __future__ import annotations

from asyncio import Transport

from uvicorn.protocols.http.h11_impl import H11Protocol


class AddressedConnection(H11Protocol):
    """Uvicorn's connection, with the address from the transport where the socket no longer has it."""

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Record the client's address."""
        super().connection_made(transport)
        if self.client is None and isinstance(peer := transport.get_extra_info("peername"), tuple):
            self.client = (str(peer[0]), int(peer[1]))
