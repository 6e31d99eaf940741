"""A drafter is one file: what it registers is all that the command line, the chat and the statistics know of it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from app.cli.bench_plan import choose_drafters
from app.tui.widgets.message_view import color
from runtime.drafters import registry
from runtime.models.registry import load_registry
from tests.support.cli import slipstream

ROOT = Path(__file__).parents[2]
WIDE = {"COLUMNS": "400"}  # nothing is broken in two
TOY = '''
from runtime.core.draft import Draft
from runtime.core.drafter import Drafter
from runtime.drafters.registry import Cost, Registered


@Registered("toy", Cost.LOOKUP, label="a stutter", colour="warning")
class Toy(Drafter):
    """Proposes the last token once more."""

    is_model_free = True

    def propose(self, context, budget):
        return Draft((int(context[-1]),) if budget.max_k and budget.should_continue(0.5) else ())
'''


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A drafter in a file of its own, which is gone afterwards."""
    (tmp_path / "stuttering_toy.py").write_text(TOY, encoding="utf8")
    monkeypatch.syspath_prepend(tmp_path)
    import_module("stuttering_toy")
    yield
    del registry.KNOWN["toy"], sys.modules["stuttering_toy"]


@pytest.mark.usefixtures("toy", "models_here")
def test_a_new_drafter_is_had_by_name_and_seen_in_the_statistics() -> None:
    done = slipstream("run", "What is a list?", "--drafters", "toy", "--fixed-k", "1", "--max-tokens", "8", "--json")
    told = json.loads(done.stdout)["timings"]
    assert done.returncode == 0
    assert told["drafters"]["toy"] > 0
    assert told["by_drafter"]["toy"]["drafted"] > 0


@pytest.mark.usefixtures("toy")
def test_people_are_told_of_a_new_drafter_by_what_it_registers() -> None:
    assert (registry.described("toy"), color("toy+ngram")) == ("a stutter", "$text-warning")
    assert "lookahead, toy; or none." in slipstream("run", "--help", env=WIDE).stdout
    done = slipstream("run", "hi", "--drafters", "toyy", env=WIDE)
    assert done.returncode == 2
    assert "There is no drafter 'toyy'. Did you mean 'toy'?" in done.stderr


@pytest.mark.usefixtures("toy")
def test_a_registry_of_pairs_may_name_a_new_drafter(tmp_path: Path) -> None:
    (tmp_path / "models.toml").write_text('[pairs.a]\ntarget = "a.gguf"\ndrafters = ["toy", "suffix"]\n')
    pair = load_registry(tmp_path / "models.toml")["a"]
    assert pair.drafters == ("toy", "suffix")
    assert choose_drafters(pair, None) == ("toy",)


def test_every_drafter_is_described_in_plain_words() -> None:
    names = registry.known_names()
    assert [name for name in names if registry.described(name) == name] == []


def test_what_is_not_registered_goes_by_its_name() -> None:
    assert (registry.described("elsewhere"), color("elsewhere")) == ("elsewhere", "$text-accent")


def test_people_are_told_of_the_usual_ones_first_and_the_loop_of_the_cheapest() -> None:
    heads = "eagle mtp assistant dflash dspark eagle1 hydra medusa".split()
    usual = "model ngram grammar prediction".split()
    by_cost = sorted(registry.registered(), key=lambda each: each.cost)
    assert registry.known_names() == [*usual, *heads, "layerskip", "suffix", "lookahead"]
    assert registry.usual() == tuple(usual)
    lookups = "grammar prediction ngram suffix".split()
    assert [each.name for each in by_cost] == [*lookups, "model", *heads, "layerskip", "lookahead"]


def test_the_page_on_drafters_has_a_row_for_each() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "drafters.md").read_text(encoding="utf8"), re.MULTILINE)
    assert sorted(rows) == sorted(registry.known_names())
