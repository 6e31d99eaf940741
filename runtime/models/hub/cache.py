"""Finds and removes GGUF files in the cache folder that all tools of Hugging Face share, and finds unfinished
downloads: a note next to the partial files names the model that they are of.

Uses no network.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import constants, scan_cache_dir, try_to_load_from_cache
from huggingface_hub import errors as hf
from pydantic import TypeAdapter, ValidationError

from runtime.models.hub.names import HubError, pick, split_name
from runtime.models.shards import is_encoder, shard_names

NOTE = ".slipstream.json"  # suffix of a note, after the name of the model's first content
MAX_NOTE = 2**20  # bytes
NAMED = TypeAdapter(tuple[str, dict[str, int]])  # hf:owner/repo:file, and the bytes of each content by its name


@dataclass(frozen=True, slots=True)
class CachedFile:
    """A GGUF file in the cache."""

    repo: str
    name: str
    path: Path
    size: int


def cached_path(name: str, cache: Path | None = None) -> Path:
    """Return the path of the model named `hf:owner/repo:file`, if all its shards are in the cache.

    Raises HubError naming the command that fetches it.
    """
    repo, wanted = split_name(name)
    if not wanted.endswith(".gguf"):
        names = [file.name for file in cached(cache) if file.repo == repo]
        wanted = pick(repo, names, wanted) if names else wanted
    paths = [try_to_load_from_cache(repo, shard, cache_dir=cache) for shard in shard_names(wanted or "model.gguf")]
    if not all(isinstance(path, str) for path in paths):
        raise HubError(
            f"{name} is not on this machine. Fetch it with `slipstream models pull {name.removeprefix('hf:')}`."
        )
    return Path(str(paths[0]))


def cached(cache: Path | None = None) -> list[CachedFile]:
    """Return every GGUF file in the cache, by repository and name, once even if several revisions have it."""
    try:
        repos = scan_cache_dir(cache).repos
    except hf.CacheNotFound:
        return []
    files: dict[tuple[str, str], CachedFile] = {}
    for repo in repos:
        for revision in sorted(repo.revisions, key=lambda revision: revision.last_modified):
            for file in revision.files:
                name = file.file_path.relative_to(revision.snapshot_path).as_posix()
                if name.lower().endswith(".gguf"):
                    files[repo.repo_id, name] = CachedFile(repo.repo_id, name, file.file_path, file.size_on_disk)
    return [files[key] for key in sorted(files)]


def cached_shards(name: str, cache: Path | None = None) -> tuple[str, set[str]]:
    """Return the repository and the cached shards of the model `name`. Raises HubError if there are none."""
    repo, wanted = split_name(name)
    names = [file.name for file in cached(cache) if file.repo == repo]
    if not names:
        raise HubError(f"Nothing of {repo} is on this machine. `slipstream models list` shows what is.")
    return repo, set(shard_names(pick(repo, names, wanted)))


def remove(name: str, cache: Path | None = None) -> int:
    """Remove the model `name` from the cache, content and name, and return the number of bytes freed. With the last
    model of a folder goes its vision encoder.

    Raises HubError.
    """
    (repo, gone), freed = cached_shards(name, cache), 0
    gone |= encoders_left(gone, [file.name for file in cached(cache) if file.repo == repo])
    info = next(info for info in scan_cache_dir(cache).repos if info.repo_id == repo)
    files = [
        (file.file_path.relative_to(revision.snapshot_path).as_posix(), file)
        for revision in info.revisions
        for file in revision.files
    ]
    kept = {file.blob_path for path, file in files if path not in gone}
    for path, file in files:
        if path in gone:
            file.file_path.unlink(missing_ok=True)
            if file.blob_path not in kept and file.blob_path.exists():
                freed += file.size_on_disk
                file.blob_path.unlink()
    return freed


def encoders_left(gone: Collection[str], names: Collection[str]) -> set[str]:
    """Return the vision encoders of a repository's folders in which no model stays once the files of `gone` are."""
    folders = {name.rpartition("/")[0] for name in names if name not in gone and not is_encoder(name)}
    left = {name.rpartition("/")[0] for name in gone} - folders
    return {name for name in names if is_encoder(name) and name.rpartition("/")[0] in left}


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A model of which some bytes are here."""

    name: str  # hf:owner/repo:file
    n_here: int  # bytes
    size: int


def partial_of(blob: Path) -> Path:
    """Return the path of the partial file of a content."""
    return blob.with_name(f"{blob.name}.slipstream.incomplete")


def n_stored(blob: Path, size: int) -> int:
    """Return the bytes of a content that are on this machine."""
    place = blob if blob.exists() else partial_of(blob)
    return min(size, place.stat().st_size) if place.exists() else 0


@contextmanager
def noted(name: str, sizes: dict[Path, int]) -> Iterator[None]:
    """Leave a note of the model `name` while some of its contents, of these sizes, are here, but not all."""
    first = next(iter(sizes))
    note = first.with_name(f"{first.name}{NOTE}")
    with suppress(OSError):  # fetching says why nothing can be stored here
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_bytes(json.dumps([name, {blob.name: size for blob, size in sizes.items()}]).encode())
    try:
        yield
    finally:
        with suppress(OSError):
            if all(blob.exists() for blob in sizes) or not any(n_stored(*each) for each in sizes.items()):
                note.unlink()


def unfinished(cache: Path | None = None) -> list[Unfinished]:
    """Return the models of which some bytes are in the cache, by name; damaged notes are passed over."""
    found = map(read_note, (cache or Path(constants.HF_HUB_CACHE)).glob(f"models--*/blobs/*{NOTE}"))
    return sorted((each for each in found if each is not None and each.n_here), key=lambda each: each.name)


def read_note(note: Path) -> Unfinished | None:
    """Return what a note says, and how much of it is here; None if it is damaged."""
    with suppress(OSError, ValueError, ValidationError, HubError):
        if note.stat().st_size <= MAX_NOTE:
            name, sizes = NAMED.validate_json(note.read_bytes(), strict=True)
            split_name(name)
            here = [n_stored(note.with_name(blob), size) for blob, size in sizes.items()]
            return Unfinished(name, sum(here), sum(sizes.values()))
    return None
