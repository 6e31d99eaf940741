"""Offers in an empty chat: the recent models; on a machine that has only the bundled pair, questions for it and models
to fetch.

Knows the subject of the bundled pair and the available models; asks and fetches nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from app.models.amounts import gigabytes, rate
from app.models.library import file_size
from app.models.listing import is_here
from app.models.ollama import ollama_name
from app.models.starting import BUNDLED
from app.tui.pieces import clean
from app.tui.widgets.offers import Offer
from runtime.loading.profile_cache import measured
from runtime.models.addresses import is_web
from runtime.models.registry import Pair, load_registry, located

if TYPE_CHECKING:
    from app.tui.chat_screen import ChatScreen

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


async def offer(screen: ChatScreen) -> None:
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
    others = [name for name in recent if name != loaded and can_load(name, registry)]
    seconds = measured()
    lines = [Offer(f"  {described(name, registry, seconds)}", f"/model {name}") for name in others[:MAX_RECENT]]
    return [Offer("Other models that you have used (Shift+Tab, Enter):"), *lines, ALL_MODELS] if lines else []


def can_load(name: str, registry: dict[str, Pair]) -> bool:
    """Return whether the recent model of that name is still here; servers are not asked."""
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
