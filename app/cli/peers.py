"""Hints for options of other programs: each one gives a usage error with our name for it.

Knows the option names of llama.cpp and Ollama; runs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Any

import typer
from typer.core import TyperCommand

ITSELF = "This is chosen automatically for this machine: leave it out."
NAMES = {
    ("-c", "--ctx-size", "--num-ctx"): "Here it is --context N.",
    ("-n", "--n-predict", "--predict", "--num-predict"): "Here it is --max-tokens N.",
    ("--temp",): "Here it is --temperature T.",
    ("-md", "--model-draft", "--spec-draft-model"): "Here it is --draft FILE.",
    ("--draft-max", "--draft-n", "--spec-draft-n-max"): "The draft length adapts; --max-k N limits it.",
    ("-sys", "--sys", "--system-prompt"): "Here it is --system TEXT.",
    ("--repeat-penalty",): "Here it is --repetition-penalty P.",
    ("-np",): "Here it is --parallel N.",
    ("-hf", "--hf-repo"): "Here a file of the hub is a model's name: -m hf:owner/repo:file.",
    ("-i", "-cnv", "--interactive", "--conversation"): "For a conversation, use: slipstream chat",
    ("-ngl", "--n-gpu-layers", "--gpu-layers", "-fa", "--flash-attn", "-b", "-ub", "--mlock", "--no-mmap"): ITSELF,
}  # fmt: skip
HERE = {name: sentence for names, sentence in NAMES.items() for name in names}


class HintingCommand(TyperCommand):
    """A command that recognizes other programs' names for its options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Raises BadParameter with our name for a foreign option. Typer exports no type for `ctx`."""
        for name in self._foreign(args):
            raise typer.BadParameter(HERE[name], ctx=ctx, param_hint=f"'{name}'")
        return super().parse_args(ctx, args)

    def _foreign(self, args: list[str]) -> Iterator[str]:
        ours = {name for parameter in self.params for name in (*parameter.opts, *parameter.secondary_opts)}
        names = (each.partition("=")[0] for each in takewhile(lambda each: each != "--", args))
        return (name for name in names if name in HERE and name not in ours)
