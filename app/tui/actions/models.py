"""Models are chosen, fetched and loaded; the server for editors is started and stopped.

Knows the registry and the screen's engine, downloads and editors; opens no model itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from app.models.ollama import ollama_name
from app.tui.background.downloads import Downloads
from app.tui.dialogs.model_picker import ModelPicker
from runtime.core.errors import SettingsError
from runtime.models.registry import Pair, find_pair, load_registry

if TYPE_CHECKING:
    from app.tui.chat_screen import ChatScreen


def model(screen: ChatScreen, argument: str) -> None:
    """Load another pair, by name or path or from a list."""
    if argument:
        load_by_name(screen, argument)
    else:
        pick(screen, "Load another model", partial(load_by_name, screen))


def pick(screen: ChatScreen, title: str, take: Callable[[str], object]) -> None:
    """List all models; call `take` with the name of the picked one."""

    async def picked(name: str | None) -> None:
        if name is not None:
            await screen.attempt(take, name)

    session, engine = screen.session, screen.session.engine
    may_measure = not screen.host.is_busy and not (engine is not None and engine.facts.has_gpu)
    loaded = session.pair if engine is not None else None
    screen.app.push_screen(ModelPicker(title, session.recent, loaded, may_measure, checked_name), picked)


def load_by_name(screen: ChatScreen, name: str) -> None:
    """Load a pair, fetching it first if it is not on this machine. Raises RegistryError."""
    pair = find_here(name)
    if pair is not None:
        load(screen, pair)
    else:
        fetch(screen, name, is_to_be_loaded=True)


def load(screen: ChatScreen, pair: Pair) -> None:
    """Load a pair, after stopping the current reply."""
    if screen.host.is_replying:
        screen.host.cancel()
        screen.waiting = partial(load, pair=pair)
        screen.notify(f"The reply was stopped to load {pair.name}. /continue has it go on.", markup=False)
        return
    screen.host.load(pair)
    screen.status.show_sentence("")
    screen.status.show_progress(
        f"{'Asking' if pair.upstream else 'Loading'} {pair.name}", None if pair.upstream else 0.0
    )


def give_up(screen: ChatScreen) -> None:
    """Cancel the model that is being loaded; the current one stays."""
    screen.host.give_up()
    screen.status.end_progress()
    screen.show_numbers()
    screen.notify(f"{screen.session.pair.name} still answers.", markup=False)


def pull(screen: ChatScreen, argument: str) -> None:
    """Fetch a model from the hub."""
    if not argument:
        raise SettingsError("Name what to fetch, such as: /pull owner/repo:Q4_K_M. /model lists known pairs.")
    fetch(screen, argument)


def fetch(screen: ChatScreen, name: str, *, is_to_be_loaded: bool = False) -> None:
    """Fetch a pair or `owner/repo:file`. Raises SettingsError during another download."""
    screen.downloads.fetch(name, is_to_be_loaded)
    screen.status.show_download(f"Fetching {name}", 0.0)


def take_download(screen: ChatScreen, event: Downloads.Ended) -> None:
    """Load the fetched model, or show how to. Raises RegistryError."""
    screen.session.note(event.reason or "a model was fetched")
    if event.reason:
        screen.notify(event.reason, severity="warning", markup=False)
    elif event.is_to_be_loaded:
        load(screen, find_pair(event.name, load_registry()))
    else:
        screen.notify(f"{event.name} is here. /model {event.loads} loads it.", markup=False)


def serve(screen: ChatScreen, argument: str) -> None:
    """Start or stop answering editors."""
    is_wanted = screen.session.serve is not None
    if argument == "off" or (is_wanted and not argument):
        screen.editors.stop()
    else:
        screen.editors.start_at(argument)


def find_here(name: str) -> Pair | None:
    """Return the pair of that name, or None if the hub has to be asked. Raises RegistryError."""
    from runtime.models.hub.names import HubError

    try:
        pair = find_pair(name, load_registry())
    except HubError:
        return None
    return replace(pair, name=ollama_name(pair.target) or pair.name)


def checked_name(name: str) -> str:
    """Return the name if it can be loaded or fetched. Raises RegistryError."""
    find_here(name)
    return name


COMMANDS = {"model": model, "pull": pull, "serve": serve}
