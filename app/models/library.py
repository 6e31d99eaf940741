"""The models that this user can use: pairs by name, and GGUF files where this and other programs store them.

Ollama's are named by their digests; its manifests name the models. Knows folders, the hub's cache and the registry;
reads no model's content and uses no network.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path

from runtime.core.outside import read_plain, text_of
from runtime.engine.paired import remembered
from runtime.models.addresses import is_web
from runtime.models.hub.cache import Unfinished, cached, unfinished
from runtime.models.hub.names import HubError
from runtime.models.model_files import HUB
from runtime.models.registry import AS_TRAINED, Pair, load_registry, located, upstream_pair
from runtime.models.shards import is_encoder, is_first_shard, shard_names

DEEP = 4  # levels of folders below a usual one
MAX_FILES, MAX_SECONDS = 20_000, 2.0  # limits for one folder: names, and seconds on a slow disk
CACHES = "Library/Caches" if sys.platform == "darwin" else ".cache"
COMMON_FOLDERS = (  # where LM Studio, llama.cpp, Jan, GPT4All and users store models
    ".lmstudio/models", ".cache/lm-studio/models", ".local/share/Jan/data", "jan/models",
    ".local/share/nomic.ai/GPT4All", "models", "Models", "Downloads",
)  # fmt: skip
# Of Ollama: media type of the layer that is the GGUF file
MODEL = "application/vnd.ollama.image.model"
SYSTEM_WIDE = Path("/usr/share/ollama/.ollama/models")  # folder of Ollama's service on Linux
DEFAULT_REGISTRY = "registry.ollama.ai/library/"  # registry of models with short names


@dataclass(frozen=True, slots=True)
class Model:
    """A model that can be loaded by its name, perhaps after fetching it."""

    name: str  # of a pair, the path of a file, hf:owner/repo:file, or a server's address
    pair: Pair  # with local paths if its files are here
    is_here: bool
    size: int  # bytes of all its files; 0 = not known
    n_here: int = 0  # bytes of it that an unfinished download left

    @property
    def title(self) -> str:
        """The model's name in a list."""
        return self.pair.name

    @property
    def fetched(self) -> str:
        """The share of its bytes that an unfinished download left; "" if there is none."""
        return f"{min(0.99, self.n_here / max(1, self.size)):.0%}" if self.n_here else ""

    def is_among(self, names: Iterable[str]) -> bool:
        """Return whether the model is one of `names`, each a name or the path of a file."""
        file = real(self.pair.target) if self.is_here and not self.pair.upstream else None
        return any(name == self.name or (file is not None and real(Path(name)) == file) for name in names)


def all_models(recent: Iterable[str] = ()) -> list[Model]:
    """Return the pairs, then the recently used servers, then the files, each once: from the hub's cache, the usual
    folders, Ollama, and the folders of those used recently. No server is asked.
    """
    from_hub = {f"{HUB}{file.repo}:{file.name}": file for file in cached()}
    begun = {each.name: each for each in unfinished() if each.name not in from_hub}
    sizes = {name: file.size for name, file in from_hub.items()}
    pairs = [of_pair(pair, begun, sizes) for pair in load_registry().values()]
    files = [of_file(name, file.path) for name, file in from_hub.items() if is_model(file.path)]
    files += [of_file(str(path), path) for folder in usual_folders() for path in models_below(folder)]
    files += [of_file(str(path), path) for _, path in ollama_models()]
    names = [*recent]
    used = dict.fromkeys(Path(name).parent for name in names if Path(name).is_absolute())
    files += [of_file(str(path), path) for folder in used for path in models_below(folder, 0)]
    files += [of_file(name, Path(name)) for name in names if Path(name).is_file()]
    known = {real(path) for each in pairs if each.is_here for path in each.pair.files}
    once = {real(each.pair.target): each for each in reversed(files)}
    servers = [Model(name, upstream_pair(name), True, 0) for name in names if is_web(name)]
    of_pairs = {path.as_posix() for each in pairs for path in each.pair.files}
    return [
        *pairs,
        *servers,
        *(of_begun(each) for name, each in begun.items() if name not in of_pairs),
        *sorted((each for path, each in once.items() if path not in known), key=lambda each: each.title),
    ]


def of_pair(pair: Pair, begun: Mapping[str, Unfinished], cached: Mapping[str, int]) -> Model:
    """Return a pair of the registry as a model; `begun` are the unfinished downloads and `cached` the bytes of the
    files in the hub's cache, both by name.
    """
    if not is_here(pair):
        names = [path.as_posix() for path in pair.files]
        n_here = sum(begun[name].n_here if name in begun else cached.get(name, 0) for name in names)
        return Model(pair.name, pair, False, pair.size, n_here if begun.keys() & {*names} else 0)
    found = located(pair)
    return Model(pair.name, found, True, sum(map(file_size, found.files)))


def is_here(pair: Pair) -> bool:
    """Return whether all files of a pair that come from the hub have been fetched."""
    try:
        located(pair)
    except HubError:
        return False
    return True


def of_begun(download: Unfinished) -> Model:
    """Return the model of an unfinished download."""
    pair = Pair(download.name.rpartition("/")[2].rpartition(":")[2], Path(download.name), context=AS_TRAINED)
    return Model(download.name, pair, False, download.size, download.n_here)


def of_loaded(pair: Pair) -> Model:
    """Return a loaded pair as a model."""
    return Model(pair.name, pair, True, 0)


def of_file(name: str, path: Path) -> Model:
    """Return a GGUF file, perhaps the first shard of several, as a model."""
    pair = Pair(title_of(path), path, remembered(path), context=AS_TRAINED)
    return Model(name, pair, True, file_size(path))


def title_of(path: Path) -> str:
    """Return a file's name, or Ollama's name for it."""
    return ollama_name(path) or path.name


def file_size(path: Path) -> int:
    """Return the bytes of a file and of its other shards. 0 if there is none."""
    shards = [path.with_name(name) for name in shard_names(path.name)]
    return sum(shard.stat().st_size for shard in shards if shard.is_file())


def usual_folders() -> list[Path]:
    """Return the existing folders where models are usually stored."""
    llama = Path(os.environ.get("LLAMA_CACHE") or Path.home() / CACHES / "llama.cpp")
    folders = [Path.cwd(), llama, *(Path.home() / name for name in COMMON_FOLDERS)]
    return [folder for folder in folders if folder.is_dir()]


def models_below(folder: Path, deep: int = DEEP) -> Iterator[Path]:
    """Yield the models in a folder and up to `deep` levels below it. For the home folder or a root, only those directly
    in it.
    """
    depth = 0 if folder in (Path.home(), Path(folder.anchor)) else deep
    ends = time.monotonic() + MAX_SECONDS
    for path in takewhile(lambda _: time.monotonic() < ends, islice(files_below(folder, depth), MAX_FILES)):
        if is_model(path):
            yield path


def files_below(folder: Path, depth: int) -> Iterator[Path]:
    """Yield the files in a folder and up to `depth` levels below it, without hidden or unreadable folders."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if not entry.name.startswith(".") and depth and entry.is_dir(follow_symlinks=False):
            yield from files_below(Path(entry.path), depth - 1)
        else:
            yield Path(entry.path)


def is_model(path: Path) -> bool:
    """Return whether this is the file that opens a model, judging by its name."""
    return is_first_shard(path.name) and not is_encoder(path.name)


def real(path: Path) -> Path:
    """Return the path with symbolic links resolved."""
    return Path(os.path.realpath(path))


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
