"""What a model will take in memory, by its header alone.

Compute buffers follow llama.cpp's graphs of gated feed-forward layers with flash attention, as measured on x86 CPUs;
they are the least exact part. Knows headers and arithmetic; loads no model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from runtime.models.cache_layout import (
    STEP,
    USUAL_CACHE,
    CacheSpec,
    CacheTypes,
    cache_bytes,
    drafting_cache_bytes,
    shared_cells,
)
from runtime.models.facts import ModelFacts, is_repackable
from runtime.models.heads import HEAD_ROWS, STATES, layers_of, n_words

FLOAT, HALF = 4, 2  # bytes
WORD, ID = 150, 40  # bytes that llama.cpp's tables take for a token or a merge, and for a token without its word
PER_ROW = 24  # floats of a row besides those of the layers
DRAFT_BATCH = 64  # rows of the draft model's prefill: small, so that its buffers are
DRAFT_WINDOW = 2048  # tokens of a context that a draft model looks at: half of them at least are the latest
ALL_LAYERS = -1  # go to GPUs, where there are any


@dataclass(frozen=True, slots=True)
class ContextSpec:
    """The size and types of a context."""

    n_ctx: int
    cache: CacheTypes = USUAL_CACHE
    n_rows: int = 1  # rows of logits
    n_batch: int = 512
    repacks: bool = True  # weights of some types are copied into another layout
    has_words: bool = True  # a draft model needs no more than ids
    n_snapshots: int = 0  # of recurrent states, from which rejected drafts are undone
    n_seats: int = 1  # conversations that share it
    is_windowed: bool = False  # layers with a sliding window keep no more than that and a batch

    def cache_spec(self) -> CacheSpec:
        """The cache that such a context has."""
        n_tokens = -(-shared_cells(self.n_ctx, self.n_seats) // STEP) * STEP
        return CacheSpec(n_tokens, self.cache, 1 + self.n_snapshots, self.n_batch if self.is_windowed else None)


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes of one model in memory."""

    weights: int
    cache: int
    compute: int
    words: int  # the vocabulary
    repacked: int  # copies of weights; the file's own are not looked at again, so the system may drop them

    @property
    def needed(self) -> int:
        """That must stay in memory for decoding to be fast."""
        return self.weights + self.cache + self.compute + self.words


def estimate(facts: ModelFacts, spec: ContextSpec) -> Footprint:
    """The footprint of a model and one context."""
    cache = spec.cache_spec()
    words = (
        WORD * (facts.n_vocab + len(facts.header.strings("tokenizer.ggml.merges")))
        if spec.has_words
        else ID * n_words(facts)
    )
    repacked = repacked_bytes(facts) if spec.repacks else 0
    return Footprint(
        facts.n_bytes_loaded, cache_bytes(facts, cache), compute_bytes(facts, spec, cache.n_tokens), words, repacked
    )


def head_bytes(head: ModelFacts, target: ModelFacts, spec: ContextSpec) -> int:
    """Bytes of a head beside a target with that context, or of the target's own layers that only draft, its context and
    the states that are shown to it.
    """
    own = replace(spec, n_rows=HEAD_ROWS, n_batch=HEAD_ROWS)
    cache, n_states = own.cache_spec(), len(layers_of(head)) or 1
    is_own = head is target
    weights = head.n_bytes - head.n_bytes_loaded if is_own else head.n_bytes_loaded
    cells = drafting_cache_bytes(head, cache) if is_own else cache_bytes(head, cache)
    states = n_states * target.own("embedding_length") * (spec.n_batch + 2 * STATES) * FLOAT
    logits = 3 * HEAD_ROWS * target.n_vocab * FLOAT  # of passes, of the graph, and room never filled
    return weights + cells + compute_bytes(head, replace(own, n_rows=0), cache.n_tokens) + states + logits


def compute_bytes(facts: ModelFacts, spec: ContextSpec, n_ctx: int) -> int:
    """Bytes of the largest batch's graph: its widest layer, the attention mask, and the logits twice."""
    rows = max(spec.n_batch, spec.n_rows)
    width, inner = facts.own("embedding_length"), inner_length(facts)
    layers = rows * (3 * (width + inner) + PER_ROW) * FLOAT
    logits = spec.n_rows * n_words(facts) * FLOAT
    return max(layers, logits) + rows * n_ctx * HALF + logits


def inner_length(facts: ModelFacts) -> int:
    """Values of a token between the two halves of a feed-forward layer, of all experts that it uses."""
    used, _ = facts.n_experts
    return max([*facts.per_layer("feed_forward_length"), used * facts.own("expert_feed_forward_length")])


def repacked_bytes(facts: ModelFacts) -> int:
    """Bytes of weights that are copied into another layout when they are loaded."""
    return sum(tensor.n_bytes for tensor in facts.header.tensors if is_repackable(tensor))
