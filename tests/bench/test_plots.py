"""The plots of the documentation are those that their script draws."""

from __future__ import annotations

from bench import plots as drawings


def test_the_plots_of_the_docs_are_those_that_the_script_draws() -> None:
    for name, plot in drawings.PLOTS.items():
        assert (drawings.DOCS / name).read_text(encoding="utf8") == plot()
    assert [drawings.tokens_per_pass(share, 3) for share in (0.0, 0.5, 1.0)] == [1.0, 1.875, 4.0]
