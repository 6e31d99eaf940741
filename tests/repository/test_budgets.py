"""Files, functions and classes stay small; what is larger stands in budgets.toml with a reason, and only shrinks."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.code_measures import Measure, measures

ROOT = Path(__file__).parents[2]
LIST = "tests/budgets.toml"
ROOMS, BESIDE = ("runtime", "app"), ("tests", "bench")  # of BESIDE only the length of files counts
LIMITS = {"lines": 250, "function lines": 40, "parameters": 7, "attributes": 12, "constants": 8}
REMEDIES = {
    "lines": "split it by noun",
    "function lines": "split it by idea",
    "parameters": "pass what belongs together as one dataclass",
    "attributes": "split the class by what it is responsible for",
    "constants": "move some to what they are of, or make them the fields of a dataclass",
}


def sources(rooms: Sequence[str]) -> dict[str, str]:
    """Return the texts of their Python files, by path."""
    files = [path for room in rooms for path in sorted((ROOT / room).rglob("*.py"))]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf8") for path in files}


def exceptions(groups: Mapping[str, Mapping[str, Any]]) -> dict[tuple[str, str], int]:
    """Return the listed value of each kind and place. Raises ValueError for a group without a reason, a kind that is
    none, and a place that is listed twice.
    """
    found: dict[tuple[str, str], int] = {}
    for group, content in groups.items():
        kinds = {kind.replace("_", " "): places for kind, places in content.items() if kind != "reason"}
        if len(content.get("reason", "").split()) < 3 or not kinds.keys() <= LIMITS.keys():
            raise ValueError(f"{LIST}: [{group}] needs a reason, a sentence, and knows only {', '.join(LIMITS)}")
        for key, value in [((kind, place), value) for kind, places in kinds.items() for place, value in places.items()]:
            if key in found:
                raise ValueError(f"{LIST}: {key[1]} is listed twice")
            found[key] = value
    return found


def offences(found: Iterable[Measure], listed: Mapping[tuple[str, str], int]) -> list[str]:
    """Return a line for each size over its limit that is not listed, and for each entry that is not exactly so."""
    values = {(kind, place): value for kind, place, value in found}
    lines = [offence(*key, value, listed.get(key)) for key, value in values.items()]
    gone = [f"{place}: listed for its {kind}, but not there: take it off" for kind, place in listed.keys() - values]
    return [line for line in lines if line] + sorted(gone)


def offence(kind: str, place: str, value: int, listed: int | None) -> str:
    """Return what is to be done about a size; nothing where it is as it may be."""
    limit, size = LIMITS[kind], f"{place}: {value} {kind}"
    if listed is None:
        return f"{size}, at most {limit}: {REMEDIES[kind]}, or list it with a reason" if value > limit else ""
    if value <= limit:
        return f"{size}, at most {limit}: take it off the list"
    if value < listed:
        return f"{size}, listed with {listed}: lower the number to {value}"
    return f"{size}, listed with {listed}: it may only shrink; {REMEDIES[kind]}" if value > listed else ""


def test_everything_is_within_its_budget_or_listed_with_its_size() -> None:
    beside = [Measure("lines", path, len(text.splitlines())) for path, text in sources(BESIDE).items()]
    found = [*measures(sources(ROOMS)), *beside]
    listed = exceptions(tomllib.loads((ROOT / LIST).read_text(encoding="utf8")))
    assert len(found) > 1000
    if lines := offences(found, listed):
        pytest.fail(f"{LIST} lists what is over a budget, and its size:\n" + "\n".join(lines), pytrace=False)
