"""Commands for which drafters are chosen: their help names all that there are.

Knows where the names are had, and asks for them only when the help is wanted, as that takes a while.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperOption

from app.cli.peers import HintingCommand
from runtime.drafters.registry import known_names

DRAFTERS = "DRAFTERS"  # stands for their names in an option's help


class DraftingCommand(HintingCommand):
    """A command that may be told which drafters to use."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Puts the names in. Typer exports no types for `ctx` and `formatter`."""
        for option in self.params:
            if isinstance(option, TyperOption) and DRAFTERS in (option.help or ""):
                option.help = str(option.help).replace(DRAFTERS, ", ".join(known_names()))
        super().format_help(ctx, formatter)
