"""`slipstream models list`: the models on this machine. Knows the terminal."""

from __future__ import annotations

from pathlib import Path

from app.chats.recent import recent_models
from app.terminal import gigabytes, print_json, print_text
from runtime.models.hub.cache import cached
from runtime.models.hub.names import HubError
from runtime.models.registry import Pair, load_registry, located, user_registry
from runtime.tools.made_drafts import made_here, trim_in


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


def is_here(pair: Pair) -> bool:
    """Return whether all files of a pair that come from the hub have been fetched."""
    try:
        located(pair)
    except HubError:
        return False
    return True
