"""Completion of command arguments: names of models, settings, templates, files.

Knows the session and the registry; changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from app.models.library import is_here
from app.setting_values import Values
from app.tui.chat_settings import ASK, DEFAULT, LEAVE_OUT, UNSET, WHEN_FULL
from app.tui.completion import Arguments, Suggestion, last_part, paths
from app.tui.presets import REMOVE, SAVE, Presets, template_names
from app.tui.session import Session
from runtime.models.model_files import hub_name
from runtime.models.registry import Pair, load_registry

if TYPE_CHECKING:
    from collections.abc import Callable

POLICIES = {ASK: "offers to leave out the oldest turns", LEAVE_OUT: "leaves them out by itself"}
DOWNLOADED = "↓"  # before the description of what is downloaded first
ANYWHERE = ("/", "~", ".")  # beginnings of a file path


def arguments_in(session: Session, chosen: Callable[[], Values]) -> Arguments:
    """Return the completion functions by command name; `chosen` returns the settings of the chat on screen."""
    of: dict[str, Callable[[str], Iterable[Suggestion]]] = {
        "model": partial(models, session),
        "compare": partial(models, session, is_second=True),
        "pull": fetchable,
        "set": partial(settings, session, chosen),
        "preset": partial(presets, session),
        "room": partial(words, (Suggestion(DEFAULT, "in all chats"),)),
        "system": prompts,
        "template": templates,
        "copy": partial(words, (Suggestion("code", "only its last code block"),)),
        "serve": partial(words, (Suggestion("off", "end editor access"),)),
        "export": files,
    }
    return of


def words(known: Iterable[Suggestion], typed: str) -> Iterator[Suggestion]:
    """Return the suggestions that begin with the typed letters."""
    return (each for each in known if each.text.startswith(typed))


@cache
def pairs() -> tuple[Pair, ...]:
    """Return the pairs of the registry, as of the first call."""
    return tuple(load_registry().values())


def models(session: Session, typed: str, is_second: bool = False) -> Iterator[Suggestion]:
    """Yield recently used files by name, pairs that are here and those to be downloaded by name, and GGUF files by
    path; without the loaded one if a second model is wanted.
    """
    loaded = (session.model, session.pair.name) if is_second else ()
    files = [each for each in session.recent if Path(each).is_absolute() and each not in loaded]
    named = [each for each in pairs() if each.name not in loaded]
    here = [each for each in named if is_here(each)]
    away = [each for each in named if each not in here]
    yield from words((Suggestion(Path(each).name, each) for each in files), typed)
    yield from words((Suggestion(each.name, each.description) for each in here), typed)
    yield from words((Suggestion(each.name, f"{DOWNLOADED} {each.description}") for each in away), typed)
    if typed.startswith(ANYWHERE) or "/" in typed:
        for path in paths(typed, ".gguf"):
            yield Suggestion(path, goes_on=path.endswith("/"), shown=last_part(path))


def fetchable(typed: str) -> Iterator[Suggestion]:
    """Return the pairs that come from the hub."""
    from_hub = (each for each in pairs() if hub_name(each.target))
    return words((Suggestion(each.name, each.description) for each in from_hub), typed)


def settings(session: Session, chosen: Callable[[], Values], typed: str) -> Iterator[Suggestion]:
    """Return the names of settings with their current values; after a name, the values that can be completed."""
    everywhere = f"{DEFAULT} " * typed.startswith(f"{DEFAULT} ")
    holds = session.settings.values(session.pair, {} if everywhere else chosen())
    named = [
        Suggestion(f"{everywhere}{name} ", f"{'none' if value is None else value} now", goes_on=True)
        for name, value in holds.items()
    ]
    back = [Suggestion(f"{each.text}{UNSET}", "restores it") for each in named if typed.startswith(each.text)]
    full = f"{everywhere}{WHEN_FULL} "
    back += [Suggestion(full + word, note) for word, note in POLICIES.items() if typed.startswith(full)]
    for_all = [] if everywhere else [Suggestion(f"{DEFAULT} ", "for all chats, not only this one", goes_on=True)]
    return words([*named, *for_all, *back], typed)


def presets(session: Session, typed: str) -> Iterator[Suggestion]:
    """Return the presets to use, then the words that save and remove one; after the latter, the presets again."""
    known = {name: each.told for name, each in Presets(session.store).all().items()}
    begun = f"{REMOVE} " * typed.startswith(f"{REMOVE} ")
    named = [Suggestion(f"{begun}{name}", told) for name, told in known.items()]
    more = [
        Suggestion(f"{SAVE} ", "saves what answers in this chat", goes_on=True),
        Suggestion(f"{REMOVE} ", "removes one", goes_on=True),
    ]
    return words([*named, *([] if begun else more)], typed)


def prompts(typed: str) -> Iterator[Suggestion]:
    """Return the templates that can be a system prompt, `none` and `--default`."""
    known = [Suggestion(f"@{name}", "a saved text") for name in template_names()]
    return words(
        [*known, Suggestion("none", "no system prompt"), Suggestion(f"{DEFAULT} ", "for all new chats")], typed
    )


def templates(typed: str) -> Iterator[Suggestion]:
    """Return the names of the templates."""
    return words((Suggestion(name, "a saved text") for name in template_names()), typed)


def files(typed: str) -> Iterator[Suggestion]:
    """Yield `--numbers`, and folders to write into."""
    yield from words([Suggestion("--numbers ", "who wrote each reply, and how fast", goes_on=True)], typed)
    begun = typed.rpartition(" ")[2]
    before = typed[: len(typed) - len(begun)]
    for path in paths(begun, "/") if begun else ():
        yield Suggestion(before + path, goes_on=True, shown=last_part(path))
