"""Rare samplers in the chat: set by name, listed in a group of their own, kept in presets; and `run` has options."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.chats.store import Store
from app.cli import choices
from app.cli.run import SamplingOptions
from app.setting_values import sampling_values, shown_values
from app.tui.chat_settings import ChatSettings
from app.tui.dialogs.settings_list import RARE_ABOUT
from runtime.core.errors import SettingsError
from runtime.core.rare_sampling import RARE_NAMES
from runtime.engine import sampling_of, values_of
from runtime.models.adapters import Adapter
from runtime.models.registry import Pair
from tests.support.scripted import ScriptedEngine
from tests.support.tui import chats_path, engine_of, opened, piloted

path = chats_path
PAIR = Pair("scripted", Path("none.gguf"))


@piloted
async def test_they_are_set_by_name_and_last(path: Path) -> None:
    async with opened(path, ScriptedEngine("ok")) as chat:
        for setting in ("xtc_probability 0.5", "samplers kxt", "dry_sequence_breakers \\n a\\sb", "min_tokens 5"):
            await chat.ask(f"/set {setting}")
        await chat.ask("/preset save odd")
        await chat.ask("Q")
        rare = engine_of(chat).asked[0][1].rare
        assert (rare.xtc_probability, rare.samplers, rare.min_tokens) == (0.5, ("top_k", "xtc", "temperature"), 5)
        assert rare.dry_sequence_breakers == ("\n", "a b")
    async with opened(path, ScriptedEngine("ok")) as chat:
        await chat.ask("/preset odd")
        await chat.ask("R")
        assert engine_of(chat).asked[0][1].rare == rare


@piloted
async def test_they_stand_in_a_group_of_their_own(path: Path) -> None:
    async with opened(path, ScriptedEngine("ok"), size=(100, 50)) as chat:
        await chat.say("/settings")
        await chat.until(
            "when_full ask Slipstream's default", "Samplers that few use", "dry_multiplier 0.0 Slipstream's"
        )
        await chat.type("xtc")
        await chat.until("Samplers that few use", "xtc_threshold 0.1", gone="top_k")
        await chat.press("enter")
        await chat.until("How often the likeliest tokens are left out", "default restores 0.0")
        await chat.type("7")
        await chat.press("enter")
        await chat.until("xtc_probability is 7.0: it must be from 0 (off) to 1")


def test_each_has_an_explanation() -> None:
    assert set(RARE_ABOUT) == set(RARE_NAMES)


@pytest.mark.parametrize(
    ("argument", "sentence"),
    [("mirostat 1", "Use 2"), ("mirostat off", "needs a number, such as: /set mirostat 2"),
     ("samplers top_q", "'top_p'"),
     ("dry_base much", "must be a number"), ("xtc_prob 1", "xtc_probability"), ("min_tokens 1.5", "must be a number"),
     ("samplers", "such as: /set samplers top_k;min_p;temperature")],
)  # fmt: skip
def test_a_senseless_value_is_refused_with_an_example(tmp_path: Path, argument: str, sentence: str) -> None:
    settings = ChatSettings(Store(tmp_path / "chats.db"))
    with pytest.raises(SettingsError, match=sentence):
        settings.change(argument, PAIR, {})


def test_values_are_stored_as_they_are_read() -> None:
    values: dict[str, Any] = {
        "dry_sequence_breakers": ["\n", "a\\b c", "\t"],
        "samplers": ["dry", "top_k"],
        "mirostat": 2,
    }
    sampling = sampling_of(values)
    assert sampling_of(sampling_values(shown_values(values_of(sampling)))) == sampling
    none = sampling_of({"dry_sequence_breakers": []})
    assert sampling_of(sampling_values(shown_values(values_of(none)))) == none


def test_run_has_an_option_for_each() -> None:
    chosen = SamplingOptions(dry_sequence_breakers=["\\n", "x"], samplers="kt", mirostat=2, penalty_last_n=-1)
    sampling = choices.sampling(PAIR, **chosen.values)
    assert sampling.rare.dry_sequence_breakers == ("\n", "x")
    assert (sampling.rare.samplers, sampling.rare.mirostat) == (("top_k", "temperature"), 2)
    assert (sampling.penalty_last_n, sampling.top_k) == (-1, 40)
    assert (
        choices.sampling(PAIR, **SamplingOptions(dry_sequence_breakers=["none"]).values).rare.dry_sequence_breakers
        == ()
    )
    assert choices.sampling(PAIR, **SamplingOptions().values) == sampling_of(PAIR.sampling_defaults)


@piloted
async def test_adapters_are_among_the_settings_and_in_the_explanation(path: Path) -> None:
    engine = ScriptedEngine("ok")
    engine.pair = replace(PAIR, lora=(Adapter(Path("formal.gguf"), 0.5), Adapter(Path("terse.gguf"), 0.0)))
    async with opened(path, engine, pair=engine.pair, size=(100, 40)) as chat:
        await chat.say("/settings")
        await chat.press(*"adapters")
        await chat.until("formal × 0.5, terse (off)", "LoRA adapters, which change the model")
        await chat.press("enter")
        await chat.until("Settings: scripted")
        await chat.press("escape")
        await chat.ask("Q")
        await chat.press("f2")
        await chat.until("Which adapters are on?", "The model runs with formal × 0.5, terse (off)")
