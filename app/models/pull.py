"""`slipstream models pull`: shows the progress of each file and of all. Knows the terminal; the hub fetches."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from app.models.amounts import gigabytes, large
from app.terminal import inert, print_note, print_text
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.hub.fetch import Hub, RemoteFile
from runtime.models.model_files import HUB, hub_name
from runtime.models.registry import load_registry


def pull_all(name: str) -> None:
    """Fetch one model, or the files of a pair that come from the hub. Then print how to use it."""
    pair = load_registry().get(name)
    if pair is None:
        repo, file = pull(name.removeprefix(HUB))
        name = f"{HUB}{repo}:{file}"
    for path in pair.files if pair else ():
        if file_name := hub_name(path):
            pull(file_name)
        else:
            print_text(f"{path} is a file of this machine already.")
    print_text(f'Try it: slipstream run "Hello" -m {name}')


def pull(name: str) -> tuple[str, str]:
    """Plan, fetch, and read the header of the fetched file. Returns the repository and the file to open.

    Raises HubError and ModelError.
    """
    hub = Hub()
    files = hub.plan(name)
    path = fetch(hub, name, files)
    facts = ModelFacts(read_model_header(path))
    print_text(f"Here: {path}")
    print_text(
        f"      {facts.name or path.name} ({facts.architecture}), {large(facts.n_parameters)} parameters at "
        f"{facts.bits:.1f} bits"
    )
    return name.partition(":")[0], files[0].name


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
