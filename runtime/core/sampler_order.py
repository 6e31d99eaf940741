"""The order of samplers, by the names and letters that llama.cpp has for them. Plain data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from runtime.core.errors import SettingsError, nearest

# In llama.cpp's order, with the letter that stands for each there
ORDER = {
    "penalties": "e", "dry": "d", "top_n_sigma": "s", "top_k": "k", "typ_p": "y", "top_p": "p", "min_p": "m",
    "xtc": "x", "temperature": "t",
}  # fmt: skip
ALIASES = {"nucleus": "top_p", "temp": "temperature", "typ": "typ_p", "typical": "typ_p", "typical_p": "typ_p"}
MIROSTAT = ("penalties", "dry", "temperature", "mirostat")  # the order with mirostat, whatever else is set
INFILL = "infill"  # an editor's order with this sampler, which is not available, is not followed
MAX_ORDER = 32  # samplers of an order


def sampler_order(value: Any) -> tuple[str, ...] | None:
    """Return the samplers that a list names, or a text with names or, as in llama.cpp, letters; None: the usual order.

    Raises SettingsError naming the nearest for an unknown one.
    """
    if value is None:
        return None
    names = list(named_in(value)) if isinstance(value, str) else value
    if not isinstance(names, Sequence) or not all(isinstance(each, str) for each in names):
        raise SettingsError(f"samplers must be a list of names, such as {', '.join(ORDER)}.")
    if len(names) > MAX_ORDER:
        raise SettingsError(f"samplers has {len(names)} names: it may have {MAX_ORDER}. Name each once.")
    found = tuple(map(canonical, names))
    return None if INFILL in found else found


def named_in(text: str) -> Iterator[str]:
    """Yield the samplers that a text names, separated by semicolons, commas or spaces, or by their letters."""
    letters = {letter: name for name, letter in ORDER.items()} | {"i": INFILL}
    words = text.replace(";", " ").replace(",", " ").split()
    is_letters = len(words) == 1 and words[0] not in (*ORDER, *ALIASES, INFILL) and set(words[0]) <= letters.keys()
    yield from map(letters.__getitem__, words[0]) if is_letters else words


def canonical(name: str) -> str:
    """Return a sampler's name of ORDER, for another spelling too. Raises SettingsError naming the nearest."""
    plain = name.strip().lower().replace("-", "_")
    together = {each.replace("_", ""): each for each in ORDER}
    found = ALIASES.get(plain) or together.get(plain.replace("_", ""))
    if found is None and plain != INFILL:
        raise SettingsError(f"samplers names '{name[:64]}', which is none. {nearest(plain, [*ORDER])}")
    return found or INFILL
