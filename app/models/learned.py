"""`slipstream models learned`: heads trained on replies, with their measurements, and how to revert them."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from app.terminal import print_json, print_text
from runtime.core.errors import SlipstreamError
from runtime.models.heads import begins_for
from runtime.models.registry import Pair, load_registry, local_pair
from runtime.training import learned_head
from runtime.training.conditions import why_never
from runtime.training.learned_head import LearnedHead, Measured
from runtime.training.place import ABOUT, Place, place_of, places

NOTHING = (
    "No head was trained on your replies yet. Write `learn = true` into a pair of models.toml whose draft is an "
    "EAGLE-3 head; docs/drafters.md describes what happens then."
)


def show(name: str, as_json: bool) -> None:
    """Print what a pair's head has learned, or all heads."""
    found = [place_for(named(name))] if name else places()
    if as_json:
        print_json({"learned": [facts(place) for place in found]})
        return
    if name and (why := why_never(named(name), begins_for(named(name).draft or Path()))):
        print_text(f"{name} does not learn: {why}.")
    print_text("\n\n".join(described(place) for place in found if place.number) or NOTHING)


def named(name: str) -> Pair:
    """Return the pair, which must have a head. Raises RegistryError and SlipstreamError."""
    pair = local_pair(name, load_registry())
    if pair.draft is None:
        raise SlipstreamError(f"The model '{name}' has no head that could learn. Name one with a draft.")
    return pair


def place_for(pair: Pair) -> Place:
    """Return the folder with what the pair's head has learned. Raises SlipstreamError."""
    try:
        return place_of(pair.target, pair.draft or Path())
    except OSError as error:
        raise SlipstreamError(
            f"{error.filename} cannot be read ({error.strerror}). Fetch the pair with `slipstream models pull`."
        ) from error


def go_back(name: str) -> None:
    """Make the pair use its own head. Raises SlipstreamError."""
    if not name:
        raise SlipstreamError("Name the pair whose own head should be used: slipstream models learned PAIR --revert")
    learned_head.revert(place_for(named(name)))
    print_text(f"{name} now uses its own head. Open programs switch at their next reply.")


def facts(place: Place) -> dict[str, Any]:
    """Return the state of one head as plain data."""
    about = place.read(ABOUT)
    names = {"target": about.get("target"), "head": about.get("head"), "folder": str(place.path)}
    return names | asdict(learned_head.read(place))


def described(place: Place) -> str:
    """Return the state of one head as text."""
    about, state = place.read(ABOUT), learned_head.read(place)
    lines = [f"{Path(str(about.get('head'))).name} for {Path(str(about.get('target'))).name}"]
    lines.append(f"  {in_use(state) if learned_head.current(place) else 'The original head is used.'}")
    last = f"; the last training: {shares(state.last)}" if state.last else ""
    lines.append(f"  {state.n_discarded} trained heads were not better and were discarded{last}.")
    return "\n".join(lines)


def in_use(state: LearnedHead) -> str:
    """Return the number of the learned head in use, its gain and its training data, in words."""
    if state.measured is None:  # one of an earlier version of Slipstream
        return f"Head {state.current} is used."
    day = datetime.fromtimestamp(state.time).strftime("%Y-%m-%d %H:%M")
    return f"Head {state.current} is used, trained on {state.n_windows} replies, {day}: {shares(state.measured)}."


def shares(measured: Measured) -> str:
    """Return the shares of right draft tokens before and after, in words."""
    told = f"{measured.before:.1%} of draft tokens right before, {measured.after:.1%} after"
    return f"{told}, at {measured.n_positions} positions it was not trained on"
