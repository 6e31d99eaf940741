"""The display is changed: numbers, token colors, graphs, the theme. Pages are opened: Why, help, log.

Knows only the display; changes no chat and no model.
"""

from __future__ import annotations

from app.chats.authors import is_other
from app.terminal import clean
from app.tui.chat import OpenChat
from app.tui.commands import COMMANDS as TABLE
from app.tui.dialogs.basic import PageDialog
from app.tui.dialogs.help_page import help_page
from app.tui.dialogs.why_screen import WhyScreen, read_ahead, sections
from app.tui.numbers import rate, sentence, speed, stats_of, usage
from runtime.core.errors import SettingsError
from runtime.engine import Engine
from runtime.engine.stats import Stats

PLAIN = "This model has no chat template. It gets plain turns (User:, Assistant:), and no format is enforced."
DARK, LIGHT = "textual-dark", "textual-light"


def show_numbers(screen: OpenChat) -> None:
    """Show the numbers of the last reply on screen, and warnings."""
    engine, stats = screen.session.engine, shown_numbers(screen)
    screen.panel.show(stats)
    offered = screen.offered.sentence if screen.offered is not None else ""
    screen.status.show_sentence(screen.session.store.problem or offered or sentence(stats, engine))
    if engine is not None and stats.predicted_n and (told := numbers_around(screen, stats, engine)):
        screen.status.show_numbers(told)
    else:
        show_ready(screen)


def numbers_around(screen: OpenChat, stats: Stats, engine: Engine) -> list[str]:
    """Return the numbers that do not stand below the reply, which has its speed once it is complete."""
    is_below = not (screen.host.is_replying or screen.has_class("-short"))
    is_tight = engine.status.memory_level != "OK" and not engine.status.given_up
    return [
        *([rate(stats)] if screen.host.is_replying else [] if is_below else speed(stats)),
        *(["memory is short"] if is_tight else []),
        *usage(stats, engine.facts.n_ctx),
    ]


def place_messages(screen: OpenChat) -> None:
    """Let messages end on the row of the status line, wherever the layout has put it."""
    below = screen.size.height - screen.status.region.y - 1
    for rack in screen.query("ToastRack"):  # there is none without notifications
        if rack.styles.margin.bottom != below:
            rack.styles.margin = (0, 0, below, 0)


def show_ready(screen: OpenChat) -> None:
    """Show the name of the pair that answers, if one is open."""
    name = screen.session.pair.name
    screen.status.show_numbers([f"{name} is ready"] if screen.session.engine is not None else [])


def shown_numbers(screen: OpenChat) -> Stats:
    """Return the numbers of the last reply on screen: the current ones, or those stored with it. None are shown of a
    reply by another model than the loaded one.
    """
    if screen.host.is_replying:  # the reply is always in the chat on screen
        return screen.host.numbers.reply
    replies = screen.transcript.views("assistant")
    is_own = replies and not is_other(replies[-1].facts, screen.session.signature())
    return stats_of(replies[-1].facts) if is_own else Stats()


def tokens(screen: OpenChat, argument: str) -> None:
    """Show replies as Markdown, or their tokens in colors."""
    screen.transcript.toggle_tokens()


def panel(screen: OpenChat, argument: str) -> None:
    """Show or hide the live graphs, which are there once a reply has passes to draw."""
    screen.toggle_class("-panel")
    if screen.has_class("-panel") and screen.panel.lack:
        screen.notify(screen.panel.lack)
    show_numbers(screen)


def why(screen: OpenChat, argument: str) -> None:
    """Show whether replies are faster, and why."""
    explanation = screen.host.numbers.explanation
    if explanation is None:
        raise SettingsError("Nothing is measured yet. Wait until the model is loaded.")
    signature = screen.session.signature()
    engine = screen.session.engine
    tables = sections(explanation, screen.transcript.passes(signature), screen.transcript.reasons(signature))
    tables += read_ahead(engine)
    screen.app.push_screen(WhyScreen(whose(screen), explanation, shown_numbers(screen), tables, engine))


def whose(screen: OpenChat) -> str:
    """Return the name of the answering model, and of the one that wrote the last reply on screen if it is another."""
    answers, replies = screen.session.pair.name, screen.transcript.views("assistant")
    wrote = replies[-1].facts.get("model", answers) if replies else answers
    text = answers if wrote == answers else f"{answers} answers now; the last reply here is by {wrote}"
    return clean(text)


def show_help(screen: OpenChat, argument: str) -> None:
    """Show keys and commands."""
    screen.app.push_screen(PageDialog("Help", help_page(TABLE, screen.session.keymap)))


def show_log(screen: OpenChat, argument: str) -> None:
    """Show the log of this session."""
    screen.app.push_screen(PageDialog("Log", "\n".join(screen.session.log or ["Nothing happened yet."])))


def theme(screen: OpenChat, argument: str) -> None:
    """Switch between light and dark."""
    screen.app.theme = LIGHT if screen.app.current_theme.dark else DARK


def leave(screen: OpenChat, argument: str) -> None:
    """End the program."""
    screen.app.exit()


def say_what_lacks(screen: OpenChat) -> None:
    """Show a note for a model without a chat template, unless there is a more important sentence."""
    engine = screen.session.engine
    shown = screen.offered or sentence(shown_numbers(screen), engine)
    if engine is not None and not (engine.facts.template or shown):
        screen.session.note(PLAIN)
        if not screen.session.store.problem:
            screen.status.show_sentence(PLAIN)


COMMANDS = {
    "tokens": tokens,
    "panel": panel,
    "why": why,
    "help": show_help,
    "log": show_log,
    "theme": theme,
    "quit": leave,
}
