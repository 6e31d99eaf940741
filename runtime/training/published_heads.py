"""Converts published Medusa, Hydra and EAGLE-1 checkpoints to the form that runtime/models/own_heads.py describes.

A checkpoint is a folder with config.json and weights, as .safetensors or a PyTorch file. Medusa's (FasterDecoding/
medusa-*) name a head's block `N.L.linear` and its output matrix `N.LAYERS`; Hydra's (ankner/hydra-*) `hydra_mlp.N.L`
with `linear` and `res_connection`, and `hydra_lm_head.N`. The number of heads is that of the weights, because some
configurations state fewer. Loads PyTorch only for its files.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np

from runtime.core.errors import ModelError
from runtime.core.outside import read_plain, require_plain, text_of
from runtime.drafters.network import NetworkShape, Rows, block_names, own_output
from runtime.drafters.registry import networks
from runtime.models.own_heads import MAX_BLOCKS, MAX_HEADS
from runtime.training.own_head_file import OwnHeadFile
from runtime.training.published_eagle import FIRST, eagle_names, eagle_shape
from runtime.training.samples import UNREADABLE

CONFIG = "config.json"
SUFFIXES = ".safetensors", ".pt", ".bin"  # of weights, the preferred first
MEDUSA = re.compile(r"(?:medusa_heads?\.)?(\d{1,3})\.(\d{1,3})\.(linear\.)?(weight|bias)")
HYDRA = re.compile(
    r"(?:hydra_head\.)?hydra_(mlp|lm_head)\.(\d{1,3})\.(?:(\d{1,3})\.)?(linear\.|res_connection\.)?(weight|bias)"
)
ReadNames = Callable[[Mapping[str, Rows], str], dict[str, Rows]]
ReadShape = Callable[[Mapping[str, Rows], Mapping[str, Any], str], NetworkShape]


def converted(folder: Path) -> OwnHeadFile:
    """Return the content of a head's file from a checkpoint's folder. Raises ModelError."""
    config, weights = read_config(folder / CONFIG), read_weights(folder)
    kind = "hydra" if any(key.startswith("hydra") for key in config) else "eagle1" if FIRST in weights else "medusa"
    if kind == "hydra":
        refuse_variants(config, folder.name)
    names_of, shape_of = READERS[kind]
    try:
        found = names_of(weights, folder.name)
    except KeyError as error:
        raise ModelError(
            f"{folder.name} has the tensor {error.args[0][:60]!r}, which {kind.title()} heads do not have: convert a "
            "checkpoint of heads alone, without the model."
        ) from None
    shape = shape_of(found, config, folder.name)
    if not 0 < shape.n_layers <= MAX_BLOCKS:
        raise ModelError(
            f"{folder.name} has {shape.n_layers} layers, at most {MAX_BLOCKS} can be used. Use another one."
        )
    needed = networks()[kind].tensors(shape)
    lacking = [name for name in needed if name not in found]
    outputs = [own_output(i) for i in range(shape.n_heads) if own_output(i) in found]
    if lacking:
        raise ModelError(f"{folder.name} has no {lacking[0]} among its {kind.title()} heads: download it again.")
    n_vocab = len(found[outputs[0]]) if outputs else config.get("vocab_size")
    if not isinstance(n_vocab, int) or not 0 < n_vocab < 2**24:
        raise ModelError(f"{folder.name} has no output matrix, and its {CONFIG} no vocab_size: add that number.")
    refuse_tensors(found, needed, shape, n_vocab, folder.name)
    return OwnHeadFile(kind, shape, n_vocab, str(config.get("base_model_name_or_path", ""))[:200], found)


def refuse_tensors(
    found: Mapping[str, Rows], needed: Mapping[str, tuple[int, ...]], shape: NetworkShape, n_vocab: int, name: str
) -> None:
    """Raise ModelError for tensors that the heads of that shape cannot use."""
    outputs = {own_output(i): (n_vocab, shape.width) for i in range(shape.n_heads)}
    wanted = dict(needed) | outputs | {each.replace("weight", "bias"): (n_vocab,) for each in outputs}
    for tensor, values in found.items():
        if values.shape != wanted.get(tensor):
            size = f"has the size {values.shape}, not {wanted[tensor]}" if tensor in wanted else "is of no head"
            raise ModelError(f"{tensor} of {name} {size}: download it again.")
        if not np.isfinite(values).all():
            raise ModelError(f"{tensor} of {name} has values that are no numbers: download it again.")


def refuse_variants(config: Mapping[str, Any], name: str) -> None:
    """Raise ModelError for Hydra heads that compute something else."""
    arch = str(config.get("hydra_head_arch", "mlp"))[:40]
    what = {"mlp": "", "prefix-mlp": "that attend to the whole text (Hydra++)"}.get(arch, f"of the form {arch!r}")
    if not config.get("grounded_heads", True):
        what = "that do not read the tokens drafted before"
    if what:
        raise ModelError(f"{name} has Hydra heads {what}, which Slipstream does not run. Use plain Hydra heads.")


def medusa_names(weights: Mapping[str, Rows], _: str) -> dict[str, Rows]:
    """Return the tensors by our names. Raises KeyError for an unknown one."""
    found = {}
    for name, values in weights.items():
        match = MEDUSA.fullmatch(name)
        if match is None:
            raise KeyError(name)
        head, layer, is_block, what = int(match[1]), int(match[2]), match[3], match[4]
        if is_block:
            found[block_names(head, layer)[what == "bias"]] = values
        else:
            found[own_output(head).replace("weight", what)] = values
    return found


def hydra_names(weights: Mapping[str, Rows], _: str) -> dict[str, Rows]:
    """Return the tensors by our names; dropout layers between blocks leave gaps in their numbers. Raises KeyError for
    an unknown one.
    """
    matches = {name: HYDRA.fullmatch(name) for name in weights}
    numbers = sorted({int(match[3]) for match in matches.values() if match and match[1] == "mlp" and match[3]})
    found = {}
    for name, values in weights.items():
        match = matches[name]
        if match is None or (match[1] == "mlp" and not (match[3] and match[4])):
            raise KeyError(name)
        head, what = int(match[2]), match[5]
        if match[1] == "lm_head":
            found[own_output(head).replace("weight", what)] = values
        else:
            names = block_names(head, numbers.index(int(match[3])), "skip" if "res" in match[4] else "")
            found[names[what == "bias"]] = values
    return found


def heads_shape(weights: Mapping[str, Rows], _: Mapping[str, Any], name: str) -> NetworkShape:
    """Return the number of heads and layers by the names of tensors. Raises ModelError."""
    blocks = [match for each in weights if (match := re.fullmatch(r"head\.(\d+)\.(\d+)\.weight", each))]
    width = next((len(weights[each]) for each in weights if each == block_names(0, 0)[0]), 0)
    if not blocks or not width:
        raise ModelError(f"{name} has no Medusa or Hydra heads. Name the folder of a checkpoint that has.")
    n_heads = 1 + max(int(match[1]) for match in blocks)
    if n_heads > MAX_HEADS:
        raise ModelError(f"{name} has {n_heads} heads, and a draft has at most {MAX_HEADS} tokens. Use one with fewer.")
    return NetworkShape(width, n_heads, 1 + max(int(match[2]) for match in blocks))


# Of each kind: the tensors by our names, and the dimensions by these and config.json; both are given the folder's name
READERS: dict[str, tuple[ReadNames, ReadShape]] = {
    "medusa": (medusa_names, heads_shape),
    "hydra": (hydra_names, heads_shape),
    "eagle1": (eagle_names, eagle_shape),
}


def read_config(path: Path) -> dict[str, Any]:
    """Return the content of config.json. Raises ModelError."""
    try:
        found = json.loads(text_of(read_plain(path)))
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ModelError(f"{path} cannot be read ({why}). Name the folder of a whole checkpoint.") from error
    if not isinstance(found, dict):
        raise ModelError(f"{path} is not a checkpoint's configuration. Name the folder of a whole checkpoint.")
    return found


def read_weights(folder: Path) -> dict[str, Rows]:
    """Return the checkpoint's tensors in single precision. Raises ModelError."""
    for suffix, read in zip(SUFFIXES, (read_safetensors, read_torch, read_torch), strict=True):
        for path in sorted(folder.glob(f"*{suffix}")):
            found = loaded(path, read)
            if wrong := next((name for name, rows in found.items() if rows.ndim not in (1, 2) or not rows.size), ""):
                raise ModelError(f"{wrong[:60]!r} in {path.name} is no matrix and no row. Download it again.")
            return found
    raise ModelError(f"{folder} has no weights ({', '.join(SUFFIXES)}). Name the folder of a whole checkpoint.")


def loaded(path: Path, read: Callable[[Path], dict[str, Rows]]) -> dict[str, Rows]:
    """Return the tensors that `read` finds. Raises ModelError for a missing module or a damaged file."""
    try:
        require_plain(path)
        return read(path)
    except ImportError as error:
        what = error.name or "a module"
        raise ModelError(f"{path.name} needs {what}, which is not installed. Run `pip install {what}`.") from error
    except (*UNREADABLE, UnpicklingError, AttributeError) as error:
        raise ModelError(f"{path.name} is damaged ({reason_of(error)}). Download it again.") from error


def reason_of(error: Exception) -> str:
    """Return an error's message as a clause, without the path that an OSError repeats."""
    reason = error.strerror if isinstance(error, OSError) else None
    return (reason or str(error)).strip()[:80]


def read_safetensors(path: Path) -> dict[str, Rows]:
    """Return the tensors of a .safetensors file, BF16 included. Raises ImportError, OSError, ValueError."""
    from safetensors import SafetensorError, deserialize

    try:
        parts = deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    return {name: floats(part["data"], part["dtype"]).reshape(part["shape"]) for name, part in parts}


def floats(data: bytes, kind: str) -> Rows:
    """Return values in single precision. Raises ValueError for a type that weights do not have."""
    if kind == "BF16":  # the upper half of a float
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
    if kind not in ("F16", "F32", "F64"):
        raise ValueError(f"values of the type {kind}")
    return np.frombuffer(data, f"<f{int(kind[1:]) // 8}").astype(np.float32)


def read_torch(path: Path) -> dict[str, Rows]:
    """Return the tensors of a PyTorch file, which can run nothing. Raises ImportError, and what PyTorch raises."""
    import torch

    refuse_packed(path)
    state = torch.load(path, map_location="cpu", weights_only=True)
    n_bytes = sum(values.numel() * values.element_size() for values in state.values())
    if n_bytes > path.stat().st_size:  # such as one value that stands for a whole matrix, or none at all
        raise ValueError(f"its tensors have {n_bytes} bytes, more than the file")
    return {str(name): values.float().numpy() for name, values in state.items()}


def refuse_packed(path: Path) -> None:
    """Raise ValueError for a PyTorch file whose parts are larger than the file, as they are compressed or overlap."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as parts:
            if sum(part.file_size for part in parts.infolist()) > path.stat().st_size:
                raise ValueError("its parts are larger than the file")
