"""What a model will take in memory, by its header alone, and what of a pair fits into what is free.

Compute buffers follow llama.cpp's graphs of gated feed-forward layers with flash attention, as measured on x86 CPUs;
they are the least exact part. Knows headers and arithmetic; loads no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runtime.core.errors import ModelError
from runtime.memory.pressure import MIB, Level, Reading, Thresholds, is_sane
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header

PAD = 256  # tokens: contexts are made in such steps
FLOAT, HALF = 4, 2  # bytes
WORD, ID = 150, 40  # bytes that llama.cpp's tables take for a token or a merge, and for a token without its word
PER_ROW = 24  # floats of a row besides those of the layers
DRAFT_BATCH = 64  # rows of the draft model's prefill: small, so that its buffers are
DRAFT_WINDOW = 2048  # tokens of a context that a draft model looks at: half of them at least are the latest
ALL_LAYERS = -1  # go to GPUs, where there are any
FLOOR = 1024  # tokens of context that are not given up
REPACKED = "Q4_0", "Q4_K", "IQ4_NL"  # copied into another layout on x86, where 8 divides the number of rows
LEFT_ALONE = "token_embd.weight"  # looked up by row, so never repacked


@dataclass(frozen=True, slots=True)
class Way:
    """How a context is made."""

    n_ctx: int
    cache: str = "Q8_0"  # the type of keys and values
    n_rows: int = 1  # rows of logits
    n_batch: int = 512
    repacks: bool = True  # weights of some types are copied into another layout
    has_words: bool = True  # a draft model needs no more than ids


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

    @property
    def resident(self) -> int:
        """That the process holds as long as nobody wants memory."""
        return self.needed + self.repacked


def estimate(facts: ModelFacts, way: Way) -> Footprint:
    """Of a model and one context."""
    n_ctx = -(-way.n_ctx // PAD) * PAD
    words = (
        WORD * (facts.n_vocab + len(facts.header.strings("tokenizer.ggml.merges")))
        if way.has_words
        else ID * facts.n_vocab
    )
    repacked = repacked_bytes(facts) if way.repacks else 0
    return Footprint(
        facts.n_bytes, facts.cache_bytes(n_ctx, way.cache), compute_bytes(facts, way, n_ctx), words, repacked
    )


def compute_bytes(facts: ModelFacts, way: Way, n_ctx: int) -> int:
    """Of the largest batch's graph: its widest layer, the attention mask, and the logits twice, in the graph and
    outside.
    """
    rows = max(way.n_batch, way.n_rows)
    width, inner = own(facts, "embedding_length"), inner_length(facts)
    layers = rows * (3 * (width + inner) + PER_ROW) * FLOAT
    logits = way.n_rows * facts.n_vocab * FLOAT
    return max(layers, logits) + rows * n_ctx * HALF + logits


def inner_length(facts: ModelFacts) -> int:
    """Values of a token between the two halves of a feed-forward layer, of all experts that it uses."""
    used, _ = facts.n_experts
    return max(own(facts, "feed_forward_length"), used * own(facts, "expert_feed_forward_length"))


def repacked_bytes(facts: ModelFacts) -> int:
    """Of weights that are copied into another layout when they are loaded."""
    matrices = (tensor for tensor in facts.header.tensors if tensor.kind in REPACKED and tensor.name != LEFT_ALONE)
    return sum(tensor.n_bytes for tensor in matrices if len(tensor.shape) > 1 and tensor.shape[1] % 8 == 0)


def own(facts: ModelFacts, key: str) -> int:
    """A count of the model's architecture."""
    return facts.header.number(f"{facts.architecture}.{key}")


def usual_cache(facts: ModelFacts, on_device: bool = False, block: int = 32) -> str:
    """The type of keys and values: on a CPU one whose blocks divide the heads."""
    if on_device:
        return "F16"
    usual = own(facts, "embedding_length") // max(1, own(facts, "attention.head_count"))
    lengths = [own(facts, f"attention.{what}_length") or usual for what in ("key", "value")]
    return "BF16" if any(length % block for length in lengths) else "Q8_0"


@dataclass(frozen=True, slots=True)
class Plan:
    """What of a pair is loaded, and why, in a sentence."""

    n_ctx: int
    cache: str
    with_draft: bool
    n_bytes: int  # that it needs
    text: str
    is_less: bool = False  # than was wished for
    n_gpu_layers: int = ALL_LAYERS


@dataclass(frozen=True, slots=True)
class Wish:
    """What a pair is to have if there is room; `caches` are the types that may be chosen, the one liked best first."""

    target: ModelFacts
    draft: ModelFacts | None
    way: Way
    caches: Sequence[str]
    floor: int = FLOOR
    window: int = DRAFT_WINDOW
    on_device: bool = False

    def needs(self, n_ctx: int, cache: str, with_draft: bool) -> int:
        """Bytes of the target, and of the draft model where there is one and it comes along."""
        return estimate(self.target, replace(self.way, n_ctx=n_ctx, cache=cache)).needed + (
            self.draft_needs(n_ctx) if with_draft else 0
        )

    def draft_needs(self, n_ctx: int) -> int:
        """Bytes of the draft model."""
        if self.draft is None:
            return 0
        n_drafting = draft_context(n_ctx, self.window, self.way.n_rows - 1, self.draft.n_context)
        return estimate(
            self.draft, Way(n_drafting, usual_cache(self.draft, self.on_device), 1, DRAFT_BATCH, has_words=False)
        ).needed


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes that are free, and how many of them a draft model, and a long context, must leave."""

    free: int
    for_draft: int
    for_context: int


def fit(wish: Wish, room: Room, name: str) -> Plan:
    """Gives up the draft model first, then context down to the floor, then the cache's precision, until enough stays
    free.

    What needs more than is free is refused: raises ModelError. `name` is the target's.
    """
    wanted, best, budget = wish.way.n_ctx, wish.caches[0], room.free - room.for_context
    if wish.draft is not None and wish.needs(wanted, best, True) <= room.free - room.for_draft:
        return plan(wish, wanted, best, True, room)
    for cache in wish.caches:
        if n_ctx := longest(wish, cache, budget):
            return plan(wish, n_ctx, cache, False, room)
    floor, last = min(wish.floor, wanted), wish.caches[-1]
    least = wish.needs(floor, last, False)
    if least > room.free:
        raise ModelError(
            f"{name} needs {least // MIB:,} MiB of memory with a context of {floor} tokens, but {room.free // MIB:,} "
            "MiB are free. "
            "Close other programs, or choose a smaller model or quantization."
        )
    return plan(wish, floor, last, False, room)


def longest(wish: Wish, cache: str, budget: int) -> int:
    """The longest context that fits, in whole steps; 0 when not even the floor does."""
    floor, wanted = min(wish.floor, wish.way.n_ctx), wish.way.n_ctx
    if wish.needs(wanted, cache, False) <= budget:
        return wanted
    steps = range(wanted // PAD * PAD, floor - 1, -PAD)
    return next((n_ctx for n_ctx in [*steps, floor] if wish.needs(n_ctx, cache, False) <= budget), 0)


def plan(wish: Wish, n_ctx: int, cache: str, with_draft: bool, room: Room) -> Plan:
    """With the sentence about what was given up."""
    lost = []
    if wish.draft is not None and not with_draft:
        lost.append("the draft model")
    if n_ctx < wish.way.n_ctx:
        lost.append(f"context beyond {n_ctx} of {wish.way.n_ctx} tokens")
    if cache != wish.caches[0]:
        lost.append(f"a cache of type {wish.caches[0]} (it is {cache})")
    needs, all_of_it = (
        wish.needs(n_ctx, cache, with_draft),
        wish.needs(wish.way.n_ctx, wish.caches[0], wish.draft is not None),
    )
    what = (
        f"left out {', '.join(lost)}: all of it needs {all_of_it // MIB:,} MiB"
        if lost
        else f"everything fits: it needs {needs // MIB:,} MiB"
    )
    text = (
        f"{what} of memory, where {room.free // MIB:,} MiB are free and {room.for_draft // MIB:,} MiB should stay free"
    )
    return Plan(n_ctx, cache, with_draft, needs, text, bool(lost))


def room_of(reading: Reading, thresholds: Thresholds) -> Room | None:
    """Of the machine's memory, where it is scarcest: a draft model must not make it TIGHT, a context not CRITICAL.
    None: not known.
    """
    hosts = [place for place in reading.places if is_sane(place) and not place.is_device]
    if not hosts:
        return None
    place = min(hosts, key=lambda place: place.free - thresholds.wanted(place, Level.TIGHT))
    return Room(
        place.free,
        *(int(thresholds.recovery * thresholds.wanted(place, level)) for level in (Level.TIGHT, Level.CRITICAL)),
    )


def draft_context(n_ctx: int, window: int, max_k: int, n_trained: int) -> int:
    """Tokens of a draft model's context: those it looks at, no more than it was trained on (0: not known), and those it
    drafts.
    """
    return min(n_ctx, window, n_trained or n_ctx) + max_k


def wish_of(
    target: Path, draft: Path | None, way: Way, floor: int, window: int = DRAFT_WINDOW, on_device: bool = False
) -> Wish | None:
    """By the headers of a pair's files; None where they cannot be read, of which the library will say more when it
    loads them.
    """
    try:
        facts = ModelFacts(read_model_header(target))
        drafting = None if draft is None else ModelFacts(read_model_header(draft))
    except (ModelError, OSError):
        return None
    n_ctx = min(way.n_ctx, facts.n_context) if facts.n_context else way.n_ctx
    return Wish(facts, drafting, replace(way, n_ctx=n_ctx), (usual_cache(facts, on_device),), floor, window, on_device)
