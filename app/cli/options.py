"""Options that several commands of `slipstream` have, and the panels of its help that options stand in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

GENERATE, MODEL, SAMPLE, GRAMMAR, MEASURE, OUTPUT = (
    "What to say",
    "Which models",
    "Sampling",
    "Form of the reply",
    "What to measure",
    "Output",
)
LISTEN = "Where to listen"

Draft = Annotated[str, typer.Option(help="The draft model: a GGUF file, 'auto' or 'off'.", rich_help_panel=MODEL)]
Drafters = Annotated[
    str | None,
    typer.Option(
        help="Which may guess: model, ngram, grammar, prediction, layerskip, suffix, lookahead; or none.",
        rich_help_panel=MODEL,
    ),
]
MaxK = Annotated[
    int | None,
    typer.Option(
        min=1, max=16, help="Draft at most so many tokens at once (12).", show_default=False, rich_help_panel=MODEL
    ),
]
Context = Annotated[int | None, typer.Option(min=16, help="Tokens of context.", rich_help_panel=MODEL)]
Threads = Annotated[
    int | None, typer.Option(min=1, max=512, help="Threads, instead of measuring.", rich_help_panel=MODEL)
]
Exact = Annotated[
    bool, typer.Option("--exact", help="Bit-identical kernels for K-quants too (CPU).", rich_help_panel=MODEL)
]
Port = Annotated[
    int | None, typer.Option(min=0, max=65535, help="TCP port (8012, or none with --socket).", rich_help_panel=LISTEN)
]
Socket = Annotated[Path | None, typer.Option(help="A Unix socket that only you can open.", rich_help_panel=LISTEN)]
ApiKey = Annotated[
    str,
    typer.Option(
        envvar="SLIPSTREAM_API_KEY", help="What clients must know.", show_default=False, rich_help_panel=LISTEN
    ),
]
PairName = Annotated[str, typer.Argument(help="A pair of models.toml, or the path of a GGUF file.")]
