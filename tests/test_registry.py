"""models.toml is read strictly: every mistake names file, key and the nearest valid name."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.core.errors import RegistryError
from runtime.models.registry import find_pair, load_registry


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
        ("\udcff", "not valid TOML"),
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


def test_an_unknown_pair_names_the_nearest() -> None:
    with pytest.raises(RegistryError, match=r"no pair 'dmeo'. Did you mean 'demo'\?"):
        find_pair("dmeo", load_registry())


def test_a_path_is_a_pair_without_a_draft(tmp_path: Path) -> None:
    pair = find_pair(str(tmp_path / "some.gguf"), {})
    assert (pair.name, pair.draft) == ("some.gguf", None)


@pytest.mark.parametrize("name", ["a/" * 5000 + "x.gguf", "\0.gguf", "b" * 300 + ".gguf"])
def test_what_cannot_be_a_file_is_said_in_a_line(name: str) -> None:
    with pytest.raises(RegistryError, match="cannot be"):
        find_pair(name, {})
    with pytest.raises(RegistryError, match="There is no pair"):
        find_pair("c" * 5000, {})
