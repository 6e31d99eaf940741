"""The models that are found on a machine, and what is said of them before they are loaded."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from app.models import library, prospects
from app.models.library import Model, all_models
from app.models.prospects import FITS, FITS_ALONE, TOO_LARGE, Machine, Prospect, demands, layer_seconds, prospect
from app.tui.actions.offering import by_size
from runtime.engine import machine
from runtime.loading import profile_cache
from runtime.loading.profile_cache import ProfileCache
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.hub.cache import CachedFile, Unfinished
from runtime.models.registry import Pair, load_registry

DEMO = load_registry()["demo"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of one's own, without a cache of the hub."""
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.delenv("LLAMA_CACHE", raising=False)
    monkeypatch.delenv("OLLAMA_MODELS", raising=False)
    monkeypatch.setattr(library, "SYSTEM_WIDE", tmp_path / "no ollama")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(library, "cached", list)
    monkeypatch.setattr(library, "unfinished", list)
    return tmp_path


def place(path: Path, n_bytes: int = 4) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(n_bytes))
    return path


def files(models: list[Model]) -> dict[str, int]:
    return {each.title: each.size for each in models if each.name != each.title}


def test_models_are_found_where_programs_and_people_put_them(home: Path) -> None:
    place(home / ".lmstudio/models/owner/repo/a.gguf")
    place(home / ".cache/llama.cpp/b.gguf")
    place(home / "models/deep/er/c-00001-of-00002.gguf", 3)
    place(home / "models/deep/er/c-00002-of-00002.gguf", 5)
    place(home / "d.gguf")
    place(home / "models/mmproj-of-pictures.gguf")
    place(home / "models/.hidden/e.gguf")
    place(home / "other/f.gguf")
    assert files(all_models()) == {"a.gguf": 4, "b.gguf": 4, "c-00001-of-00002.gguf": 8, "d.gguf": 4}


def test_a_file_is_listed_once_by_the_name_that_the_hub_has_for_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blob = place(home / ".cache/huggingface/blob.gguf")
    link = home / "models/blob.gguf"
    link.parent.mkdir()
    link.symlink_to(blob)
    monkeypatch.setattr(library, "cached", lambda: [CachedFile("owner/repo", "blob.gguf", blob, 4)])
    others = [each.name for each in all_models([str(link)]) if each.name != each.title]
    assert others == ["hf:owner/repo:blob.gguf"]


def test_an_unfinished_download_is_a_share_of_its_pair_or_a_model_of_its_own(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = load_registry()["qwen2.5-7b"]
    loose = Unfinished("hf:owner/repo:folder/a.gguf", 1, 4)
    monkeypatch.setattr(library, "unfinished", lambda: [Unfinished(pair.target.as_posix(), pair.size // 4, 9), loose])
    found = {each.name: (each.title, each.fetched, each.is_here) for each in all_models() if each.n_here}
    assert found == {"qwen2.5-7b": ("qwen2.5-7b", "25%", False), loose.name: ("a.gguf", "25%", False)}


def test_what_was_used_lately_is_found_wherever_it_is_and_left_out_once_it_is_gone(home: Path) -> None:
    elsewhere = place(home / "other/f.gguf")
    assert "f.gguf" in files(all_models([str(elsewhere), str(home / "gone.gguf")]))
    assert "gone.gguf" not in files(all_models([str(home / "gone.gguf")]))


def test_other_models_in_the_folder_of_one_that_was_used_are_found(home: Path) -> None:
    elsewhere = place(home / "other/f.gguf")
    place(home / "other/g.gguf")
    place(home / "other/deeper/h.gguf")
    assert list(files(all_models([str(elsewhere), "demo"]))) == ["f.gguf", "g.gguf"]


def test_a_measured_bandwidth_is_remembered_and_fades_slowly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(prospects, "bandwidth_memo", lambda: ProfileCache("bandwidth", tmp_path))
    assert prospects.remembered_machine() == Machine()
    for measured, remembered in ((50e9, 50e9), (10e9, 45e9), (48e9, 48e9)):
        monkeypatch.setattr(machine, "memory_bandwidth", lambda measured=measured: measured)
        prospects.bandwidth.cache_clear()
        assert prospects.this_machine().bandwidth == remembered
        assert prospects.remembered_machine().bandwidth == remembered
    prospects.bandwidth.cache_clear()


def test_folders_that_cannot_be_read_are_passed_over(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place(home / "models/a.gguf")

    def refuse(path: Path) -> None:
        raise PermissionError

    monkeypatch.setattr(library.os, "scandir", refuse)
    assert files(all_models()) == {}


def test_the_bundled_pair_is_here_and_its_demands_are_those_of_its_headers(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile_cache, "memo", lambda: ProfileCache("speeds", home))
    model = next(each for each in all_models() if each.name == "demo")
    found = prospect(model)
    assert model.is_here
    assert model.size == DEMO.target.stat().st_size + DEMO.draft.stat().st_size  # type: ignore[union-attr]
    assert found.read == ModelFacts(read_model_header(DEMO.target)).n_bytes_per_token
    assert found.needed - found.without_draft == demands(DEMO.draft).needed > 0  # type: ignore[arg-type]
    assert found.per_second(Machine(1e9, cached=0)) == pytest.approx(1e9 / found.read)


def test_a_measured_speed_is_told_instead_of_an_estimate(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile_cache, "memo", lambda: ProfileCache("speeds", tmp_path))
    model = next(each for each in all_models() if each.name == "demo")
    assert layer_seconds(1e9) == prospect(model).step_seconds == 0.0
    profile_cache.record(DEMO.target, 0.2)
    profile_cache.record(DEMO.target, 0.1)
    found = prospect(model)
    assert found.per_second(Machine(1e9)) == pytest.approx(10)
    layer = (0.1 - found.read / 1e9) / found.n_layers
    assert layer_seconds(1e9) == pytest.approx(layer)
    other = Prospect(read=found.read, n_layers=2 * found.n_layers)
    assert other.per_second(Machine(1e9, layer, cached=0)) == pytest.approx(1 / (0.1 + layer * found.n_layers))
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(b"one")
    profile_cache.record(copy, 0.5)
    copy.write_bytes(b"another")
    assert copy not in profile_cache.measured()
    assert Prospect().per_second(Machine(1e9, 1.0)) == other.per_second(Machine(1e9, layer)) == 0.0


def test_what_fits_is_told_by_the_memory_that_is_free() -> None:
    found = Prospect(needed=100, without_draft=80)
    assert [found.fit(free) for free in (100, 99, 79)] == [FITS, FITS_ALONE, TOO_LARGE]
    assert Prospect(needed=100, without_draft=100).fit(99) == TOO_LARGE
    assert Prospect().fit(99) == ""


def test_of_a_mixture_of_experts_a_token_reads_a_share() -> None:
    whole = Pair("x", Path("hf:o/r:x.gguf"), size=1000)
    mixed = Pair("y", Path("hf:o/r:y.gguf"), size=1000, share_read=0.2)
    assert [prospect(Model(each.name, each, False, each.size)).read for each in (whole, mixed)] == [1000, 200]


def test_a_file_that_is_no_model_says_so(home: Path) -> None:
    path = place(home / "models/a.gguf")
    model = next(each for each in all_models() if each.title == "a.gguf")
    assert str(path) in prospect(model).refusal or "a.gguf" in prospect(model).refusal


def test_models_to_fetch_are_offered_by_the_memory_there_is() -> None:
    sizes = {"small": 1, "middling": 3, "large": 6, "huge": 50}
    assert by_size(sizes, 10) == ["small", "middling", "large"]
    assert by_size(sizes, 3) == ["small"]
    assert by_size(sizes, 1) == []


def test_the_search_ends_though_a_link_leads_back(home: Path) -> None:
    place(home / "models/a.gguf")
    (home / "models/again").symlink_to(home / "models")
    assert files(all_models()) == {"a.gguf": 4}


def test_ollamas_models_have_the_names_that_it_gives_them(home: Path) -> None:
    blob = place(home / ".ollama/models/blobs/sha256-abc")
    layers = [{"mediaType": "other", "digest": "sha256:1"}, {"mediaType": library.MODEL, "digest": "sha256:abc"}]
    folder = home / ".ollama/models/manifests/registry.ollama.ai/library/llama3.2"
    folder.mkdir(parents=True)
    for name, text in {"3b": json.dumps({"layers": layers}), "damaged": "{", "odd": "[]", "gone": "{}"}.items():
        (folder / name).write_text(text)
    found = [each for each in all_models() if each.pair.target == blob]
    assert [(each.title, each.name) for each in found] == [("llama3.2:3b", str(blob))]
    assert library.ollama_name(blob) == "llama3.2:3b"
    assert library.ollama_name(home / "other/sha256-abc") == ""


def test_a_slow_disk_is_not_waited_for(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place(home / "models/a.gguf")
    place(home / "models/b.gguf")
    clock = itertools.count(step=1.5)
    monkeypatch.setattr(library.time, "monotonic", lambda: next(clock))
    assert files(all_models()) == {"a.gguf": 4}


def test_a_server_that_was_used_lately_is_listed_and_nothing_is_known_of_its_model(home: Path) -> None:
    place(home / "a.gguf")
    names = ["http://127.0.0.1:8012", "https://far.example/v1#big"]
    servers = [each for each in all_models([*names, str(home / "a.gguf")]) if each.pair.upstream]
    assert [each.name for each in servers] == names
    assert {prospect(each) for each in servers} == {Prospect()}
    assert [servers[0].is_among([name]) for name in (*names, str(home))] == [True, False, False]
    assert prospect(library.of_loaded(servers[0].pair)) == Prospect()
