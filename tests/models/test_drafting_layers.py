"""Layers of a model's own file that only draft (MTP): each family that llama.cpp can run drafts what it should, and the
others are refused by name before anything is loaded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.instruments.architectures.families import FAMILIES
from bench.instruments.architectures.writer import write_drafting, write_family
from bench.instruments.heads import PROMPT
from bench.instruments.planted_heads import plant_mtp
from runtime.backends.contexts import open_backend
from runtime.backends.heads.llama_heads import MtpBackend
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.core.draft import Draft, Logits
from runtime.core.draft import Path as Tentative
from runtime.core.drafter import CONTINUE, Budget, Pick
from runtime.core.errors import ModelError
from runtime.drafters.head import MtpDrafter
from runtime.engine import Ids, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models import mtp
from runtime.models.facts import ModelFacts
from runtime.models.header import Header, TensorInfo, read_model_header
from runtime.models.heads import drafter_of, unfit, wanted_by
from runtime.models.registry import Pair
from tests.support.quick import others_slow

RUN = [
    name
    for name, family in FAMILIES.items()
    if family.architecture in mtp.DRAFTING and family.metadata.get("nextn_predict_layers") == 1
]
PLANTED = "deepseek2mtp deepseek32 glmdsa hy_v3 cohere2moe step35 qwen35moemtp qwen35mtp glm4moe".split()
# Which tokens a row looks at is chosen by an index there, so that rounding, which `fast` allows, becomes another text
INDEXED = "deepseek32", "glmdsa"
LISTED = "nemotron_h_moe_mtp", "bailingmoe3"  # headers with a number for each layer, of which the last is missing then
ROOM = 8
QUICK = "deepseek2mtp", "qwen35mtp", "glm4moe"


def pick(row: Logits, path: Tentative) -> Pick:
    return Pick(int(row.argmax()), 1.0, None)


BUDGET = Budget(4, lambda confidence, token=-1: CONTINUE, pick)


def opened(model: LlamaModel) -> tuple[LlamaBackend, MtpBackend, MtpDrafter]:
    backend = open_backend(model, 256, 5, 64)
    head = MtpBackend(backend, 1, ROOM)
    return backend, head, MtpDrafter(head, backend.n_vocab, ROOM)


def facts(path: Path) -> ModelFacts:
    return ModelFacts(read_model_header(path))


def said(pair: Pair, sampling: Sampling, *drafters: str) -> tuple[tuple[int, ...], int, int, str]:
    """The tokens of a reply, how many were drafted and accepted, and what was left out."""
    engine = LoadedEngine(pair, Options(512, drafters, fixed_k=3, threads=1, fast=True))
    chunks = list(engine.reply(Ids(PROMPT), sampling, 40))
    left_out, stats = engine.facts.left_out, chunks[-1].stats
    engine.close()
    assert stats is not None
    return tuple(token for chunk in chunks for token in chunk.tokens), stats.draft_n, stats.draft_n_accepted, left_out


def test_all_families_that_are_said_to_draft_are_run_here() -> None:
    assert {FAMILIES[name].architecture for name in RUN} == mtp.DRAFTING


@pytest.mark.parametrize("name", others_slow(RUN, QUICK))
def test_drafting_layers_guess_what_they_would_from_scratch(name: str, tmp_path: Path) -> None:
    model = LlamaModel(write_drafting(name, tmp_path), with_mtp=True)
    backend, head, drafter = opened(model)
    text = np.arange(5, 45, dtype=np.int32)
    for _ in range(4):
        text = np.append(text, backend.forward(text, Draft((3, 4)))[0].argmax()).astype(np.int32)
        anew, other_head, other = opened(model)
        anew.forward(text[:-1])
        assert drafter.propose(text, BUDGET).tokens == other.propose(text, BUDGET).tokens != ()
        for each in (other_head, anew):
            each.close()
    for each in (head, backend):
        each.close()
    model.close()


@pytest.mark.parametrize("name", others_slow([name for name in RUN if name not in INDEXED], QUICK))
@pytest.mark.parametrize(
    "sampling", [Sampling(temperature=0.0), Sampling(temperature=0.8, seed=5)], ids=["greedy", "seeded"]
)
def test_drafting_layers_never_change_a_token(name: str, tmp_path: Path, sampling: Sampling) -> None:
    pair = Pair("any", write_drafting(name, tmp_path))
    plain, drafting = said(pair, sampling), said(pair, sampling, "mtp")
    assert plain[0] == drafting[0]
    assert drafting[1] > 0


@pytest.mark.parametrize("name", others_slow(PLANTED, QUICK))
def test_a_drafting_layer_that_knows_the_text_is_always_right(name: str, tmp_path: Path) -> None:
    width, n_layers = (int(str(FAMILIES[name].metadata[key])) for key in ("embedding_length", "block_count"))
    pair = plant_mtp(tmp_path, name, width, n_layers - 1, 2048, acceptance=1)
    engine = LoadedEngine(pair, Options(512, ("mtp",), fixed_k=3, threads=1, fast=True))
    *_, last = engine.reply("w300 w301", Sampling(temperature=0.0), 24)
    engine.close()
    assert last.stats is not None
    assert last.stats.draft_n_accepted == last.stats.draft_n >= 15


@pytest.mark.parametrize("name", ["qwen35mtp", "glm4moe", "deepseek2mtp", "step35"])
def test_a_file_made_without_the_drafting_layer_that_it_promises_answers_without(name: str, tmp_path: Path) -> None:
    target = write_drafting(name, tmp_path, without="blk.4.")
    clause = "its header states a drafting layer, but the file lacks it"
    tokens, n_drafted, _, left_out = said(Pair("any", target), Sampling(seed=1), "mtp")
    assert (len(tokens), n_drafted) == (40, 0)
    assert left_out == f"{name}.gguf cannot draft by itself (mtp): {clause}"
    assert wanted_by(facts(target)) == f"1 of its own layers, not used: {clause}"


@pytest.mark.parametrize("name", others_slow([name for name in RUN if name not in INDEXED], QUICK))
def test_a_layer_in_a_file_of_its_own_drafts_the_same(name: str, tmp_path: Path) -> None:
    n_layers = int(str(FAMILIES[name].metadata["block_count"]))
    layer, whole = write_drafting(name, tmp_path, is_apart=True), write_drafting(name, tmp_path)
    expected = said(Pair("whole", whole), Sampling(temperature=0.8, seed=5), "mtp")
    target = whole if name in LISTED else write_drafting(name, tmp_path, without=f"blk.{n_layers - 1}.")
    assert drafter_of(facts(layer)) == "mtp"
    found = said(Pair("two files", target, layer), Sampling(temperature=0.8, seed=5), "mtp")
    assert found == expected
    assert found[1] > 0


def test_a_layer_of_another_model_is_refused_by_name(tmp_path: Path) -> None:
    layer, target = write_drafting("glm4moe", tmp_path, is_apart=True), write_family("qwen3", tmp_path)
    assert "it is the drafting layer of a glm4moe model, and the target is a qwen3 model" in unfit(
        facts(layer), facts(target), layer
    )
    *_, left_out = said(Pair("x", target, layer), Sampling(seed=1), "mtp")
    assert "the drafting layer of a glm4moe model" in left_out
    with pytest.raises(ModelError, match=r"mtp-glm4moe\.gguf is the drafting part of another model"):
        LoadedEngine(Pair("x", layer), Options(512, threads=1))


@pytest.mark.parametrize(
    ("name", "clause"),
    [
        ("step35three", "its 3 drafting layers would have to be used in turn, which Slipstream does not support"),
        ("deepseek4mtp", "llama.cpp ends the process when the drafting layer of such a model is opened"),
    ],
)
def test_a_family_whose_drafting_layers_are_not_used_answers_without(name: str, clause: str, tmp_path: Path) -> None:
    target = write_drafting(name, tmp_path)
    tokens, n_drafted, _, left_out = said(Pair("any", target), Sampling(seed=1), "mtp")
    assert (len(tokens), n_drafted) == (40, 0)
    assert left_out == f"{name}.gguf cannot draft by itself (mtp): {clause}"


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("nemotron_h_moe_mtp", "nextn.shared_head_norm.weight"),
        ("bailingmoe3", "layer_output_norm.weight"),
        ("mimo2", "attn_qkv.weight"),
        ("deepseek2mtp", "attn_q_a.weight"),
    ],
)
def test_a_drafting_layer_without_what_llama_cpp_asserts_is_known_before(
    name: str, tensor: str, tmp_path: Path
) -> None:
    last = int(str(FAMILIES[name].metadata["block_count"])) - 1
    why = mtp.why_no_mtp(facts(write_drafting(name, tmp_path, without=f"blk.{last}.{tensor}")))
    assert why == f"its drafting layer has no {tensor}, without which llama.cpp cannot run it"


@pytest.mark.parametrize(
    ("architecture", "n", "clause"),
    [
        ("exaone-moe", 1, "llama.cpp keeps the drafting layers of exaone-moe models and cannot run them"),
        ("glm5-next", 1, "llama.cpp keeps the drafting layers of glm5-next models and cannot run them"),
        ("qwen3next", 1, "llama.cpp cannot take back what a draft leaves in the recurrent layers of such a model"),
        ("newest", 1, "the drafting layers of newest models were not tried with Slipstream"),
        ("glm4moe", 2, "its 2 drafting layers would have to be used in turn, which Slipstream does not support"),
        ("glm4moe", 1, ""),
    ],
)
def test_drafting_layers_that_are_not_used_are_told_with_the_reason(architecture: str, n: int, clause: str) -> None:
    numbers: dict[str, Any] = {f"{architecture}.block_count": 8, f"{architecture}.nextn_predict_layers": n}
    first = TensorInfo(f"blk.{8 - n}.nextn.eh_proj.weight", (64, 64), "F32", 0, 2**14)
    trunk = TensorInfo("blk.0.attn_norm.weight", (64,), "F32", 0, 2**8)
    found = ModelFacts(Header({"general.architecture": architecture, **numbers}, (trunk, first), 0))
    assert mtp.why_no_mtp(found) == clause
    told = f"not used: {clause}" if clause else "drafts by itself (mtp)"
    assert wanted_by(found) == f"{n} of its own layers, {told}"


@pytest.mark.parametrize("tensor", ["ffn_down_exps", "ffn_gate_up_exps"])
def test_a_drafting_layer_without_its_experts_is_refused_with_the_file(tensor: str, tmp_path: Path) -> None:
    """llama.cpp loads it, and ends the process as it computes."""
    with pytest.raises(ModelError, match=r"hy_v3\.gguf is damaged or was converted wrongly"):
        LlamaModel(write_drafting("hy_v3", tmp_path, without=f"blk.4.{tensor}"), with_mtp=True)
