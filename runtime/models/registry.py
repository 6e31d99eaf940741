"""Named pairs of target and draft, from models.toml and the user's own file, read strictly.

Knows files and names; opens no model.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from platformdirs import user_config_path
from pydantic import BeforeValidator, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, with_config

from runtime.core.errors import RegistryError, nearest
from runtime.core.outside import read_plain
from runtime.core.rare_sampling import RARE_NAMES, USUAL, RareSampling
from runtime.drafters.registry import usual
from runtime.models.adapters import told
from runtime.models.addresses import as_upstream, is_web
from runtime.models.hub.names import HubError
from runtime.models.model_files import HUB, MAX_NAME, fetched, find_file, recent_file
from runtime.models.pair_values import (
    Adapters,
    Drafters,
    ModelFile,
    checked_sampling,
    checked_upstream,
    checked_workers,
    sampling_in,
)
from runtime.models.strict_toml import only_value, parse_toml, validated

AS_TRAINED = 0  # tokens of context: the trained length, as far as memory allows
NO_FILE = Path()  # the target of a pair whose model another server has
PLAIN = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "penalty_last_n")  # sampling settings
LISTS = "rpc", "lora"  # keys whose values are lists
UPSTREAM_KEY = "SLIPSTREAM_UPSTREAM_KEY"


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class Pair:
    """A target, optionally a draft model for it, and their settings.

    Paths are relative to the registry file; `hf:owner/repo:file` stands for a file of the hub until `located` replaces
    it with its path. The annotations define the valid values.
    """

    name: str
    target: Annotated[ModelFile, Field(description="Name the GGUF file of the model.")]
    draft: ModelFile | None = None
    mmproj: ModelFile | None = None  # the vision encoder; None: the one beside the target, if there is one
    lora: Adapters = ()  # LoRA adapters of the target, such as ["adapter.gguf", "other.gguf=0.5"]
    description: str = ""
    licence: str = ""
    size: Annotated[StrictInt, Field(ge=0, le=2**63)] = 0  # bytes of all its files, according to a source; 0 = unknown
    # Share of the weights that one token reads, below 1 for mixtures of experts; estimates the speed before the
    # download
    share_read: Annotated[StrictFloat, Field(gt=0, le=1)] = 1.0
    # Tokens, at most the trained length; or AS_TRAINED
    context: Annotated[StrictInt, Field(ge=16, le=2**31 - 1)] = 4096
    drafters: Drafters = field(default_factory=usual)
    # The layer after which the drafter "layerskip" exits; 0 = from the target's file, or the fastest
    exit_layer: Annotated[StrictInt, Field(ge=0, le=10_000)] = 0
    temperature: Annotated[StrictFloat, Field(ge=0, le=100)] = 0.8
    top_k: Annotated[StrictInt, Field(ge=-1, le=2**31 - 1)] = 40
    top_p: Annotated[StrictFloat, Field(ge=0.001, le=1)] = 0.95
    min_p: Annotated[StrictFloat, Field(ge=0, le=0.999)] = 0.05
    repetition_penalty: Annotated[StrictFloat, Field(gt=0, le=100)] = 1.0
    penalty_last_n: Annotated[StrictInt, Field(ge=-1, le=2**31 - 1)] = 64
    # Settings of rare samplers, a table such as {xtc_probability = 0.5}
    sampling: Annotated[RareSampling, BeforeValidator(checked_sampling)] = USUAL
    exact: StrictBool = False  # bit-identical kernels for K-quants as well, a little slower
    fast: StrictBool = False  # replies with a seed may use passes that round differently from plain decode
    # whether its head is trained further on recently rejected drafts while the server is idle
    learn: StrictBool = False
    thinking: StrictBool = True  # default for requests: whether a model that reasons may do so before it answers
    upstream: Annotated[str, BeforeValidator(checked_upstream)] = ""  # the server that has the model, instead of a file
    upstream_model: str = ""  # the server's name for the model; "": its only one
    upstream_key: str = UPSTREAM_KEY  # the environment variable that contains the server's key
    rpc: Annotated[tuple[str, ...], BeforeValidator(checked_workers)] = ()  # workers that run layers of the target
    # Keys that a registry or the target's file sets, which tells them from defaults of the same value
    named: tuple[str, ...] = field(default=(), compare=False)

    @property
    def files(self) -> list[Path]:
        """The target, and the draft model, the vision encoder and the adapters it names; none if another server has the
        model.
        """
        if self.upstream:
            return []
        adapters = (path for path, _ in self.lora)
        return [file for file in (self.target, self.draft, self.mmproj, *adapters) if file is not None]

    @property
    def sampling_defaults(self) -> dict[str, Any]:
        """The pair's sampling settings for requests that set none."""
        rare = {name: getattr(self.sampling, name) for name in RARE_NAMES}
        return {name: getattr(self, name) for name in PLAIN} | rare


def titled(pair: Pair) -> str:
    """Return the name of a pair, and of its LoRA adapters that are on."""
    on = told(pair.lora)
    return f"{pair.name} + {on}" if on else pair.name


def bundled(name: str) -> Path:
    """Return the path of a file that ships with Slipstream: in the package of a wheel, in the root of a checkout."""
    package = Path(__file__).parents[1]
    return package / name if (package / name).exists() else package.parent / name


def user_registry() -> Path:
    """Return the path of the user's own registry, which need not exist."""
    return user_config_path("slipstream") / "models.toml"


def load_registry(path: Path | None = None) -> dict[str, Pair]:
    """Return name -> pair: of `path`, or of the bundled file with the user's own over it, key by key.

    Raises RegistryError naming file, key and the nearest valid name.
    """
    files = [path] if path else [bundled("models.toml"), *filter(Path.exists, [user_registry()])]
    return parse_registry([(file, read(file)) for file in files])


def read(path: Path) -> bytes:
    """Return the content of a registry file. Raises RegistryError."""
    try:
        return read_plain(path)
    except OSError as error:
        raise RegistryError(
            f"{path} cannot be read ({error.strerror}). Reinstall Slipstream or restore the file."
        ) from error


def parse_registry(texts: Sequence[tuple[Path, bytes]]) -> dict[str, Pair]:
    """Return the pairs of some files, where later ones override earlier ones. Raises RegistryError."""
    pairs: dict[str, Pair] = {}
    for file, text in texts:
        for name, table in parse_tables(file, text).items():
            known = asdict(pairs[name]) | {key: [*getattr(pairs[name], key)] for key in LISTS} if name in pairs else {}
            named = [*known.get("named", ()), *table]
            values = known | with_one_source(table, f"{file}: [pairs.{name}]") | {"name": name, "named": named}
            pairs[name] = validated(Pair, values, f"{file}: [pairs.{name}]", RegistryError, context=file.parent)
    return pairs


def parse_tables(path: Path, text: bytes) -> dict[str, dict[str, Any]]:
    """Return the tables of one file, by the names of the pairs. Raises RegistryError."""
    tables = only_value(path, parse_toml(path, text, RegistryError), "pairs", RegistryError)
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise RegistryError(f"{path}: 'pairs' must hold tables, such as [pairs.demo].")
    for name, key in [(name, key) for name, table in tables.items() for key in table if key in ("name", "named")]:
        raise RegistryError(f"{path}: [pairs.{name}]: unknown key '{key}'. A pair is named by its heading.")
    return tables


def with_one_source(table: dict[str, Any], where: str) -> dict[str, Any]:
    """Return a pair's table with the keys that override an earlier one: a file replaces a server, and a server files.

    Raises RegistryError if the table has both.
    """
    if not table.get("upstream"):
        return {"upstream": ""} | table if "target" in table else table
    if both := next((name for name in ("target", "draft", "mmproj", "lora", "rpc") if name in table), None):
        raise RegistryError(f"{where}: 'upstream' has the model, so there can be no '{both}'. Leave one of them out.")
    return {"target": NO_FILE, "draft": None, "mmproj": None, "lora": [], "rpc": []} | table


def find_pair(name: str, registry: dict[str, Pair], recent: Iterable[str] = ()) -> Pair:
    """Return the pair of that name, or else a pair without a draft model.

    The latter is for a GGUF file, a folder with one, a fetched `hf:owner/repo:file`, a server's address, or the name of
    a file whose path is in `recent`. Raises RegistryError naming the nearest, and HubError for a file of the hub that
    was not fetched.
    """
    if name in registry:
        return with_own_sampling(located(registry[name]))
    if is_web(name):
        return upstream_pair(name)
    name = recent_file(name, recent)
    if (
        name.startswith(HUB)
        or name.endswith(".gguf")
        or "/" in name
        or "\\" in name
        or os.path.lexists(name[:MAX_NAME])
    ):
        target = find_file(name)
        return with_own_sampling(Pair(name=target.name, target=target, context=AS_TRAINED))
    raise RegistryError(
        f"There is no model '{name[:64]}'. {nearest(name, list(registry))} A path to a GGUF file works as well."
    )


def with_own_sampling(pair: Pair) -> Pair:
    """Return the pair with the sampling that its target's file recommends, where the registry sets none."""
    found = {} if pair.upstream else sampling_in(pair.target)
    own = {name: value for name, value in found.items() if name not in pair.named}
    return replace(pair, **own, named=(*pair.named, *own)) if own else pair


def local_pair(name: str, registry: dict[str, Pair]) -> Pair:
    """Return the pair as `find_pair` does. Raises RegistryError also for a model that another server has."""
    return with_files(find_pair(name, registry))


def with_files(pair: Pair) -> Pair:
    """Return the pair itself. Raises RegistryError for a model that another server has."""
    if pair.upstream:
        raise RegistryError(
            f"{pair.upstream} has the model of '{pair.name}', so there is no file of it here. Name a pair with a "
            "target, or a GGUF file."
        )
    return pair


def upstream_pair(address: str) -> Pair:
    """Return a server's address as a pair; a # may be followed by the name of its model. Raises RegistryError."""
    url, _, model = address.partition("#")
    try:
        return Pair(url.partition("//")[2], NO_FILE, upstream=as_upstream(url), upstream_model=model)
    except ValueError as error:
        raise RegistryError(str(error)) from error


def located(pair: Pair) -> Pair:
    """Return the pair with the paths of the files that were fetched from the hub.

    Raises HubError for one that is not on this machine.
    """
    if pair.upstream:
        return pair
    try:
        draft, mmproj = (file and fetched(file) for file in (pair.draft, pair.mmproj))
        lora = tuple(each._replace(path=fetched(each.path)) for each in pair.lora)
        return replace(pair, target=fetched(pair.target), draft=draft, mmproj=mmproj, lora=lora)
    except HubError as error:
        raise HubError(
            f"The pair '{pair.name}' is not on this machine. Fetch it with `slipstream models pull {pair.name}`."
        ) from error
