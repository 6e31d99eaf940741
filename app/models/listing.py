"""`slipstream models list`, `search` and `rm`: tables of what is here and what the hub has. Knows the terminal."""

from __future__ import annotations

import json

import typer

from app.models.info import gigabytes
from app.terminal import inert
from runtime.models.hub.cache import cached, cached_shards
from runtime.models.hub.cache import remove as remove_cached
from runtime.models.hub.names import HubError
from runtime.models.registry import Pair, load_registry, located, user_registry


def show_all(as_json: bool) -> None:
    """Pairs, then files."""
    pairs, files = load_registry(), cached()
    if as_json:
        found = [{"name": f"hf:{file.repo}:{file.name}", "path": str(file.path), "bytes": file.size} for file in files]
        print(json.dumps({"pairs": [as_data(pair) for pair in pairs.values()], "files": found}, ensure_ascii=False))
        return
    print("Pairs by name:")
    for pair in pairs.values():
        print(f"  {inert(describe(pair))}")
    print(
        "In the hub's cache:"
        if files
        else "In the hub's cache: nothing yet. Fetch a model with `slipstream models pull owner/repo`."
    )
    for file in files:
        print(f"  {gigabytes(file.size):>9}  {inert(f'hf:{file.repo}:{file.name}')}")
    print(f"Pairs of your own go into {user_registry()}.")


def as_data(pair: Pair) -> dict[str, object]:
    """For programs."""
    draft = pair.draft.as_posix() if pair.draft else None
    known = {"licence": pair.licence, "bytes": pair.size, "context": pair.context, "drafters": pair.drafters}
    return {"name": pair.name, "target": pair.target.as_posix(), "draft": draft, "here": is_here(pair), **known}


def describe(pair: Pair) -> str:
    """One line, with what is missing."""
    what = pair.description or pair.target.as_posix() + (f" with {pair.draft.as_posix()}" if pair.draft else "")
    size = f" ({gigabytes(pair.size)})" if pair.size else ""
    return f"{pair.name}: {what}" + ("" if is_here(pair) else f". Not here{size}: `slipstream models pull {pair.name}`")


def is_here(pair: Pair) -> bool:
    """Were all files fetched that come from the hub?"""
    try:
        located(pair)
    except HubError:
        return False
    return True


def show_found(words: str, limit: int) -> None:
    """What the hub has, or that it has nothing."""
    from runtime.models.hub.fetch import Hub

    found = Hub().search(words, limit)
    for name, n_downloads, is_gated in found:
        print(f"{n_downloads:>12,}  {inert(name)}{'  (gated)' if is_gated else ''}")
    if not found:
        typer.echo(f"The hub has no GGUF repository for '{words}'. Use fewer words.", err=True)


def remove(name: str, yes: bool) -> None:
    """Asks, unless told not to."""
    cached_shards(name)  # before a question that makes no sense
    if not yes:
        typer.confirm(f"Remove {name} from the hub's cache, which other programs may use too?", abort=True)
    print(f"Removed {name}: {gigabytes(remove_cached(name))} are free again.")
