"""The tensors in a family's files, and random values for them.

Their shapes are from llama.cpp itself, in a program of its own, because the library aborts on unexpected metadata:
`python -m bench.instruments.architectures.tensors HEADER.gguf` prints JSON.

Values are scaled so that attention is sharp, no layer drowns another, and logits depend on every part of the context.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.instruments.architectures.families import Family

QUIET = {"GGML_NO_BACKTRACE": "1"}  # otherwise an abort searches for a debugger
Shapes = dict[str, list[int]]  # by name, the contiguous axis first


class ShapeError(Exception):
    """The library rejects the metadata."""


class InitParams(ctypes.Structure):
    """gguf.h's struct gguf_init_params."""

    _fields_ = [("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p)]


def tensor_shapes(header: Path) -> Shapes:
    """Return the shapes, found in a process of its own. Raises ShapeError."""
    command = [sys.executable, "-m", __name__, str(header)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | QUIET)
    if done.returncode:
        last = " | ".join(done.stderr.strip().splitlines()[-3:])
        raise ShapeError(f"{header.name}: code {done.returncode}: {last}")
    found: Shapes = json.loads(done.stdout)
    return found


def main(path: str) -> None:
    """Print the shapes."""
    import llama_cpp.llama_cpp as lib

    from runtime.backends.private_llama import Tensor, ggml

    found: Shapes = {}
    read, init = ggml.gguf_init_from_file, ggml.llama_model_init_from_user
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)

    @callback
    def note(tensor: int, _: Any) -> None:
        one = Tensor.from_address(tensor)
        found[one.name.decode()] = without_ones(list(one.ne))

    lib.llama_backend_init()
    params = lib.llama_model_default_params()
    params.load_mtp = True
    read.restype, read.argtypes = ctypes.c_void_p, [ctypes.c_char_p, InitParams]
    init.restype, init.argtypes = ctypes.c_void_p, [ctypes.c_void_p, callback, ctypes.c_void_p, lib.llama_model_params]
    if not init(read(path.encode(), InitParams(True, None)), note, None, params):
        sys.exit(1)
    print(json.dumps(found))


def without_ones(shape: list[int]) -> list[int]:
    """Remove trailing axes of length 1, but keep at least one axis."""
    while len(shape) > 1 and shape[-1] == 1:
        shape.pop()
    return shape


Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Floats]

# Supported by the library, but in no file of these families
OPTIONAL = re.compile(r"(\.scale|\.input_scale|\.lora_[ab])$|^cls|^dense_|^output_s|rope_factors|rope_freqs")
NEEDED = {"gemma4": re.compile(r"rope_freqs|ffn_gate_inp\.scale")}
HEAD = "output.weight"
# Kept at full precision in real files too
FLOATS = re.compile(
    r"ffn_gate_inp|ssm_(conv1d|a$|d$|beta_alpha)|ssm_(dt|b|c)_norm|shortconv\.conv|token_types|position_embd|_norm"
    r"|time_mix_(first|w1|w2|decay|lerp|a1|a2|v1|v2|g1|g2)|channel_mix_lerp|altup|laurel|rel_b|attn_sinks"
    r"|per_layer_model_proj|indexer|hc_|attn_compress"
)


def has(family: Family, tensor: str) -> bool:
    """Return whether the family's files have this tensor of those that the library supports."""
    needed = NEEDED.get(family.architecture)
    if OPTIONAL.search(tensor) and not (needed and needed.search(tensor)):
        return False
    if family.dropped and re.search(family.dropped, tensor):
        return False
    if tensor == "output.bias":
        return family.architecture == "phi2"
    if tensor.endswith(".bias"):
        return bool(family.biases and re.search(family.biases, tensor))
    return tensor != HEAD or not family.is_tied


def is_float(tensor: str, shape: tuple[int, ...]) -> bool:
    """Return whether the tensor is kept at full precision."""
    return len(shape) == 1 or bool(FLOATS.search(tensor)) or not tensor.endswith(".weight")


def normal(scale: float, mean: float = 0.0) -> Draw:
    """Return a generator of normally distributed values."""
    return lambda rng, shape: mean + scale * rng.standard_normal(shape)


def uniform(low: float, high: float) -> Draw:
    """Return a generator of uniformly distributed values."""
    return lambda rng, shape: rng.uniform(low, high, shape)


def mixing(gain: float) -> Draw:
    """Return a generator of matrices that scale vectors by about `gain`."""
    return lambda rng, shape: rng.standard_normal(shape) * gain / np.sqrt(shape[-1])


def decays(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Return decay rates of states, from immediate decay to a hundred tokens."""
    values: Floats = -np.exp(rng.uniform(-2.0, 1.0, shape))
    return values


def ones(_: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Return factors that change nothing."""
    return np.ones(shape)


NORMS = r"norm(_\w+)?\.weight$|time_mix_ln\.weight|ssm_d$|altup_correct_scale|layer_output_scale"
# The first pattern that matches a name decides
DRAWS: list[tuple[re.Pattern[str], Draw]] = [
    (re.compile(pattern), draw)
    for pattern, draw in (
        (r"ssm_a$", decays),
        (NORMS, normal(0.2, mean=1.0)),
        (r"rope_freqs|rope_factors", ones),
        (r"lerp", uniform(0.0, 1.0)),
        (r"ssm_dt\.bias", uniform(-3.0, 0.5)),
        (r"bias$|exp_probs_b|sinks", normal(0.3)),
        (r"^per_layer_token_embd", normal(0.5)),
        (r"^token_embd", normal(0.3)),
        (r"^output\.weight", mixing(3.0)),
        (r"attn_(q|k|qkv|q_b|k_b)\.", mixing(2.0)),
    )
]
EMBEDDINGS_OF_GEMMA = normal(0.05)  # the model multiplies them by the root of the width
# With so many layers, rounding would grow until the text changes, if each layer added as much as in a shallow model
DEEP = "gemma3n"
AFTER_LAYER = re.compile(r"post_\w*norm\.weight$")
WHISPER = normal(0.02, mean=0.1)


def values(family: Family, tensor: str, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float32]:
    """Return random values of a tensor; `shape` is in numpy's order."""
    draw = next((draw for pattern, draw in DRAWS if pattern.search(tensor)), None)
    if tensor.startswith("token_embd.") and family.architecture.startswith("gemma"):
        draw = EMBEDDINGS_OF_GEMMA
    if family.architecture == DEEP and AFTER_LAYER.search(tensor):
        draw = WHISPER
    draw = draw or (normal(0.3) if len(shape) == 1 else mixing(1.0))
    return draw(rng, shape).astype(np.float32)


if __name__ == "__main__":
    main(sys.argv[1])
