"""`slipstream models search`, `pull`, `check` and `rm`: models of the hub, and of its cache on this machine.

Knows the terminal; runtime/models/hub fetches.
"""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from app.terminal import gigabytes, inert, large, print_note, print_text
from runtime.core.errors import SlipstreamError
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.hub.cache import cached_shards
from runtime.models.hub.cache import remove as remove_cached
from runtime.models.hub.fetch import Hub, RemoteFile
from runtime.models.hub.names import UnreachableError
from runtime.models.model_files import HUB, hub_name
from runtime.models.projector import read_projector
from runtime.models.registry import load_registry
from runtime.models.shards import is_encoder


def show_search(words: str, limit: int) -> None:
    """Print the repositories that a search of the hub finds."""
    repositories = Hub().search(words, limit)
    for name, n_downloads, is_gated in repositories:
        print_text(f"{n_downloads:>12,}  {name}{'  (gated)' if is_gated else ''}")
    if not repositories:
        print_note(f"The hub has no GGUF repository for '{words}'. Use fewer words.")


def pull_all(name: str, sees: bool = True) -> None:
    """Fetch one model, with its vision encoder if it `sees`, or the files of a pair that come from the hub. Then print
    how to use it.
    """
    pair = load_registry().get(name)
    if pair is None:
        repo, file = pull(name.removeprefix(HUB), sees)
        name = f"{HUB}{repo}:{file}"
    for path in pair.files if pair else ():
        if file_name := hub_name(path):
            pull(file_name)
        else:
            print_text(f"{path} is a file of this machine already.")
    if not is_encoder(name):
        print_text(f'Try it: slipstream run "Hello" -m {name}')


def pull(name: str, sees: bool = False) -> tuple[str, str]:
    """Plan, fetch, and read the header of the fetched file. Returns the repository and the file to open.

    Raises HubError and ModelError.
    """
    hub = Hub()
    files = hub.plan(name, sees)
    path = fetch(hub, name, files)
    facts = ModelFacts(read_model_header(path))
    print_text(f"Here: {path}")
    print_text(
        f"      {facts.name or path.name} ({facts.architecture}), {large(facts.n_parameters)} parameters at "
        f"{facts.bits:.1f} bits"
    )
    if len(files) > 1 and is_encoder(files[-1].name):
        encoder = path.with_name(files[-1].name.rpartition("/")[2])
        print_text(f"      with {encoder.name}, its vision encoder ({seen_by(encoder)})")
    return name.partition(":")[0], files[0].name


def seen_by(encoder: Path) -> str:
    """Return the kind of a vision encoder, or why it cannot be used."""
    try:
        return read_projector(encoder).kind
    except SlipstreamError as error:
        return str(error)


def fetch(hub: Hub, name: str, files: list[RemoteFile]) -> Path:
    """Fetch files with a bar for each, and one for all if there are several. Without a terminal, print a line."""
    console, total = Console(stderr=True, highlight=False), sum(file.size for file in files)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    if not console.is_terminal:
        print_note(f"Fetching {len(files)} file{'s' * (len(files) > 1)} of {name}, {gigabytes(total)}")
    n_fetched = {file.name: file.n_here for file in files}
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bars = {
            file.name: progress.add_task(escape(inert(file.name)), total=file.size, completed=n_fetched[file.name])
            for file in files
        }
        overall = progress.add_task("all files", total=total, completed=sum(n_fetched.values()), visible=len(files) > 1)

        def show(file: str, n_bytes: int) -> None:
            n_fetched[file] = n_bytes
            progress.update(bars[file], completed=n_bytes, description=escape(inert(file)))
            progress.update(overall, completed=sum(n_fetched.values()))

        def show_check(file: str, n_bytes: int) -> None:
            progress.update(bars[file], completed=n_bytes, description=f"checking {escape(inert(file))}")

        return hub.pull(name, files, show, show_check)


def check_all() -> int:
    """Print a line for each file, and one for each size that differs from models.toml. Returns the exit code.

    Raises UnreachableError.
    """
    problems = 0
    for pair in load_registry().values():
        sizes = list[int]()
        for path in pair.files:
            try:
                size, result = check(path)
                sizes.append(size)
            except UnreachableError:
                raise
            except SlipstreamError as error:
                result, problems = f"WRONG: {error}", problems + 1
            print_text(f"{pair.name}: {path.as_posix()}: {result}")
        if pair.size and len(sizes) == len(pair.files) and sum(sizes) != pair.size:
            problems += 1
            print_text(f"{pair.name}: WRONG: its files have {sum(sizes):,} bytes, and the registry says {pair.size:,}.")
    return 1 if problems else 0


def check(path: Path) -> tuple[int, str]:
    """Return the size of a pair's file in bytes, and its place. Raises SlipstreamError."""
    if name := hub_name(path):
        size = sum(file.size for file in Hub().plan(name))
        return size, f"on the hub, {size:,} bytes"
    size = read_model_header(path).n_file_bytes
    return size, f"here, {size:,} bytes"


def remove(name: str, yes: bool) -> None:
    """Remove a model from the hub's cache, after a confirmation unless `yes`."""
    cached_shards(name)  # raises before asking about a missing model
    if not yes:
        typer.confirm(f"Remove {inert(name)} from the hub's cache, which other programs may use too?", abort=True)
    print_text(f"Removed {name}: {gigabytes(remove_cached(name))} are free again.")
