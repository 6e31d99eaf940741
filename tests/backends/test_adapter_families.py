"""LoRA adapters with other architectures than Llama's, and with heads that read the target's states."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.instruments.architectures.writer import write_family
from bench.instruments.heads import head_for, write_head
from runtime.backends.contexts import open_backend
from runtime.backends.model import LlamaModel
from runtime.core.errors import SettingsError
from runtime.engine import Ids, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models.adapters import Adapter
from runtime.models.registry import Pair
from tests.support.adapters import write_adapter, write_adapter_for, write_base

PROMPT = Ids(tuple(range(4, 44)))


@pytest.mark.parametrize("family", ["qwen3moe", "qwen35", "gemma3", "mamba2"])
def test_a_family_is_adapted_and_is_itself_again(family: str, tmp_path: Path) -> None:
    """Experts, recurrent layers and sliding windows."""
    path = write_family(family, tmp_path)
    model = LlamaModel(path)
    model.load_adapters([Adapter(write_adapter_for(path, tmp_path / "adapter.gguf"))])
    context, text = open_backend(model, 128, 4, 64), np.arange(4, 44, dtype=np.int32)
    context.set_threads(1, 1)
    found = []
    for adapters in ((), model.adapters.named(None), (), model.adapters.named({0: 0.5}), model.adapters.named(None)):
        context.use(adapters)
        found.append(context.forward(text).copy())
    plain, whole, again, half, whole_again = found
    np.testing.assert_array_equal(plain, again)
    np.testing.assert_array_equal(whole, whole_again)
    assert min(np.abs(plain - whole).max(), np.abs(plain - half).max(), np.abs(whole - half).max()) > 0.1
    context.close()
    model.close()


def test_a_head_drafts_from_the_states_of_the_adapted_model(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base.gguf")
    pair = Pair("any", base, lora=(Adapter(write_adapter(tmp_path / "adapter.gguf"), 0.2),))
    head = Pair("any", base, write_head(tmp_path / "head.gguf", head_for(base)), lora=pair.lora)
    texts, n_drafted = [], 0
    for each, drafters in ((pair, ()), (head, None)):
        engine = LoadedEngine(
            each, Options(256, drafters, threads=1, fixed_k=3 if drafters is None else None, fast=True)
        )
        chunks = list(engine.reply(PROMPT, Sampling(temperature=0.0), 24))
        texts.append([token for chunk in chunks for token in chunk.tokens])
        assert chunks[-1].stats is not None
        n_drafted += chunks[-1].stats.draft_n
        engine.close()
    assert texts[0] == texts[1]
    assert n_drafted > 0


def test_early_exit_is_left_out_and_says_why(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base.gguf")
    pair = Pair("any", base, lora=(Adapter(write_adapter(tmp_path / "adapter.gguf")),), drafters=("ngram",))
    with pytest.raises(SettingsError, match="because its first layers cannot be used with LoRA adapters"):
        LoadedEngine(pair, Options(256, ("layerskip",), threads=1))
