"""Values of settings as people type and read them: numbers, the order of samplers, texts in a line.

Knows names and forms of values; knows no chat.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.core.errors import SettingsError
from runtime.core.outside import OFF
from runtime.core.rare_sampling import RARE_NAMES, USUAL
from runtime.core.sampler_order import sampler_order
from runtime.engine import PLAIN_NAMES, Sampling, values_of

SAMPLERS, BREAKERS = "samplers", "dry_sequence_breakers"  # settings whose values are texts
OPTIONAL = ("seed", "max_tokens", SAMPLERS, BREAKERS)  # may be none
RARE_WHOLE = tuple(name for name in RARE_NAMES if isinstance(getattr(USUAL, name), int))
WHOLE_NUMBERS = ("seed", "top_k", "max_tokens", "penalty_last_n", *RARE_WHOLE)
ESCAPES = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", " ": "\\s"}

Value = float | str | None
Values = Mapping[str, Value]  # by a setting's name


def usual_sampling() -> dict[str, Value]:
    """Return Slipstream's default of each sampling setting."""
    return shown_values(values_of(Sampling()))


def shown_values(values: Mapping[str, Any]) -> dict[str, Value]:
    """Return values as they are shown and stored."""
    return {name: shown_value(name, value) for name, value in values.items()}


def shown_value(name: str, value: Any) -> Value:
    """Return a value as it is shown and stored: samplers and sequence breakers as one line."""
    if name == SAMPLERS and value is not None and not isinstance(value, str):
        return ";".join(value)
    if name == BREAKERS and not isinstance(value, str):
        return " ".join("".join(ESCAPES.get(letter, letter) for letter in text) for text in value) or None
    found: Value = value
    return found


def sampling_values(values: Values) -> dict[str, Any]:
    """Return the values of the sampling settings, as an engine takes them. Raises SettingsError."""
    found: dict[str, Any] = {name: values[name] for name in (*PLAIN_NAMES, *RARE_NAMES) if name in values}
    if BREAKERS in found:
        found[BREAKERS] = tuple(map(unescaped, str(found[BREAKERS] or "").split()))
    return found


def unescaped(text: str) -> str:
    """Return a sequence breaker that was typed with escapes for white space."""
    found, letters = "", iter(text)
    known = {escape[1:]: letter for letter, escape in ESCAPES.items()}
    for letter in letters:
        found += known.get(follows := next(letters, ""), follows) if letter == "\\" else letter
    return found


def parsed(name: str, word: str) -> Value:
    """Return the value of a sampling setting or a length, or None for `none` and `off`. Raises SettingsError."""
    if word in OFF:
        return None
    if name == SAMPLERS:
        return shown_value(name, sampler_order(word))
    return word if name == BREAKERS else parsed_number(name, word)


def parsed_number(name: str, word: str) -> float:
    """Return a number. Raises SettingsError."""
    try:
        return int(word) if name in WHOLE_NUMBERS else float(word)
    except ValueError:
        raise SettingsError(
            f"{name} must be a number, not '{word[:64]}'. For example: /set {name} {example(name)}"
        ) from None


def example(name: str) -> Value:
    """Return a valid value of the setting, for messages."""
    others: Values = {
        "temperature": 0.7, "seed": 7, "max_tokens": 400, SAMPLERS: "top_k;min_p;temperature", "dry_multiplier": 0.8,
        "xtc_probability": 0.5, "top_n_sigma": 1.0, "typical_p": 0.9, "mirostat": 2,
    }  # fmt: skip
    return others.get(name, usual_sampling().get(name))
