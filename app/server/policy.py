"""What the server's owner has set for all requests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerPolicy:
    """Names, visibility and limits."""

    aliases: tuple[str, ...] = ()  # of the model, the first of which it goes by
    shows_slots: bool = False  # may a client see what is being done for others?
    max_tokens: int | None = None  # of a reply, whatever a request asks for; None: as many as the context holds


USUAL = ServerPolicy()
