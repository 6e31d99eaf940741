"""The head that `demo.train_head` trains is the one that llama.cpp runs: needs the extra `train`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from demo.export import write_head  # noqa: E402
from demo.head import READ, SHAPE, shown  # noqa: E402
from demo.train_head import HERE, read_target  # noqa: E402
from runtime.backends.heads.llama_heads import EagleBackend  # noqa: E402
from runtime.backends.llama import LlamaBackend  # noqa: E402
from runtime.backends.model import LlamaModel  # noqa: E402
from runtime.training.layers import Head, unrolled  # noqa: E402

pytestmark = pytest.mark.slow


def test_a_head_says_in_llama_cpp_what_it_says_in_pytorch(tmp_path: Path) -> None:
    torch.manual_seed(0)
    target, head, ids = read_target(HERE / "target.gguf"), Head(SHAPE), np.arange(300, 340, dtype=np.int32)
    with torch.no_grad():
        batch = torch.from_numpy(ids.astype(np.int64))[None]
        steps = list(unrolled(head, target.embedding, batch, shown(target, batch).states, 3))
        wanted = [target.logits(each)[0].numpy() for each in steps]  # of each step, [cells, vocab]
    model, small = LlamaModel(HERE / "target.gguf"), LlamaModel(write(tmp_path, head), is_head=True)
    backend = LlamaBackend(model, 256, 4)
    eagle = EagleBackend(small, backend, READ, 1, 4)
    n = wanted[0].shape[0]
    backend.forward(ids[:n])  # the states of all cells are known, and behind them the head goes on by itself
    for step, rows in enumerate(wanted):
        found = eagle.forward(ids[: n + 1 + step])[0]
        assert np.corrcoef(found, rows[-1])[0, 1] > 0.995  # weights of eight bits
    for each in (eagle, backend, small, model):
        each.close()


def write(folder: Path, head: Head) -> Path:
    """The head's file."""
    write_head(file := folder / "head.gguf", head, "a head")
    return file
