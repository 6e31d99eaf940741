"""`slipstream models list` and `models learned`: the models on this machine, and heads trained on replies.

Knows the terminal.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from app.chats.authors import recent_models
from app.models.library import is_here
from app.terminal import gigabytes, print_json, print_text
from runtime.core.errors import SlipstreamError
from runtime.models.heads import begins_for
from runtime.models.hub.cache import cached
from runtime.models.registry import Pair, load_registry, local_pair, user_registry
from runtime.training import learned_head
from runtime.training.conditions import why_never
from runtime.training.learned_head import LearnedHead, Measured
from runtime.training.made_drafts import made_here, trim_in
from runtime.training.place import ABOUT, Place, place_of, places

NOTHING = (
    "No head was trained on your replies yet. Write `learn = true` into a pair of models.toml whose draft is an "
    "EAGLE-3 head; docs/drafters.md describes what happens then."
)


def show_all(as_json: bool) -> None:
    """Print the pairs, then the files."""
    pairs, files = load_registry(), cached()
    if as_json:
        entries = [
            {"name": f"hf:{file.repo}:{file.name}", "path": str(file.path), "bytes": file.size} for file in files
        ]
        data = {
            "pairs": [as_data(pair) for pair in pairs.values()],
            "files": entries,
            "used": [{"path": str(path), "bytes": path.stat().st_size} for path in used_files()],
            "made": [*map(made_data, made_here())],
        }
        print_json(data)
        return
    print_text("Pairs by name:")
    for pair in pairs.values():
        print_text(f"  {describe(pair)}")
    print_text(
        "In the hub's cache:"
        if files
        else "In the hub's cache: nothing yet. Fetch a model with `slipstream models pull owner/repo`."
    )
    for file in files:
        print_text(f"  {gigabytes(file.size):>9}  hf:{file.repo}:{file.name}")
    if used := used_files():
        print_text("Other files that you have used:")
    for path in used:
        print_text(f"  {gigabytes(path.stat().st_size):>9}  {path}")
    show_made()
    print_text(f"Pairs of your own go into {user_registry()}.")


def used_files() -> list[Path]:
    """Return the model files that were used and are here, outside the hub's cache; the latest first."""
    in_cache = {file.path for file in cached()}
    paths = [path for path in map(Path, recent_models()) if path.is_absolute() and path.is_file()]
    return [path for path in paths if path not in in_cache]


def show_made() -> None:
    """Print the draft models that were made on this machine, if any."""
    if drafts := made_here():
        print_text("Draft models made here:")
    for path in drafts:
        trim = trim_in(path)
        what = f"  {len(trim.kept):,} words of {trim.source}" if trim else ""
        print_text(f"  {gigabytes(path.stat().st_size):>9}  {path}{what}")


def made_data(path: Path) -> dict[str, object]:
    """Return a draft model made here as plain data for JSON."""
    trim = trim_in(path)
    words = {"of": str(trim.source), "words": len(trim.kept)} if trim else {}
    return {"path": str(path), "bytes": path.stat().st_size, **words}


def as_data(pair: Pair) -> dict[str, object]:
    """Return a pair as plain data for JSON."""
    draft = pair.draft.as_posix() if pair.draft else None
    facts = {"licence": pair.licence, "bytes": pair.size, "context": pair.context, "drafters": pair.drafters}
    target = None if pair.upstream else pair.target.as_posix()
    files = {"target": target, "draft": draft, "upstream": pair.upstream or None}
    return {"name": pair.name, **files, "here": is_here(pair), **facts}


def describe(pair: Pair) -> str:
    """Return a pair as one line, with the command that fetches missing files."""
    source = pair.upstream or pair.target.as_posix()
    what = pair.description or source + (f" with {pair.draft.as_posix()}" if pair.draft else "")
    size = f" ({gigabytes(pair.size)})" if pair.size else ""
    return f"{pair.name}: {what}" + ("" if is_here(pair) else f". Not here{size}: `slipstream models pull {pair.name}`")


def show_learned(name: str, as_json: bool) -> None:
    """Print what a pair's head has learned, or all heads."""
    found = [place_for(with_head(name))] if name else places()
    if as_json:
        print_json({"learned": [learned_facts(place) for place in found]})
        return
    if name and (why := why_never(with_head(name), begins_for(with_head(name).draft or Path()))):
        print_text(f"{name} does not learn: {why}.")
    print_text("\n\n".join(described(place) for place in found if place.number) or NOTHING)


def with_head(name: str) -> Pair:
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
    learned_head.revert(place_for(with_head(name)))
    print_text(f"{name} now uses its own head. Open programs switch at their next reply.")


def learned_facts(place: Place) -> dict[str, Any]:
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
