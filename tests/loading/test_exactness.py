"""The self-test finds kernels that round otherwise for wider passes; what was measured is kept, and losing it costs
nothing.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bench.instruments.shapes import FILE_TYPES, K_QUANTS, requantize, write_random
from bench.instruments.toy import ToyBackend
from runtime.backends import library
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.core.draft import NO_DRAFT, Draft, Logits, Tokens, common_prefix
from runtime.loading import profile
from runtime.loading.exactness import self_test
from runtime.loading.profile_cache import ProfileCache, fingerprint
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from tests.conftest import OpenEngine


class Rounding(ToyBackend):
    """Off by 0.01 from four rows on."""

    def forward(self, context: Tokens, draft: Draft = NO_DRAFT, exact: bool = True) -> Logits:
        logits = super().forward(context, draft, exact)
        return logits + np.float32(0.01) if len(draft) >= 3 else logits


def test_exact_kernels_are_exact_at_every_width() -> None:
    found = self_test(ToyBackend(), 9)
    assert (found.width, found.difference, found.is_exact) == (9, 0.0, True)


def test_the_first_width_that_rounds_otherwise_is_found() -> None:
    found = self_test(Rounding(), 9)
    assert (found.width, found.is_exact) == (3, False)
    assert found.difference == pytest.approx(0.01, rel=1e-3)
    assert "up to width 3 of 9" in str(found)


class RoundingPrefill(ToyBackend):
    """Off by 0.01 when more than 20 tokens are new."""

    n_held = 0

    def forward(self, context: Tokens, draft: Draft = NO_DRAFT, exact: bool = True) -> Logits:
        new, self.n_held = len(context) + len(draft) - self.n_held, len(context) + len(draft)
        return super().forward(context, draft, exact) + np.float32(0.01 * (new > 20))


def test_a_prefill_that_rounds_otherwise_is_found() -> None:
    backend = RoundingPrefill()
    backend.forward(np.zeros(20, dtype=np.int32))
    found = self_test(backend, 4, n_context=21)
    assert (found.width, found.prefill, found.is_exact) == (4, False, False)
    assert "not in prefill" in str(found)


class Tiled(ToyBackend):
    """Takes four new rows at once, off by 0.01, and what is left over one by one."""

    held: Tokens = np.zeros(0, dtype=np.int32)

    def forward(self, context: Tokens, draft: Draft = NO_DRAFT, exact: bool = True) -> Logits:
        n_new = len(context) - common_prefix(self.held, context[:-1]) + len(draft)
        self.held, logits = context, super().forward(context, draft, exact)
        n_tiled = max(0, len(logits) - n_new % 4)
        logits[:n_tiled] += np.float32(0.01 * (n_new >= 4))
        return logits


@pytest.mark.parametrize("width", [2, 3, 4, 9])
@pytest.mark.parametrize("n_context", [20, 32, 33])
def test_rows_of_a_tile_are_compared_wherever_the_context_ends(width: int, n_context: int) -> None:
    found = self_test(Tiled(), width, n_context)
    assert (found.width, found.prefill) == (min(width, 3), False)


def is_demo_exact() -> bool:
    return not library.takes_blocks()


def test_the_bundled_target_is_exact_here(open_demo: OpenEngine) -> None:
    if not is_demo_exact():
        pytest.skip("Arm's kernels for Q8_0 with dotprod alone round otherwise from four rows on")
    assert open_demo().facts.exactness.is_exact


PROMISED = """
import sys
from pathlib import Path
import numpy as np
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.core.draft import Draft
from runtime.loading.exactness import sample
from runtime.loading.profile import measured
from runtime.models.cache_layout import HALVES
model = LlamaModel(Path(sys.argv[1]), exact=sys.argv[2] == "exact")
text = sample(model.vocab, 410)
for model.cache_types in model.cache_types, HALVES:
    backend = LlamaBackend(model, 512, n_rows=9)
    backend.set_threads(1, 1)
    width = measured(backend, 9).width
    for n in 40, 400:
        backend.forward(text[: n - 1])  # so that the first row is alone as well
        alone = [backend.forward(text[: n + i])[0].copy() for i in range(width)]
        for threads in 1, 2:
            backend.set_threads(threads, threads)
            rows = backend.forward(text[:n], Draft(tuple(text[n : n + width - 1].tolist())))
            assert np.array_equal(rows, alone), (n, threads, width)
        backend.set_threads(1, 1)
    backend.close()
    print(width)
"""
CASES = [(name, layout) for name in ("Q8_0", "Q4_0", "Q4_K_M") for layout in ("fast", "exact")] + [("Q6_K", "exact")]


@pytest.mark.parametrize(("quant", "layout"), CASES)
def test_the_widths_that_are_promised_are_exact_with_any_threads(quant: str, layout: str, tmp_path: Path) -> None:
    """In processes of their own, because the kernels are chosen once per process; with the usual cache and F16, also at
    a context longer than one block of the cache.
    """
    model = write_random(tmp_path / "source.gguf", K_QUANTS)
    if quant != "Q8_0":
        model = requantize(model, FILE_TYPES[quant], tmp_path / "model.gguf")
    found = subprocess.check_output([sys.executable, "-c", PROMISED, str(model), layout], text=True).split()
    assert len(found) == 2
    odd = library.takes_pairs() or (library.takes_blocks() and quant in ("Q8_0", "Q4_0"))
    assert layout == "fast" or found == (["1", "1"] if odd else ["9", "9"])


@pytest.mark.parametrize(
    ("file_type", "is_tiled", "takes", "mixes_rows"),
    [
        ("Q8_0", True, "pairs", False),
        ("Q8_0", False, "pairs", True),
        ("Q4_1", True, "pairs", True),
        ("Q4_1", False, "", False),
        ("Q8_0", True, "blocks", False),
        ("Q8_0", False, "blocks", True),
        ("Q4_1", False, "blocks", False),
    ],
)
def test_matrices_that_take_several_rows_at_once_promise_nothing(
    file_type: str, is_tiled: bool, takes: str, mixes_rows: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the self-test finds: on Arm with i8mm, where it depends on the number of threads too, and with dotprod,
    where the self-test's texts may be too short to show it.
    """
    here = library.takes_pairs()
    monkeypatch.setattr(library, "are_tiled", lambda: is_tiled)
    monkeypatch.setattr(library, "takes_pairs", lambda: takes == "pairs")
    monkeypatch.setattr(library, "takes_blocks", lambda: takes == "blocks")
    path = write_random(tmp_path / "source.gguf", K_QUANTS)
    if file_type != "Q8_0":
        path = requantize(path, FILE_TYPES[file_type], tmp_path / "model.gguf")
    assert profile.mixes_rows(ModelFacts(read_model_header(path))) == mixes_rows
    backend = LlamaBackend(LlamaModel(path), 512, n_rows=5)
    assert (profile.measured(backend, 5).width == 1) == (mixes_rows or (here and file_type == "Q4_1"))


def test_the_memo_is_kept_per_file_and_mended_by_measuring_again(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(b"GGUF")
    before = fingerprint(model, "a")
    assert before != fingerprint(model, "b")
    memo = ProfileCache(before, tmp_path / "memo")
    assert memo.read() == {}
    memo.write({"width": 4})
    assert ProfileCache(before, tmp_path / "memo").read() == {"width": 4}
    memo.path.write_text("{broken")
    assert memo.read() == {}
    model.write_bytes(b"GGUF, longer")
    assert fingerprint(model, "a") != before


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = ProfileCache("key", tmp_path / "file" / "below")
    cache.write({"width": 4})
    assert cache.read() == {}
