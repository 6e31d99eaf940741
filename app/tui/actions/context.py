"""The model is loaded again with another length of context, after its cost in memory is shown.

Knows the loaded model and the cost; opens no model itself.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from app.models.context_cost import cost, parse_context
from app.tui.actions.models import load
from app.tui.chat_settings import Source
from app.tui.dialogs.basic import TextDialog
from app.tui.dialogs.confirm import ConfirmDialog
from app.tui.shared_engine import SharedEngine
from runtime.core.errors import SettingsError
from runtime.models.registry import AS_TRAINED

if TYPE_CHECKING:
    from app.tui.chat_screen import ChatScreen


def context(screen: ChatScreen, argument: str) -> None:
    """Load the model with that many tokens of context, which are asked for if none are given. Raises SettingsError."""
    n_now = loaded(screen).facts.n_ctx
    if argument:
        ask_first(screen, argument)
        return

    async def written(text: str | None) -> None:
        if text:
            await screen.attempt(ask_first, screen, text)

    screen.app.push_screen(TextDialog("Context", str(n_now), "\ntokens, such as 8192 or 8k"), written)


def ask_first(screen: ChatScreen, text: str) -> None:
    """Show what the context costs, and load the model with it on a yes. Raises SettingsError."""
    session, n_now, n_ctx = screen.session, loaded(screen).facts.n_ctx, parse_context(text)
    if n_ctx == n_now:
        screen.notify(f"The context has {n_now:,} tokens already.")
        return
    told = cost(session.pair, session.options, n_ctx, n_now)

    async def answered(is_wanted: bool | None) -> None:
        if is_wanted:
            await screen.attempt(partial(load, screen, session.resized(n_ctx)))

    question = f"{session.pair.name} is loaded again. {told.sentence()}"
    dialog = ConfirmDialog(f"Context of {n_ctx:,} tokens", question, "loads it", f"leaves {n_now:,} tokens")
    screen.app.push_screen(dialog, answered)


def loaded(screen: ChatScreen) -> SharedEngine:
    """Return the engine. Raises SettingsError while a model is being loaded, or without any."""
    if screen.session.engine is None or screen.host.coming is not None:
        raise SettingsError("No model is loaded yet. Set the context when one is ready.")
    return screen.session.engine


def shown(screen: ChatScreen) -> tuple[str, str]:
    """Return the length of the context and where it comes from."""
    session, engine = screen.session, screen.session.engine
    if engine is None:
        return "no model", ""
    pair, facts = session.pair, engine.facts
    if pair.upstream:
        source = "the other server"
    elif pair in session.sized:
        source = "/context"
    elif session.options.n_ctx:
        source = "the command line"
    elif pair.context == AS_TRAINED and facts.n_ctx < facts.n_ctx_train:
        source = "the free memory"
    else:
        source = Source.OWN if pair.context == AS_TRAINED or "context" in pair.named else Source.USUAL
    return str(facts.n_ctx), source


COMMANDS = {"context": context}
