"""Weights lie in the fast layout unless the exact one costs next to nothing, which a trial beside the replies shows."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from app.models import pair as command
from app.models import seeking
from bench.instruments.architectures.writer import write_family
from bench.instruments.shapes import FILE_TYPES, K_QUANTS, requantize, write_random
from bench.instruments.toy import facts
from runtime.backends import library
from runtime.backends.model import LlamaModel, patterns
from runtime.core.children import Child
from runtime.engine import Ids, Options, Sampling
from runtime.engine.engine import Ask
from runtime.engine.loaded import LoadedEngine
from runtime.engine.output import ignore
from runtime.engine.process.client import EngineProcess
from runtime.loading import layout
from runtime.loading.exactness import Exactness
from runtime.loading.layout import WIDTH, LayoutTrial, compare
from runtime.models.header import TensorInfo, read_header
from runtime.models.registry import Pair
from runtime.speculative.step import Widths
from tests.training.test_seeking import child

FREE = LayoutTrial(1, 13, 13, 0.98, 0.96)


@pytest.fixture(scope="module")
def k_quants(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    source = write_random(folder / "source.gguf", K_QUANTS)
    return requantize(source, FILE_TYPES["Q4_K_M"], folder / "model.gguf")


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing remembered, and the process's kernels as they are."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(library, "prefer_exact", lambda: None)


@pytest.mark.parametrize(
    ("trial", "is_taken"),
    [
        (FREE, True),
        (replace(FREE, plain=0.9), False),
        (replace(FREE, prefill=0.5), False),
        (replace(FREE, exact_width=1), False),
    ],
)
def test_the_exact_layout_is_taken_where_it_gives_something_and_costs_next_to_nothing(
    trial: LayoutTrial, is_taken: bool, k_quants: Path, alone: None
) -> None:
    layout.remember(k_quants, trial)
    assert not layout.prefers_exact(k_quants)  # no reply has a seed
    layout.note_seed(k_quants)
    assert layout.prefers_exact(k_quants) == is_taken


@pytest.mark.parametrize(
    ("options", "pair", "is_exact"),
    [
        (Options(), {}, True),
        (Options(fast=True), {}, False),
        (Options(), {"fast": True}, False),
        (Options(exact=True, fast=True), {}, True),
    ],
)
def test_what_was_asked_for_goes_before_what_was_measured(
    options: Options,
    pair: dict[str, bool],
    is_exact: bool,
    k_quants: Path,
    alone: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layout.remember(k_quants, FREE)
    layout.note_seed(k_quants)
    seen = list[bool]()
    real = LlamaModel.__init__

    def note(model: LlamaModel, path: Path, *args: object) -> None:
        seen.append(bool(args[2]))  # the parameter `exact`
        real(model, path, *args)  # type: ignore[arg-type]  # handed through as they are

    monkeypatch.setattr(LlamaModel, "__init__", note)
    LoadedEngine(Pair("x", k_quants, **pair), replace(options, threads=1)).close()
    assert seen == [is_exact]


@pytest.mark.parametrize(
    ("options", "pair", "widths"),
    [
        (Options(), {}, Widths.PREFER_EXACT),  # in the exact layout, which is taken unasked
        (Options(exact=True), {}, Widths.EXACT),
        (Options(), {"exact": True}, Widths.EXACT),
    ],
)
def test_temperature_0_keeps_to_exact_passes_where_that_was_asked_for(
    options: Options, pair: dict[str, bool], widths: Widths, k_quants: Path, alone: None
) -> None:
    layout.remember(k_quants, FREE)
    layout.note_seed(k_quants)
    engine = LoadedEngine(Pair("x", k_quants, **pair), replace(options, threads=1))
    *_, last = engine.reply("a", Sampling(temperature=0), 2)
    engine.close()
    assert last.stats is not None
    assert last.stats.widths is widths


def test_a_plain_reply_says_what_exact_would_give(k_quants: Path, alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.loading.profile.self_test", lambda *args, **kwargs: Exactness(1, WIDTH, 0.1))
    said = []
    for trial in (None, replace(FREE, plain=0.73), replace(FREE, exact_width=1)):
        if trial:
            layout.remember(k_quants, trial)
        engine = LoadedEngine(Pair("x", k_quants), Options(threads=1))
        assert engine.facts.could_be_exact == (trial is None)
        *_, last = engine.reply("a", Sampling(temperature=0, seed=1), 8)
        assert last.stats is not None
        assert last.stats.reason is not None
        said.append(last.stats.reason.text)
        engine.close()
    assert said[0].endswith("`--exact` allows drafts where the kernels can be exact")
    assert "it could draft 12 tokens at a time, at 0.73 times the speed of plain decode" in said[1]
    assert said[2].endswith("`--exact` would change nothing: its kernels are no more exact here")


def test_a_trial_asks_the_second_layout_only_where_the_first_is_not_exact(tiny: Path, k_quants: Path) -> None:
    assert compare(tiny) == LayoutTrial(WIDTH, WIDTH, WIDTH, 1.0, 1.0)
    found = compare(k_quants)
    assert found.exact_width == WIDTH
    assert found.plain > 0
    assert found.prefill > 0


def test_a_trial_of_a_broken_file_says_so_and_ends_its_processes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF")
    command.settle_layout(broken)
    assert "could not be compared" in capsys.readouterr().err
    assert layout.remembered(broken) is None


def test_the_search_begins_for_a_layout_that_was_not_tried(
    k_quants: Path, alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, said = list[Path](), list[str]()

    def start(target: Path, tries_drafts: bool) -> Child:
        assert not tries_drafts
        begun.append(target)
        return child("")

    monkeypatch.delenv(seeking.OPT_OUT)
    monkeypatch.setattr(seeking, "start", start)
    search = seeking.Search(k_quants, said.append, wants_draft=False, tries_layout=True)
    search.begin()
    assert not begun  # no reply had a seed
    layout.note_seed(k_quants)
    search.begin()
    search.stop()
    assert said == [
        "Tried for model.gguf in the background: another layout of its weights. The next start uses what pays."
    ]
    layout.remember(k_quants, FREE)
    search.begin()
    assert begun == [k_quants]


def test_a_trial_is_made_once_a_reply_has_a_seed(k_quants: Path, alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = list[Path]()
    monkeypatch.delenv(seeking.OPT_OUT)
    monkeypatch.setattr(seeking, "start", lambda target, _: begun.append(target) or child(""))
    monkeypatch.setattr(EngineProcess, "__init__", lambda self, pair, *how: setattr(self, "pair", pair))
    monkeypatch.setattr(EngineProcess, "add", lambda self, ask, sink: 1)
    could_be = facts(could_be_exact=True, exactness=Exactness(1, WIDTH, 0.1))
    monkeypatch.setattr(seeking.SeekingEngine, "facts", could_be, raising=False)
    engine = seeking.SeekingEngine(Pair("x", k_quants), Options(drafters=("ngram",)))
    assert engine._search is not None
    for seed, n in ((None, 0), (3, 1)):
        engine.add(Ask(Ids((1,)), Sampling(temperature=0, seed=seed)), ignore)
        engine._search.begin()
        engine._search.stop()
        assert len(begun) == n
        assert layout.has_seeds(k_quants) == bool(n)


def test_weights_put_into_the_repacked_layout_by_name_are_as_the_library_would_have_them(
    k_quants: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
import sys
from pathlib import Path
import numpy as np
from runtime.backends import library
if sys.argv[2] == "by name":
    library.has_amx = lambda: True
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.core.children import Child
backend = LlamaBackend(LlamaModel(Path(sys.argv[1])), 256)
backend.set_threads(1, 1)
print(backend.forward(np.arange(4, 60, dtype=np.int32)).tobytes().hex())
"""
    logits = [
        subprocess.check_output([sys.executable, "-c", code, str(k_quants), how], text=True)
        for how in ("by itself", "by name")
    ]
    assert logits[0] == logits[1]


def test_only_what_the_layout_supports_is_named() -> None:
    def tensor(name: str, kind: str = "Q4_K", shape: tuple[int, ...] = (256, 64)) -> TensorInfo:
        return TensorInfo(name, shape, kind, 0, 1)

    tensors = [
        tensor("token_embd.weight"), tensor("output.weight"), tensor("output_norm.weight", "F32", (256,)),
        *(tensor(f"blk.{i}.attn_q.weight") for i in range(3)), tensor("blk.1.ffn_down.weight", "Q6_K"),
        tensor("blk.2.ffn_down.weight"), tensor("blk.0.attn_k.weight", shape=(256, 60)),
        tensor("blk.0.ffn_up_exps.weight", shape=(256, 64, 4)), tensor("blk.0.attn_k_b.weight", shape=(256, 64, 4)),
    ]  # fmt: skip
    assert patterns(tensors) == [
        r"^output\.weight$",
        r"^blk\.(0|1|2)\.attn_q\.weight$",
        r"^blk\.(2)\.ffn_down\.weight$",
        r"^blk\.(0)\.ffn_up_exps\.weight$",
    ]


def test_float_matrices_make_wide_passes_inexact_whatever_the_self_test_saw(tmp_path: Path) -> None:
    moe = write_family("qwen3moe", tmp_path)
    engine = LoadedEngine(Pair("x", moe), Options(threads=1, n_ctx=256))
    assert engine.facts.exactness.width == 1
    assert "sometimes round differently" in str(engine.facts.exactness) or engine.facts.exactness.difference > 0
    engine.close()
    assert read_header(moe).tensors
