"""EAGLE-1 heads: their layer against one that is written out, and checkpoints that become files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.instruments.heads import random_weights, state_head_for, write_state_head
from bench.instruments.shapes import TINY
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.backends.shown_states import Rows
from runtime.core.errors import ModelError
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.heads import unfit, wanted_by
from runtime.training.own_head_file import write_own_head
from runtime.training.published_heads import converted
from tests.backends.test_state_heads import N_CTX, N_ROWS, head_in, matrix, tokens
from tests.models.test_published_heads import checkpoint, values
from tests.support import tiny_target

target_file, target = tiny_target.target_file, tiny_target.target


def test_an_eagle_head_computes_what_its_paper_says(target: LlamaModel, target_file: Path, tmp_path: Path) -> None:
    shape = state_head_for(target_file, "eagle1")
    of, weights = shape.attention, {name: rows.astype(np.float64) for name, rows in random_weights(shape).items()}
    assert of is not None
    backend = LlamaBackend(target, N_CTX, N_ROWS)
    head, _ = head_in(write_state_head(tmp_path / "head.gguf", shape), backend)
    text, known = tokens(0, 16), np.random.default_rng(1).standard_normal((5, TINY.width))
    head.feed(text[:10], 5, known.astype(np.float32))
    table = matrix(target_file, "token_embd.weight").astype(np.float64)

    def next_state(cells: Rows) -> Rows:
        """The state after the last of these inputs [n, width], with all attention written out."""
        parts, at = of.length // 2, np.arange(len(cells))
        turn = np.exp(1j * at[:, None] * 10_000.0 ** (-np.arange(parts) / parts))[:, None]
        q, k, v = (
            (cells @ weights[f"attn_{name}.weight"].T).reshape(len(cells), -1, of.length) for name in ("q", "k", "v")
        )
        q, k = ((each[..., :parts] + 1j * each[..., parts:]) * turn for each in (q, k))
        read = []
        for i in range(of.n_heads):
            group = i // (of.n_heads // of.n_kv)
            scores = np.exp((q[-1, i] * k[:, group].conj()).sum(-1).real / of.length**0.5)
            read.append(scores / scores.sum() @ v[:, group])
        after = cells[-1] + weights["attn_output.weight"] @ np.concatenate(read)
        y = after / np.sqrt((after**2).mean() + 1e-5) * weights["ffn_norm.weight"]
        gate = weights["ffn_gate.weight"] @ y
        return after + weights["ffn_down.weight"] @ (gate / (1 + np.exp(-gate)) * (weights["ffn_up.weight"] @ y))

    states = [*known]
    for end in (11, 12, 13):
        joined = np.hstack([table[text[6:end]], np.array(states)])
        states.append(next_state(joined @ weights["fc.weight"].T + weights["fc.bias"]))
        want = matrix(target_file, "output.weight", "token_embd.weight") @ states[-1]
        np.testing.assert_allclose(head.forward(text[:end])[0], want, rtol=1e-3, atol=1e-3)
    head.close()
    backend.close()


CONFIG = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 500000.0, "vocab_size": TINY.vocab,
    "num_hidden_layers": 1,
}  # fmt: skip
OURS = {
    "fc.weight": "fc.weight", "fc.bias": "fc.bias", "layers.0.self_attn.q_proj.weight": "attn_q.weight",
    "layers.0.self_attn.k_proj.weight": "attn_k.weight", "layers.0.self_attn.v_proj.weight": "attn_v.weight",
    "layers.0.self_attn.o_proj.weight": "attn_output.weight", "layers.0.mlp.gate_proj.weight": "ffn_gate.weight",
    "layers.0.mlp.up_proj.weight": "ffn_up.weight", "layers.0.mlp.down_proj.weight": "ffn_down.weight",
    "layers.0.post_attention_layernorm.weight": "ffn_norm.weight",
}  # fmt: skip


def published() -> dict[str, Rows]:
    """The tensors of a checkpoint like yuhuili/EAGLE-*, with the target's embedding among them."""
    n, kv, ffn = 64, 32, 96
    sizes = [(n, 2 * n), (n,), (n, n), (kv, n), (kv, n), (n, n), (ffn, n), (ffn, n), (n, ffn), (n,)]
    found = {name: values(i, *size) for i, (name, size) in enumerate(zip(OURS, sizes, strict=True))}
    return found | {"embed_tokens.weight": values(99, TINY.vocab, n)}


def test_a_checkpoint_becomes_a_file_that_drafts_and_changes_no_text(target_file: Path, tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    content = converted(checkpoint(tmp_path / "published", CONFIG, published()))
    for theirs, ours in OURS.items():
        np.testing.assert_array_equal(content.weights[ours], published()[theirs])
    assert len(content.weights) == len(OURS)
    file = tmp_path / "head.gguf"
    write_own_head(file, content)
    facts = ModelFacts(read_model_header(file))
    assert wanted_by(facts) == "a head (eagle1) for targets of 512 tokens and width 64"
    assert unfit(facts, ModelFacts(read_model_header(target_file)), file) == ""
    tiny_target.assert_drafts_the_same_text(target_file, file)


def test_a_head_without_a_bias_has_none_added(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    tensors = {name: rows for name, rows in published().items() if name != "fc.bias"}
    assert not converted(checkpoint(tmp_path / "published", CONFIG, tensors)).weights["fc.bias"].any()


@pytest.mark.parametrize(
    ("config", "added", "clause"),
    [
        ({"num_hidden_layers": 2}, {}, "has 2 layers, and an EAGLE-1 head has one"),
        ({"num_attention_heads": 0}, {}, "does not state the shape of its layer in config.json"),
        ({}, {"d2t": values(1, 100)}, "is an EAGLE-3 head: convert it with llama.cpp's convert_hf_to_gguf.py"),
        ({}, {"layers.0.input_layernorm.weight": values(1, 64)}, "has the tensor 'layers.0.input_layernorm.weight'"),
    ],
)
def test_what_cannot_be_run_is_named(
    config: dict[str, object], added: dict[str, Rows], clause: str, tmp_path: Path
) -> None:
    pytest.importorskip("safetensors")
    with pytest.raises(ModelError) as error:
        converted(checkpoint(tmp_path / "published", CONFIG | config, published() | added))
    assert clause in str(error.value)


def test_a_file_without_the_shape_of_its_layer_is_refused(target_file: Path, tmp_path: Path) -> None:
    shape = replace(state_head_for(target_file, "eagle1"), attention=None)
    file = write_state_head(tmp_path / "head.gguf", shape, weights={"fc.weight": values(0, 64, 128)})
    target = ModelFacts(read_model_header(target_file))
    assert unfit(ModelFacts(read_model_header(file)), target, file) == "it does not state the shape of its layer"
