"""The options of `slipstream models`. Everything else is imported when a command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.terminal import print_note

app = typer.Typer(
    no_args_is_help=True,
    help="Find, fetch, inspect and pair models.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Remote = Annotated[
    str, typer.Argument(help="owner/repo, owner/repo:file.gguf, owner/repo:Q4_K_M, or a pair of models.toml.")
]


@app.command("list")
def list_models(as_json: AsJson = False) -> None:
    """List named pairs, GGUF files in the hub's cache, and draft models that were made here."""
    from app.models.listing import show_all

    show_all(as_json)


@app.command()
def search(
    words: Annotated[str, typer.Argument(help="What to look for, such as: qwen3 4b.")],
    limit: Annotated[int, typer.Option(min=1, max=100, help="Show at most this many.")] = 20,
) -> None:
    """Find repositories of the hub with GGUF files, most downloaded first."""
    from app.models.hub import show_search

    show_search(words, limit)


@app.command()
def info(
    model: Annotated[
        str, typer.Argument(help="A GGUF file, a folder with one, hf:owner/repo:file, or a pair of models.toml.")
    ],
    as_json: AsJson = False,
) -> None:
    """Show what a model is, what it needs and how fast it can be here, from its header only."""
    from app.models.info import show

    show(model, as_json)


@app.command()
def pull(
    model: Remote,
    text_only: Annotated[bool, typer.Option("--text-only", help="Leave out its vision encoder.")] = False,
) -> None:
    """Fetch a model, with its vision encoder, into the hub's cache; an interrupted download is resumed."""
    from app.models.hub import pull_all

    pull_all(model, not text_only)


@app.command()
def rm(
    model: Annotated[str, typer.Argument(help="owner/repo, owner/repo:file.gguf or owner/repo:Q4_K_M.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove a model from the hub's cache."""
    from app.models.hub import remove

    remove(model, yes)


@app.command()
def check() -> None:
    """Compare every pair of models.toml with the hub, or with the files that it names."""
    from app.models.hub import check_all

    raise typer.Exit(check_all())


@app.command()
def learned(
    pair: Annotated[str, typer.Argument(help="A pair of models.toml with `learn = true`; without it, all.")] = "",
    revert: Annotated[
        bool, typer.Option("--revert", help="Use the pair's own head; the learned one is removed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the heads that were trained on your replies: what each gained, and which one is used.

    For example: slipstream models learned my-pair --revert
    """
    from app.models.listing import go_back, show_learned

    if revert:
        go_back(pair)
    else:
        show_learned(pair, as_json)


@app.command()
def pair(
    target: Annotated[str, typer.Argument(help="The model to find a draft model for, as for `info`.")],
    folders: Annotated[
        list[Path] | None,
        typer.Option("--from", help="Also look in this folder (may be repeated).", exists=True, file_okay=False),
    ] = None,
    make: Annotated[
        bool, typer.Option("--make", help="Also try drafts made of the target itself: fewer bits, fewer layers, both.")
    ] = False,
) -> None:
    """Find the draft model that pays for a target, among those that are here, and keep it for `--draft auto`.

    For models with large vocabularies, copies with only the words of your replies are tried as well.
    """
    from app.models.pair import pair_up, say
    from app.models.search_process import alone

    with alone(lambda: say("Another search is running. This one begins when that has ended.")):
        pair_up(target, folders or [], make)


@app.command()
def distill(
    target: Annotated[str, typer.Argument(help="The model to train a draft for, as for `info`.")],
    kind: Annotated[
        str, typer.Option(help="head, model, medusa or hydra; by default the more promising of the first two here.")
    ] = "",
    source: Annotated[
        str, typer.Option("--from", help="'chats', a text file or a folder; by default a neutral set of prompts.")
    ] = "",
    tokens: Annotated[int, typer.Option(min=500, help="Train on this many tokens of replies.")] = 60_000,
    disk: Annotated[float, typer.Option(min=0.01, help="Use at most this many GB of disk meanwhile.")] = 2.0,
    epochs: Annotated[int, typer.Option(min=1, help="Train on all of them this many times.")] = 8,
    device: Annotated[str, typer.Option(help="cpu, cuda or mps (Metal).")] = "cpu",
    threads: Annotated[int, typer.Option(min=1, help="Number of threads.")] = 1,
) -> None:
    """Train a draft for a target on its own replies, and keep it if it gains 3%.

    Needs the extra `train`. Ctrl+C keeps what was learned, and the same command goes on. What models say never changes.
    """
    if kind not in ("", "head", "model", "medusa", "hydra"):
        what = "Write head, model, medusa or hydra."
        raise typer.BadParameter(f"'{kind}' is not a kind of draft. {what}", param_hint="--kind")
    if device not in ("cpu", "cuda", "mps"):
        raise typer.BadParameter(f"'{device}' is not a device. Write cpu, cuda or mps.", param_hint="--device")
    from app.models.distill import distill as train

    train(target, kind, source, tokens, int(disk * 1e9), epochs, device, threads)


@app.command("convert-head")
def convert_head(
    folder: Annotated[
        Path, typer.Argument(help="A checkpoint's folder, with config.json.", exists=True, file_okay=False)
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")],
) -> None:
    """Convert published Medusa, Hydra, EAGLE-1 or EAGLE-2 heads to a file for `--draft`.

    Needs the extra `train`, and `safetensors` for such files.
    """
    from runtime.core.errors import ModelError
    from runtime.training.conditions import TrainingError

    try:
        from runtime.training.own_head_file import write_own_head
        from runtime.training.published_heads import converted
    except ImportError as error:
        raise TrainingError(
            f"Converting needs {error.name}, which is not installed. Install it with `pip install 'slipstream[train]'`."
        ) from error
    found = converted(folder)
    try:
        write_own_head(output, found)
    except OSError as error:
        raise ModelError(f"{output} cannot be written ({error.strerror or error}). Choose another place.") from error
    named = f" for {found.target}" if found.target else ""
    print_note(f"Wrote {output}: {found.shape.n_heads} {found.kind} heads{named}, {found.n_vocab:,} tokens.")
