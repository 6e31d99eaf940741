"""Background work: pairs are opened, replies generated, models fetched, editors answered.

Threads post messages and touch no widget; the widgets here are invisible, own the threads and post events. Knows the
engine and the hub; knows no visible widget.
"""

from __future__ import annotations

from textual.widget import Widget


class Invisible(Widget):
    """A widget that owns work and is not drawn."""

    DEFAULT_CSS = "Invisible { display: none; }"
