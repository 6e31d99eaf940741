"""The Textual application: themes, keymap, command palette, and one run from start to exit.

Knows the chat screen and the table of commands; the chat itself is the screen's task.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any, ClassVar

from textual import on
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.events import Event, InputEvent, Paste, Ready
from textual.filter import LineFilter, NoColor
from textual.geometry import Offset
from textual.notifications import Notify, SeverityLevel
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Input, TextArea

from app.chats.database import default_path
from app.chats.store import Store
from app.models.starting import StartModel
from app.terminal import clean, print_message
from app.tui.chat_screen import ChatScreen
from app.tui.chat_settings import ChatSettings
from app.tui.commands import COMMANDS
from app.tui.dialogs.compare_screen import CompareScreen
from app.tui.dialogs.help_page import default_keymap, read_keymap
from app.tui.engine_host import ReplyEnded
from app.tui.pace import SWITCH, Presence
from app.tui.private_textual import forget, notifications
from app.tui.session import Given, OpenEngine, Session
from app.tui.terminal import closed_by_signals
from app.tui.widgets.message_view import MessageView
from runtime.engine import Options

TWICE = 2.0  # seconds within which a second Ctrl+C leaves
TROUBLE = 15.0  # seconds for which an error is shown: it includes a remedy, so people read it twice
GARBAGE = 20_000  # objects between two garbage collections: with Python's 700 they take as long as all drawing
SETTLED = 0.3  # seconds after which a terminal's new size is final; tmux itself takes 0.25


class ChatApp(App[None]):
    """One chat at a time, on one engine."""

    CSS_PATH = "style.tcss"
    TITLE = "Slipstream"
    COLOURLESS: ClassVar[Sequence[LineFilter]] = (NoColor(),)  # one object, as Textual caches lines by filter
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (60, "-normal"), (100, "-roomy"), (140, "-wide")]  # noqa: RUF012 (declared by Textual as an instance's)
    VERTICAL_BREAKPOINTS = [(0, "-short"), (14, "-tall"), (32, "-high")]  # noqa: RUF012 (as above)
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+z", "suspend_process", "Suspend", id="chat.suspend", priority=True, show=False)
    ]

    def __init__(self, session: Session, chat: int | None = None) -> None:
        super().__init__()
        self.session, self._first = session, chat
        self._pressed = -TWICE
        self._settling: Timer | None = None
        self._is_complete, self._exit_code = False, 0
        self.presence = Presence()
        self.set_keymap(session.keymap)
        if (theme := session.store.preference("theme")) in self.available_themes:
            self.theme = theme
        sys.setswitchinterval(SWITCH)
        gc.set_threshold(GARBAGE)

    async def run_async(self, **how: Any) -> Any:
        """Run the chat until it is left or closed by a signal. Returns what `exit` was given."""
        with closed_by_signals(self._close):
            return await super().run_async(**how)

    def _close(self, code: int) -> None:
        """Leave with that exit code, once the first screen is complete."""
        self._exit_code = code
        if self._is_complete:
            self.exit(return_code=code)

    @on(Ready)
    def _note_complete(self) -> None:
        self._is_complete = True
        if self._exit_code:
            self._close(self._exit_code)

    @property
    def cursor_position(self) -> Offset:
        """The cell of the terminal's cursor, at which input methods draw: that of the caret, wherever it moves to."""
        caret = self.focused if self.is_running else None
        return caret.cursor_screen_offset if isinstance(caret, TextArea | Input) else self._cursor_cell

    @cursor_position.setter
    def cursor_position(self, cell: Offset) -> None:
        self._cursor_cell = cell

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return the filter that removes all colors where there must be none: shades of gray are colors, too."""
        return self.COLOURLESS if self.no_color else super().get_line_filters()

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = True,
    ) -> None:
        """Show a notification for a few seconds, longer for a warning or an error, which the log keeps. It is never
        read as markup, whatever `markup` says, because it may quote a title, a path or an error.
        """
        if severity != "information":
            timeout = timeout or TROUBLE
            self.session.note_once(message)
        super().notify(clean(message), title=title, severity=severity, timeout=timeout, markup=False)

    async def on_event(self, event: Event) -> None:
        """Handle an event, and note that somebody is there if it comes from the keyboard or the mouse."""
        if isinstance(event, InputEvent | Paste):
            self.presence.note()
        await super().on_event(event)

    @on(ReplyEnded)
    def note_reader(self) -> None:
        """Note that somebody has a reply to read now."""
        self.presence.note()

    def disturbs(self) -> bool:
        """Return whether a search for a draft model would disturb somebody, or a comparison. Runs in any thread."""
        if not self.is_running:
            return False
        is_comparing = any(isinstance(each, CompareScreen) for each in self.screen_stack)
        return is_comparing or self.presence.is_disturbed_by_work

    @on(Notify)
    def make_room(self) -> None:
        """Remove the notification that the new one replaces."""
        for each in notifications(self):
            forget(self, each)

    def get_default_screen(self) -> Screen[None]:
        """Return the chat screen."""
        return ChatScreen(self.session, self._first)

    def on_mount(self) -> None:
        """Store every change of the theme for the next start."""
        self.theme_changed_signal.subscribe(self, lambda theme: self.session.store.set_preference("theme", theme.name))

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Yield the chat's commands for the palette, and the choice of themes."""
        for command in COMMANDS:
            if isinstance(screen, ChatScreen):
                yield SystemCommand(command.title, command.help, partial(screen.action_command, command.name))
        yield SystemCommand("Theme", "Choose among all themes", self.action_change_theme)

    def on_resize(self) -> None:
        """Redraw everything once the size is stable: Textual drops the frame of a resize inside a batch, and of one
        that is reverted.
        """
        if self._settling is not None:
            self._settling.stop()
        self._settling = self.set_timer(SETTLED, self.draw_again)

    def draw_again(self) -> None:
        """Draw all screens from scratch."""
        for screen in self.screen_stack:
            screen.refresh(layout=True)

    def action_help_quit(self) -> None:
        """Leave when Ctrl+C is pressed twice."""
        now, self._pressed, before = time.monotonic(), time.monotonic(), self._pressed
        if now - before < TWICE:
            self.exit()
        else:
            self.notify("Press Ctrl+C again to leave. Esc stops a reply.")


def known_ids() -> list[str]:
    """Return the ids of the bindings that a keymap file may name."""
    bindings = [binding for owner in (ChatApp, ChatScreen, MessageView) for binding in owner.BINDINGS]
    return [binding.id for binding in bindings if not isinstance(binding, tuple) and binding.id]


def run(
    start: StartModel,
    options: Options,
    chats: Path | None,
    opened_by: Callable[..., OpenEngine],
    given: Given,
) -> None:
    """Run the chat until it is left. Raises StoreError and SettingsError before anything is shown."""
    opened = Store(chats or default_path())
    keys = read_keymap(default_keymap(), known_ids())
    told = ChatSettings(opened, given.values, given.system)
    session = Session(start.pair, options, told, opened_by(), keys, given, given.serve)
    app = ChatApp(session, given.chat)

    def say(text: str) -> None:
        (session.note if app.is_running else print_message)(text)

    def tell_loss(text: str) -> None:
        say(text)
        show = partial(app.notify, text, severity="warning")
        if current_thread() is main_thread():
            show()
        else:
            app.call_from_thread(show)

    session.open_engine = start.opening(opened_by(say=say, on_loss=tell_loss, disturbs=app.disturbs))
    try:
        app.run()
    finally:
        session.stop_serving()
        if session.engine is not None:
            session.engine.close()
        opened.close()
        if opened.problem:  # its notification is gone with the screen, or the problem is new
            print_message(opened.problem)
    if app.return_code:  # a bug in the chat; Textual has printed the traceback
        raise SystemExit(app.return_code)
