"""A person's thresholds of memory are read strictly, hold for every command, and what is wrong with them is said in a
sentence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from app.cli.choices import choose
from app.cli.options import ModelOptions
from app.settings import default_path, read_settings
from runtime.core.errors import SettingsError
from runtime.core.pressure import Thresholds


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    assert read_settings(tmp_path / "settings.toml").memory == Thresholds()


def test_some_thresholds_may_be_set_and_the_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("[memory]\ntight_bytes = 3e9\ntight_share = 0.5\ncalm_seconds = 5\n")
    found = read_settings(path).memory
    assert found == Thresholds(tight_bytes=3_000_000_000, tight_share=0.5, calm_seconds=5)
    assert isinstance(found.tight_bytes, int)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[memory]\ntight_byte = 1", "unknown key 'tight_byte'. Did you mean 'tight_bytes'?"),
        ("[memry]\ntight_bytes = 1", "unknown key 'memry'. Did you mean 'memory'?"),
        ("memory = 3", "'memory' must be a table"),
        ("[memory]\ncritical_bytes = 9_000_000_000", "critical_bytes is 9000000000, more than tight_bytes"),
        ("[memory]\ntight_share = 0.01", "critical_share is 0.03, more than tight_share"),
        ("[memory]\ncritical_device_bytes = 9_000_000_000", "critical_device_bytes"),
        ("[memory]\nrecovery = 0.5", "recovery is 0.5"),
        ("[memory]\ninterval = -1.0", "interval is -1"),
        ("[memory]\ntight_waited = 10.0", "tight_waited is 10.0"),
        ("[memory]\ntight_bytes = inf", "tight_bytes is inf: it must be a number"),
        ("[memory]\ntight_bytes = 1.5", "tight_bytes is 1.5: it must be a number without a fraction"),
        ("[memory]\ncalm_seconds = nan", "calm_seconds is nan"),
        ("[memory]\ntight_bytes = -1", "tight_bytes is -1"),
        ("[memory]\ntight_bytes = true", "'tight_bytes' must be a number, not bool"),
        ("[memory]\ntight_bytes = '3 GB'", "'tight_bytes' must be a number, not str"),
        ("prompt_cache_bytes = -1", "prompt_cache_bytes"),
        ("prompt_cache_bytes = true", "prompt_cache_bytes"),
        ("prompt_cache_bytes = '8 GB'", "prompt_cache_bytes"),
        ("[memory", "is not valid TOML"),
    ],
)
def test_what_makes_no_sense_is_named_with_the_file(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(text)
    with pytest.raises(SettingsError) as error:
        read_settings(path)
    assert named in str(error.value)
    assert str(path) in str(error.value)


def test_the_documented_defaults_are_the_defaults(tmp_path: Path) -> None:
    path, page = tmp_path / "settings.toml", Path(__file__).parents[2] / "docs" / "usage.md"
    path.write_text(
        "[memory]" + page.read_text(encoding="utf8").split("```toml\n[memory]")[1].split("```")[0], encoding="utf8"
    )
    assert len(path.read_text(encoding="utf8").splitlines()) == 1 + len(fields(Thresholds))
    assert read_settings(path).memory == Thresholds()


@pytest.fixture
def own_file() -> Iterator[Path]:
    path = default_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    yield path
    path.unlink()


def test_every_command_takes_the_users_thresholds(own_file: Path) -> None:
    own_file.write_text("[memory]\ntight_bytes = 7_000_000_000\ntight_share = 1\n")
    _, options = choose("demo", ModelOptions(max_k=8))
    assert options.memory.tight_bytes == 7_000_000_000
