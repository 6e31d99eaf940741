"""Which files are LoRA adapters of a model, how they are named, and how others are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer

from app.cli.choices import with_adapters
from bench.instruments.shapes import TINY
from runtime.backends.model import LlamaModel
from runtime.core.errors import ModelError, RegistryError
from runtime.engine import Options
from runtime.loading.planning import pair_spec
from runtime.models.adapters import Adapter, adapter_of, check_adapters, titles, told
from runtime.models.header import read_header
from runtime.models.hub.names import HubError
from runtime.models.registry import Pair, find_pair, parse_registry, titled
from tests.support.adapters import write_adapter, write_base


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("adapted") / "base.gguf")


@pytest.fixture(scope="module")
def first(base: Path) -> Path:
    return write_adapter(base.with_name("first.gguf"))


@pytest.mark.parametrize(
    ("names", "changed", "said"),
    [
        (None, {"general.architecture": "qwen2"}, "for the architecture 'qwen2', and base.gguf has 'llama'"),
        (None, {"adapter.type": "other"}, "is an adapter of the kind 'other': only 'lora' can be used"),
        (None, {"general.type": "model", "adapter.type": None}, "is a model, not a LoRA adapter"),
        (None, {"adapter.lora.alpha": "much"}, "adapter.lora.alpha is no number"),
        (None, {"adapter.alora.invocation_tokens": [1, 2]}, "is an activated LoRA"),
        ([], {}, "it has no matrices"),
    ],
)
def test_what_is_no_adapter_of_the_model_is_refused_in_a_sentence(
    base: Path, tmp_path: Path, names: list[str] | None, changed: dict[str, object], said: str
) -> None:
    path = write_adapter(tmp_path / "wrong.gguf", names=names, changed=changed)
    with pytest.raises(ModelError) as caught:
        check_adapters([Adapter(path)], base)
    assert said in str(caught.value)
    assert str(caught.value).endswith(".")


def test_an_adapter_of_another_size_is_refused_by_the_tensor_that_does_not_fit(base: Path, tmp_path: Path) -> None:
    wide = write_adapter(tmp_path / "wide.gguf", names=["blk.0.ffn_up.weight"], shape=replace(TINY, ffn=256))
    deep = write_adapter(tmp_path / "deep.gguf", names=["blk.3.attn_q.weight"], shape=replace(TINY, layers=4))
    for path, said in (
        (wide, "its 64 x 8 and 8 x 256 are for another tensor than blk.0.ffn_up.weight, 64 x 128"),
        (deep, "it adapts blk.3.attn_q.weight, which the model lacks"),
    ):
        with pytest.raises(ModelError) as caught:
            LlamaModel(base).load_adapters([Adapter(path)])
        assert said in str(caught.value)


def test_values_that_cannot_be_multiplied_by_are_refused(base: Path, tmp_path: Path) -> None:
    """With F64, llama.cpp's process ends at the first pass."""
    path = write_adapter(tmp_path / "double.gguf", names=["blk.0.attn_q.weight"], kind=np.float64)
    with pytest.raises(ModelError, match=r"blk.0.attn_q.weight.lora_a has values of the type F64"):
        check_adapters([Adapter(path)], base)


def test_other_files_are_told_what_they_are(base: Path, first: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.gguf"
    text.write_text("no")
    for path, said in (
        (tmp_path / "none.gguf", "There is no adapter"),
        (text, "text.gguf is not a GGUF file"),
        (tmp_path, "cannot be read"),
        (base, "base.gguf is a model, not a LoRA adapter"),
    ):
        with pytest.raises(ModelError, match=said):
            check_adapters([Adapter(path)], base)
    with pytest.raises(ModelError, match=r"first.gguf is a LoRA adapter, not a model. .* `--lora first.gguf`"):
        LlamaModel(first)


def test_a_scale_follows_the_name(tmp_path: Path) -> None:
    assert adapter_of("a.gguf") == (Path("a.gguf"), 1.0)
    assert adapter_of("a.gguf=-0.5", tmp_path) == (tmp_path / "a.gguf", -0.5)
    (tmp_path / "a=b.gguf").touch()
    assert adapter_of("a=b.gguf", tmp_path) == (tmp_path / "a=b.gguf", 1.0)
    for wrong in ("a.gguf=", "a.gguf=much", "a.gguf=nan", "a.gguf=1e999"):
        with pytest.raises(ValueError, match=r"is no number. Write a.gguf=0.5, or leave it out."):
            adapter_of(wrong)


def test_names_are_those_of_files_and_differ() -> None:
    assert titles([Adapter(Path("a/x.gguf")), Adapter(Path("b/x.gguf")), Adapter(Path("y.gguf"))]) == ["x", "x-2", "y"]


def test_a_pair_names_its_adapters(tmp_path: Path) -> None:
    text = b'[pairs.own]\ntarget = "m.gguf"\nlora = ["a.gguf", "b.gguf=0.5", "hf:o/r:f.gguf=2"]\n'
    (tmp_path / "models.toml").write_bytes(text)
    pair = parse_registry([(tmp_path / "models.toml", text)] * 2)["own"]
    from_hub = Adapter(Path("hf:o/r:f.gguf"), 2.0)
    assert pair.lora == (Adapter(tmp_path / "a.gguf"), Adapter(tmp_path / "b.gguf", 0.5), from_hub)
    assert pair.files == [tmp_path / "m.gguf", *(each.path for each in pair.lora)]
    with pytest.raises(HubError, match="Fetch it with `slipstream models pull own`"):
        find_pair("own", {"own": pair})
    for wrong in (b'lora = ["a=x"]', b"lora = [1]", b'lora = "a.gguf"'):
        with pytest.raises(RegistryError, match="lora"):
            parse_registry([(tmp_path / "models.toml", b'[pairs.own]\ntarget = "m.gguf"\n' + wrong)])


def test_the_plan_counts_them(base: Path, first: Path) -> None:
    plain, adapted = (
        pair_spec(Pair("any", base, lora=lora), Options(256), with_draft=False) for lora in ((), (Adapter(first),))
    )
    assert plain
    assert adapted
    n = sum(tensor.n_bytes for tensor in read_header(first).tensors)
    assert adapted.needs(256, False) - plain.needs(256, False) == n > 0


def test_the_command_line_replaces_those_of_the_pair() -> None:
    pair = Pair("any", Path("m.gguf"), lora=(Adapter(Path("a.gguf")),))
    assert with_adapters(pair, None) == pair
    assert with_adapters(pair, ["b.gguf=0.5", "c.gguf"]).lora == (Adapter(Path("b.gguf"), 0.5), Adapter(Path("c.gguf")))
    assert with_adapters(pair, ["off"]).lora == with_adapters(pair, ["none"]).lora == ()
    with pytest.raises(HubError, match=r"models pull o/r:f\.gguf"):
        with_adapters(pair, ["hf:o/r:f.gguf=0.5"])
    with pytest.raises(typer.BadParameter, match=r"the scale of b.gguf is 'x', which is no number"):
        with_adapters(pair, ["b.gguf=x"])
    far = replace(pair, target=Path(), upstream="http://far", lora=())
    with pytest.raises(typer.BadParameter, match="http://far has the model, so no adapter can be used here"):
        with_adapters(far, ["b.gguf"])


def test_a_title_names_those_that_are_on() -> None:
    known = [Adapter(Path("formal.gguf")), Adapter(Path("terse.gguf"), 0.5), Adapter(Path("off.gguf"), 0.0)]
    assert titled(Pair("demo", Path("m.gguf"), lora=tuple(known))) == "demo + formal, terse × 0.5"
    assert titled(Pair("demo", Path("m.gguf"), lora=(known[2],))) == "demo"
    assert told(known, with_off=True) == "formal, terse × 0.5, off (off)"
