"""Offers: in the line above the prompt, which one key accepts, and in an empty chat.

Above the prompt: show an edit of a file, continue in a full context, load the model of a reopened chat, choose another
one after a question outside the bundled model's subject. In an empty chat: the recent models or, on a machine that has
only the bundled pair, questions for it and models to fetch. Knows the branch on screen and the available models; names
commands and runs nothing.
"""

from __future__ import annotations

import asyncio
import builtins
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from app.chats.authors import MODEL, Facts, author_of, is_other, loadable
from app.chats.branch import FULL_AT, NO_ROOM
from app.models.library import file_size, is_here, ollama_name
from app.models.starting import BUNDLED, can_load
from app.terminal import clean, gigabytes, rate
from app.tui.actions import views
from app.tui.chat import Offered, OpenChat
from app.tui.commands import COMMANDS
from app.tui.dialogs.help_page import shown
from app.tui.edits import last_edits
from app.tui.replies import STOPPED
from app.tui.widgets.transcript import Offer
from runtime.loading.profile_cache import measured
from runtime.models.addresses import is_web
from runtime.models.registry import Pair, load_registry, located

KEY, ID = "f9", "chat.offer"  # key and id of the binding
NAME = re.compile(r"[A-Za-z_][\w.]*")
QUESTIONS = (
    "What does os.path.join do?",
    "What is collections.deque?",
    "What does functools.lru_cache do?",
    "What does random.shuffle do?",
)
# Shares of the machine's memory that a small, a medium and a large model may need: what is free differs at each start
SHARES = 0.15, 0.35, 0.6
FOR_COMPLETION = "--raw"  # in the descriptions of models that are not for chats
ALL_MODELS = Offer("  All models, and GGUF files by their path ...", "/model")
MAX_RECENT = 5  # recent models


async def show_chat(screen: OpenChat, at: int | None = None) -> None:
    """Show the end of the branch, or focus one of its messages, and what is offered."""
    await screen.transcript.show(screen.branch, at)
    screen.show_title()
    look(screen)


def look(screen: OpenChat) -> None:
    """Update the offer and show it."""
    screen.offered = None if screen.host.is_replying else offered(screen)
    views.show_numbers(screen)


def look_at_author(screen: OpenChat) -> None:
    """Offer the model that wrote a chat, which was just opened, if another one is loaded."""
    screen.offered = of_author(screen) or screen.offered
    views.show_numbers(screen)


def look_again(screen: OpenChat) -> None:
    """Update the offer after it was taken, or for a model that was just loaded."""
    was_about_author = screen.offered is not None and screen.offered.is_author
    look(screen)
    if was_about_author:
        look_at_author(screen)


def of_author(screen: OpenChat) -> Offered | None:
    """Return the offer of the model that wrote most of the chat; None if it is loaded, or not known."""
    session, coming = screen.session, screen.host.coming
    answers = session.signature(coming) if coming or session.engine else None
    facts = author_of(screen.branch.messages())
    if not is_other(facts, answers):
        return None
    wrote, name = clean(str(facts[MODEL])), loadable(facts, session.recent)
    now = f" {clean(str(answers[MODEL]))} answers now." if answers else ""
    if not can_load(name, session.recent):
        return Offered(f"{wrote}, which wrote this chat, is not on this machine any more.{now}", is_author=True)
    key = shown(session.keymap.get(ID, KEY))
    return Offered(f"{wrote} wrote this chat.{now} {key} loads {wrote}.", "model", name, is_author=True)


def offered(screen: OpenChat) -> Offered | None:
    """Return the offer for the last reply on screen."""
    messages = screen.branch.messages()
    last, key = messages[-1:], shown(screen.session.keymap.get(ID, KEY))
    if last and FULL_AT in last[0].facts:
        return when_full(screen, last[0].facts, key)
    if last and last[0].facts.get("end") == STOPPED:
        keymap, usual = screen.session.keymap, {each.name: each.key for each in COMMANDS}
        more, other = (shown(keymap.get(f"chat.{name}", usual[name])) for name in ("continue", "regenerate"))
        return Offered(f"The reply was stopped. {more} continues it, {other} begins another one.", "continue")
    if edits := last_edits(messages):
        paths = " and ".join(clean(each.path) for each in edits)
        return Offered(f"The reply changes {paths}. {key} shows how, before anything is written.", "diff")
    if len(messages) > 1 and messages[-1].facts.get("model") == BUNDLED and is_foreign(messages[-2].content):
        return Offered(
            f"{BUNDLED} knows only Python's standard library, and this question names no module of it: "
            f"the answer may be nonsense. {key} lists models to talk to.",
            "model",
        )
    return None


def when_full(screen: OpenChat, facts: Facts, key: str) -> Offered | None:
    """Return the offer for a reply that had no more room in the context."""
    engine, full_at = screen.session.engine, facts[FULL_AT]
    if engine is not None and engine.facts.n_ctx > full_at:
        return Offered(f"The context is longer now. {key} continues the reply.", "continue")
    may_grow = engine is not None and engine.facts.n_ctx < engine.facts.n_ctx_train
    longer = "/context loads the model with a longer one" if may_grow else "Ctrl+N begins another chat"
    full = f"The context of {full_at:,} tokens is full."
    if NO_ROOM in facts:
        return Offered(f"{full} {key} continues without the oldest turns, which stay on screen. {longer}.", "room")
    return Offered(f"{full} {key} or {longer}." if may_grow else f"{full} {longer}.", "context" if may_grow else "")


def is_foreign(question: str) -> bool:
    """Return whether the question names nothing of Python's standard library."""
    known = sys.stdlib_module_names | set(dir(builtins))
    return not any(part in known for word in NAME.findall(question) for part in word.split("."))


async def offer(screen: OpenChat) -> None:
    """Show the offers in an empty chat, once they are found: the recent models, or how to begin if there are none."""
    session = screen.session
    offers = await asyncio.to_thread(recent_offers, session.recent, session.model)
    if not offers and session.pair.name == BUNDLED:
        if screen.branch.id is not None:  # they are slow to find, and the chat has begun
            return
        offers = await asyncio.to_thread(first_steps)
    screen.call_later(screen.transcript.offer, offers)  # in the screen's loop, where a question may be shown first


def recent_offers(recent: Sequence[str], loaded: str) -> Sequence[Offer]:
    """Return the offers of the recent models that are here, besides the loaded one; none if there are no others."""
    registry = load_registry()
    others = [name for name in recent if name != loaded and is_still_here(name, registry)]
    seconds = measured()
    lines = [Offer(f"  {described(name, registry, seconds)}", f"/model {name}") for name in others[:MAX_RECENT]]
    return [Offer("Other models that you have used (Shift+Tab, Enter):"), *lines, ALL_MODELS] if lines else []


def is_still_here(name: str, registry: dict[str, Pair]) -> bool:
    """Return whether the recent model of that name is still here; no file is read, and no server asked."""
    if name in registry:
        return is_here(registry[name])
    return is_web(name) or os.path.isfile(name)  # noqa: PTH113 (never raises)


def described(name: str, registry: dict[str, Pair], seconds: Mapping[Path, float]) -> str:
    """Return a recent model's name with the size of its files and the speed that was measured here, if they are known.
    `seconds` are those of a plain step, by file.
    """
    files = located(registry[name]).files if name in registry else [Path(name)]
    size = sum(map(file_size, files))
    step = seconds.get(files[0].absolute()) if files else None
    told = [title_of(name), *[gigabytes(size)] * bool(size), *[f"{rate(1 / each)} tok/s" for each in [step] if each]]
    return clean(", ".join(told))


def title_of(name: str) -> str:
    """Return a recent model's name for people."""
    return (ollama_name(Path(name)) or Path(name).name) if Path(name).is_absolute() else name


def first_steps() -> Sequence[Offer]:
    """Return questions and models to fetch; none if there are other models already. Slow."""
    from app.models.library import all_models  # slow to import, and most starts need none of it
    from app.models.prospects import all_memory

    models = all_models()
    if any(each.is_here and each.name != BUNDLED for each in models):
        return []
    described_ones = [each for each in models if each.size and not each.is_here and each.pair.description]
    to_talk_to = [each for each in described_ones if FOR_COMPLETION not in each.pair.description]
    picked = by_size({each.name: each.size for each in to_talk_to}, all_memory())
    described = {each.name: f"{each.name}, {each.size / 1e9:.1f} GB: {each.pair.description}" for each in to_talk_to}
    return [
        Offer("This model knows only Python's standard library (Shift+Tab, Enter):"),
        *(Offer(f"  {question}", question) for question in QUESTIONS),
        Offer("For other topics, download a model that fits your memory:"),
        *(Offer(f"↓ {described[name]}", f"/model {name}") for name in picked),
        ALL_MODELS,
    ]


def by_size(sizes: dict[str, int], memory: int) -> list[str]:
    """Return the largest model within each share of the memory: a small, a medium and a large one."""
    ordered = sorted(sizes, key=lambda name: sizes[name])
    fitting = [[name for name in ordered if sizes[name] <= share * memory] for share in SHARES]
    return list(dict.fromkeys(names[-1] for names in fitting if names))
