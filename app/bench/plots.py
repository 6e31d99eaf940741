"""A benchmark's plots as self-contained SVG: no script, no font, no stylesheet.

Colors are variables of the page, so that they follow its light or dark scheme.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import mean
from typing import Any
from xml.etree.ElementTree import Element

import pygal
from pygal.style import Style

from app.bench.plan import ADAPTIVE, PLAIN, TEMPERATURES, Cell
from app.bench.results import Results, Spread

N_COLORS = 8  # colors defined by the page
SMOOTH = 4  # passes of a moving average
STYLE: dict[str, Any] = {
    "js": [], "width": 640, "height": 380, "margin": 8, "margin_bottom": 16, "legend_at_bottom": True,
    "truncate_legend": -1, "dots_size": 3,
    "y_labels_major": [0], "disable_xml_declaration": True, "no_data_text": "nothing measured",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawing, its title and its caption."""

    title: str
    caption: str
    svg: str


def plots(results: Results) -> list[Plot]:
    """Return all plots."""
    shown = [
        temperature for temperature in TEMPERATURES if any(cell.temperature == temperature for cell in results.cells)
    ]
    found = [speeds(results, temperature) for temperature in shown]
    if results.plan.drafters:
        found += [ratios(results, temperature) for temperature in shown]
        found += [references(results), acceptance(results), lengths(results)]
        found += [pass_costs(results)] if 1 in results.costs else []
    return found


def speeds(results: Results, temperature: float) -> Plot:
    """Return the plot of tokens per second by draft length: a line per drafter, with plain and adaptive decoding."""
    cells, ks = [cell for cell in results.cells if cell.temperature == temperature], results.plan.ks
    chart = pygal.Line(
        **STYLE,
        style=style(0),
        x_title="fixed draft length",
        y_title="tokens per second",
        x_labels=list(map(str, ks)),
    )
    known = {way.name: results.speed(way.name, cells) for way in results.plan.ways}
    for way in (PLAIN, ADAPTIVE):
        chart.add(
            way,
            [level(known.get(way))] * len(ks),
            show_dots=False,
            stroke_style={"dasharray": "8,5" if way == PLAIN else "none"},
        )
    for drafter in results.plan.drafters:
        chart.add(f"{drafter}, fixed K", [ranged(known[f"{drafter} K={k}"]) for k in ks])
    from_zero(chart, known.values())
    caption = "Over all kinds of text; bars from the slowest to the fastest round."
    return Plot(f"Speed by setting, temperature {temperature:g}", caption, draw(chart))


def ratios(results: Results, temperature: float) -> Plot:
    """Return the plot of adaptive decoding and the best fixed setting relative to plain decode, by kind of text."""
    cells = [cell for cell in results.cells if cell.temperature == temperature]
    settings = {"best fixed setting": [results.best_fixed(cell) for cell in cells], ADAPTIVE: [ADAPTIVE] * len(cells)}
    bars = {
        name: [results.ratio(way, PLAIN, [cell]) for way, cell in zip(ways, cells, strict=True)]
        for name, ways in settings.items()
    }
    svg = draw_bars(bars, [cell.kind for cell in cells], "times plain decode", 0)
    return Plot(
        f"Times plain decode, temperature {temperature:g}",
        "Above 1 is faster; bars from the worst to the best round.",
        svg,
    )


def references(results: Results) -> Plot:
    """Return the plot of adaptive decoding relative to the best fixed setting and to the ceiling, by cell."""
    fixed, ceiling = results.against_best(), results.against_hindsight()
    kinds, bars = list(dict.fromkeys(cell.kind for cell in results.cells)), dict[str, list[Spread | None]]()
    for each in TEMPERATURES:
        cells = [Cell(kind, each) for kind in kinds]
        bars[f"best fixed, temperature {each:g}"] = [fixed.get(cell) for cell in cells]
        bars[f"hindsight, temperature {each:g}"] = [
            Spread.of([ceiling[cell]] if cell in ceiling else []) for cell in cells
        ]
    caption = (
        "The best fixed setting is chosen afterwards for each kind of text. As the best of many noisy numbers, it is "
        "partly luck. "
        "Hindsight is the fastest choice if one knew in advance which draft tokens are accepted."
    )
    return Plot("Adaptive against the references", caption, draw_bars(bars, kinds, "times the reference", 1))


def acceptance(results: Results) -> Plot:
    """Return the plot of acceptance by depth: a line per drafter and temperature."""
    depths = [str(depth + 1) for depth in range(max(results.plan.ks))]
    chart = pygal.Line(
        **STYLE,
        style=style(2),
        x_title="depth",
        y_title="accepted",
        range=(0, 1),
        x_labels=depths,
        formatter="{:.0%}".format,
    )
    for drafter in results.plan.drafters:
        for temperature in TEMPERATURES:
            chart.add(f"{drafter}, temperature {temperature:g}", results.acceptance(drafter, temperature))
    return Plot(
        "Acceptance by depth", "The chance that a draft token is accepted, given that all before it were.", draw(chart)
    )


def lengths(results: Results) -> Plot:
    """Return the plot of tokens drafted by pass, along the newest greedy replies, as a moving average over a few
    passes.
    """
    lines = {kind: results.lengths(kind) for kind in dict.fromkeys(cell.kind for cell in results.cells)}
    longest = max((k for line in lines.values() for _, k in line), default=0)
    chart = pygal.XY(
        **STYLE, style=style(1), x_title="tokens generated", y_title="K", y_labels=list(range(max(longest, 4) + 1))
    )
    for kind, line in lines.items():
        chart.add(
            kind, [(n, mean(k for _, k in line[max(0, i + 1 - SMOOTH) : i + 1])) for i, (n, _) in enumerate(line)]
        )
    caption = f"Draft length set by the controller: the mean of the last {SMOOTH} passes. A plain pass counts as 0."
    return Plot("K over a reply", caption, draw(chart))


def pass_costs(results: Results) -> Plot:
    """Return the plot of T(n) / T(1) against n passes of one row."""
    costs, look = results.costs, STYLE | {"y_labels_major": [1]}
    chart = pygal.XY(
        **look, style=style(1), x_title="rows in a pass", y_title="times a pass of one row", x_labels=list(costs)
    )
    chart.add("measured", [(width, seconds / costs[1]) for width, seconds in costs.items()])
    chart.add("one by one", [(width, width) for width in costs], show_dots=False, stroke_style={"dasharray": "8,5"})
    return Plot(
        "What a wider pass costs",
        "The gap between the lines is what speculation can gain, and what drafting may cost.",
        draw(chart),
    )


def style(first: int) -> Style:
    """Return a style with the page's colors, starting at `first`: 0 is for plain decode, 1 for adaptive."""
    colors = [f"var(--color-{(first + i) % N_COLORS})" for i in range(4 * N_COLORS)]
    return Style(
        background="transparent", plot_background="transparent", foreground="var(--ink)",
        foreground_strong="var(--ink)",
        foreground_subtle="var(--line)", guide_stroke_color="var(--line)", guide_stroke_dasharray="2,4",
        major_guide_stroke_color="var(--muted)", major_guide_stroke_dasharray="none",
        font_family="system-ui, sans-serif",
        label_font_size=12, major_label_font_size=12, legend_font_size=13, title_font_size=13, opacity=".85",
        stroke_width="2", stroke_opacity="1",
        colors=colors, value_colors=["var(--ink)"] * len(colors), ci_colors=["var(--muted)"] * len(colors),
    )  # fmt: skip


def draw_bars(bars: dict[str, list[Spread | None]], kinds: list[str], title: str, first: int) -> str:
    """Return a bar chart of ratios by kind of text. The line at 1 is marked."""
    chart = pygal.Bar(**STYLE | {"y_labels_major": [1]}, style=style(first), y_title=title, x_labels=kinds)
    for name, spreads in bars.items():
        chart.add(name, [ranged(spread) for spread in spreads])
    from_zero(chart, [spread for spreads in bars.values() for spread in spreads], 1.0)
    return draw(chart)


def from_zero(chart: Any, spreads: Iterable[Spread | None], *more: float) -> None:
    """Make the axis begin at 0 and end above every range. The library considers only the points."""
    top = max([spread.most for spread in spreads if spread], default=1.0)
    step = next(step for n in range(-3, 9) for step in (10.0**n, 2 * 10.0**n, 5 * 10.0**n) if top / step <= 6)
    chart.config.y_labels = sorted({*(round(i * step, 6) for i in range(math.ceil(top / step) + 1)), *more})


def level(spread: Spread | None) -> float | None:
    """Return a point without its range."""
    return None if spread is None else spread.median


def ranged(spread: Spread | None) -> dict[str, Any] | None:
    """Return a point with a bar from least to most."""
    return None if spread is None else {"value": spread.median, "ci": {"low": spread.least, "high": spread.most}}


def draw(chart: Any) -> str:
    """Return the chart as an element for a page. Values appear as tooltips."""
    chart.config.value_formatter = chart.config.formatter or (lambda value: f"{value:.4g}")
    chart.add_xml_filter(without_script)
    return str(chart.render(is_unicode=True))


def without_script(root: Element) -> Element:
    """Remove comments, and scripts, which the library emits even if disabled. Its tooltips become the browser's own."""
    for parent in root.iter():
        for child in [child for child in parent if not isinstance(child.tag, str) or child.tag.endswith("script")]:
            parent.remove(child)
        if str(parent.tag).endswith("desc") and parent.get("class") == "value":
            parent.tag = parent.tag.replace("desc", "title")
    return root
