"""Finds and removes GGUF files in the cache folder that all tools of Hugging Face share.

Uses no network.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import errors as hf
from huggingface_hub import scan_cache_dir, try_to_load_from_cache

from runtime.models.hub.names import HubError, pick, split_name
from runtime.models.shards import shard_names


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
    """Remove the model `name` from the cache, content and name, and return the number of bytes freed.

    Raises HubError.
    """
    (repo, gone), freed = cached_shards(name, cache), 0
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
