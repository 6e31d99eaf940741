"""Parses names of files on the hub: `owner/repo`, `owner/repo:file.gguf`, `owner/repo:Q4_K_M`.

Strict, because they become paths; opens nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from runtime.core.errors import SlipstreamError, listed
from runtime.models.shards import is_encoder, is_first_shard

REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
BEST = re.compile(r"(?<![b\d])f16", re.IGNORECASE)
# Characters that are invalid in a file name on some system, or lead out of a folder
FORBIDDEN = re.compile(r'[\x00-\x1f\x7f\\:*?"<>|\ud800-\udfff]')


class HubError(SlipstreamError):
    """The hub or a request to it failed, or a file of it was not fetched."""


class UnreachableError(HubError):
    """The hub could not be reached at all."""


def split_name(name: str) -> tuple[str, str]:
    """Return `hf:owner/repo:file` as repo and file, of which the latter may be empty. Raises HubError."""
    repo, _, file = name.removeprefix("hf:").partition(":")
    if not REPO.fullmatch(repo) or ".." in repo or "--" in repo:
        raise HubError(f"'{shortened(name)}' names nothing on the hub. Write owner/repo, or owner/repo:file.gguf.")
    if file and not is_safe(file):
        raise HubError(
            f"'{shortened(file)}' is not the name of a file on the hub: it must be a plain name, perhaps in a folder "
            "of the repository."
        )
    return repo, file


def shortened(name: str) -> str:
    """Return the name shortened for a sentence."""
    return name if len(name) <= 100 else f"{name[:100]}..."


def is_safe(file: str) -> bool:
    """Whether the name stays inside its folder, on every system."""
    steps = file.split("/")
    return (
        len(file) < 512
        and not FORBIDDEN.search(file)
        and all(step.strip(". ") and step == step.rstrip(". ") for step in steps)
    )


def encoder_for(names: Iterable[str], model: str) -> str | None:
    """Return the vision encoder in a model's folder; of several precisions the one that most machines compute best."""
    folder = model.rpartition("/")[0]
    found = sorted(name for name in names if is_encoder(name) and name.rpartition("/")[0] == folder)
    found = [name for name in found if name.endswith(".gguf")]
    return min(found, key=lambda name: (BEST.search(name) is None, name), default=None)


def pick(repo: str, names: Sequence[str], wanted: str) -> str:
    """Return the one model file that `wanted` names: by its whole name, by a quantization such as Q4_K_M, or, if empty,
    the only one. A vision encoder must be named in full.

    Raises HubError if there is not exactly one.
    """
    models = sorted(name for name in names if is_first_shard(name) and not is_encoder(name))
    if wanted in models or (wanted in names and is_encoder(wanted)):
        return wanted
    tag = re.compile(rf"(?:^|[-._/]){re.escape(wanted)}(?:[-._/]|$)", re.IGNORECASE)
    found = [name for name in models if not wanted or tag.search(name)]
    if len(found) == 1:
        return found[0]
    if not models:
        raise HubError(
            f"{repo} has no GGUF file. Look for one with `slipstream models search {repo.partition('/')[2]}`."
        )
    what = (
        f"{len(found)} files fit '{wanted}'"
        if wanted and found
        else f"no file fits '{wanted}'"
        if wanted
        else f"{repo} has {len(models)} models"
    )
    shown = listed(found or models)
    raise HubError(f"{what[0].upper()}{what[1:]}: {shown}. Name one, as in {repo}:{(found or models)[0]}.")
