"""The action of each command in the table.

Knows the modules of actions; knows nothing of their effects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from app.tui.actions import (
    asking,
    chats,
    choosing,
    comparing,
    context,
    deleting,
    editing,
    messages,
    models,
    settings,
    views,
    writing,
)

if TYPE_CHECKING:
    from app.tui.chat_screen import ChatScreen

SUBJECTS = (
    asking, chats, choosing, comparing, context, deleting, editing, messages, models, settings, views, writing,
)  # fmt: skip
HANDLERS: dict[str, Callable[[ChatScreen, str], object]] = {
    name: handler for subject in SUBJECTS for name, handler in subject.COMMANDS.items()
}
