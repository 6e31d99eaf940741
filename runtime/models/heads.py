"""Describes draft heads from their files: the kind, the target, and whether the two are compatible.

llama.cpp ends the process over most incompatible pairs, so they are found here first. Reads headers, and a head's table
of the tokens for its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from runtime.models.block_heads import DFLASH, DSPARK, MASK, is_dspark, is_whole, layers_of
from runtime.models.facts import ModelFacts
from runtime.models.header import TensorInfo
from runtime.models.mtp import apart_differences, is_apart, n_drafting, why_no_mtp
from runtime.models.own_heads import is_own, own_differences, own_drafter, own_wanted_by
from runtime.models.trimmed import trim_of

EAGLE, ASSISTANT = "eagle3", "gemma4-assistant"
DRAFTERS = {EAGLE: "eagle", DFLASH: "dflash", ASSISTANT: "assistant"}  # by architecture
TRIED_WITH = "0.3.36"  # version of llama-cpp-python with which these tables were tested
# Tested targets whose graph names its layers' inputs; in others, requesting those ends the process
SHOWN = frozenset(
    "llama qwen3 qwen3moe qwen3next qwen35 qwen35moe gemma4 gpt-oss hunyuan-dense lfm2 lfm2moe nemotron_h "
    "nemotron_h_moe deepseek4".split()
)
# Header keys of the tested heads
KEYS = frozenset(
    "context_length embedding_length block_count feed_forward_length attention.head_count attention.head_count_kv "
    "attention.layer_norm_rms_epsilon attention.key_length attention.value_length attention.causal "
    "attention.sliding_window attention.sliding_window_pattern rope.dimension_count rope.freq_base "
    "rope.dimension_sections vocab_size target_layers target_hidden_size norm_before_residual block_size "
    "sample_from_anchor".split()
)
HEAD_ROWS = 32  # rows of a head's pass, at most; the library allocates the logits of each
# The same for MTP layers in a target's own file, whose graph skips unneeded logits, which are most of the work
FEW_ROWS = 4
STATES = 256  # hidden states of a pass that are given to a head, at most: the latest
SPARE = 64  # extra rows of the buffer for pending states, so that it is seldom compacted
N_LAYERS = 3  # layers of the target that an EAGLE-3 head reads
TABLE = "d2t"  # the target's token for each row of a head with a reduced vocabulary
# Heads that differ from DFlash by one tensor only, and draft in another way
VARIANTS = {"selector_hidden.weight": "DFlash 2", "blk.0.hc_attn_fn.weight": "DeepSeek 4 DSpark"}
# Header keys of the heads in which an assistant and its target must agree, as it reads the target's cache
SHARED_KEYS = "attention.key_length", "attention.key_length_swa"
FIRST_KEY = b"general.architecture"  # the first key of a header
BEGINNING = 4096  # bytes at the start of a file that contain it


def drafter_of(facts: ModelFacts | None) -> str:
    """Return the drafter for a head's file; "" for a model."""
    if facts is None:
        return ""
    if is_apart(facts):
        return "mtp"
    return DSPARK if is_dspark(facts) else DRAFTERS.get(facts.architecture, "") or own_drafter(facts.architecture)


def begins_for(path: Path) -> str:
    """Return the drafter for a file by its beginning, even if the rest is damaged; "" if it is no head."""
    if not path.is_file():
        return ""
    try:
        with path.open("rb") as file:
            _, _, rest = file.read(BEGINNING).partition(FIRST_KEY)
    except OSError:
        return ""
    length = int.from_bytes(rest[4:12], "little")  # after the type of the value
    architecture = rest[12 : 12 + length].decode(errors="replace")
    return DRAFTERS.get(architecture, "") or own_drafter(architecture)


def wanted_by(facts: ModelFacts) -> str:
    """Return a description of a head's target, of a copy, or of a model's MTP layers; "" for other files."""
    if is_own(facts):
        return own_wanted_by(facts)
    if own := of_few_families(facts):
        return own
    if drafter_of(facts):
        layers = ", ".join(map(str, layers_of(facts)))
        block = f", {facts.own('block_size')} tokens at once" if facts.architecture == DFLASH else ""
        target = f"targets of {n_words(facts):,} tokens and width {width_read(facts):,}"
        return f"a head ({drafter_of(facts)}) for {target}; reads layers {layers}{block}"
    if trim := trim_of(facts):
        return f"a copy of {trim.source} with fewer words, for its targets"
    if n_layers := n_drafting(facts):
        why = why_no_mtp(facts)
        return f"{n_layers} of its own layers, {f'not used: {why}' if why else 'drafts by itself (mtp)'}"
    return ""


def of_few_families(facts: ModelFacts) -> str:
    """Return a description of the target of a Gemma 4 assistant, or of MTP layers in a file of their own; else ""."""
    if facts.architecture == ASSISTANT:
        return f"an assistant for Gemma 4 targets of {n_words(facts):,} tokens and width {width_read(facts):,}"
    if is_apart(facts):
        return f"the drafting layer (mtp) of {facts.architecture} targets of {facts.n_trunk_layers} layers"
    return ""


def n_words(head: ModelFacts) -> int:
    """Return the vocabulary size of the head's target; for a copy with a reduced vocabulary, its own size."""
    return head.n_vocab or head.own("vocab_size")


def n_drafted(head: ModelFacts) -> int:
    """Return the number of tokens that a head with a reduced vocabulary drafts; 0 if it drafts all of its target's."""
    return next((tensor.shape[0] for tensor in head.header.tensors if tensor.name == TABLE), 0)


def width_read(head: ModelFacts) -> int:
    """Return the width of the hidden states that the head reads."""
    keys = {EAGLE: "target_hidden_size", ASSISTANT: "embedding_length_out"}
    return head.own(keys.get(head.architecture, "embedding_length"))


def is_tried(head: ModelFacts, target: ModelFacts) -> bool:
    """Whether this target and heads with these keys were tested with that version of the library."""
    own = f"{head.architecture}."
    keys = {key.removeprefix(own) for key in head.header.metadata if key.startswith(own)}
    return target.architecture in SHOWN and keys <= KEYS


def unfit(head: ModelFacts, target: ModelFacts, path: Path) -> str:
    """Return the reason why this head, read from `path`, cannot draft for that target, as a clause; "" if it can."""
    return next(differences(head, target, path), "")


def differences(head: ModelFacts, target: ModelFacts, path: Path) -> Iterator[str]:
    """Yield the reasons why the head cannot draft for the target, the most informative first."""
    if is_own(head):
        yield from own_differences(head, target, path)
        return
    tensors = {tensor.name: tensor for tensor in head.header.tensors}
    yield from unknown_kinds(head, tensors)
    width, read, layers = target.own("embedding_length"), width_read(head), layers_of(head)
    if read != width:
        yield f"it reads states of {read} values, and the target's have {width}"
    if n_words(head) != target.n_vocab:
        yield f"it is for {n_words(head):,} tokens, and the target has {target.n_vocab:,}"
    if head.architecture == ASSISTANT:
        yield from assistant_differences(head, target, tensors)
        return
    if is_apart(head):
        yield from apart_differences(head, target)
        return
    if wrong := [layer for layer in layers if not 0 <= layer < target.n_trunk_layers]:
        yield f"it reads layer {wrong[0]} of a target that has {target.n_trunk_layers}"
    yield from misshapen(head, tensors, path)


def assistant_differences(head: ModelFacts, target: ModelFacts, tensors: dict[str, TensorInfo]) -> Iterator[str]:
    """Yield the reasons why an assistant of the right width and vocabulary cannot read the target's cache."""
    width, own = width_read(head), head.own("embedding_length")
    if target.architecture != "gemma4":
        yield f"it is an assistant for Gemma 4, and the target is a {target.architecture} model"
    for key in SHARED_KEYS:
        if head.own(key) != target.own(key):
            yield f"its attention heads have {head.own(key)} values, and the target's {target.own(key)}"
    for name, shape in (("pre", (2 * width, own)), ("post", (own, width))):
        found = tensors.get(f"nextn.{name}_projection.weight")
        if found is None or found.shape != shape:
            yield f"its {name}_projection is missing or has a wrong shape"


def unknown_kinds(head: ModelFacts, tensors: dict[str, TensorInfo]) -> Iterator[str]:
    """Yield the reasons why the head is of a kind that cannot be run."""
    if variant := next((VARIANTS[name] for name in VARIANTS if name in tensors), ""):
        yield f"it is a {variant} head, a variant of DFlash that Slipstream does not run"
    if head.architecture == EAGLE and len(layers_of(head)) != N_LAYERS:
        yield f"it names {len(layers_of(head))} layers of its target instead of {N_LAYERS}"
    if head.architecture == EAGLE and head.n_layers != 1:
        yield f"it has {head.n_layers} layers, and an EAGLE-3 head has one"
    if head.architecture != DFLASH:
        return
    if not layers_of(head):
        yield "it names no layers of its target"
    if head.own("block_size") < 2:
        yield "it does not state how many tokens it drafts at once"
    if MASK not in head.header.metadata or head.header.number(MASK) >= n_words(head):
        yield "it does not state which token marks a token to be drafted"


def misshapen(head: ModelFacts, tensors: dict[str, TensorInfo], path: Path) -> Iterator[str]:
    """Yield the faults of the head's tensors."""
    width, own = head.own("embedding_length"), width_read(head)
    first = tensors.get("fc.weight")
    if first is None or first.shape != (len(layers_of(head)) * own, width):
        yield "the matrix for the target's states is missing or has a wrong shape"
    borrowed = [name for name in ("token_embd.weight", "output.weight") if name not in tensors]
    if borrowed and width != own:
        yield f"it has no {borrowed[0]} of its own, and the target's is {own} wide instead of {width}"
    n_rows = tensors["output.weight"].shape[-1] if "output.weight" in tensors else n_words(head)
    if is_dspark(head) and not is_whole(tensors, n_rows):
        yield "its Markov head is incomplete or has a wrong shape"
    if TABLE not in tensors:
        if n_rows != n_words(head):
            yield f"it drafts {n_rows:,} tokens and does not state which"
        return
    if tensors[TABLE].kind != "I64" or tensors[TABLE].shape != (n_rows,):
        yield "the table of the tokens that it drafts does not have the shape of its output"
        return
    tokens = np.fromfile(path, np.int64, n_rows, offset=head.header.data_start + tensors[TABLE].offset)
    if len(tokens) < n_rows or tokens.min() < 0 or tokens.max() >= n_words(head):
        yield "it drafts tokens that its target does not have"
