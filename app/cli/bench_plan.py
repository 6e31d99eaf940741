"""The plan of a benchmark: decoding configurations, kinds of text, rounds and lengths, parsed strictly from options.

The texts are in bench_prompts.toml. Knows names and numbers; opens no model.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from runtime.core.errors import nearest
from runtime.drafters.registry import Needs, needing, registered
from runtime.models.registry import Pair

PLAIN, ADAPTIVE = "plain", "adaptive"
TEMPERATURES = (0.0, 0.8)
MAX_K = 16
Turns = tuple[str, ...]  # turns of user and model, alternating; the last is the user's and is to be answered


def read_prompts() -> tuple[dict[str, str], dict[str, tuple[Turns, ...]]]:
    """Return the texts that prompts are about, by name, and the prompts by kind of text."""
    data = tomllib.loads((Path(__file__).parent / "bench_prompts.toml").read_text(encoding="utf8"))
    texts: dict[str, str] = data["texts"]
    kinds = {
        kind: tuple(tuple(turn.format(**texts) for turn in turns) for turns in prompts)
        for kind, prompts in data["kinds"].items()
    }
    return texts, kinds


TEXTS, KINDS = read_prompts()


@dataclass(frozen=True, slots=True)
class Way:
    """A decoding configuration: the drafters and a fixed draft length in tokens. None leaves the length to the
    controller.
    """

    name: str
    drafters: tuple[str, ...] = ()
    fixed_k: int | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """A unit of comparison: one kind of text at one temperature."""

    kind: str
    temperature: float

    def __str__(self) -> str:
        return f"{self.kind}, temperature {self.temperature:g}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a benchmark. One round runs every prompt at every temperature in every configuration."""

    drafters: tuple[str, ...]
    kinds: tuple[str, ...] = tuple(KINDS)
    ks: tuple[int, ...] = (1, 2, 3, 4, 6, 8)
    runs: int = 5
    max_tokens: int = 64
    n_prompts: int = 2  # of each kind

    @property
    def ways(self) -> list[Way]:
        """The configurations. Plain comes first, because all other texts are compared with its own; then adaptive."""
        adaptive = [Way(ADAPTIVE, self.drafters)] if self.drafters else []
        fixed = [Way(f"{drafter} K={k}", (drafter,), k) for drafter in self.drafters for k in self.ks]
        return [Way(PLAIN), *adaptive, *fixed]

    @property
    def cells(self) -> list[Cell]:
        """The kinds of text at each temperature."""
        return [Cell(kind, temperature) for kind in self.kinds for temperature in TEMPERATURES]


QUICK: dict[str, Any] = {
    "kinds": ("question", "code", "edit"),
    "ks": (2, 4, 8),
    "runs": 2,
    "max_tokens": 32,
    "n_prompts": 1,
}


def make_plan(drafters: tuple[str, ...], *, quick: bool, **given: Any) -> Plan:
    """Return the full plan or the quick one, changed by the given options, of which None changes nothing. Raises
    BadParameter.
    """
    read = {"kinds": parse_kinds, "ks": parse_ks}
    chosen = {name: read[name](value) if name in read else value for name, value in given.items() if value is not None}
    return replace(Plan(drafters), **(QUICK if quick else {}) | chosen)


def parse_kinds(names: str) -> tuple[str, ...]:
    """Return `question,code` as a tuple. Raises BadParameter for an unknown kind."""
    wanted = split(names)
    for name in wanted:
        if name not in KINDS:
            raise typer.BadParameter(f"There is no kind '{name}'. {nearest(name, list(KINDS))}", param_hint="'--kinds'")
    if not wanted:
        raise typer.BadParameter(f"No kinds of text are named. Known: {', '.join(KINDS)}.", param_hint="'--kinds'")
    return wanted


def parse_ks(numbers: str) -> tuple[int, ...]:
    """Return `1,2,4` as a tuple. Raises BadParameter for an invalid draft length."""
    wanted = split(numbers)
    if not wanted or not all(number.isdecimal() and 1 <= int(number) <= MAX_K for number in wanted):
        raise typer.BadParameter(
            f"'{numbers}' are not draft lengths. Give numbers from 1 to {MAX_K}, as in 1,2,4.", param_hint="'--ks'"
        )
    return tuple(sorted({int(number) for number in wanted}))


def split(text: str) -> tuple[str, ...]:
    """Return the parts between commas, each once."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def choose_drafters(pair: Pair, named: Sequence[str] | None) -> tuple[str, ...]:
    """Return the named drafters, or all of the pair's that can be measured. Raises BadParameter for one that cannot."""
    unfit = {each.name: each.unmeasured for each in registered() if each.unmeasured}
    if wrong := next((name for name in named or () if name in unfit), None):
        raise typer.BadParameter(
            f"The drafter '{wrong}' cannot be measured here: {unfit[wrong]}. Leave it out.", param_hint="'--drafters'"
        )
    idle = {*unfit} if pair.draft else {*unfit, *needing(pair.drafters, Needs.DRAFT)}
    return tuple(name for name in pair.drafters if name not in idle) if named is None else tuple(named)
