"""Models are listed, fetched and loaded; the server for editors is started and stopped.

Knows the registry and the screen's engine, downloads and editors; opens no model itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from app.models import prospects
from app.models.library import of_loaded
from app.models.starting import found
from app.terminal import clean
from app.tui.actions.views import show_numbers
from app.tui.chat import OpenChat
from app.tui.dialogs.model_picker import ModelPicker
from app.tui.downloads import Downloads
from app.tui.presets import Preset
from app.tui.session import ModelLoading
from runtime.core.backend import SERVERS
from runtime.core.errors import SettingsError
from runtime.models.header import read_model_header
from runtime.models.registry import Pair, find_pair, load_registry


def pick(
    screen: OpenChat,
    title: str,
    take: Callable[[str], object],
    presets: Mapping[str, Preset] | None = None,
    fault: str = "",
    rival: Callable[[str], str] | None = None,
) -> None:
    """List all models, and the presets if given; call `take` with the name of the picked one. `fault` says why no
    model is loaded; the model that could not be is not listed first then. `rival` returns the name of a model that can
    be open together with the loaded one, or raises SlipstreamError.
    """
    session, engine = screen.session, screen.session.engine
    loaded = session.pair if engine is not None else None
    recent = [each for each in session.recent if engine is not None or each != session.model]
    check = rival or partial(checked_name, screen)
    picker = ModelPicker(title, recent, loaded, estimates(screen), check, presets or {}, is_second=rival is not None)
    picker.remark = clean(fault)
    screen.ask(picker, take)


def estimates(screen: OpenChat) -> list[Callable[[], prospects.Machine]]:
    """Return what is known of this machine's speed: as remembered, then as measured if that disturbs nothing. Nothing
    is estimated for a GPU.
    """
    engine = screen.session.engine
    if engine is not None and engine.facts.has_gpu:
        return []
    return [prospects.remembered_machine] + [prospects.this_machine] * (not screen.host.is_busy)


def load_by_name(screen: OpenChat, name: str) -> None:
    """Load a pair, fetching it first if it is not on this machine. Raises RegistryError, and ModelError as
    `check_file` does.
    """
    pair = find_here(screen, name)
    if pair is None:
        fetch(screen, name, is_to_be_loaded=True)
        return
    check_file(screen, pair)
    if screen.session.is_loaded(pair) and screen.host.coming is None:
        screen.notify(f"{pair.name} is loaded already.")
    else:
        answer_with(screen, pair)


def answer_with(screen: OpenChat, pair: Pair) -> None:
    """Load a pair, or stay with it if it answers already."""
    if not screen.session.is_loaded(pair):
        load(screen, pair)
    elif screen.host.coming is not None:
        give_up(screen)


def load(screen: OpenChat, pair: Pair) -> None:
    """Load a pair, after stopping the current reply."""
    if screen.host.is_replying:
        screen.host.cancel()
        screen.waiting = partial(load, pair=pair)
        screen.notify(f"The reply was stopped to load {pair.name}. /continue continues it.")
        return
    screen.host.load(pair)
    screen.status.show_sentence("")
    screen.status.show_progress(
        f"{'Asking' if pair.upstream else 'Loading'} {pair.name}", None if pair.upstream else 0.0
    )


def give_up(screen: OpenChat) -> None:
    """Cancel the model that is being loaded; the current one stays."""
    screen.host.give_up()
    screen.status.end_progress()
    show_numbers(screen)
    screen.notify(f"{screen.session.pair.name} still answers.")
    serve_again(screen)


def pull(screen: OpenChat, argument: str) -> None:
    """Fetch a model from the hub."""
    if not argument:
        raise SettingsError("Name what to fetch, such as: /pull owner/repo:Q4_K_M. /model lists models.")
    fetch(screen, argument)


def fetch(screen: OpenChat, name: str, *, is_to_be_loaded: bool = False) -> None:
    """Fetch a pair or `owner/repo:file`. Raises SettingsError during another download."""
    screen.downloads.fetch(name, is_to_be_loaded)
    screen.status.show_download(f"Fetching {name}", 0.0)


def take_download(screen: OpenChat, event: Downloads.Ended) -> None:
    """Load the fetched model, or show how to. Raises RegistryError."""
    screen.session.note(event.reason or "a model was fetched")
    if event.reason:
        screen.notify(event.reason, severity="warning")
    elif event.is_to_be_loaded:
        load(screen, find_pair(event.name, load_registry()))
    else:
        screen.notify(f"{event.name} is here. /model {event.loads} loads it.")


def serve(screen: OpenChat, argument: str) -> None:
    """Start or stop answering editors."""
    is_wanted = screen.session.serve is not None
    if argument == "off" or (is_wanted and not argument):
        screen.editors.stop()
    else:
        screen.editors.enable(argument)
        answer_editors(screen)


def answer_editors(screen: OpenChat) -> None:
    """Start the server for editors if it is enabled. A model that generates one reply at a time is loaded again first,
    after the current reply, when this is called again.
    """
    session = screen.session
    if session.serve is None or session.engine is None or session.has_room_for_editors:
        screen.editors.start()
    elif screen.host.is_replying:
        screen.notify(
            "Editor access begins after this reply: then the model is loaded again to answer several at once."
        )
    elif screen.host.coming is None:
        load(screen, session.pair)


def serve_again(screen: OpenChat) -> None:
    """Start the server for editors again, after another model could not be loaded, or was not. Without room for
    editors it stays off.
    """
    session = screen.session
    if session.serve is None or session.serving is not None or session.has_room_for_editors:
        screen.editors.start()
    else:
        session.serve = None
        screen.notify("Editor access is off, because the model was not loaded again for it.", severity="warning")


def find_here(screen: OpenChat, name: str) -> Pair | None:
    """Return the pair or recently used file of that name, or None if the hub has to be asked. Raises RegistryError."""
    from runtime.models.hub.names import HubError

    try:
        return found(name, screen.session.recent)
    except HubError:
        return None


def checked_name(screen: OpenChat, name: str, is_second: bool = False) -> str:
    """Return the name if it can be loaded or fetched. Raises RegistryError, and ModelError as `check_file` does."""
    pair = find_here(screen, name)
    if pair is not None:
        check_file(screen, pair, is_second)
    return name


def check_file(screen: OpenChat, pair: Pair, is_second: bool = False) -> None:
    """Raise ModelError for a file that is none or does not fit into memory, where the loaded model stays if this one
    `is_second`.
    """
    if pair.upstream:
        return
    try:
        prospects.demands(pair.target)
    except OSError:
        read_model_header(pair.target)  # whose error is a sentence
    check_memory(screen, pair, is_second)


def check_memory(screen: OpenChat, pair: Pair, is_second: bool) -> None:
    """Raise NoMemoryError for a model that does not fit into memory. Unknown for a GPU, or before a model is open."""
    session = screen.session
    if session.engine is not None and not session.engine.facts.has_gpu and not session.is_loaded(pair):
        held = 0 if is_second else prospects.prospect(of_loaded(session.pair)).needed
        prospects.check_fits(pair, session.options, held)


def show_loading(screen: OpenChat, event: ModelLoading) -> None:
    """Show how much of the file is read; after that the model is measured."""
    if screen.host.coming is None:
        return
    name = screen.host.coming.name
    if event.part == SERVERS:
        screen.status.show_progress(f"Waiting for {name}, which is still loading its model")
    elif screen.host.coming.upstream:
        screen.status.show_progress(f"Asking {name}")
    elif event.share < 1:
        screen.status.show_progress(f"Loading the {event.part} model of {name}", event.share)
    else:
        screen.status.show_progress(f"Measuring how fast {name} is here")


COMMANDS = {"pull": pull, "serve": serve}
