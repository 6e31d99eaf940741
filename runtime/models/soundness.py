"""Checks that a header is consistent. llama.cpp ends the whole process over some that are not, so they are refused
first.

An absent key contradicts nothing, and faults that the library refuses by itself are left to it. Knows metadata keys and
tensors' names and shapes; reads no file and loads no library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path

import numpy as np

from runtime.core.errors import ModelError
from runtime.models.facts import ModelFacts
from runtime.models.layer_tensors import layers_of, misshapen, missing
from runtime.models.library_limits import (
    ALL,
    DRAFT_HEADS,
    EVEN_HEADS,
    EXPERTLESS,
    FIRST_HEADED,
    INDEXED,
    PARTS,
    PRODUCTS,
    RANGES,
    ROPE_SCALINGS,
    ROPELESS,
    SECTIONED,
    SHARING,
    TEMPERED,
    WHOLE_HEADS,
    WINDOWED,
    WINDOWED_BY_LENGTH,
    Names,
)

RECURRENT = "attention.recurrent_layers"  # if the header lists these, their interval is not read
PATTERN = "attention.sliding_window_pattern"
EPSILONS = "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"
OWN_CACHES = 20  # layers of gemma3n that have a cache of their own
Rule = Callable[[ModelFacts], Iterator[str]]


def check_header(path: Path, facts: ModelFacts | None) -> None:
    """Check that a header does not contradict itself, or the library would end the process. Raises ModelError."""
    if facts and (clause := contradiction(facts)):
        raise ModelError(
            f"{path.name} is damaged or was converted wrongly: {clause}. Download it again, or choose another file of "
            "this model."
        )


def contradiction(facts: ModelFacts) -> str:
    """Return the first fault of the header, as the second half of a sentence; "" if it is consistent."""
    rules = RULES if facts.n_layers else (out_of_range,)
    return next((clause for rule in rules for clause in rule(facts)), "")


def number(facts: ModelFacts, key: str) -> int | None:
    """Return an integer of the header under its architecture, or None."""
    value = facts.header.metadata.get(f"{facts.architecture}.{key}")
    return value if type(value) is int else None


def says(facts: ModelFacts, *keys: str) -> str:
    """Return the clause that the header's values of these keys are impossible."""
    return f"it says {' and '.join(f'{key} = {number(facts, key)}' for key in keys)}, which is impossible"


def concerns(facts: ModelFacts, architectures: Names) -> bool:
    """Whether the model is one of these architectures; ALL matches every one."""
    return architectures == ALL or facts.architecture in architectures


def out_of_range(facts: ModelFacts) -> Iterator[str]:
    """Yield clauses about numbers that are too small or too large."""
    for limits in RANGES:
        value = number(facts, limits.key)
        if value is not None and concerns(facts, limits.architectures) and not limits.least <= value <= limits.most:
            yield says(facts, limits.key)


def unread_values(facts: ModelFacts) -> Iterator[str]:
    """Yield clauses about an interval of 0 layers and an unknown kind of scaling."""
    metadata, own = facts.header.metadata, facts.architecture
    if number(facts, "full_attention_interval") == 0 and f"{own}.{RECURRENT}" not in metadata:
        yield says(facts, "full_attention_interval")
    scaling = metadata.get(f"{own}.rope.scaling.type", "none")
    if isinstance(scaling, str) and scaling not in ROPE_SCALINGS:
        yield f"it says rope.scaling.type = {scaling[:32]!r}, which does not exist"


def norms(facts: ModelFacts) -> Iterator[str]:
    """Yield clauses about the epsilons of norms that are negative or NaN."""
    for key in EPSILONS:
        value = facts.header.metadata.get(f"{facts.architecture}.{key}")
        if isinstance(value, float) and not value >= 0:
            yield f"it says {key} = {value}, which is impossible"


def draft_layers(facts: ModelFacts) -> Iterator[str]:
    """Yield a clause if all layers are MTP layers."""
    if facts.own("nextn_predict_layers") >= facts.n_layers and facts.architecture not in DRAFT_HEADS:
        yield says(facts, "block_count", "nextn_predict_layers")


def experts(facts: ModelFacts) -> Iterator[str]:
    """Yield clauses about more experts used than there are, or none of them."""
    n, used = facts.own("expert_count"), max(facts.per_layer("expert_used_count"), default=0)
    if facts.architecture in EXPERTLESS and n <= 1:
        return
    if used > n or (n and not used):
        yield f"it says that {used} of {n} experts are used"
    groups, groups_used = facts.own("expert_group_count"), facts.own("expert_group_used_count")
    if groups and (groups >= n or (groups > 1 and not 0 < groups_used < groups)):
        yield f"it says that {groups_used} of {groups} groups of {n} experts are used"


def uneven_parts(facts: ModelFacts) -> Iterator[str]:
    """Yield clauses about counts that do not split into equal parts."""
    for parts in PARTS:
        whole, part = number(facts, parts.whole), number(facts, parts.part)
        if whole is not None and part and concerns(facts, parts.architectures) and whole % part:
            yield says(facts, parts.whole, parts.part)
    if number(facts, "attention.head_count") == 0 and facts.architecture not in ROPELESS:
        yield says(facts, "attention.head_count")
    heads, kv_heads = facts.per_layer("attention.head_count"), facts.per_layer("attention.head_count_kv")
    if facts.architecture in FIRST_HEADED and heads and not heads[0]:
        yield "it says that the first layer has no heads"
    for n, n_kv in zip(heads, kv_heads, strict=False):
        if n_kv and n % n_kv:
            yield f"it says that {n} heads share {n_kv} heads of keys and values"


def wrong_products(facts: ModelFacts) -> Iterator[str]:
    """Yield clauses about sizes that are not the product of their factors."""
    for product in PRODUCTS:
        value, factors = number(facts, product.key), [number(facts, key) for key in product.factors]
        known = [factor for factor in factors if factor is not None]
        if value is None or len(known) < len(factors) or facts.architecture not in product.architectures:
            continue
        if value != product.times * prod(known):
            yield says(facts, product.key, *product.factors)


def head_lengths(facts: ModelFacts, suffix: str = "") -> tuple[int, int] | None:
    """Return the lengths of a head's key and value in the first layer; None if the header does not give them."""
    heads, width = facts.per_layer("attention.head_count"), facts.own("embedding_length")
    usual = width // heads[0] if width and heads and heads[0] else None
    key, value = (
        next((n for end in (suffix, "") if (n := number(facts, f"attention.{kind}_length{end}")) is not None), usual)
        for kind in ("key", "value")
    )
    return None if usual is None or key is None or value is None else (key, value)


def uneven_heads(facts: ModelFacts) -> Iterator[str]:
    """Yield a clause about keys that are not as long as values, where they must be."""
    lengths = head_lengths(facts)
    if lengths and lengths[0] != lengths[1] and facts.architecture in EVEN_HEADS:
        yield "it says that keys have {} and values {} numbers".format(*lengths)


def rotations(facts: ModelFacts) -> Iterator[str]:
    """Yield clauses about rotated parts of heads that are odd, or outside the valid range."""
    if facts.architecture in ROPELESS or is_unrotated(facts):
        return
    for suffix in ("", "_swa"):
        n, lengths = number(facts, f"rope.dimension_count{suffix}"), head_lengths(facts, suffix)
        if n is None or lengths is None:
            continue
        if n % 2 or n > most_rotated(facts, lengths[0]) or n < least_rotated(facts, lengths[0], suffix):
            yield f"it says that {n} of a head's {lengths[0]} numbers are rotated"


def positions(facts: ModelFacts) -> Iterator[str]:
    """Yield a clause about positions whose parts rotate nothing, or more than a head."""
    value, lengths = facts.header.metadata.get(f"{facts.architecture}.rope.dimension_sections"), head_lengths(facts)
    parts = value[:4].tolist() if isinstance(value, np.ndarray) and value.dtype.kind in "iu" else []
    is_empty = facts.architecture in SECTIONED and len(parts) >= 3 and not any(parts[:3])
    if is_empty or (lengths and sum(parts) > lengths[0]):
        yield f"it says that positions rotate {', '.join(map(str, parts))} numbers of a head"


def temperatures(facts: ModelFacts) -> Iterator[str]:
    """Yield a clause about a scale for long texts without their length."""
    scale = facts.header.metadata.get(f"{facts.architecture}.attention.temperature_scale")
    if scale and facts.architecture in TEMPERED and not facts.own("attention.temperature_length"):
        yield f"it says attention.temperature_scale = {scale} and no length"


def is_unrotated(facts: ModelFacts) -> bool:
    """Whether the header disables rotations."""
    off = facts.header.metadata.get(f"{facts.architecture}.rope.scaling.finetuned") is False
    return off and facts.architecture == "granitehybrid"


def most_rotated(facts: ModelFacts, head: int) -> int:
    """Return the most numbers that may be rotated: for latent keys (MLA) all but one, and no more than an index has."""
    compressed, index = number(facts, "attention.key_length_mla"), number(facts, "attention.indexer.key_length")
    most = head if not compressed else min(head, compressed - 1)
    return most if index is None or facts.architecture not in INDEXED else min(most, index)


def least_rotated(facts: ModelFacts, head: int, suffix: str) -> int:
    """Return the least numbers that must be rotated; 0 where rotated ones are stored apart."""
    if number(facts, "attention.kv_lora_rank") or number(facts, "attention.output_lora_rank"):
        return 0
    return head if facts.architecture in WHOLE_HEADS and not suffix else 2


def windows(facts: ModelFacts) -> Iterator[str]:
    """Yield a clause if no layer has a window where some must have one."""
    pattern = facts.flags(PATTERN)[: facts.n_layers]
    is_windowed = facts.architecture in WINDOWED
    if facts.architecture in WINDOWED_BY_LENGTH:
        is_windowed = facts.own("attention.sliding_window") > 0
    if is_windowed and ((pattern and not any(pattern)) or number(facts, PATTERN) == 1):
        yield "it says that no layer has a window"


def shared_caches(facts: ModelFacts) -> Iterator[str]:
    """Yield a clause if layers that share a cache have no lender of their kind in the last two with their own."""
    if facts.architecture not in SHARING:
        return
    shared = number(facts, "attention.shared_kv_layers") or 0
    n_own = OWN_CACHES if facts.architecture == "gemma3n" else facts.n_layers - shared
    windowed = facts.flags(PATTERN)[: facts.n_layers]
    sharing = windowed[max(0, n_own) :]
    lent = [windowed[n_own - 2], not windowed[n_own - 1]] if 2 <= n_own < len(windowed) else [True, True]
    if n_own < 2 or (True in sharing and not lent[0]) or (False in sharing and not lent[1]):
        yield f"it says that {max(0, n_own)} of {facts.n_layers} layers have a cache of their own"


def tensors(facts: ModelFacts) -> Iterator[str]:
    """Yield clauses about tensors that a layer lacks, or whose shapes do not match the header."""
    layers = layers_of(facts.header)
    yield from missing(facts, layers)
    yield from misshapen(facts, layers)


RULES: tuple[Rule, ...] = (
    out_of_range, unread_values, norms, draft_layers, experts, uneven_parts, wrong_products, uneven_heads, rotations,
    positions, temperatures, windows, shared_caches, tensors,
)  # fmt: skip
