"""The cache that a header promises is the one that the library makes, of every family."""

from __future__ import annotations

import re
from pathlib import Path

import llama_cpp.llama_cpp as lib
import pytest

from bench.instruments.architectures.families import TEXT
from bench.instruments.architectures.writer import write_family
from runtime.backends import library
from runtime.backends.contexts import open_backend
from runtime.backends.model import LlamaModel
from runtime.loading.footprint import ContextSpec, estimate
from runtime.models.cache_layout import cache_types
from runtime.models.facts import ModelFacts
from runtime.models.header import read_header
from tests.support import quick
from tests.support.quick import others_slow

N_CTX, N_ROWS, N_BATCH = 8192, 5, 512
MIB = 2**20
BUFFER = re.compile(r"(?:KV|RS|state) buffer size = +([\d.]+) MiB")


@pytest.fixture(scope="module", params=others_slow(TEXT, quick.FAMILIES))
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family(request.param, tmp_path_factory.mktemp("families"))


def allocated(path: Path, is_frugal: bool) -> tuple[float, int]:
    """Bytes of the buffers that the library says it makes for a context's cache, and how many they are."""
    model, lines = LlamaModel(path), list[str]()
    log = lib.llama_log_callback(lambda level, text, data: lines.append(text.decode("utf8", "replace")))
    lib.llama_log_set(log, None)
    try:
        open_backend(model, N_CTX, N_ROWS, N_BATCH, is_frugal=is_frugal).close()
    finally:
        lib.llama_log_set(library.on_log, None)
        model.close()
    sizes = [float(size) for line in lines for size in BUFFER.findall(line)]
    return sum(sizes) * MIB, len(sizes)


@pytest.mark.parametrize("is_frugal", [False, True], ids=["ample", "frugal"])
def test_the_cache_is_estimated_within_a_twentieth(file: Path, is_frugal: bool) -> None:
    facts = ModelFacts(read_header(file))
    n_snapshots = 0 if is_frugal else N_ROWS - 1
    spec = ContextSpec(N_CTX, cache_types(facts), N_ROWS, N_BATCH, n_snapshots=n_snapshots, is_windowed=is_frugal)
    size, n_buffers = allocated(file, is_frugal)
    rounding = 0.005 * MIB * n_buffers  # of the log's two digits
    assert estimate(facts, spec).cache == pytest.approx(size, rel=0.05, abs=rounding)


def test_layers_that_only_draft_are_neither_loaded_nor_counted(tmp_path: Path) -> None:
    facts = ModelFacts(read_header(write_family("qwen35mtp", tmp_path)))
    drafting = [tensor.n_bytes for tensor in facts.header.tensors if tensor.name.startswith("blk.4.")]
    assert (facts.n_layers, facts.n_trunk_layers) == (5, 4)
    assert facts.n_bytes_loaded == facts.n_bytes - sum(drafting) < facts.n_bytes
