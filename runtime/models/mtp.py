"""Decides whether a model's file has MTP layers, which only draft, and whether they can be used. Reads headers."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.models.facts import ModelFacts

# Models whose drafting layer was tested with llama-cpp-python 0.3.36 and drafted correctly
DRAFTING = frozenset(
    "qwen35 qwen35moe glm4moe deepseek2 deepseek32 glm-dsa nemotron_h_moe step35 mimo2 hy_v3 cohere2moe "
    "bailingmoe3".split()
)
# Models whose files contain that layer, but for which the same version has no graph
IDLE = frozenset("bailingmoe2 dots3note exaone-moe exaone4 glm4 glm5-next".split())
UNUSABLE = {
    "deepseek4": "llama.cpp ends the process when the drafting layer of such a model is opened",
    "qwen3next": "llama.cpp cannot take back what a draft leaves in the recurrent layers of such a model",
}
ENTRY = "nextn.eh_proj.weight"  # the projection of a state and a token: every such layer has it
# Tensors of the layer without which llama.cpp ends the process
NEEDED = {
    "bailingmoe3": ("layer_output_norm.weight",),
    "deepseek2": ("attn_q_a.weight", "attn_k_b.weight", "ffn_gate_inp.weight"),
    "mimo2": ("attn_qkv.weight", "ffn_gate.weight"),
    "nemotron_h_moe": ("nextn.shared_head_norm.weight",),
}
UNWANTED = {"deepseek2": "attention.temperature_scale"}  # keys with which llama.cpp ends the process
NOT_KEPT = "its header states a drafting layer, but the file lacks it"
HeaderValues = dict[str, str | int]  # by key


def n_drafting(facts: ModelFacts) -> int:
    """Return the number of MTP layers that the header declares."""
    return facts.own("nextn_predict_layers")


def is_apart(facts: ModelFacts) -> bool:
    """Whether a file has MTP layers for a target in another file, as `convert_hf_to_gguf.py --mtp` writes it."""
    names = {tensor.name for tensor in facts.header.tensors}
    return f"blk.{facts.n_trunk_layers}.{ENTRY}" in names and not any(name.startswith("blk.0.") for name in names)


def apart_differences(head: ModelFacts, target: ModelFacts) -> Iterator[str]:
    """Yield the reasons why MTP layers in a file of their own cannot draft for a target."""
    own, others = head.architecture, target.architecture
    if own != others:
        yield f"it is the drafting layer of a {own} model, and the target is a {others} model"
    if head.n_trunk_layers != target.n_trunk_layers:
        yield f"it follows a model of {head.n_trunk_layers} layers, and the target has {target.n_trunk_layers}"
    yield from obstacles(head)


def has_mtp(facts: ModelFacts) -> bool:
    """Whether a model's file has a usable MTP layer."""
    return not (is_apart(facts) or why_no_mtp(facts))


def why_no_mtp(facts: ModelFacts) -> str:
    """Return the reason why a model's file cannot draft by itself, as a clause; "" if it can."""
    return next(obstacles(facts), "")


def obstacles(facts: ModelFacts) -> Iterator[str]:
    """Yield the reasons why MTP is unusable, the most informative first.

    The header's count is unreliable: some files lack the layers that it declares.
    """
    n, own = n_drafting(facts), facts.architecture
    if not n:
        yield "it has no drafting layer"
    if own in UNUSABLE:
        yield UNUSABLE[own]
    if own in IDLE:
        yield f"llama.cpp keeps the drafting layers of {own} models and cannot run them"
    if own not in DRAFTING:
        yield f"the drafting layers of {own} models were not tried with Slipstream"
    last = f"blk.{facts.n_trunk_layers}."
    tensors = {tensor.name.removeprefix(last) for tensor in facts.header.tensors if tensor.name.startswith(last)}
    if ENTRY not in tensors:
        yield NOT_KEPT
    if n > 1:
        yield f"its {n} drafting layers would have to be used in turn, which Slipstream does not support"
    if missing := [name for name in NEEDED.get(own, ()) if name not in tensors]:
        yield f"its drafting layer has no {missing[0]}, without which llama.cpp cannot run it"
    if f"{own}.{UNWANTED.get(own)}" in facts.header.metadata:
        yield f"its header says {UNWANTED[own]}, with which llama.cpp cannot run its drafting layer"


def unkept_promises(facts: ModelFacts) -> HeaderValues:
    """Return corrected header values for a file without the MTP layers that its header declares; {} for others."""
    n_trunk, own = facts.n_trunk_layers, facts.architecture
    if n_trunk == facts.n_layers or any(tensor.name.startswith(f"blk.{n_trunk}.") for tensor in facts.header.tensors):
        return {}
    return {f"{own}.block_count": n_trunk, f"{own}.nextn_predict_layers": 0}
