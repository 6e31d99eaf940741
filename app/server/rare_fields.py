"""The request fields of samplers that few requests use, under llama.cpp's names; others' names are read as well.

Must not know an interface.
"""

from __future__ import annotations

from pydantic import AliasChoices, Field

from app.server.fields import Few, RequestModel, Whole


class RareFields(RequestModel):
    """The settings of these samplers; absent ones are the pair's own."""

    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: Whole | None = None
    dry_penalty_last_n: Whole | None = None
    dry_sequence_breakers: Few[str] | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    top_n_sigma: float | None = None
    typical_p: float | None = Field(None, validation_alias=AliasChoices("typical_p", "typical"))
    dynatemp_range: float | None = None
    dynatemp_exponent: float | None = None
    mirostat: Whole | None = Field(None, validation_alias=AliasChoices("mirostat", "mirostat_mode"))
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    min_tokens: Whole | None = Field(None, validation_alias=AliasChoices("min_tokens", "n_min"))
    samplers: Few[str] | str | None = None  # their order, by names or letters
