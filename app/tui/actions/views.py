"""What is seen is changed: numbers, colours of tokens, graphs, the theme; pages of reasons, help and log are opened.

Knows how things look; changes no chat and no model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.tui.commands import COMMANDS as TABLE
from app.tui.dialogs.basic import PageDialog
from app.tui.dialogs.help_page import help_page
from app.tui.dialogs.why_screen import WhyScreen
from app.tui.numbers import sentence, stats_of, summary
from app.tui.pieces import clean
from runtime.core.errors import SettingsError
from runtime.engine.stats import Stats

if TYPE_CHECKING:
    from app.tui.chat_screen import ChatScreen

DARK, LIGHT = "textual-dark", "textual-light"


def show_numbers(screen: ChatScreen) -> None:
    """Shows the numbers of the last reply on screen, and what must not be overlooked."""
    engine, stats = screen.session.engine, shown_numbers(screen)
    screen.panel.show(stats)
    offered = screen.offered.sentence if screen.offered is not None else ""
    screen.status.show_sentence(screen.session.store.problem or offered or sentence(stats, engine))
    if engine is not None and (told := summary(stats, engine.facts.n_ctx, engine.memory_level)):
        screen.status.show_numbers(told)
    else:
        show_ready(screen)


def show_ready(screen: ChatScreen) -> None:
    """Says which pair answers from now on, if there is one."""
    name = screen.session.pair.name
    screen.status.show_numbers([f"{name} is ready"] if screen.session.engine is not None else [])


def shown_numbers(screen: ChatScreen) -> Stats:
    """The numbers of the last reply on screen: as they grow, or as they were kept with it."""
    if screen.host.is_replying:  # always in the chat on screen
        return screen.host.numbers.reply
    replies = screen.transcript.views("assistant")
    return stats_of(replies[-1].facts) if replies else Stats()


def tokens(screen: ChatScreen, argument: str) -> None:
    """Shows replies as Markdown, or their tokens in colours."""
    screen.transcript.toggle_tokens()


def panel(screen: ChatScreen, argument: str) -> None:
    """Shows or hides the live graphs."""
    screen.toggle_class("-panel")


def why(screen: ChatScreen, argument: str) -> None:
    """Shows whether replies are faster, and why."""
    explanation = screen.host.numbers.explanation
    if explanation is None:
        raise SettingsError("Nothing is measured yet. Wait until the model is loaded.")
    stats, passes = shown_numbers(screen), screen.transcript.passes()
    screen.app.push_screen(WhyScreen(whose(screen), explanation, stats, passes, screen.session.engine))


def whose(screen: ChatScreen) -> str:
    """The model that answers, and the one that wrote the last reply on screen where that is another."""
    answers, replies = screen.session.pair.name, screen.transcript.views("assistant")
    wrote = replies[-1].facts.get("model", answers) if replies else answers
    text = answers if wrote == answers else f"{answers} answers now; the last reply here is by {wrote}"
    return clean(text)


def show_help(screen: ChatScreen, argument: str) -> None:
    """Shows keys and commands."""
    screen.app.push_screen(PageDialog("Help", help_page(TABLE, screen.session.keymap)))


def show_log(screen: ChatScreen, argument: str) -> None:
    """Shows what happened."""
    screen.app.push_screen(PageDialog("Log", "\n".join(screen.session.log or ["Nothing happened yet."])))


def theme(screen: ChatScreen, argument: str) -> None:
    """Changes between light and dark."""
    screen.app.theme = LIGHT if screen.app.current_theme.dark else DARK


def leave(screen: ChatScreen, argument: str) -> None:
    """Ends the program."""
    screen.app.exit()


COMMANDS = {
    "tokens": tokens,
    "panel": panel,
    "why": why,
    "help": show_help,
    "log": show_log,
    "theme": theme,
    "quit": leave,
}
