"""The two plots of docs/how-it-works.md and the one of docs/drafters.md, from numbers of bench/results.

`python -m bench.plots` writes them into docs/.
"""

from __future__ import annotations

from pathlib import Path

import pygal
from pygal.style import Style

from app.cli.bench_report import STYLE, draw

DOCS = Path(__file__).parents[1] / "docs"
# T(n) / T(1) of the demo target on a shared 2-core AMD EPYC, 2026-11-21 (bench/results/passes.md).
COSTS = {1: 1.00, 2: 1.24, 3: 1.66, 4: 1.55, 5: 1.94, 6: 2.19, 7: 2.72, 8: 2.20, 9: 3.27}
LENGTHS = 1, 3, 7  # tokens of a draft
# Shares of draft tokens accepted, block by block, on a stream that changes its subject after half of them
# (bench/results/training.md)
ADAPTED = {
    "the head as it was": [0.072, 0.114, 0.130, 0.066, 0.077, 0.079],
    "the head that learns": [0.072, 0.147, 0.183, 0.066, 0.083, 0.216],
}
COLORS = "#2563eb", "#d97706", "#059669"
DASHED = {"dasharray": "7,5"}


def style(colors: tuple[str, ...]) -> Style:
    """Return a style, dark on white, that is readable within a light and a dark page."""
    ink = "#374151"
    return Style(
        background="#ffffff", plot_background="#ffffff", foreground=ink, foreground_strong=ink,
        foreground_subtle="#d1d5db",
        guide_stroke_color="#e5e7eb", major_guide_stroke_color="#9ca3af", font_family="system-ui, sans-serif",
        label_font_size=12,
        major_label_font_size=12, legend_font_size=13, title_font_size=13, opacity=".9", stroke_width="2",
        colors=colors,
    )  # fmt: skip


def costs() -> str:
    """Return a plot of the cost of a pass over n rows and of n passes."""
    chart = pygal.XY(
        **STYLE | {"y_labels_major": [1]},
        style=style(COLORS),
        x_title="rows in a pass",
        y_title="times a pass of one row",
    )
    chart.x_labels = list(COSTS)
    chart.add("measured", list(COSTS.items()))
    chart.add("one by one", [(n, n) for n in COSTS], show_dots=False, stroke_style=DASHED)
    return drawn(chart, "costs")


def expected_tokens() -> str:
    """Return a plot of the tokens per pass by acceptance rate, with the cost of that pass."""
    chart = pygal.XY(
        **STYLE | {"y_labels_major": [1]}, style=style(tuple(color for color in COLORS for _ in range(2))),
        x_title="draft tokens accepted",
        y_title="tokens, or passes of one row", x_value_formatter="{:.0%}".format,
    )  # fmt: skip
    shares = [i / 20 for i in range(21)]
    for k in LENGTHS:
        drafts = "a draft of 1" if k == 1 else f"drafts of {k}"
        chart.add(f"tokens with {drafts}", [(share, tokens_per_pass(share, k)) for share in shares], show_dots=False)
        chart.add(
            "what that pass takes", [(share, COSTS[k + 1]) for share in (0, 1)], show_dots=False, stroke_style=DASHED
        )
    return drawn(chart, "expected-tokens")


def adaptation() -> str:
    """Return a plot of the acceptance rates of a learning head on a stream whose subject changes."""
    n = len(ADAPTED["the head as it was"])
    chart = pygal.Line(
        **STYLE,
        style=style(COLORS),
        x_title=f"blocks of questions: {n // 2} about one subject, {n - n // 2} about another",
        y_title="draft tokens accepted",
        x_labels=[str(i + 1) for i in range(n)],
        value_formatter="{:.0%}".format,
        range=(0, 1.1 * max(map(max, ADAPTED.values()))),
    )
    for name, shares in ADAPTED.items():
        chart.add(name, shares)
    return drawn(chart, "adaptation")


def tokens_per_pass(share: float, k: int) -> float:
    """Return the accepted tokens plus the one that the target adds: 1 + a + ... + a^k (arXiv 2211.17192)."""
    return sum(share**i for i in range(k + 1))


def drawn(chart: pygal.XY | pygal.Line, name: str) -> str:
    """Return the plot as SVG, identical in every run."""
    chart.uuid = name
    return draw(chart) + "\n"


PLOTS = {"costs.svg": costs, "expected-tokens.svg": expected_tokens, "adaptation.svg": adaptation}


def main() -> None:
    """Write all plots."""
    for name, plot in PLOTS.items():
        (DOCS / name).write_text(plot(), encoding="utf8")
        print(f"docs/{name}")


if __name__ == "__main__":
    main()
