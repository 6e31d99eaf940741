"""Computes the cache of each layer in a context from the header: keys and values of all tokens or a window, and
recurrent states.

Follows llama.cpp's memory classes, whose own sizes the tests compare these with. Knows metadata keys and arithmetic.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from runtime.models.facts import ModelFacts
from runtime.models.gguf_types import TYPES

CacheTypes = tuple[str, str]  # of keys and of values
USUAL_CACHE: CacheTypes = "Q8_0", "F16"  # on CPUs
HALVES: CacheTypes = "F16", "F16"
BLOCK = 32  # values that share a scale in Q8_0
STEP = 256  # cells; caches are allocated in multiples of this
SHARED, SPARE = (
    4096,
    512,
)  # cells of a shared context: its usual maximum, and extra ones for idle conversations
STATE_VALUE = 4  # bytes of one value in a recurrent state
# One layer in this many sees the whole context, where the header gives a window and no pattern
PERIODS = {"gemma2": 2, "gemma3": 6, "gemma3n": 5, "gpt-oss": 2, "cohere2": 4, "olmo2": 4, "exaone4": 4, "llama4": 4}
WINDOWS = {"llama4": 8192}  # tokens, where the header gives none
# the first layers have caches of their own, where the header does not give the number of shared ones
OWN_CACHES = {"gemma3n": 20}
# Architectures whose recurrent states llama.cpp takes snapshots of; others keep only the latest
SNAPSHOTTED = frozenset(
    ("qwen35", "qwen35moe", "qwen4exp", "nemotron_h", "nemotron_h_moe", "lfm2", "lfm2moe", "bailingmoe3", "kimi-k3",
     "deepseek4", "glm5-next")
)  # fmt: skip
STATEFUL = re.compile(r"blk\.(\d+)\.(ssm_|shortconv|time_mix_)")
SHORT_RATIO = 4  # tokens per summary, up to which adjacent summaries share half of them
KEYS = re.compile(r"blk\.(\d+)\.attn_k")


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """The size and the types of a context's cache."""

    n_tokens: int
    types: CacheTypes
    n_states: int = 1  # copies of recurrent states: the latest, and snapshots of earlier ones
    n_batch: int | None = None  # None: layers with a window keep all tokens too; otherwise the window and a batch

    def cells(self, window: int) -> int:
        """Return the number of cells of a layer with this attention window (0: none)."""
        if not window or self.n_batch is None:
            return self.n_tokens
        return min(self.n_tokens, -(-(window + self.n_batch) // STEP) * STEP)


def cache_types(facts: ModelFacts, on_device: bool = False, n_halves: int = 1) -> CacheTypes:
    """Return the types of keys and values in a context's cache; kernels add `n_halves` values of F16 in one step.

    If both are F16 on a CPU, llama.cpp uses different kernels for one row, for some and for 64 and more; if they
    differ, every batch width rounds alike. Q8_0 keys are the fastest to read, if its blocks fit. Values of that type
    must be unpacked, and so must BF16, which is still faster than F16 if a remainder is added one by one. Where keys
    contain the values, there is one type.
    """
    if on_device:
        return HALVES
    length = facts.own("attention.key_length") or usual_length(facts)
    keys = "BF16" if length % BLOCK else "Q8_0"
    has_rest = (facts.own("attention.value_length") or length) % n_halves
    return keys, keys if keeps_keys_only(facts) else "BF16" if has_rest else "F16"


def shared_cells(n_ctx: int, n_seats: int) -> int:
    """Return the number of cells of a context of `n_ctx` tokens that several conversations share."""
    return max(n_ctx, min(n_seats * n_ctx, SHARED)) + SPARE if n_seats > 1 else n_ctx


def cache_bytes(facts: ModelFacts, spec: CacheSpec) -> int:
    """Return the bytes of keys, values and states; 0 if the header does not give them.

    In models with states, windowed layers keep all tokens.
    """
    if layers_named(facts, STATEFUL) or is_compressed(facts):
        spec = replace(spec, n_batch=None)
    layers = attention_layers(facts)
    keys, values = (sum(heads * n[i] * spec.cells(window) for heads, n, window in layers) for i in (0, 1))
    compressed, states = compressed_values(facts, spec)
    n_states = spec.n_states if facts.architecture in SNAPSHOTTED else 1
    kept = stored_bytes(keys + compressed, spec.types[0]) + stored_bytes(values, spec.types[1])
    return kept + STATE_VALUE * n_states * (states + state_values(facts))


def drafting_cache_bytes(facts: ModelFacts, spec: CacheSpec) -> int:
    """Return the bytes of the keys and values of the MTP layers."""
    heads = facts.per_layer("attention.head_count_kv")[facts.n_trunk_layers :]
    lengths = head_lengths(facts, is_windowed=False)
    return sum(
        stored_bytes(sum(heads) * length * spec.n_tokens, kind)
        for length, kind in zip(lengths, spec.types, strict=True)
    )


def stored_bytes(n: int, kind: str) -> int:
    """Return the bytes of `n` values of that type."""
    _, n_block, n_bytes = next(known for known in TYPES.values() if known[0] == kind)
    return n * n_bytes // n_block


def attention_layers(facts: ModelFacts) -> list[tuple[int, tuple[int, int], int]]:
    """Return heads, lengths of a head's key and value, and window (0: none) of each layer with a cache of its own."""
    recurrent = layers_named(facts, STATEFUL) - layers_named(facts, KEYS)
    heads = facts.per_layer("attention.head_count_kv") or facts.per_layer("attention.head_count")
    n_own = OWN_CACHES.get(facts.architecture) or len(heads) - facts.own("attention.shared_kv_layers")
    n_own = min(n_own, facts.n_trunk_layers, len(heads))
    windows = windows_of(facts, len(heads))
    return [
        (heads[i], head_lengths(facts, bool(windows[i])), windows[i])
        for i in range(max(0, n_own))
        if heads[i] and i not in recurrent
    ]


def head_lengths(facts: ModelFacts, is_windowed: bool) -> tuple[int, int]:
    """Return the lengths of one head's key and value; in latent attention (MLA) the key contains both."""
    suffix = "_length_swa" if is_windowed else "_length"
    own = (facts.own(f"attention.{kind}{suffix}") or facts.own(f"attention.{kind}_length") for kind in ("key", "value"))
    key, value = (length or usual_length(facts) for length in own)
    return key, 0 if keeps_keys_only(facts) else value


def usual_length(facts: ModelFacts) -> int:
    """Return the default length of a head, for a header that does not give it."""
    n_heads = max(facts.per_layer("attention.head_count"), default=0)
    return facts.own("embedding_length") // n_heads if n_heads else 0


def keeps_keys_only(facts: ModelFacts) -> bool:
    """Whether values are computed from keys."""
    return bool(facts.own("attention.key_length_mla")) or is_compressed(facts)


def windows_of(facts: ModelFacts, n_layers: int) -> list[int]:
    """Return the window of each layer; 0 where it sees all tokens."""
    window = facts.own("attention.sliding_window") or WINDOWS.get(facts.architecture, 0)
    pattern = facts.flags("attention.sliding_window_pattern")
    period = facts.own("attention.sliding_window_pattern") or PERIODS.get(facts.architecture, 0)
    if is_compressed(facts):
        return [window] * n_layers
    if pattern:
        return [window * flag for flag in [*pattern, *[False] * n_layers][:n_layers]]
    return [window * (bool(period) and i % period < period - 1) for i in range(n_layers)]


def state_values(facts: ModelFacts) -> int:
    """Return the number of values in all layers' recurrent states, convolutions included."""
    return len(layers_named(facts, STATEFUL)) * (convolution_values(facts) + recurrence_values(facts))


def convolution_values(facts: ModelFacts) -> int:
    """Return the number of values of a layer's convolution state: its latest inputs."""
    width, kernel = facts.own("embedding_length"), facts.own("ssm.conv_kernel")
    if facts.own("wkv.head_size"):
        return (facts.own("token_shift_count") or 2) * width
    if facts.own("shortconv.l_cache"):
        return width * (facts.own("shortconv.l_cache") - 1)
    if head := facts.own("kda.head_dim"):
        return 3 * (kernel - 1) * facts.own("attention.head_count") * head
    groups = 2 * facts.own("ssm.group_count") * facts.own("ssm.state_size")
    return max(0, kernel - 1) * (facts.own("ssm.inner_size") + groups)


def recurrence_values(facts: ModelFacts) -> int:
    """Return the number of values of a layer's recurrent state."""
    if head := facts.own("wkv.head_size"):
        return facts.own("embedding_length") * head
    if head := facts.own("kda.head_dim"):
        return head * head * facts.own("attention.head_count")
    return facts.own("ssm.state_size") * facts.own("ssm.inner_size")


def is_compressed(facts: ModelFacts) -> bool:
    """Whether layers keep summaries of all tokens before their window (DeepSeek 4)."""
    return bool(facts.per_layer("attention.compress_ratios"))


def compressed_values(facts: ModelFacts, spec: CacheSpec) -> tuple[int, int]:
    """Return the number of values in summaries, and in the states from which the next ones are computed."""
    key, index = facts.own("attention.key_length"), facts.own("attention.indexer.key_length")
    kept = states = 0
    for ratio in facts.per_layer("attention.compress_ratios"):
        if ratio:
            overlaps = ratio <= SHORT_RATIO  # then adjacent summaries share tokens, and have an index as well
            length, doubled = (key + index, 4) if overlaps else (key, 1)
            kept += length * -(-spec.n_tokens // ratio // STEP) * STEP
            states += 2 * doubled * ratio * length
    return kept, states


def layers_named(facts: ModelFacts, pattern: re.Pattern[str]) -> set[int]:
    """Return the layers with tensors of matching names, without MTP layers."""
    found: Iterable[re.Match[str] | None] = (pattern.match(tensor.name) for tensor in facts.header.tensors)
    return {int(match[1]) for match in found if match and int(match[1]) < facts.n_trunk_layers}
