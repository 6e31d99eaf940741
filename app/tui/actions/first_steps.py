"""Offers on a machine that has only the bundled pair: questions for it, and models to fetch.

Knows the subject of the bundled pair and the available models; asks and fetches nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.tui.widgets.offers import Offer

if TYPE_CHECKING:
    from app.tui.chat_screen import ChatScreen

BUNDLED = "demo"
QUESTIONS = (
    "What does os.path.join do?",
    "What is collections.deque?",
    "What does functools.lru_cache do?",
    "What does random.shuffle do?",
)
SHARES = 0.15, 0.35, 0.75  # shares of the free memory that a small, a medium and a large model may need
FOR_COMPLETION = "--raw"  # in the descriptions of models that are not for chats


async def offer(screen: ChatScreen) -> None:
    """Show the offers in an empty chat with the bundled pair, once they are found; none with another model."""
    is_bundled = screen.session.pair.name == BUNDLED
    if not is_bundled or screen.branch.id is None:
        await screen.transcript.offer(await asyncio.to_thread(first_steps) if is_bundled else ())


def first_steps() -> Sequence[Offer]:
    """Return the offers; none if there are other models already. Slow."""
    from app.models.library import all_models  # slow to import, and most starts need none of it
    from app.models.prospects import free_memory

    models = all_models()
    if any(each.is_here and each.name != BUNDLED for each in models):
        return []
    to_talk_to = [each for each in models if each.size and not each.is_here]
    to_talk_to = [each for each in to_talk_to if FOR_COMPLETION not in each.pair.description]
    picked = by_size({each.name: each.size for each in to_talk_to}, free_memory())
    described = {each.name: f"{each.name}, {each.size / 1e9:.1f} GB: {each.pair.description}" for each in to_talk_to}
    return [
        Offer("This model knows Python's standard library alone (Shift+Tab, Enter):"),
        *(Offer(f"  {question}", question) for question in QUESTIONS),
        Offer("To talk of anything, fetch a model that fits your memory:"),
        *(Offer(f"↓ {described[name]}", f"/model {name}") for name in picked),
        Offer("  All models, and GGUF files by their path ...", "/model"),
    ]


def by_size(sizes: dict[str, int], free: int) -> list[str]:
    """Return the largest model within each share of the free memory: a small, a medium and a large one."""
    ordered = sorted(sizes, key=lambda name: sizes[name])
    fitting = [[name for name in ordered if sizes[name] <= share * free] for share in SHARES]
    return list(dict.fromkeys(names[-1] for names in fitting if names))
