"""The report that `slipstream bench` writes: a page that needs nothing from outside, and its plot."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import pytest

from app.cli.bench_plan import ADAPTIVE, Plan
from app.cli.bench_report import page, plot
from tests.support.bench import FACTS, PLAN, made


class Tags(HTMLParser):
    """Elements, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.attributes, self.text = list[str](), dict[str, str](), ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.update({name: value or "" for name, value in attrs})

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("plan", [PLAN, replace(PLAN, drafters=())], ids=["drafters", "plain"])
def test_the_report_needs_nothing_from_outside_and_escapes_what_it_shows(plan: Plan) -> None:
    results = made(plan)
    text = page(results, FACTS)
    found = Tags(text)
    assert not {"script", "link", "img", "iframe", "object", "embed"} & set(found.tags)
    assert not {"src", "href", "xlink:href", "onload", "onclick"} & set(found.attributes)
    assert not [
        word
        for word in ("url(", "@import", "http:", "https:")
        if word in text.replace('xmlns="http://www.w3.org/2000/svg"', "")
    ]
    assert "<script>alert(1)</script>.gguf" in found.text
    assert found.tags.count("svg") == bool(plan.drafters)
    assert "prefers-color-scheme: dark" in text
    assert "A <fast> machine" in found.text


def test_every_colour_of_a_plot_is_one_that_the_page_defines() -> None:
    many = replace(PLAN, kinds=("question", "code", "edit", "summary", "turns", "prose"))
    text = page(made(many), FACTS)
    used = {part.partition(")")[0] for part in text.split("var(")[1:]}
    assert used
    assert all(text.count(f"{name}: #") == 2 for name in used)  # in light and in dark


def test_an_axis_reaches_above_every_range() -> None:
    results = made()
    results.samples = [
        replace(sample, seconds=sample.seconds / (9 if sample.way == ADAPTIVE and sample.round == 1 else 1))
        for sample in results.samples
    ]
    # The fastest round is 18 times as fast as plain decode, the fastest median 10
    assert ">20</text>" in plot(results)


def test_an_interrupted_report_says_so() -> None:
    assert "interrupted" in page(made(is_interrupted=True), FACTS)
    assert "interrupted" not in page(made(), FACTS)
