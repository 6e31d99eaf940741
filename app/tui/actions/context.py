"""The model is loaded again with another length of context, after its cost in memory is shown.

Knows the loaded model and the cost; opens no model itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from app.models.context_cost import ContextCost, cost, parse_context
from app.tui.actions.models import load
from app.tui.chat import OpenChat
from app.tui.chat_settings import Source
from app.tui.dialogs.basic import TextDialog
from app.tui.dialogs.confirm import ConfirmDialog
from runtime.core.errors import SettingsError
from runtime.engine import Engine
from runtime.models.registry import AS_TRAINED

ABOUT = "How much of a chat the model can look back on, questions and replies together; more takes more memory."


def context(screen: OpenChat, argument: str) -> None:
    """Load the model with that many tokens of context, which are asked for if none are given. Raises SettingsError."""
    loaded(screen)
    if argument:
        ask_first(screen, argument)
    else:
        ask(screen)


def ask(screen: OpenChat, text: str = "", back: Callable[[], object] = lambda: None) -> None:
    """Ask for the length, beginning with a text or the present one. `back` is called if none is given, or the present
    one. Raises SettingsError.
    """
    n_now = loaded(screen).facts.n_ctx

    def written(text: str) -> None:
        if parse_context(text) == n_now:
            back()
        else:
            ask_first(screen, text, partial(ask, screen, text, back))

    hint = "\ntokens, such as 8192 or 8k"
    check = partial(cost_here, screen)
    screen.ask(TextDialog("context", text or str(n_now), hint, ABOUT, check, is_selected=True), written, back)


def ask_first(screen: OpenChat, text: str, refused: Callable[[], object] = lambda: None) -> None:
    """Show what the context costs; load the model with it on a yes, else call `refused`. Raises SettingsError."""
    session, n_now, told = screen.session, loaded(screen).facts.n_ctx, cost_here(screen, text)
    if told.n_ctx == n_now:
        screen.notify(f"The context has {n_now:,} tokens already.")
        return

    question = f"{session.pair.name} is loaded again. {told.sentence()}"
    dialog = ConfirmDialog(f"Context of {told.n_ctx:,} tokens", question, "loads it", f"leaves {n_now:,} tokens")
    screen.ask(dialog, lambda _: load(screen, session.resized(told.n_ctx)), refused)


def cost_here(screen: OpenChat, text: str) -> ContextCost:
    """Return the cost of the context that a text names. Raises SettingsError if it is none, or impossible."""
    n_ctx, n_now = parse_context(text), loaded(screen).facts.n_ctx
    return ContextCost(n_ctx, 0) if n_ctx == n_now else cost(screen.session.pair, screen.session.options, n_ctx, n_now)


def loaded(screen: OpenChat) -> Engine:
    """Return the engine. Raises SettingsError while a model is being loaded, or without any."""
    if screen.session.engine is None or screen.host.coming is not None:
        raise SettingsError("No model is loaded yet. Set the context when one is ready.")
    return screen.session.engine


def shown(screen: OpenChat) -> tuple[str, str]:
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
