"""The comparison on public models: what a cell's numbers become, and where the table goes. No model is opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.instruments.ways import Answer, Prompt, Way
from bench.real import BEGIN, END, PAGE, TEMPERATURES, Cell, Plan, fill_in, markdown, measure, prompts
from runtime.core.errors import SettingsError

PLAN = Plan(("gemma3",), ("chat", "JSON"), TEMPERATURES, tokens=8, rounds=2)
RATES = {
    "plain": [10.0, 20.0],
    "adaptive": [15.0, 20.0],
    "server, plain": [10.0, 10.0],
    "server, ngram_map_k": [11.0, 22.0],
}
CELL = Cell("gemma3", "chat", 0.8, RATES, frozenset({"server, plain"}))


class FakePeer:
    """Says the same every time; a slower or faster one says something else."""

    def __init__(self, name: str, text: str, failure: str = "") -> None:
        self.way, self.text, self.failure = (
            Way(name, lambda job, way: lambda prompt: Answer("", 0, 0), ""),
            text,
            failure,
        )
        self.texts: dict[str, set[str]] = {}

    def rate(self, asked: list[Prompt]) -> float:
        self.texts.setdefault(asked[0].question, set()).add(self.text)
        return 1.0


def test_a_row_has_ratios_of_the_same_rounds() -> None:
    assert CELL.row() == [
        "chat",
        "0.8",
        "15.0",
        "1.25 (1.00 to 1.50)",
        "0.75* (0.50 to 1.00)",
        "1.10 (1.10 to 1.10) ngram_map_k",
        "1.14 (0.91 to 1.36)",
        "yes",
    ]
    without = {name: rates for name, rates in RATES.items() if not name.startswith("server")}
    assert Cell("gemma3", "chat", 0, without, frozenset({"adaptive"})).row()[-4:] == [
        "failed",
        "failed ",
        "failed",
        "NO",
    ]


def test_every_kind_is_asked_at_every_temperature_and_only_forms_are_forced() -> None:
    asked = list(prompts(PLAN, [Prompt("Q", [1]), Prompt("R", [2])]))
    assert [(kind, prompt.temperature) for kind, prompt in asked] == [
        (kind, temperature) for kind in PLAN.kinds for temperature in TEMPERATURES
    ]
    assert [bool(prompt.form) for _, prompt in asked] == [False, False, True, True]


@pytest.mark.parametrize(("text", "others"), [("one", {"server"}), ("two", {"adaptive", "server"})])
def test_texts_are_compared(text: str, others: set[str]) -> None:
    peers = [FakePeer("plain", "one"), FakePeer("adaptive", text), FakePeer("server", "three")]
    peers.append(FakePeer("failing server", "four", failure="no memory"))
    rates, found = measure(peers, Prompt("Q", [1]), 2)  # type: ignore[arg-type]
    assert (set(rates), found) == ({"plain", "adaptive", "server"}, others)


def test_an_engine_of_ours_that_fails_is_said() -> None:
    peers = [FakePeer("plain", "one"), FakePeer("adaptive", "", failure="no memory")]
    with pytest.raises(SettingsError, match="no memory"):
        measure(peers, Prompt("Q", [1]), 1)  # type: ignore[arg-type]


def test_the_table_is_put_into_the_page_and_nothing_else_is_touched(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text(encoding="utf8"), encoding="utf8")
    before, after = page.read_text(encoding="utf8").split(BEGIN)[0], page.read_text(encoding="utf8").split(END)[1]
    for _ in range(2):
        fill_in(page, markdown([CELL], PLAN))
        text = page.read_text(encoding="utf8")
        assert text.startswith(before)
        assert text.endswith(after)
        assert text.count("**gemma3**\n\n| text |") == 1
        assert text.count("| chat | 0.8 | 15.0 |") == 1
    page.write_text("no marks", encoding="utf8")
    with pytest.raises(SettingsError, match="has no place for the table"):
        fill_in(page, "")
