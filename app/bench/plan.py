"""What a benchmark runs: the ways to decode, the kinds of text, how often and how long.

Plain data, read strictly from options.

Knows names and numbers; opens no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import typer

from app.bench.prompts import KINDS
from runtime.drafters.registry import Needs, needing, registered
from runtime.models.registry import Pair
from runtime.models.strict_toml import nearest

PLAIN, ADAPTIVE = "plain", "adaptive"
TEMPERATURES = (0.0, 0.8)
MAX_K = 16


@dataclass(frozen=True, slots=True)
class Way:
    """A way to decode: which drafters may guess, and how many tokens always; None leaves it to the controller."""

    name: str
    drafters: tuple[str, ...] = ()
    fixed_k: int | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """What is compared like with like: one kind of text at one temperature."""

    kind: str
    temperature: float

    def __str__(self) -> str:
        return f"{self.kind}, temperature {self.temperature:g}"


@dataclass(frozen=True, slots=True)
class Plan:
    """One round asks every prompt at every temperature in every way."""

    drafters: tuple[str, ...]
    kinds: tuple[str, ...] = tuple(KINDS)
    ks: tuple[int, ...] = (1, 2, 3, 4, 6, 8)
    runs: int = 5
    max_tokens: int = 64
    n_prompts: int = 2  # of each kind

    @property
    def ways(self) -> list[Way]:
        """Plain first, because every other text is compared with its; then the one that matters most."""
        adaptive = [Way(ADAPTIVE, self.drafters)] if self.drafters else []
        fixed = [Way(f"{drafter} K={k}", (drafter,), k) for drafter in self.drafters for k in self.ks]
        return [Way(PLAIN), *adaptive, *fixed]

    @property
    def cells(self) -> list[Cell]:
        """Kinds by temperatures."""
        return [Cell(kind, temperature) for kind in self.kinds for temperature in TEMPERATURES]


QUICK: dict[str, Any] = {
    "kinds": ("question", "code", "edit"),
    "ks": (2, 4, 8),
    "runs": 2,
    "max_tokens": 32,
    "n_prompts": 1,
}


def make_plan(
    drafters: tuple[str, ...],
    *,
    quick: bool,
    kinds: str | None,
    ks: str | None,
    runs: int | None,
    max_tokens: int | None,
) -> Plan:
    """The full plan or the quick one, changed where an option says so."""
    given = {
        "kinds": None if kinds is None else parse_kinds(kinds),
        "ks": None if ks is None else parse_ks(ks),
        "runs": runs,
        "max_tokens": max_tokens,
    }
    settings = (QUICK if quick else {}) | {name: value for name, value in given.items() if value is not None}
    return replace(Plan(drafters), **settings)


def parse_kinds(names: str) -> tuple[str, ...]:
    """`question,code` as a tuple; a usage error for a kind that does not exist."""
    wanted = split(names)
    for name in wanted:
        if name not in KINDS:
            raise typer.BadParameter(f"There is no kind '{name}'. {nearest(name, list(KINDS))}", param_hint="'--kinds'")
    if not wanted:
        raise typer.BadParameter(f"There is no kind in it. Known: {', '.join(KINDS)}.", param_hint="'--kinds'")
    return wanted


def parse_ks(numbers: str) -> tuple[int, ...]:
    """`1,2,4` as a tuple; a usage error for what is no draft length."""
    wanted = split(numbers)
    if not wanted or not all(number.isdecimal() and 1 <= int(number) <= MAX_K for number in wanted):
        raise typer.BadParameter(
            f"'{numbers}' are not draft lengths. Give numbers from 1 to {MAX_K}, as in 1,2,4.", param_hint="'--ks'"
        )
    return tuple(sorted({int(number) for number in wanted}))


def split(text: str) -> tuple[str, ...]:
    """The parts between commas, each once."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def choose_drafters(pair: Pair, named: Sequence[str] | None) -> tuple[str, ...]:
    """Those named, or all of the pair's that can be measured; a usage error for one that cannot."""
    unfit = {each.name: each.unmeasured for each in registered() if each.unmeasured}
    if wrong := next((name for name in named or () if name in unfit), None):
        raise typer.BadParameter(
            f"The drafter '{wrong}' cannot be measured here: {unfit[wrong]}. Leave it out.", param_hint="'--drafters'"
        )
    idle = {*unfit} if pair.draft else {*unfit, *needing(pair.drafters, Needs.DRAFT)}
    return tuple(name for name in pair.drafters if name not in idle) if named is None else tuple(named)
