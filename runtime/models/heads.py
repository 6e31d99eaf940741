"""Files that hold a head, which drafts for a model: what kind, for which target, and whether the two go together.

llama.cpp ends the process over most of what does not, so it is found here first. Reads headers, and of a head the
tokens that its rows stand for.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from runtime.models.facts import ModelFacts
from runtime.models.header import TensorInfo
from runtime.models.trimmed import trim_of

EAGLE = "eagle3"
DRAFTERS = {EAGLE: "eagle"}  # of heads that can be used, by architecture
# Targets whose graph names the inputs of its layers, each tried with llama-cpp-python 0.3.36: of others, asking for
# them ends the process
SHOWN = frozenset(
    "llama qwen3 qwen3moe qwen3next qwen35 qwen35moe gemma4 gpt-oss hunyuan-dense lfm2 lfm2moe nemotron_h "
    "nemotron_h_moe deepseek4".split()
)
# Targets whose own drafting layer was run, with the same version
DRAFTING = frozenset(("qwen35", "glm4moe"))
HEAD_ROWS = 32  # that a head takes in at once: the library makes room for the logits of each
STATES = 256  # of a pass, that are shown to a head at most: the latest
N_LAYERS = 3  # of the target, that an EAGLE-3 head reads
TABLE = "d2t"  # the target's token of each row of a head with fewer words


def drafter_of(facts: ModelFacts | None) -> str:
    """The drafter that a head's file is for; "" for a model."""
    return DRAFTERS.get(facts.architecture, "") if facts else ""


def has_mtp(facts: ModelFacts) -> bool:
    """Is there a layer in a model's file that only drafts, and that can be used?

    The header's count says little: files are made without that layer which promise it.
    """
    first = f"blk.{facts.n_trunk_layers}.nextn.eh_proj.weight"
    is_known = facts.architecture in DRAFTING and facts.own("nextn_predict_layers") == 1
    return is_known and any(tensor.name == first for tensor in facts.header.tensors)


def wanted_by(facts: ModelFacts) -> str:
    """The target that a head is for, or what a copy or a model's own drafting layers are, in words; "" for others."""
    if drafter_of(facts):
        layers = ", ".join(map(str, layers_of(facts)))
        width = facts.own("target_hidden_size")
        return f"a head for targets of {n_words(facts):,} tokens and width {width:,}; reads layers {layers}"
    if trim := trim_of(facts):
        return f"a copy of {trim.source} with fewer words, for its targets"
    if n_layers := facts.own("nextn_predict_layers"):
        use = "drafts by itself (mtp)" if has_mtp(facts) else "not used by us"
        return f"{n_layers} of its own layers, {use}"
    return ""


def layers_of(head: ModelFacts) -> tuple[int, ...]:
    """The target's layers whose inputs the head reads."""
    value = head.header.metadata.get(f"{EAGLE}.target_layers")
    is_list = isinstance(value, np.ndarray) and np.issubdtype(value.dtype, np.integer)
    return tuple(int(layer) for layer in value[: N_LAYERS + 1]) if is_list else ()  # type: ignore[index]


def n_words(head: ModelFacts) -> int:
    """Tokens of the head's target; of a copy with fewer words, those that it has."""
    return head.n_vocab or head.own("vocab_size")


def unfit(head: ModelFacts, target: ModelFacts, path: Path) -> str:
    """Why this head, read from `path`, cannot draft for that target, in a clause; "" when it can."""
    return next(differences(head, target, path), "")


def differences(head: ModelFacts, target: ModelFacts, path: Path) -> Iterator[str]:
    """In order of how much they say."""
    if target.architecture not in SHOWN:
        yield f"llama.cpp shows no hidden states of the architecture {target.architecture!r}"
    width, read, layers = target.own("embedding_length"), head.own("target_hidden_size"), layers_of(head)
    if read != width:
        yield f"it reads states of {read} values, and the target's have {width}"
    if n_words(head) != target.n_vocab:
        yield f"it is for {n_words(head):,} tokens, and the target has {target.n_vocab:,}"
    if len(layers) != N_LAYERS:
        yield f"it names {len(layers)} layers of its target instead of {N_LAYERS}"
    if wrong := [layer for layer in layers if not 0 <= layer < target.n_trunk_layers]:
        yield f"it reads layer {wrong[0]} of a target that has {target.n_trunk_layers}"
    yield from misshapen(head, {tensor.name: tensor for tensor in head.header.tensors}, path)


def misshapen(head: ModelFacts, tensors: dict[str, TensorInfo], path: Path) -> Iterator[str]:
    """What is wrong with the tensors."""
    width, own = head.own("embedding_length"), head.own("target_hidden_size")
    first = tensors.get("fc.weight")
    if first is None or first.shape != (N_LAYERS * own, width):
        yield "the matrix that takes the target's states in is missing or has another shape"
    borrowed = [name for name in ("token_embd.weight", "output.weight") if name not in tensors]
    if borrowed and width != own:
        yield f"it has no {borrowed[0]} of its own, and the target's is {own} wide instead of {width}"
    n_rows = tensors["output.weight"].shape[-1] if "output.weight" in tensors else n_words(head)
    if TABLE not in tensors:
        if n_rows != n_words(head):
            yield f"it drafts {n_rows:,} tokens and does not say which"
        return
    if tensors[TABLE].kind != "I64" or tensors[TABLE].shape != (n_rows,):
        yield "the table of the tokens that it drafts has another shape than its output"
        return
    tokens = np.fromfile(path, np.int64, n_rows, offset=head.header.data_start + tensors[TABLE].offset)
    if len(tokens) < n_rows or tokens.min() < 0 or tokens.max() >= n_words(head):
        yield "it drafts tokens that its target does not have"
