"""What a model's file recommends for sampling is used where the registry names nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from runtime.core.errors import RegistryError
from runtime.core.rare_sampling import RareSampling
from runtime.engine import sampling_of
from runtime.models.header import Header
from runtime.models.pair_values import sampling_in, settings_of
from runtime.models.registry import Pair, find_pair, load_registry, parse_registry

KEY = "general.sampling."


def header(**values: object) -> Header:
    return Header({f"{KEY}{name}": value for name, value in values.items()}, (), 0)  # type: ignore[misc]


def test_valid_numbers_are_taken_as_short_decimals_and_others_left_out() -> None:
    assert settings_of(header(temp=0.6000000238, top_k=20, top_p=0.949999988, min_p=0.0)) == {
        "temperature": 0.6,
        "top_k": 20,
        "top_p": 0.95,
        "min_p": 0.0,
    }
    assert settings_of(header(temp=float("nan"), top_k="20", top_p=3.0, min_p=True)) == {}


def test_a_file_that_cannot_be_read_recommends_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    assert sampling_in(tmp_path / "x.gguf") == sampling_in(tmp_path / "none.gguf") == {}


def test_the_registry_goes_before_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.models.registry.sampling_in", lambda target: {"temperature": 0.6, "top_k": 20})
    registry = load_registry()
    demo = find_pair("demo", registry)
    assert (demo.temperature, demo.top_k) == (0.0, 20)
    assert {"temperature", "top_k", "context"} <= set(demo.named)
    assert "top_p" not in demo.named
    alone = find_pair(str(demo.target), registry)
    assert (alone.temperature, alone.top_k, alone.top_p) == (0.6, 20, 0.95)
    assert replace(demo, named=()) == demo


def test_rare_samplers_of_a_file_are_used_one_by_one_where_they_are_valid() -> None:
    found = settings_of(
        header(
            xtc_probability=0.5, xtc_threshold=7.0, mirostat=2, mirostat_tau=4.0, mirostat_eta="x", penalty_last_n=-1,
            penalty_repeat=1.100000023, sequence="penalties;temperature;top_k",
        )
    )  # fmt: skip
    assert found == {
        "repetition_penalty": 1.1,
        "penalty_last_n": -1,
        "sampling": RareSampling(
            xtc_probability=0.5, mirostat=2, mirostat_tau=4.0, samplers=("penalties", "temperature", "top_k")
        ),
    }
    assert settings_of(header(mirostat=1, sequence="penalties;magic", xtc_probability=True)) == {}


def test_a_pair_has_them_in_a_table(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"

    def pair(table: str) -> Pair:
        file.write_text(f'[pairs.a]\ntarget = "a.gguf"\n{table}')
        return load_registry(file)["a"]

    found = pair(
        "repetition_penalty = 1.2\nsampling = {dry_multiplier = 1, dry_sequence_breakers = ['x'], samplers = 'km'}"
    )
    sampling = sampling_of(found.sampling_defaults)
    assert (sampling.repetition_penalty, sampling.rare.dry_multiplier) == (1.2, 1.0)
    assert (sampling.rare.dry_sequence_breakers, sampling.rare.samplers) == (("x",), ("top_k", "min_p"))
    assert hash(found) == hash(pair(file.read_text().partition('gguf"\n')[2]))
    for table, words in (
        ("{xtc_chance = 1}", "'xtc_chance'.* Did you mean"),
        ("{mirostat = 1}", "Use 2"),
        ("3", "sampling"),
    ):
        with pytest.raises(RegistryError, match=words):
            pair(f"sampling = {table}")


def test_a_later_file_changes_the_rest_of_a_pair_and_leaves_its_table(tmp_path: Path) -> None:
    first, second = tmp_path / "a.toml", tmp_path / "b.toml"
    first.write_text('[pairs.a]\ntarget = "a.gguf"\nsampling = {top_n_sigma = 1.0}')
    second.write_text("[pairs.a]\ntop_k = 7")
    pair = parse_registry([(file, file.read_bytes()) for file in (first, second)])["a"]
    assert (pair.top_k, pair.sampling) == (7, RareSampling(top_n_sigma=1.0))
