"""The chat's commands, by subject.

An action is a function of the chat: it reads the session and the branch, calls methods of widgets, and raises
SlipstreamError for an invalid request. Actions know the chat's public parts; no widget knows an action.
"""

from __future__ import annotations

from collections.abc import Callable

from app.tui.actions import asking, chats, choosing, comparing, context, messages, models, settings, views
from app.tui.chat import OpenChat

SUBJECTS = asking, chats, choosing, comparing, context, messages, models, settings, views
HANDLERS: dict[str, Callable[[OpenChat, str], object]] = {
    name: handler for subject in SUBJECTS for name, handler in subject.COMMANDS.items()
}
