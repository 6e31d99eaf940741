"""`slipstream models learned`: heads trained on replies, with their measurements, and how to revert them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from app.terminal import print_json, print_text
from runtime.core.errors import SlipstreamError
from runtime.learning.conditions import why_never
from runtime.learning.place import ABOUT, Place, place_of, places
from runtime.learning.versions import ORIGINAL, Measured, State, Version, Versions
from runtime.models.heads import begins_for
from runtime.models.registry import Pair, load_registry, local_pair

NOTHING = (
    "No head was trained on your replies yet. Write `learn = true` into a pair of models.toml whose draft is an "
    "EAGLE-3 head; docs/drafters.md describes what happens then."
)


def show(name: str, as_json: bool) -> None:
    """Print the versions of a pair's head, or of all heads."""
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


def go_back(name: str, number: int) -> None:
    """Make the pair use an older version of its head. Raises SlipstreamError."""
    if not name:
        raise SlipstreamError(
            "Name the pair whose head should be an older one: slipstream models learned PAIR --revert 0"
        )
    Versions(place_for(named(name))).revert(number)
    what = "its original head" if number == ORIGINAL else f"version {number} of its head"
    print_text(f"{name} now uses {what}. Open programs switch at their next reply.")


def facts(place: Place) -> dict[str, Any]:
    """Return the versions of one head as plain data."""
    about, state = place.read(ABOUT), Versions(place).read()
    versions = [
        {
            "version": each.number,
            "parent": each.parent,
            "time": each.time,
            "windows": each.n_windows,
            "before": each.measured.before,
            "after": each.measured.after,
            "positions": each.measured.n_positions,
        }
        for each in state.versions
    ]
    names = {"target": about.get("target"), "head": about.get("head"), "folder": str(place.path)}
    return names | {"used": state.current, "thrown_away": state.n_discarded, "versions": versions}


def described(place: Place) -> str:
    """Return the versions of one head as text, a line for each."""
    about, state = place.read(ABOUT), Versions(place).read()
    lines = [f"{Path(str(about.get('head'))).name} for {Path(str(about.get('target'))).name}"]
    lines.append(line(state, ORIGINAL, "the original head"))
    lines += [line(state, each.number, version_summary(each)) for each in state.versions]
    lines.append(f"  {state.n_discarded} trained heads were not better and were discarded{last(state)}.")
    return "\n".join(lines)


def line(state: State, number: int, what: str) -> str:
    """Return a version as a line, marked if it is in use."""
    return f"{'*' if number == state.current else ' ':>3} {number}  {what}"


def version_summary(version: Version) -> str:
    """Return the gain of a version and its training data, in words."""
    day = datetime.fromtimestamp(version.time).strftime("%Y-%m-%d %H:%M")
    return f"{day}, from version {version.parent}: {shares(version.measured)}; trained on {version.n_windows} replies"


def shares(measured: Measured) -> str:
    """Return the acceptance rates before and after, in words."""
    told = f"accepted {measured.before:.1%} before, {measured.after:.1%} after"
    return f"{told}, at {measured.n_positions} positions it was not trained on"


def last(state: State) -> str:
    """Return the measurement of the last training, in words."""
    return f"; the last training: {shares(state.last)}" if state.last else ""
