"""The models that a server of several offers, and their names."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from app.cli.options import ModelOptions
from app.cli.serve import SeveralOptions
from app.cli.several import ServedChoice, seconds_of
from app.models.library import Model, of_file
from app.server.known_models import offered
from app.server.policy import ServerPolicy
from app.server.served_models import ServedModels
from runtime.engine import Options
from runtime.models.registry import Pair, load_registry

HERE = Path(__file__).parents[2]


def file(folder: Path, name: str) -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(name.encode())
    return path


def names(offers: object) -> list[tuple[str, ...]]:
    return [each for each, _ in offers]  # type: ignore[attr-defined]


def test_a_file_is_known_with_and_without_quantization_and_one_of_the_hub_by_its_name_there(tmp_path: Path) -> None:
    found = of_file("hf:org/repo:Qwen3-4B-Q4_K_M.gguf", file(tmp_path, "Qwen3-4B-Q4_K_M.gguf"))
    assert names(offered([], [found])) == [
        ("Qwen3-4B", "Qwen3-4B-Q4_K_M", "Qwen3-4B-Q4_K_M.gguf", "hf:org/repo:Qwen3-4B-Q4_K_M.gguf"),
    ]


def test_no_two_models_have_one_name(tmp_path: Path) -> None:
    for name in ("a/m-Q4_0.gguf", "a/m-Q8_0.gguf", "b/m-Q4_0.gguf"):
        file(tmp_path, name)
    pair = Pair("M", tmp_path / "pair.gguf")
    found = names(offered([tmp_path], [Model("M", pair, True, 0)]))
    assert found == [("M",), ("m-Q4_0", "m-Q4_0.gguf"), ("m-Q8_0", "m-Q8_0.gguf"), ("b/m-Q4_0.gguf",)]


def test_what_is_not_here_or_elsewhere_is_left_out_and_a_file_is_offered_once(tmp_path: Path) -> None:
    path = file(tmp_path, "m.gguf")
    far = Model("x", Pair("x", Path("x"), upstream="http://127.0.0.1:1/v1"), True, 0)
    absent = Model("y", Pair("y", Path("hf:a/b:y.gguf")), False, 0)
    assert names(offered([tmp_path, tmp_path], [far, absent, of_file(str(path), path)])) == [("m", "m.gguf")]


def test_named_models_and_folders_are_offered_together(tmp_path: Path) -> None:
    file(tmp_path, "more.gguf")
    found = ServedChoice.of(["demo", str(HERE / "demo/draft.gguf")], SeveralOptions(models=[tmp_path], keep="DRAFT"))
    assert names(found.offers) == [("demo",), ("draft", "draft.gguf"), ("more", "more.gguf")]


def test_of_several_the_draft_model_of_a_pair_answers_to_its_own_name(tmp_path: Path) -> None:
    demo = Model("demo", load_registry()["demo"], True, 0)
    assert names(offered([], [demo])) == [("demo",)]
    file(tmp_path, "more.gguf")
    assert names(offered([tmp_path], [demo])) == [("demo",), ("more", "more.gguf"), ("draft", "draft.gguf")]


def test_a_single_model_has_its_own_or_the_given_names() -> None:
    found = ServedChoice.of([str(HERE / "demo/draft.gguf")], SeveralOptions())
    assert found.only_names((), ModelOptions("off"), has_trace=True) == ("draft", "draft.gguf")
    assert found.only_names(("gpt-4o", "x"), ModelOptions(), has_trace=False) == ("gpt-4o", "x")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (SeveralOptions(models=[Path("/nowhere")]), "/nowhere is not a folder. Name one with GGUF files."),
        (SeveralOptions(keep="demo,dramo"), "There is no model 'dramo' here. Did you mean 'demo'?"),
        (SeveralOptions(keep_alive="soon"), "'soon' is no duration. Write seconds, or a text like 10m or 1h30m."),
    ],
)
def test_what_cannot_be_is_told_with_a_remedy(options: SeveralOptions, said: str) -> None:
    with pytest.raises(typer.BadParameter) as caught:
        ServedChoice.of(["demo"], options)
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("alias", "draft", "trace"), [(("x",), "auto", False), ((), "d.gguf", False), ((), "off", True)]
)
def test_options_of_one_model_are_refused_for_several(alias: tuple[str, ...], draft: str, trace: bool) -> None:
    found = ServedChoice.of(["demo", str(HERE / "demo/draft.gguf")], SeveralOptions())
    with pytest.raises(typer.BadParameter, match="2 models are served, and it is for one"):
        found.only_names(alias, ModelOptions(draft), has_trace=trace)


@pytest.mark.parametrize(
    ("text", "seconds"), [("", None), ("-1", None), ("0", 0.0), ("1h30m", 5400.0), ("90", 90.0), ("9" * 40, None)]
)
def test_durations(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


def test_several_are_served_under_their_names_with_what_stays(tmp_path: Path) -> None:
    found = ServedChoice.of(["demo", str(HERE / "demo/draft.gguf")], SeveralOptions(keep="demo", keep_alive="5m"))
    source = found.source(lambda *given: given, lambda pair: (pair, Options()), ServerPolicy())  # type: ignore[arg-type, return-value]
    assert isinstance(source, ServedModels)
    assert [(each.name, each.stays, each.keep_alive) for each in source.models] == [
        ("demo", True, 300.0), ("draft", False, 300.0),
    ]  # fmt: skip
