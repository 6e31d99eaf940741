"""Commands whose texts must have been decoded: other bytes would be asked as if they were characters."""

from __future__ import annotations

from typing import Any

import typer

from app.cli.peers import HintingCommand
from runtime.core.outside import is_text

NAMES = ("words", "model", "pair", "draft")  # parameters that may name a file, whose name may be any bytes
OTHER_BYTES = (
    "The text has bytes that are not UTF-8. Set the terminal to UTF-8, or convert the text, such as with `iconv -f "
    "latin1 -t utf8`, and send it on standard input."
)


class TextCommand(HintingCommand):
    """A command that refuses texts in another encoding."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Raises BadParameter for such a text. Typer exports no type for `ctx`."""
        left = super().parse_args(ctx, args)
        for name, value in ctx.params.items():
            texts = value if isinstance(value, (list, tuple)) else [value]
            if name not in NAMES and not all(is_text(text) for text in texts if isinstance(text, str)):
                raise typer.BadParameter(OTHER_BYTES, ctx=ctx, param_hint=f"'--{name.replace('_', '-')}'")
        return left
