"""The options of `slipstream models`. Everything else is imported when a command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    help="Find, fetch, look at and pair models.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Remote = Annotated[
    str, typer.Argument(help="owner/repo, owner/repo:file.gguf, owner/repo:Q4_K_M, or a pair of models.toml.")
]


@app.command("list")
def list_models(as_json: AsJson = False) -> None:
    """Pairs that have a name, GGUF files in the hub's cache, and draft models that were made here."""
    from app.models.listing import show_all

    show_all(as_json)


@app.command()
def search(
    words: Annotated[str, typer.Argument(help="What to look for, such as: qwen3 4b.")],
    limit: Annotated[int, typer.Option(min=1, max=100, help="Show at most so many.")] = 20,
) -> None:
    """Repositories of the hub with GGUF files, the most fetched first."""
    from app.models.listing import show_search

    show_search(words, limit)


@app.command()
def info(
    model: Annotated[
        str, typer.Argument(help="A GGUF file, a folder with one, hf:owner/repo:file, or a pair of models.toml.")
    ],
    as_json: AsJson = False,
) -> None:
    """What a model is, what it needs and how fast it can be here, from its header alone."""
    from app.models.info import show

    show(model, as_json)


@app.command()
def pull(model: Remote) -> None:
    """Fetch a model into the hub's cache; what was cut off goes on where it stopped."""
    from app.models.pull import pull_all

    pull_all(model)


@app.command()
def rm(
    model: Annotated[str, typer.Argument(help="owner/repo, owner/repo:file.gguf or owner/repo:Q4_K_M.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove a model from the hub's cache."""
    from app.models.listing import remove

    remove(model, yes)


@app.command()
def check() -> None:
    """Compare every pair of models.toml with the hub, or with the files that it names."""
    from app.models.check import check_all

    raise typer.Exit(check_all())


@app.command()
def learned(
    pair: Annotated[str, typer.Argument(help="A pair of models.toml with `learn = true`; without it, all.")] = "",
    revert: Annotated[
        int | None, typer.Option("--revert", min=0, help="Use this version again; 0 is the head it began with.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Heads that were trained on your replies: what each was worth, and which one is used.

    For example: slipstream models learned my-pair --revert 0
    """
    from app.models.learned import go_back, show

    if revert is not None:
        go_back(pair, revert)
    else:
        show(pair, as_json)


@app.command()
def pair(
    target: Annotated[str, typer.Argument(help="The model that a draft model is looked for: as for `info`.")],
    folders: Annotated[
        list[Path] | None,
        typer.Option("--from", help="Look here too (may be given often).", exists=True, file_okay=False),
    ] = None,
    make: Annotated[
        bool, typer.Option("--make", help="Also try drafts made of the target itself: fewer bits, fewer layers, both.")
    ] = False,
) -> None:
    """Find the draft model that pays for a target, among those that are here, and keep it for `--draft auto`.

    Of models with large vocabularies, copies with the words that your replies use are tried as well.
    """
    from app.models.pair import pair_up

    pair_up(target, folders or [], make)


@app.command()
def distill(
    target: Annotated[str, typer.Argument(help="The model that a draft is trained for: as for `info`.")],
    kind: Annotated[str, typer.Option(help="head or model; left out, what promises most here.")] = "",
    source: Annotated[
        str, typer.Option("--from", help="'chats', a text file or a folder; left out, a neutral set of prompts.")
    ] = "",
    tokens: Annotated[int, typer.Option(min=500, help="Learn from so many tokens of replies.")] = 60_000,
    disk: Annotated[float, typer.Option(min=0.01, help="Keep at most so many GB on disk meanwhile.")] = 2.0,
    epochs: Annotated[int, typer.Option(min=1, help="Read all of them so many times.")] = 8,
    device: Annotated[str, typer.Option(help="cpu, cuda or mps (Metal).")] = "cpu",
    threads: Annotated[int, typer.Option(min=1, help="Compute with so many threads.")] = 1,
) -> None:
    """Train a draft for a target on its own replies, and keep it if it gains 3%.

    Needs the extra `train`. Ctrl+C keeps what was learned, and the same command goes on. What models say never changes.
    """
    if kind not in ("", "head", "model"):
        raise typer.BadParameter(f"'{kind}' is no kind of draft. Say head or model.", param_hint="--kind")
    if device not in ("cpu", "cuda", "mps"):
        raise typer.BadParameter(f"'{device}' is no device. Say cpu, cuda or mps.", param_hint="--device")
    from app.models.distill import distill as train

    train(target, kind, source, tokens, int(disk * 1e9), epochs, device, threads)
