"""Ollama's models: GGUF files without names of their own, and the manifests that say which is which.

Knows its folders; asks no server.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

MODEL = "application/vnd.ollama.image.model"  # of a manifest's layers, the one that is the GGUF file
SYSTEM_WIDE = Path("/usr/share/ollama/.ollama/models")  # where its service on Linux keeps them
USUAL = "registry.ollama.ai/library/"  # where what has a short name comes from


def ollama_models() -> Iterator[tuple[str, Path]]:
    """The name of each model, as Ollama has it, and its file."""
    for root in roots():
        for manifest in sorted(path for path in (root / "manifests").rglob("*") if path.is_file()):
            digest = digest_of(manifest)
            blob = root / "blobs" / digest.replace(":", "-")
            if digest and blob.is_file():
                yield name_of(manifest.relative_to(root / "manifests")), blob


def ollama_name(file: Path) -> str:
    """What Ollama calls a file; "" for one that is not its own."""
    if file.parent.name != "blobs":
        return ""
    return next((name for name, blob in ollama_models() if blob.name == file.name), "")


def roots() -> list[Path]:
    """The folders that it keeps models in, those that there are."""
    own = os.environ.get("OLLAMA_MODELS") or Path.home() / ".ollama" / "models"
    return [root for root in dict.fromkeys((Path(own), SYSTEM_WIDE)) if os.access(root, os.R_OK | os.X_OK)]


def digest_of(manifest: Path) -> str:
    """Of a manifest, the digest of the model's file; "" where it names none, or is not what it should be."""
    try:
        layers = json.loads(manifest.read_text(encoding="utf8"))["layers"]
        found = next((each["digest"] for each in layers if each["mediaType"] == MODEL), "")
    except (OSError, ValueError, LookupError, TypeError):
        return ""
    return str(found)


def name_of(place: Path) -> str:
    """A name such as `llama3.2:3b`, by where the manifest is."""
    model, _, tag = place.as_posix().rpartition("/")
    return f"{model.removeprefix(USUAL)}:{tag}"
