"""Estimates a model's memory from its header alone.

Compute buffers follow llama.cpp's graphs of gated feed-forward layers with flash attention, as measured on x86 CPUs;
they are the least exact part. Knows headers and arithmetic; loads no model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from runtime.models.block_heads import DFLASH, block_of, is_dspark, layers_of
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
from runtime.models.heads import FEW_ROWS, HEAD_ROWS, SPARE, STATES, drafter_of, n_drafted, n_words
from runtime.models.mtp import is_apart
from runtime.models.own_heads import borrows_output, is_own, n_outputs

FLOAT, HALF = 4, 2  # bytes
WORD, ID = 150, 40  # bytes of llama.cpp's tables for a token or a merge, and for a token without its word
PER_ROW = 24  # floats of a row besides those of the layers
DRAFT_BATCH = 64  # rows of the draft model's prefill: few, to keep its buffers small
DRAFT_WINDOW = 2048  # tokens of a context that a draft model reads: at least half of them are the latest
ALL_LAYERS = -1  # go to GPUs, where there are any


@dataclass(frozen=True, slots=True)
class ContextSpec:
    """The size and types of a context."""

    n_ctx: int
    cache: CacheTypes = USUAL_CACHE
    n_rows: int = 1  # rows of logits
    n_batch: int = 512
    repacks: bool = True  # weights of some types are copied into another layout
    has_words: bool = True  # a draft model needs only ids
    n_snapshots: int = 0  # of recurrent states, from which rejected drafts are undone
    n_seats: int = 1  # conversations that share it
    is_windowed: bool = False  # layers with a sliding window cache only the window and a batch

    def cache_spec(self) -> CacheSpec:
        """Return the cache of such a context."""
        n_tokens = -(-shared_cells(self.n_ctx, self.n_seats) // STEP) * STEP
        return CacheSpec(n_tokens, self.cache, 1 + self.n_snapshots, self.n_batch if self.is_windowed else None)


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes of one model in memory."""

    weights: int
    cache: int
    compute: int
    words: int  # the vocabulary
    repacked: int  # copies of weights; the file's own are not read again, so the system may drop them

    @property
    def needed(self) -> int:
        """Bytes that must stay in memory for fast decoding."""
        return self.weights + self.cache + self.compute + self.words


def estimate(facts: ModelFacts, spec: ContextSpec) -> Footprint:
    """Return the footprint of a model and one context."""
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
    """Return the bytes of a head for a target with that context, or of the target's own layers that only draft.

    They are those of the weights, a context, and the states that it receives.
    """
    if is_own(head):
        return own_head_bytes(head, target, spec)
    is_layer, room = head is target or is_apart(head), spec.n_rows - 1
    n_tokens = spec.cache_spec().n_tokens + spec.n_seats * room + HEAD_ROWS
    cache = replace(spec.cache_spec(), n_tokens=-(-n_tokens // STEP) * STEP)
    weights = head.n_bytes - head.n_bytes_loaded if head is target else head.n_bytes
    cells = drafting_cache_bytes(head, cache) if is_layer else cache_bytes(head, cache)
    logits = output_rows(head, room, spec.n_seats) * (target.n_vocab + head.own("embedding_length")) * FLOAT
    graph = head_graph_bytes(head, target, cache.n_tokens, spec.n_seats)
    return weights + cells + graph + logits + shown_bytes(head, target, spec)


def own_head_bytes(head: ModelFacts, target: ModelFacts, spec: ContextSpec) -> int:
    """Return the bytes of a head that is computed here: its weights as floats, the rows of the target's output that it
    uses, its logits, and the states of each conversation's last pass and in the library.
    """
    width = head.own("embedding_length")
    borrowed = n_outputs(head) * width if borrows_output(head) else 0
    rows = target.n_vocab + n_outputs(head) + (spec.n_seats + 1) * spec.n_rows * width
    return (head.n_parameters + borrowed + rows) * FLOAT + spec.n_seats * spec.n_ctx * FLOAT


def output_rows(head: ModelFacts, room: int, n_seats: int) -> int:
    """Return the rows that the library allocates for a head's results: those of a pass with the most logits."""
    if head.architecture == DFLASH:
        block = block_of(head)
        return max(n_seats, block.n_blank + min(min(block.n_tokens, HEAD_ROWS) - block.n_blank, room))
    return HEAD_ROWS if drafter_of(head) else max(n_seats, FEW_ROWS)


def head_graph_bytes(head: ModelFacts, target: ModelFacts, n_cells: int, n_seats: int) -> int:
    """Return the bytes of a head's largest graph: its layers, or its logits and with fewer words also those of all.

    Every conversation has the same number of its rows.
    """
    n_all, n_few = -(-HEAD_ROWS // n_seats) * n_seats, n_drafted(head)
    layers = compute_bytes(head, ContextSpec(n_cells, n_rows=0, n_batch=n_all), n_cells)
    n_rows = n_all if drafter_of(head) else max(FEW_ROWS, n_seats)
    if is_dspark(head) and n_all <= n_seats * block_of(head).n_tokens:
        n_rows += 2 * n_all - n_seats  # of its Markov head, where a pass has less than a block of each (measured)
    logits = n_rows * (target.n_vocab + n_few + 3 * head.own("embedding_length")) * FLOAT
    return max(layers, logits + (n_rows * n_cells * HALF if n_few else 0))


def shown_bytes(head: ModelFacts, target: ModelFacts, spec: ContextSpec) -> int:
    """Return the bytes of the states that a target exposes: those of a batch, and each conversation's waiting ones.

    A batch's graph also keeps the inputs of all of the exposed layers but one.
    """
    n_layers = len(layers_of(head)) or 1
    rows = (2 * n_layers - 1) * spec.n_batch + n_layers * spec.n_seats * (STATES + SPARE)
    return rows * target.own("embedding_length") * FLOAT


def compute_bytes(facts: ModelFacts, spec: ContextSpec, n_ctx: int) -> int:
    """Return the bytes of the largest batch's graph: its widest layer, the attention mask, and the logits twice."""
    rows = max(spec.n_batch, spec.n_rows)
    width, inner = facts.own("embedding_length"), inner_length(facts)
    layers = rows * (3 * (width + inner) + PER_ROW) * FLOAT
    logits = spec.n_rows * n_words(facts) * FLOAT
    return max(layers, logits) + rows * n_ctx * HALF + logits


def inner_length(facts: ModelFacts) -> int:
    """Return the inner width of a feed-forward layer, of all experts that a token uses."""
    used, _ = facts.n_experts
    return max([*facts.per_layer("feed_forward_length"), used * facts.own("expert_feed_forward_length")])


def unpacked_bytes(facts: ModelFacts) -> int:
    """Return the bytes of weights that are read where the file is mapped."""
    return facts.n_bytes_loaded - repacked_bytes(facts)


def repacked_bytes(facts: ModelFacts) -> int:
    """Return the bytes of weights that are copied into another layout when they are loaded."""
    return sum(tensor.n_bytes for tensor in facts.header.tensors if is_repackable(tensor))
