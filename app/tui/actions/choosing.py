"""A model or a preset is chosen, by name or from a list; presets are saved and removed.

Knows the presets and how to load a model; opens none itself.
"""

from __future__ import annotations

from functools import partial

from app.terminal import clean
from app.tui.actions.models import answer_with, find_here, load_by_name, pick
from app.tui.chat import OpenChat
from app.tui.dialogs.basic import PickDialog, narrowing
from app.tui.presets import PICKED, REMOVE, SAVE, Preset, Presets
from runtime.core.errors import SettingsError, SlipstreamError
from runtime.models.registry import Pair

NONE_YET = f"There is no preset yet. /preset {SAVE} brief saves model, system prompt and settings of this chat."
HINT = f"\n/preset {SAVE} name saves this chat's · /preset {REMOVE} name"


def model(screen: OpenChat, argument: str) -> None:
    """Load another pair, by name or path or from a list."""
    if argument:
        load_by_name(screen, argument)
    else:
        pick_any(screen)


def pick_any(screen: OpenChat, fault: str = "") -> None:
    """List all models and presets, and use the picked one; `fault` says why there is no model."""
    pick(screen, "Load another model", partial(take, screen), Presets(screen.session.store).all(), fault)


def take(screen: OpenChat, picked: str) -> None:
    """Use the preset or load the model that was picked in the list."""
    if picked.startswith(PICKED):
        use(screen, picked.removeprefix(PICKED))
    else:
        load_by_name(screen, picked)


def preset(screen: OpenChat, argument: str) -> None:
    """Use, save or remove a preset, or list all. Raises SettingsError."""
    word, _, name = argument.partition(" ")
    if word == SAVE:
        save(screen, name.strip())
    elif word == REMOVE:
        Presets(screen.session.store).remove(name.strip())
        screen.notify(f"The preset {name.strip()} is removed.")
    elif argument:
        use(screen, argument)
    else:
        show_presets(screen)


def save(screen: OpenChat, name: str) -> None:
    """Save what answers now under a name. Raises SettingsError."""
    session, branch = screen.session, screen.branch
    kept = Preset(session.model, branch.system, {**session.settings.for_all, **branch.settings})
    Presets(session.store).save(name, kept)
    screen.notify(f"Saved: {kept.told}. /preset {name} uses it.")


def show_presets(screen: OpenChat) -> None:
    """List the presets and use the picked one. Raises SettingsError if there is none."""
    presets = Presets(screen.session.store).all()
    if not presets:
        raise SettingsError(NONE_YET)

    lines = [(clean(f"{name}: {each.told}"), name) for name, each in presets.items()]
    screen.ask(PickDialog("Presets", narrowing(lines), HINT), partial(use, screen))


def use(screen: OpenChat, name: str) -> None:
    """Answer in this chat with a preset's model, system prompt and settings. Raises SettingsError."""
    chosen = Presets(screen.session.store).find(name)
    pair = pair_of(screen, name, chosen)
    screen.branch.set_settings(chosen.values)
    screen.branch.set_system(chosen.system)
    screen.show_title()
    screen.notify(f"{name}: {chosen.told}")
    answer_with(screen, pair)


def pair_of(screen: OpenChat, name: str, chosen: Preset) -> Pair:
    """Return the pair of a preset. Raises SettingsError if it is not on this machine any more."""
    if chosen.model == screen.session.model:
        return screen.session.pair
    try:
        pair = find_here(screen, chosen.model)
    except SlipstreamError:
        pair = None
    if pair is None or not all(path.exists() for path in pair.files):
        raise SettingsError(
            f"The model of the preset {name}, {chosen.model}, is not on this machine any more. /model chooses another "
            f"one, and /preset {SAVE} {name} saves it."
        )
    return pair


def show_none(screen: OpenChat, reason: str) -> None:
    """Show why no model answers, and the list of models."""
    screen.waiting = None
    screen.composer.take_back()
    screen.status.show_sentence(f"{reason} Ctrl+L chooses another model.")
    if screen.is_current:
        pick_any(screen, reason)


COMMANDS = {"model": model, "preset": preset}
