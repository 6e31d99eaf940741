"""The options for sampling; samplers that few replies use are in a group of the help of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, Any

import typer

from app.cli.options import Seed, Temperature, sampling
from runtime.core.outside import is_off

rare = partial(typer.Option, rich_help_panel="Samplers that few use", show_default=False)


@dataclass(frozen=True, slots=True)
class CommonOptions:
    """The settings that many use, with the names of Sampling's fields; None: the pair's default."""

    temperature: Temperature = None
    top_k: Annotated[int | None, sampling(help="Keep the k most likely; 0 = off.")] = None
    top_p: Annotated[float | None, sampling(help="Keep the most likely up to this total probability; 1 = off.")] = None
    min_p: Annotated[
        float | None, sampling(help="Keep tokens with this share of the highest probability; 0 = off.")
    ] = None
    seed: Seed = None
    repetition_penalty: Annotated[float | None, sampling(help="Make recent tokens less likely; 1 = off.")] = None
    presence_penalty: Annotated[float, sampling(help="Make them less likely by a fixed amount; 0 = off.")] = 0.0
    frequency_penalty: Annotated[float, sampling(help="The same for each time they occurred; 0 = off.")] = 0.0
    penalty_last_n: Annotated[
        int | None,
        sampling(help="How many tokens are recent (64); -1 = the whole context, 0 = none.", show_default=False),
    ] = None


@dataclass(frozen=True, slots=True)
class SamplingOptions(CommonOptions):
    """All sampling settings; those that few use have the names of RareSampling's fields."""

    dry_multiplier: Annotated[
        float | None, rare(help="DRY: penalize the continuation of repetitions; 0 = off, usually 0.8.")
    ] = None
    dry_base: Annotated[float | None, rare(help="Its growth with each repeated token (1.75).")] = None
    dry_allowed_length: Annotated[int | None, rare(help="Tokens that may be repeated without it (2).")] = None
    dry_penalty_last_n: Annotated[
        int | None, rare(help="Tokens back that it looks (64); -1 = the whole context, 0 = off.")
    ] = None
    dry_sequence_breakers: Annotated[
        list[str] | None,
        rare("--dry-sequence-breaker", help='A text that ends a repetition (may be repeated); none (\\n, :, ", *).'),
    ] = None
    xtc_probability: Annotated[float | None, rare(help="XTC: how often top choices are excluded; 0 = off.")] = None
    xtc_threshold: Annotated[float | None, rare(help="The probability from which on a token is one (0.1).")] = None
    top_n_sigma: Annotated[
        float | None, rare(help="Keep logits within n standard deviations of the best; 0 = off.")
    ] = None
    typical_p: Annotated[float | None, rare(help="Keep the most typical up to this total probability; 1 = off.")] = None
    dynatemp_range: Annotated[float | None, rare(help="Vary the temperature by this much with entropy; 0 = off.")] = (
        None
    )
    dynatemp_exponent: Annotated[float | None, rare(help="How it follows entropy (1).")] = None
    mirostat: Annotated[int | None, rare(help="2 keeps the surprise at a level, in place of top-k; 0 = off.")] = None
    mirostat_tau: Annotated[float | None, rare(help="That level in bits (5).")] = None
    mirostat_eta: Annotated[float | None, rare(help="How fast it corrects deviations (0.1).")] = None
    min_tokens: Annotated[int | None, rare(help="Do not end before this many tokens.")] = None
    samplers: Annotated[
        str | None, rare(metavar="NAME;...", help="The order of samplers, such as top_k;min_p;temperature.")
    ] = None

    @property
    def values(self) -> dict[str, Any]:
        """The settings by name."""
        return asdict(self) | {"dry_sequence_breakers": breakers(self.dry_sequence_breakers)}


def breakers(given: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the sequence breakers of the command line, in which white space may be escaped; `none` is ()."""
    from app.setting_values import unescaped  # importing it is slow, and help is shown without

    if not given:
        return None
    return () if is_off(given) else tuple(map(unescaped, given))
