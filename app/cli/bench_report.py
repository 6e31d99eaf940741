"""A benchmark's results for people: sentences, the table, and a page with the table and a plot.

The plot is self-contained SVG: no script, no font, no stylesheet. Its colors are variables of the page, so that they
follow its light or dark scheme. Measures nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import pygal
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from pygal.style import Style
from rich import box
from rich.table import Table
from rich.text import Text

from app.cli.bench_plan import ADAPTIVE, PLAIN, TEMPERATURES, Cell
from app.cli.bench_results import Results, Spread
from app.cli.report import console

N_COLORS = 8  # colors defined by the page
STYLE: dict[str, Any] = {
    "js": [], "width": 640, "height": 380, "margin": 8, "margin_bottom": 16, "legend_at_bottom": True,
    "truncate_legend": -1, "dots_size": 3,
    "y_labels_major": [0], "disable_xml_declaration": True, "no_data_text": "nothing measured",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TableRow:
    """One configuration at one temperature."""

    way: str
    speed: str
    ratio: str
    by_kind: list[tuple[str, bool]]  # with whether it is the fastest of that kind


def headlines(results: Results) -> list[tuple[str, str]]:
    """Return the main results, each a number and its meaning."""
    n_odd = results.n_different + results.n_rounded
    found = [(f"{n_odd:,}", f"of {results.n_compared:,} replies differ from plain decode's, token for token")]
    if (ratio := results.ratio(ADAPTIVE, PLAIN, results.cells)) and (share := results.share_of_best()):
        by_cell = {cell: spread.median for cell in results.cells if (spread := results.ratio(ADAPTIVE, PLAIN, [cell]))}
        least = min(by_cell, key=by_cell.__getitem__)
        range_ = f"({ratio.least:.2f} to {ratio.most:.2f} by round)"
        found = [
            (f"{ratio.median:.2f}", f"times plain decode on this machine {range_}"),
            (f"{by_cell[least]:.2f}", f"times plain decode where speculation helped least: {least}"),
            (f"{share:.2f}", "times the best fixed setting for each kind of text, chosen afterwards"),
            *found,
        ]
    elif plain := results.speed(PLAIN, results.cells):
        found.insert(0, (f"{plain.median:.0f}", "tokens per second of plain decode on this machine"))
    return found


def verdict(results: Results) -> str:
    """Return whether the texts are the same, and if not, what that means."""
    if results.n_different:
        return (
            f"{results.n_different} replies differ although only exact passes were used: this is a bug in "
            "Slipstream. Please report it."
        )
    if results.n_rounded:
        return (
            f"{results.n_rounded} replies differ, because passes of different widths round differently here "
            f"({results.exactness}) and `--fast` allows that. `--exact` prevents it on a CPU."
        )
    return "Every reply was the same as plain decode's."


def rows(results: Results, temperature: float) -> list[TableRow]:
    """Return a row for each configuration with results."""
    cells = [cell for cell in results.cells if cell.temperature == temperature]
    best = {cell: fastest(results, cell) for cell in cells}
    found = []
    for way in results.plan.ways:
        speed, ratio = results.speed(way.name, cells), results.ratio(way.name, PLAIN, cells)
        if speed and ratio:
            times = f"{ratio.median:.2f} ({ratio.least:.2f} to {ratio.most:.2f})" if way.name != PLAIN else "1"
            by_kind = [(in_cell(results, way.name, cell), best[cell] == way.name) for cell in cells]
            found.append(TableRow(way.name, f"{speed.median:.0f}", times, by_kind))
    return found


def fastest(results: Results, cell: Cell) -> str:
    """Return the fastest configuration in a cell."""
    best = results.best_fixed(cell)
    adaptive = results.ratio(ADAPTIVE, best, [cell])
    return ADAPTIVE if adaptive and adaptive.median >= 1 else best


def in_cell(results: Results, way: str, cell: Cell) -> str:
    """Return the speed of plain decode, or the speed relative to it for the other configurations."""
    if way == PLAIN:
        speed = results.speed(way, [cell])
        return f"{speed.median:.0f} tok/s" if speed else ""
    ratio = results.ratio(way, PLAIN, [cell])
    return f"{ratio.median:.2f}" if ratio else ""


def kinds(results: Results, temperature: float) -> list[str]:
    """Return the columns of `by_kind`."""
    return [cell.kind for cell in results.cells if cell.temperature == temperature]


def show(results: Results) -> None:
    """Print all results on standard output."""
    out = console()
    for temperature in dict.fromkeys(cell.temperature for cell in results.cells):
        out.print(table(results, temperature))
    for number, text in headlines(results):
        out.print(f"{number:>8} {text}", soft_wrap=True)
    out.print(f"{'':>8} {verdict(results)}", soft_wrap=True)


def table(results: Results, temperature: float) -> Table:
    """Return a table with a row for each configuration and a column for each kind of text, its fastest marked."""
    title = f"temperature {temperature:g}{', with a seed' if temperature else ''}; by kind: times plain"
    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", padding=(0, 1))
    made.add_column("setting")
    for name in ("tok/s", "times plain", *kinds(results, temperature)):
        made.add_column(name, justify="right")
    for row in rows(results, temperature):
        marked = [Text(text, style="bold green" if is_best else "") for text, is_best in row.by_kind]
        made.add_row(row.way, row.speed, row.ratio, *marked)
    return made


def page(results: Results, facts: Mapping[str, str]) -> str:
    """Return the whole document, given the conditions of the benchmark."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    temperatures = dict.fromkeys(cell.temperature for cell in results.cells)
    return environment.get_template("bench_report.html").render(
        results=results,
        facts=facts,
        headlines=headlines(results),
        tables=[
            {"temperature": each, "kinds": kinds(results, each), "rows": rows(results, each)} for each in temperatures
        ],
        plot=Markup(plot(results)) if results.plan.drafters else "",
        verdict=verdict(results),
    )


def plot(results: Results) -> str:
    """Return bars of adaptive decoding and the best fixed setting relative to plain decode, by kind of text. The line
    at 1 is marked.
    """
    shown = dict.fromkeys(cell.kind for cell in results.cells)
    style = plot_style()
    chart = pygal.Bar(**STYLE | {"y_labels_major": [1]}, style=style, y_title="times plain decode", x_labels=[*shown])
    bars = dict[str, list[Spread | None]]()
    for temperature in TEMPERATURES:
        cells = [Cell(kind, temperature) for kind in shown]
        bars[f"best fixed, temperature {temperature:g}"] = [
            results.ratio(results.best_fixed(cell), PLAIN, [cell]) for cell in cells
        ]
        bars[f"adaptive, temperature {temperature:g}"] = [results.ratio(ADAPTIVE, PLAIN, [cell]) for cell in cells]
    for name, spreads in bars.items():
        chart.add(name, [ranged(spread) for spread in spreads])
    from_zero(chart, [spread for spreads in bars.values() for spread in spreads])
    return draw(chart)


def plot_style() -> Style:
    """Return a style with the page's colors."""
    colors = [f"var(--color-{i % N_COLORS})" for i in range(4 * N_COLORS)]
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


def from_zero(chart: Any, spreads: Iterable[Spread | None]) -> None:
    """Make the axis begin at 0 and end above every range, with a line at 1. The library considers only the points."""
    top = max([spread.most for spread in spreads if spread], default=1.0)
    step = next(step for n in range(-3, 9) for step in (10.0**n, 2 * 10.0**n, 5 * 10.0**n) if top / step <= 6)
    chart.config.y_labels = sorted({1.0, *(round(i * step, 6) for i in range(math.ceil(top / step) + 1))})


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
