"""Ollama's models: GGUF files named by their digests, and the manifests that name the models.

Knows its folders; contacts no server.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from runtime.core.outside import text_of
from runtime.models.plain_file import read_plain

MODEL = "application/vnd.ollama.image.model"  # media type of the layer that is the GGUF file
SYSTEM_WIDE = Path("/usr/share/ollama/.ollama/models")  # folder of Ollama's service on Linux
DEFAULT_REGISTRY = "registry.ollama.ai/library/"  # registry of models with short names


def ollama_models() -> Iterator[tuple[str, Path]]:
    """Yield each model's name in Ollama, and its file."""
    for root in roots():
        for manifest in sorted(path for path in (root / "manifests").rglob("*") if path.is_file()):
            digest = digest_of(manifest)
            blob = root / "blobs" / digest.replace(":", "-")
            if digest and blob.is_file():
                yield name_of(manifest.relative_to(root / "manifests")), blob


def ollama_name(file: Path) -> str:
    """Return Ollama's name for a file. "" if the file is not Ollama's."""
    if file.parent.name != "blobs":
        return ""
    return next((name for name, blob in ollama_models() if blob.name == file.name), "")


def roots() -> list[Path]:
    """Return the existing folders where Ollama stores models."""
    own = os.environ.get("OLLAMA_MODELS") or Path.home() / ".ollama" / "models"
    return [root for root in dict.fromkeys((Path(own), SYSTEM_WIDE)) if os.access(root, os.R_OK | os.X_OK)]


def digest_of(manifest: Path) -> str:
    """Return the digest of a manifest's model file. "" if it has none or is invalid."""
    try:
        layers = json.loads(text_of(read_plain(manifest)))["layers"]
        found = next((each["digest"] for each in layers if each["mediaType"] == MODEL), "")
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return ""
    return str(found)


def name_of(place: Path) -> str:
    """Return a name such as `llama3.2:3b`, given the manifest's relative path."""
    model, _, tag = place.as_posix().rpartition("/")
    return f"{model.removeprefix(DEFAULT_REGISTRY)}:{tag}"
