"""models.toml is read strictly: every mistake names file, key and the nearest valid name."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.chats.authors import RECENT, recent_models
from app.chats.store import Store
from app.cli.choices import choose_start
from app.cli.options import ModelOptions
from runtime.core.errors import RegistryError
from runtime.models.registry import AS_TRAINED, find_pair, load_registry


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "models.toml"
    path.write_text(text, encoding="utf8")
    return path


def test_the_bundled_registry_names_files_that_exist() -> None:
    demo = load_registry()["demo"]
    assert demo.target.is_file()
    assert demo.draft is not None
    assert demo.draft.is_file()


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (
            "[pairs.x]\ntarget = 'a.gguf'\ndraught = 'b.gguf'",
            r"models.toml: \[pairs.x\]: unknown key 'draught'. Did you mean 'draft'\?",
        ),
        ("[pairs.x]\ntarget = 3", r"\[pairs.x\]: 'target' must be of type str, not int"),
        ("[pairs.x]\ntarget = 'a'\ncontext = true", r"'context' must be of type int, not bool"),
        ("[pairs.x]\ndraft = 'a'", "'target' is missing"),
        ("[pairs.x]\ntarget = 'a'\ndrafters = ['modle']", r"unknown drafter 'modle'. Did you mean 'model'\?"),
        ("[pairs.x]\ntarget = 'a'\nname = 'y'", "unknown key 'name'. A pair is named by its heading"),
        ("[pairs.x]\ntraget = 'a'", r"unknown key 'traget'. Did you mean 'target'\?"),
        ("[pairs.x]\ntarget = 'a'\ndrafters = 'model'", "'drafters' must be of type list, not str"),
        ("[pair.x]", r"unknown key 'pair'. Did you mean 'pairs'\?"),
        ("pairs = 3", "must hold tables"),
        ("[pairs", "not valid TOML"),
        ("\udcff", "it is not UTF-8 text"),
        ("[pairs.x]\ntarget = 'a'\ncontext = 0", r"'context' is 0. It must be from 16 to"),
        ("[pairs.x]\ntarget = 'a'\ntop_p = nan", r"'top_p' is nan. It must be from 0.001 to 1"),
        ("[pairs.x]\ntarget = 'a'\nsize = -1", r"'size' is -1"),
        (f"[pairs.x]\ntarget = 'a'\ncontext = {'9' * 5000}", "not valid TOML"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, match: str) -> None:
    path = tmp_path / "models.toml"
    path.write_bytes(text.encode("utf8", "surrogateescape"))
    with pytest.raises(RegistryError, match=match):
        load_registry(path)


def test_a_missing_registry_is_named(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match="cannot be read"):
        load_registry(tmp_path / "models.toml")


def test_values_are_read(tmp_path: Path) -> None:
    pair = load_registry(
        write(
            tmp_path, "[pairs.x]\ntarget = 'a.gguf'\ntemperature = 0\ndrafters = ['ngram']\ncontext = 99\nexact = true"
        )
    )["x"]
    assert pair.exact is True
    assert (pair.target, pair.draft, pair.temperature, pair.drafters, pair.context) == (
        tmp_path / "a.gguf",
        None,
        0,
        ("ngram",),
        99,
    )


def test_an_unknown_model_names_the_nearest() -> None:
    with pytest.raises(RegistryError, match=r"no model 'dmeo'. Did you mean 'demo'\?"):
        find_pair("dmeo", load_registry())
    with pytest.raises(RegistryError, match=r"Known: demo, .* and \d+ more\. A path"):
        find_pair("nothing like it", load_registry())


def test_a_path_is_a_pair_without_a_draft(tmp_path: Path) -> None:
    pair = find_pair(str(tmp_path / "some.gguf"), {})
    assert (pair.name, pair.draft) == ("some.gguf", None)


@pytest.mark.parametrize("name", ["a/" * 5000 + "x.gguf", "\0.gguf", "b" * 300 + ".gguf"])
def test_what_cannot_be_a_file_is_said_in_a_line(name: str) -> None:
    with pytest.raises(RegistryError, match="cannot be"):
        find_pair(name, {})
    with pytest.raises(RegistryError, match="There is no model"):
        find_pair("c" * 5000, {})


@pytest.fixture
def chats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Chats that loaded a/mine.gguf and a/both.gguf, b/both.gguf and a file that is gone, from another folder."""
    files = [tmp_path / name for name in ("a/mine.gguf", "a/both.gguf", "b/both.gguf", "gone.gguf")]
    for file in files[:-1]:
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"GGUF")
    store = Store(tmp_path / "chats.db")
    store.set_preference(RECENT, "\n".join(["demo", *map(str, files)]))
    store.close()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "chats.db"


@pytest.mark.parametrize("name", ["mine.gguf", "mine"])
def test_a_recently_used_file_is_found_by_its_name(chats: Path, name: str) -> None:
    pair = find_pair(name, load_registry(), recent_models(chats))
    assert (pair.name, pair.target, pair.context) == ("mine.gguf", chats.parent / "a/mine.gguf", AS_TRAINED)
    assert choose_start(name, chats, ModelOptions())[0].pair.target == pair.target


def test_a_file_in_the_current_folder_goes_before_a_recent_one(chats: Path) -> None:
    Path("mine.gguf").write_bytes(b"GGUF")
    assert find_pair("mine.gguf", {}, recent_models(chats)).target == Path("mine.gguf")


def test_a_pair_goes_before_a_recent_file_of_its_name(chats: Path) -> None:
    registry = load_registry()
    assert find_pair("demo", registry, [str(chats.parent / "a/demo.gguf")]) == registry["demo"]


def test_recent_files_of_one_name_are_named_in_full(chats: Path) -> None:
    with pytest.raises(RegistryError, match=r"called both.gguf: .*a/both.gguf, .*b/both.gguf. Write the path of one"):
        find_pair("both.gguf", {}, recent_models(chats))


def test_a_recent_file_that_is_gone_is_no_model(chats: Path) -> None:
    with pytest.raises(RegistryError, match="There is no model 'gone'"):
        find_pair("gone", load_registry(), recent_models(chats))


def test_without_chats_nothing_was_used_recently(tmp_path: Path) -> None:
    assert list(recent_models(tmp_path / "none.db")) == []
    assert not (tmp_path / "none.db").exists()
