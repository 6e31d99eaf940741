"""Samplers that few replies use, and their order, under the names and defaults of llama.cpp's server. Plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from runtime.core.errors import SettingsError, check, nearest
from runtime.core.sampler_order import MIROSTAT, ORDER, sampler_order

MAX_NUMBER = 1e30  # a float, and less than any bound is checked with
MAX_BREAKERS, MAX_BREAKER = 64, 40  # of a reply; bytes of one, of which llama.cpp reads no more


RANGES: dict[str, tuple[float, float, str]] = {
    "dry_multiplier": (0, 100, "from 0 (off) to 100"),
    "dry_base": (1, 100, "from 1 to 100"),
    "dry_allowed_length": (0, 2**31 - 1, "0 or more"),
    "dry_penalty_last_n": (-1, 2**31 - 1, "0 (off), -1 (the whole context) or more"),
    "xtc_probability": (0, 1, "from 0 (off) to 1"),
    "xtc_threshold": (0, 1, "from 0 to 1 (above 0.5 is off)"),
    "top_n_sigma": (-100, 100, "above 0 (0 or less is off) and at most 100"),
    "typical_p": (0, 1, "above 0 and at most 1 (off)"),
    "dynatemp_range": (0, 100, "from 0 (off) to 100"),
    "dynatemp_exponent": (0, 100, "from 0 to 100"),
    "mirostat": (0, 2, "2, or 0 (off)"),
    "mirostat_tau": (0, 100, "from 0 to 100"),
    "mirostat_eta": (0, 1, "from 0 to 1"),
    "min_tokens": (0, 2**31 - 1, "0 (off) or more"),
}


def check_breakers(breakers: Sequence[str]) -> None:
    """Raises SettingsError for sequence breakers that are too many or empty."""
    if len(breakers) > MAX_BREAKERS or not all(breakers):
        raise SettingsError(
            f"dry_sequence_breakers has {len(breakers)} texts: it may have {MAX_BREAKERS}, none of them empty."
        )


@dataclass(frozen=True, slots=True)
class RareSampling:
    """Settings of samplers that few replies use. The defaults change nothing."""

    dry_multiplier: float = 0.0  # 0 = off
    dry_base: float = 1.75  # the penalty grows by this factor with each token that a repetition is longer
    dry_allowed_length: int = 2  # tokens of a repetition without a penalty for the next one
    dry_penalty_last_n: int = 64  # number of recent tokens; -1 = the whole context, 0 = off
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")  # no repetition reaches across one
    xtc_probability: float = 0.0  # chance at each token to leave out the likeliest ones; 0 = off
    xtc_threshold: float = 0.1  # of two or more tokens with this probability only the last is kept; above 0.5 = off
    top_n_sigma: float = -1.0  # standard deviations below the largest logit; 0 or less = off
    typical_p: float = 1.0  # 1 = off
    dynatemp_range: float = 0.0  # the temperature is at most this far from its value, by entropy; 0 = off
    dynatemp_exponent: float = 1.0
    mirostat: int = 0  # 2, or 0 = off
    mirostat_tau: float = 5.0  # surprise to keep to, in bits
    mirostat_eta: float = 0.1  # share of a deviation that is corrected at the next token
    min_tokens: int = 0  # tokens before the reply may end
    samplers: tuple[str, ...] | None = None  # names of ORDER, of which others are left out; None = the usual order

    def __post_init__(self) -> None:
        """Raise SettingsError naming the invalid field."""
        for name, (least, most, wanted) in RANGES.items():
            value = getattr(self, name)
            check(name, value, least <= value <= most, wanted)
        check("typical_p", self.typical_p, self.typical_p > 0, RANGES["typical_p"][2])
        if self.mirostat == 1:
            raise SettingsError("mirostat is 1: only its second version is available. Use 2, or 0 (off).")
        check_breakers(self.dry_sequence_breakers)

    @property
    def has_dry(self) -> bool:
        """Whether repetitions are penalized by their length."""
        return self.dry_multiplier > 0 and self.dry_penalty_last_n != 0

    @property
    def has_xtc(self) -> bool:
        """Whether likely tokens may be left out."""
        return self.xtc_probability > 0 and self.xtc_threshold <= 0.5

    @property
    def has_order(self) -> bool:
        """Whether its samplers are to be applied in an order, which is llama.cpp's if none is given."""
        changed = (self.top_n_sigma > 0, self.typical_p < 1, self.dynatemp_range > 0, self.mirostat, self.has_xtc)
        return self.samplers is not None or any(changed)

    @property
    def order(self) -> tuple[str, ...]:
        """The names of its samplers in their order, if it has one."""
        if self.mirostat:
            return MIROSTAT
        return tuple(ORDER) if self.samplers is None else self.samplers


USUAL = RareSampling()
RARE_NAMES = tuple(each.name for each in fields(RareSampling))


def rare_sampling(values: Mapping[str, Any]) -> RareSampling:
    """Return the settings with these values, which may come from a file. Raises SettingsError."""
    return RareSampling(**{name: converted(name, value) for name, value in values.items()}) if values else USUAL


def converted(name: str, value: Any) -> Any:
    """Return a setting's value in the type of its field. Raises SettingsError."""
    if name not in RARE_NAMES:
        raise SettingsError(f"There is no sampling setting '{name[:64]}'. {nearest(name, list(RARE_NAMES))}")
    if name == "samplers":
        return sampler_order(value)
    usual = getattr(USUAL, name)
    if isinstance(usual, tuple):
        is_list = isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)
        check(name, value, is_list, "a list of texts")
        return tuple(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MAX_NUMBER
    is_fitting = is_number and (isinstance(usual, float) or value == int(value))
    check(name, value, is_fitting, "a number" if isinstance(usual, float) else "a whole number")
    return type(usual)(value)
