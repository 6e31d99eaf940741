"""The sampling settings of a reply. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from runtime.core.errors import check
from runtime.core.rare_sampling import RARE_NAMES, USUAL, RareSampling, rare_sampling

MAX_SEED = 2**64 - 1
MAX_BIAS = 1e30  # the sum with a logit is still finite


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling settings. Temperature 0 takes the most likely token; a seed makes the text reproducible with any
    drafter.
    """

    temperature: float = 0.8
    top_k: int = 40  # 0 or -1 = off
    top_p: float = 0.95  # 1 = off
    min_p: float = 0.05  # 0 = off
    seed: int | None = None
    repetition_penalty: float = 1.0  # divides positive logits of recent tokens and multiplies negative ones; 1 = off
    frequency_penalty: float = 0.0  # subtracted for each recent occurrence; 0 = off
    presence_penalty: float = 0.0  # subtracted once; 0 = off
    penalty_last_n: int = 64  # number of recent tokens; -1 = the whole context, 0 = off
    logit_bias: tuple[tuple[int, float], ...] = ()  # (token id, addition to its logit); minus infinity forbids it
    rare: RareSampling = USUAL

    def __post_init__(self) -> None:
        """Raise SettingsError naming the invalid field."""
        check("temperature", self.temperature, 0 <= self.temperature <= 100, "from 0 to 100")
        check("top_k", self.top_k, self.top_k >= -1, "0 or -1 (off) or more")
        check("top_p", self.top_p, 0 < self.top_p <= 1, "above 0 and at most 1 (off)")
        check("min_p", self.min_p, 0 <= self.min_p < 1, "from 0 (off) to below 1")
        check("seed", self.seed, self.seed is None or 0 <= self.seed <= MAX_SEED, "from 0 to 2^64 - 1")
        wanted = "above 0 (1 is off) and at most 100"
        check("repetition_penalty", self.repetition_penalty, 0 < self.repetition_penalty <= 100, wanted)
        check("frequency_penalty", self.frequency_penalty, abs(self.frequency_penalty) <= 100, "from -100 to 100")
        check("presence_penalty", self.presence_penalty, abs(self.presence_penalty) <= 100, "from -100 to 100")
        wanted = "0 (off), -1 (the whole context) or more"
        check("penalty_last_n", self.penalty_last_n, self.penalty_last_n >= -1, wanted)
        for token, bias in self.logit_bias:
            check("logit_bias", token, token >= 0, "a map of token ids, 0 or more")
            wanted = "at most 1e30; minus infinity forbids the token"
            check(f"logit_bias of token {token}", bias, bias <= MAX_BIAS, wanted)

    @property
    def penalises(self) -> bool:
        """Whether any penalty depends on earlier tokens."""
        penalties = (self.repetition_penalty, self.frequency_penalty, self.presence_penalty)
        return penalties != (1.0, 0.0, 0.0) and self.penalty_last_n != 0

    @property
    def is_simple(self) -> bool:
        """Whether the distribution of a token depends on its row of logits alone, and temperature comes first."""
        return not (self.penalises or self.rare.has_dry or self.rare.has_order)

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is taken."""
        samplers = self.rare.samplers
        is_used = samplers is None or "temperature" in samplers
        return self.temperature == 0 and self.rare.dynatemp_range == 0 and is_used


PLAIN_NAMES = tuple(each.name for each in fields(Sampling) if each.name not in ("logit_bias", "rare"))
SAMPLING_NAMES = (*PLAIN_NAMES, *RARE_NAMES)


def sampling_of(values: Mapping[str, Any], **more: Any) -> Sampling:
    """Return the sampling settings with these values by name, rare ones among them, and `more` fields.

    Raises SettingsError.
    """
    rare = {name: value for name, value in values.items() if name in RARE_NAMES}
    plain = {name: value for name, value in values.items() if name not in RARE_NAMES}
    return Sampling(**plain, **more, rare=rare_sampling(rare))


def values_of(sampling: Sampling) -> dict[str, Any]:
    """Return the values by name, rare ones among them, without `logit_bias`."""
    plain = {name: getattr(sampling, name) for name in PLAIN_NAMES}
    return plain | {name: getattr(sampling.rare, name) for name in RARE_NAMES}
