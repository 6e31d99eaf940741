"""Headers that contradict themselves are refused before the library, which some of them would end the process of."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.instruments.architectures.families import FAMILIES
from bench.instruments.architectures.writer import Mutation, mutated, random_tensors
from runtime.backends.model import LlamaModel
from runtime.core.errors import ModelError
from runtime.models.facts import ModelFacts
from runtime.models.header import Header, TensorInfo, read_model_header
from runtime.models.registry import load_registry
from runtime.models.soundness import contradiction

DEMO = load_registry()["demo"]
HUGE = 2**31 - 1
Shapes = dict[str, tuple[int, ...]]


def facts(architecture: str, metadata: dict[str, Any], tensors: Shapes | None = None) -> ModelFacts:
    """A header of these alone; keys are without the architecture."""
    whole: dict[str, Any] = {f"{architecture}.{key}": as_read(value) for key, value in metadata.items()}
    infos = tuple(TensorInfo(name, shape, "F32", 0, 0) for name, shape in (tensors or {}).items())
    return ModelFacts(Header({"general.architecture": architecture} | whole, infos, 0))


def as_read(value: Any) -> Any:
    return np.array(value) if isinstance(value, list) else value


def names(text: str) -> Shapes:
    """Tensors of layer 0."""
    return {f"blk.0.{name}": (1, 1) for name in text.split()}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_numbers_of_every_family_are_sound(name: str) -> None:
    assert contradiction(facts(FAMILIES[name].architecture, dict(FAMILIES[name].metadata))) == ""


@pytest.mark.parametrize("path", [DEMO.target, DEMO.draft], ids=str)
def test_whole_files_are_sound_and_found_so_at_once(path: Path) -> None:
    known = ModelFacts(read_model_header(path))
    start = time.process_time()
    assert contradiction(known) == ""
    assert time.process_time() - start < 1  # some milliseconds


def test_what_is_not_said_contradicts_nothing() -> None:
    assert contradiction(facts("", {})) == ""
    for family in FAMILIES.values():
        metadata = dict(family.metadata)
        for key in metadata:
            if not key.startswith(("expert_", "attention.key_", "attention.value_")):  # which depend on each other
                rest = {other: value for other, value in metadata.items() if other != key}
                assert contradiction(facts(family.architecture, rest)) == "", key


ONE_LAYER = {"block_count": 1}
HEADS = ONE_LAYER | {"embedding_length": 128, "attention.head_count": 4}
DELTA = {"ssm.inner_size": 128, "ssm.state_size": 32, "ssm.time_step_rank": 4, "ssm.group_count": 2}
GEMMA4 = {"block_count": 6, "attention.sliding_window_pattern": [True, True, False, True, True, False]}
GPT_OSS = HEADS | {"attention.head_count_kv": 2, "attention.key_length": 64}
LATENT = {"blk.0.attn_k_b.weight": (32, 64, 4), "blk.0.attn_kv_a_mqa.weight": (128, 96)}
MLA = ONE_LAYER | {"attention.key_length_mla": 64}


@pytest.mark.parametrize(
    ("architecture", "metadata", "what"),
    [
        ("llama", {"block_count": 0}, "block_count = 0,"),
        ("llama", {"block_count": HUGE}, "block_count = 2147483647,"),
        ("qwen35", {"block_count": 5, "nextn_predict_layers": 6}, "nextn_predict_layers = 6"),
        ("qwen3moe", {"expert_count": 0, "expert_used_count": 2}, "2 of 0 experts"),
        ("qwen3moe", {"expert_count": 4, "expert_used_count": 0}, "0 of 4 experts"),
        ("qwen3moe", {"block_count": 2, "expert_count": 4, "expert_used_count": [2, 5]}, "5 of 4 experts"),
        ("qwen3moe", {"expert_count": HUGE}, "expert_count = 2147483647"),
        (
            "deepseek2",
            {"expert_count": 8, "expert_used_count": 2, "expert_group_count": 4},
            "0 of 4 groups of 8 experts",
        ),
        ("kimi-linear", {"expert_gating_func": 0}, "expert_gating_func = 0"),
        ("deepseek2", {"expert_gating_func": 5}, "expert_gating_func = 5"),
        ("gemma3", {"attention.sliding_window": HUGE}, "attention.sliding_window = 2147483647"),
        ("qwen35", {"full_attention_interval": 0}, "full_attention_interval = 0"),
        ("ernie4_5-moe", {"interleave_moe_layer_step": 0}, "interleave_moe_layer_step = 0"),
        ("llama", {"attention.layer_norm_rms_epsilon": -1.0}, "layer_norm_rms_epsilon = -1.0"),
        ("eagle3", {"block_count": 1, "attention.layer_norm_rms_epsilon": float("nan")}, "rms_epsilon = nan"),
        ("rwkv7", {"token_shift_count": 3}, "token_shift_count = 3"),
        ("rwkv7", {"embedding_length": 128, "wkv.head_size": 65}, "wkv.head_size = 65"),
        ("deepseek4", {"attention.output_group_count": 0}, "attention.output_group_count = 0"),
        ("deepseek4", {"hyper_connection.sinkhorn_iterations": HUGE}, "sinkhorn_iterations = 2147483647"),
        ("llama", {"rope.scaling.type": "none of these"}, "rope.scaling.type = 'none of these'"),
        ("llama", {"block_count": 2, "attention.head_count": 4, "attention.head_count_kv": [2, 3]}, "4 heads share 3"),
        ("olmo2", {"attention.head_count": 0}, "attention.head_count = 0"),
        ("olmo2", {"block_count": 2, "attention.head_count": [0, 4]}, "first layer has no heads"),
        ("jamba", {"embedding_length": 129, "ssm.inner_size": 256}, "ssm.inner_size = 256 and embedding_length"),
        ("qwen35", DELTA | {"ssm.inner_size": 129}, "ssm.inner_size = 129"),
        ("qwen35", DELTA | {"ssm.group_count": 3}, "ssm.group_count = 3"),
        ("mamba2", {"ssm.inner_size": 256, "ssm.time_step_rank": 7}, "ssm.time_step_rank = 7"),
        ("llama", HEADS | {"attention.value_length": 16}, "keys have 32 and values 16 numbers"),
        ("qwen35", HEADS | {"rope.dimension_sections": [0, 0, 0, 0]}, "positions rotate 0, 0, 0, 0 numbers"),
        ("qwen35", HEADS | {"rope.dimension_sections": [1, 1, 1, 600]}, "positions rotate 1, 1, 1, 600 numbers"),
        ("deepseek2", {"attention.temperature_scale": 0.1}, "temperature_scale = 0.1 and no length"),
        ("gpt-oss", {"attention.sliding_window_pattern": [False]}, "no layer has a window"),
        ("gemma3", {"attention.sliding_window": 64, "attention.sliding_window_pattern": 1}, "no layer has a window"),
        ("gemma4", GEMMA4 | {"attention.shared_kv_layers": 4}, "2 of 6 layers have a cache of their own"),
        ("gemma4", GEMMA4 | {"attention.shared_kv_layers": HUGE}, "0 of 6 layers have a cache of their own"),
        (
            "gemma3n",
            {"block_count": 21, "attention.sliding_window_pattern": [True] * 18 + [False] * 2 + [True]},
            "20 of",
        ),
    ],
)
def test_numbers_that_cannot_be_are_named(architecture: str, metadata: dict[str, Any], what: str) -> None:
    assert what in contradiction(facts(architecture, ONE_LAYER | metadata))


@pytest.mark.parametrize(
    ("architecture", "n", "more"),
    [
        *(("phi3", n, {}) for n in (0, 17, 34, HUGE)),
        ("llama4", 16, {}),
        ("deepseek2", 16, {"attention.key_length_mla": 16}),
        ("deepseek4", 32, {"attention.indexer.key_length": 16}),
    ],
)
def test_what_is_rotated_is_even_and_within_a_head(architecture: str, n: int, more: dict[str, Any]) -> None:
    known = HEADS | {"rope.dimension_count": n} | more
    assert f"{n} of a head's 32 numbers are rotated" in contradiction(facts(architecture, known))


@pytest.mark.parametrize(
    ("architecture", "n", "more"),
    [
        ("phi3", 16, {}),
        ("nemotron_h", 0, {}),
        ("deepseek2", 0, {"attention.kv_lora_rank": 64}),
        ("granitehybrid", 0, {"rope.scaling.finetuned": False}),
    ],
)
def test_parts_of_heads_may_be_rotated_and_none_where_nothing_is(
    architecture: str, n: int, more: dict[str, Any]
) -> None:
    assert contradiction(facts(architecture, HEADS | {"rope.dimension_count": n} | more)) == ""


@pytest.mark.parametrize(
    ("architecture", "tensors", "what"),
    [
        (
            "phi3",
            "attn_output.weight attn_q.weight attn_v.weight",
            "layer 0 has no attn_qkv.weight and no attn_k.weight",
        ),
        ("qwen35", "ssm_conv1d.weight attn_gate.weight", "no attn_qkv.weight"),
        ("qwen3next", "ssm_conv1d.weight attn_qkv.weight ssm_in.weight", "no attn_gate.weight"),
        ("falcon-h1", "ssm_conv1d.weight", "no ssm_conv1d.bias"),
        ("kimi-linear", "ffn_gate_shexp.weight ffn_down_shexp.weight", "no ffn_up_shexp.weight"),
        ("mimo2", "ffn_gate_exps.weight ffn_up_exps.weight", "no ffn_down_exps.weight"),
    ],
)
def test_tensors_that_a_layer_lacks_are_named(architecture: str, tensors: str, what: str) -> None:
    assert what in contradiction(facts(architecture, ONE_LAYER, names(tensors)))


def test_shapes_are_those_that_the_numbers_say() -> None:
    keys = {"blk.0.attn_k.weight": (128, 128)}
    assert contradiction(facts("gpt-oss", GPT_OSS, keys)) == ""
    wrong = contradiction(facts("gpt-oss", GPT_OSS | {"attention.key_length": 65}, keys))
    assert wrong == "it says that 2 heads have keys of 65, and layer 0 makes 128 numbers"
    latent = facts("deepseek2", MLA | {"attention.head_count_kv": 2}, names("attn_k_b.weight"))
    assert "layer 0 has 2 heads of keys and values" in contradiction(latent)
    longer = facts("deepseek2", MLA | {"attention.head_count_kv": 1, "attention.key_length": 64}, LATENT)
    assert contradiction(longer) == "it says that keys have 64 numbers, and layer 0 makes 96"


def test_each_layer_has_the_heads_that_its_tensors_are_for() -> None:
    two = HEADS | {"block_count": 2}
    keys = {f"blk.{i}.attn_k.weight": (128, 64) for i in range(2)}
    assert contradiction(facts("llama", two | {"attention.head_count_kv": [2, 2]}, keys)) == ""
    assert "0 heads have keys of 32" in contradiction(facts("llama", two | {"attention.head_count_kv": [2, 0]}, keys))
    own = {"blk.1.ssm_conv1d_q.weight": (4, 1, 64)}  # which keeps a state, and no keys
    assert contradiction(facts("kimi-linear", two | {"attention.head_count_kv": [2, 0]}, keys | own)) == ""


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("phi3", Mutation(tensor="attn_k.weight")),
        ("qwen35", Mutation("full_attention_interval", 0)),
        ("gemma4", Mutation("rope.dimension_count", 0)),
        ("gptoss", Mutation("attention.key_length", 65)),
        ("falconh1", Mutation(tensor="ssm_conv1d.bias")),
    ],
    ids=str,
)
def test_a_file_that_would_end_the_process_is_refused_in_a_sentence(
    tmp_path: Path, name: str, change: Mutation
) -> None:
    path = mutated(tmp_path / "x.gguf", name, FAMILIES[name], random_tensors(name, tmp_path), change)
    with pytest.raises(ModelError) as refused:
        LlamaModel(path)
    said = str(refused.value)
    assert said.startswith("x.gguf is damaged or was converted wrongly: ")
    assert said.endswith(". Download it again, or choose another file of this model.")
    assert said.count("\n") == 0
