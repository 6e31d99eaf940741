"""The model is loaded again with another length of context, after its cost in memory is shown, estimated from headers.

Knows the loaded model and the cost; opens no model itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from app.models.prospects import free_memory
from app.terminal import gigabytes
from app.tui.actions.models import load
from app.tui.chat import OpenChat
from app.tui.chat_settings import Source
from app.tui.dialogs.basic import ConfirmDialog, TextDialog
from runtime.core.errors import SettingsError
from runtime.engine import Engine, Options
from runtime.loading.fit import PairSpec, longest, spec_of
from runtime.loading.footprint import ContextSpec
from runtime.models.registry import AS_TRAINED, Pair

ABOUT = "How much of a chat the model can look back on, questions and replies together; more takes more memory."
LEAST = 256  # tokens of context, below which a chat has no room
THOUSAND = 1024  # tokens that a k stands for


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


@dataclass(frozen=True, slots=True)
class ContextCost:
    """The memory that a pair needs with a length of context."""

    n_ctx: int
    n_bytes: int  # of the whole pair; 0 = not known
    n_more: int = 0  # than with the present context; negative: less
    n_free: int = 0  # with the pair closed; 0 = not known
    with_draft: bool = True  # whether the draft model fits as well

    def sentence(self) -> str:
        """Return the cost in words."""
        if not self.n_bytes:
            return "The memory that it needs is not known."
        change = f"{gigabytes(abs(self.n_more))} {'more' if self.n_more >= 0 else 'less'} than now"
        free = f", and {gigabytes(self.n_free)} are free for it" if self.n_free else ""
        lost = "" if self.with_draft else " The draft model is left out, because both do not fit."
        return f"It needs {gigabytes(self.n_bytes)} of memory, {change}{free}.{lost}"


def parse_context(text: str) -> int:
    """Return a number of tokens such as 8192 or 8k. Raises SettingsError."""
    digits = text.lower().replace(",", "").removesuffix("k")
    n_ctx = int(digits) * (THOUSAND if text.lower().endswith("k") else 1) if digits.isdecimal() else -1
    if n_ctx < 0 or len(digits) > 9:
        raise SettingsError(f"'{text[:64]}' is not a number of tokens. For example: /context 8192")
    if n_ctx < LEAST:
        raise SettingsError(f"A context of {n_ctx} tokens is too short for a chat: {LEAST} is the least.")
    return n_ctx


def cost(pair: Pair, options: Options, n_ctx: int, n_now: int) -> ContextCost:
    """Return the cost of `n_ctx` tokens of context instead of `n_now`. Raises SettingsError if that is impossible."""
    if pair.upstream:
        raise SettingsError(f"Another server has {pair.name}, so the length of its context is set there.")
    spec = whole(pair, options, n_ctx)
    if spec is None:
        return ContextCost(n_ctx, 0)
    if n_ctx > (trained := spec.target.n_context or n_ctx):
        raise SettingsError(
            f"{pair.name} was trained on {trained:,} tokens of context: /context {trained} is the most."
        )
    now = spec.needs(n_now, True)
    free = free_memory() and free_memory() + now
    if free and spec.needs(n_ctx, False) > free:
        raise SettingsError(too_large(spec, n_ctx, free))
    with_draft = not free or spec.needs(n_ctx, True) <= free
    n_bytes = spec.needs(n_ctx, with_draft)
    return ContextCost(n_ctx, n_bytes, n_bytes - now, free, with_draft)


def whole(pair: Pair, options: Options, n_ctx: int) -> PairSpec | None:
    """Return the sizes of a pair with all its parts; None if its headers cannot be read."""
    return spec_of(pair.target, pair.draft, ContextSpec(n_ctx, n_rows=options.max_k + 1), LEAST, options.draft_window)


def too_large(spec: PairSpec, n_ctx: int, free: int) -> str:
    """Return a sentence about a context for which memory does not suffice."""
    most = longest(replace(spec, draft=None), free)
    then = f"/context {most} is the most." if most else "Close other programs, or choose a smaller model."
    needed = gigabytes(spec.needs(n_ctx, False))
    return f"A context of {n_ctx:,} tokens needs {needed} of memory, and {gigabytes(free)} are free for it. {then}"


COMMANDS = {"context": context}
