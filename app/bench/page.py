"""The report as one self-contained HTML file.

Knows the template report.html. Everything but our own drawings is escaped.
"""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from app.bench.facts import Facts
from app.bench.plots import plots
from app.bench.results import Results
from app.bench.words import headlines, kinds, rows, verdict


def page(results: Results, facts: Facts) -> str:
    """Return the whole document."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    temperatures = dict.fromkeys(cell.temperature for cell in results.cells)
    return environment.get_template("report.html").render(
        results=results,
        facts=facts,
        headlines=headlines(results),
        tables=[
            {"temperature": each, "kinds": kinds(results, each), "rows": rows(results, each)} for each in temperatures
        ],
        plots=[{"title": plot.title, "caption": plot.caption, "svg": Markup(plot.svg)} for plot in plots(results)],
        verdict=verdict(results),
    )
