"""The tensors in a family's files, and random values for them.

Values are scaled so that attention is sharp, no layer drowns another, and logits depend on every part of the context.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bench.instruments.architectures.family import Family

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
