"""The command `slipstream`: its commands, exit codes, and no slow imports.

Exit codes: 0 done, 1 our error (one line on standard error), 2 usage, 128 + n ended by signal n (130: Ctrl+C).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from app.cli.chat import chat
from app.cli.errors import guard, must_guard, run_app
from app.cli.options import (
    ModelOptions,
    ModelToo,
    PairName,
    Rpc,
    StrictCommand,
    grouped,
    measuring,
    output,
)
from app.cli.run import run
from app.cli.serve import serve
from app.cli.streams import abandon_output, fail, reader_may_leave
from app.cli.worker import worker
from app.models.cli import app as models_app
from app.terminal import ENDING, handling, leave, print_text
from runtime.core.children import end_with_parent
from runtime.core.errors import NO_MEMORY, SlipstreamError, is_lack_of_memory

app = typer.Typer(
    no_args_is_help=True, pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]}
)
app.add_typer(models_app, name="models")


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What is measured, and how often."""

    quick: Annotated[bool, measuring("--quick", help="Fewer rounds, kinds and draft lengths.")] = False
    runs: Annotated[int | None, measuring(min=1, help="Rounds that count (5).", show_default=False)] = None
    kinds: Annotated[str | None, measuring(help="Some of question, code, edit, summary, turns, prose.")] = None
    max_tokens: Annotated[int | None, measuring(min=1, help="Tokens of a reply (64).", show_default=False)] = None
    ks: Annotated[str | None, measuring(help="Draft lengths to compare (1,2,3,4,6,8).", show_default=False)] = None


@dataclass(frozen=True, slots=True)
class BenchModelOptions(ModelOptions):
    """The same options for a benchmark."""

    drafters: Annotated[str | None, measuring(help="The drafters: model, ngram, or none.")] = None


def writable(path: Path | None) -> Path | None:
    """Return the file that a long run will write. Raises BadParameter if it cannot be changed or created."""
    if path is None:
        return None
    is_file = not path.is_dir() and path.parent.is_dir()
    if not is_file or not os.access(path if path.exists() else path.parent, os.W_OK):
        text = f"{path} cannot be written. Name a file in a folder that exists and that you may write to."
        raise typer.BadParameter(text)
    return path


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """The files for results that the terminal does not show."""

    html: Annotated[Path | None, output(callback=writable, help="Write a report with a plot to this file.")] = None
    json_file: Annotated[
        Path | None, output("--json", callback=writable, help="Write every reply's numbers to this file.")
    ] = None


def _show_version(wanted: bool) -> None:
    if wanted:
        print_text(f"slipstream {version('slipstream')}")
        raise typer.Exit


@app.callback()
def slipstream(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Local models that answer faster, with the same text."""


app.command(cls=StrictCommand)(grouped(run))
app.command(cls=StrictCommand)(grouped(chat))


@app.command(cls=StrictCommand)
@grouped
def bench(
    pair: PairName = "demo", model: ModelToo = "", *, what: BenchOptions, how: BenchModelOptions, files: ReportOptions
) -> None:
    """Measure what speculation gains on this machine.

    Plain decode, every drafter at fixed draft lengths, and adaptive decoding, over kinds of text and two temperatures.
    For example: slipstream bench --quick --html report.html
    """
    from app.cli import bench as command
    from app.cli import bench_plan as plan
    from app.cli import choices
    from runtime.models.registry import with_files

    chosen, options = choices.choose(model or pair, how)
    wanted = plan.make_plan(plan.choose_drafters(with_files(chosen), options.drafters), **asdict(what))
    options = replace(options, max_k=max(options.max_k, *wanted.ks))
    code = 0
    with reader_may_leave():
        code = command.run(chosen, options, wanted, files.html, files.json_file)
    raise typer.Exit(code)


app.command(cls=StrictCommand)(grouped(serve))


@app.command("trace")
def sum_up(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that --trace wrote.", show_default=False)],
) -> None:
    """Sum up a trace: what each drafter gained, where the time went, and why passes were plain."""
    from app.cli.report import show_trace

    show_trace(file)


@app.command()
def forget() -> None:
    """Remove everything that was learned from replies.

    The drafter `suffix` keeps past replies in a folder that only you can read, and so does a pair that learns. This
    removes them for every model, with the heads and draft models that were made from them, unfinished trainings, the
    prompt cache, and the conversation of the last `run`. Chats are kept.
    """
    from app.cli.conversation import forget_last_run
    from runtime.engine import forget_replies
    from runtime.engine.stored_states import forget as forget_prompts
    from runtime.training.made_drafts import forget as forget_words
    from runtime.training.place import forget as forget_learned

    forget_last_run()
    n_bytes, n_trimmed, n_learned, n_prompts = forget_replies(), forget_words(), forget_learned(), forget_prompts()
    if n_prompts:
        print_text(f"Removed the prompt cache: {n_prompts / 1e6:.1f} MB. Prompts are read again when needed.")
    if n_learned:
        print_text(
            f"Removed the heads that were trained on your replies, and their training data: {n_learned / 1e6:.1f} MB."
        )
    if n_trimmed:
        print_text(
            "Removed the draft models that were made from your replies, and their training data: "
            f"{n_trimmed / 1e6:.1f} MB. `slipstream models pair` and `distill` make them again."
        )
    removed = f"Removed the past replies of every model: {n_bytes / 1024:.1f} KiB."
    print_text(removed if n_bytes else "There are no past replies to remove.")


@app.command()
def doctor(
    pair: Annotated[str, typer.Argument(help="The pair or GGUF file to measure.")] = "demo",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    rpc: Rpc = None,
) -> None:
    """Examine this machine and its workers: devices, kernels, the cost of passes, problems and how to fix them."""
    from app.cli.choices import parse_workers
    from app.cli.doctor import run as examine

    examine(pair, as_json, None if rpc is None else parse_workers(rpc, ()))


app.command()(worker)


def main(args: Sequence[str]) -> None:
    """Run the command with these arguments, and end the process with an exit code if it fails."""
    is_child = end_with_parent()
    try:
        if not is_child and must_guard(args):
            raise SystemExit(guard(args))
        with handling(leave, ENDING[:1] if is_child else ENDING):  # beside a model library, the others kill
            run_app(app, args)
    except SlipstreamError as error:
        fail(str(error), 1)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except (ImportError, MemoryError, RuntimeError, SyntaxError, SystemError) as error:
        if not is_lack_of_memory(error):
            raise
        fail(NO_MEMORY, 1)
    except OSError as error:
        abandon_output()
        where = f" ({Path(error.filename)})" if error.filename else ""
        fail(f"{error.strerror or error}{where}. Make room or name another place, and try again.", 1)
