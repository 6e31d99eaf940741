"""Commands with an option for drafters, whose help lists all drafter names.

The names are loaded only when the help is shown, because that is slow.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperOption

from app.cli.texts import TextCommand
from runtime.drafters.registry import known_names

DRAFTERS = "DRAFTERS"  # stands for their names in an option's help


class DraftingCommand(TextCommand):
    """A command with an option for drafters."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Insert the drafter names. Typer exports no types for `ctx` and `formatter`."""
        for option in self.params:
            if isinstance(option, TyperOption) and DRAFTERS in (option.help or ""):
                option.help = str(option.help).replace(DRAFTERS, ", ".join(known_names()))
        super().format_help(ctx, formatter)
