"""The models of a `slipstream serve`: one, or several that are loaded when a request names them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from app.chats.authors import recent_models
from app.cli.options import ModelOptions
from app.models.library import all_models, of_loaded
from app.models.starting import found, start_model
from app.server.choosing import as_seconds
from app.server.command import notes
from app.server.known_models import KnownModels, Offer, offered, usual
from app.server.policy import ServerPolicy, served_names
from app.server.served import OpenEngine
from app.server.served_model import MemoryWish, ServedModel
from app.server.served_models import ServedModels
from app.settings import read_settings
from app.terminal import print_message
from runtime.core.errors import nearest
from runtime.core.outside import expanded, is_off
from runtime.engine import Engine, Options
from runtime.models.registry import Pair

if TYPE_CHECKING:
    from app.cli.serve import SeveralOptions

OpenPair = Callable[..., Engine]  # takes a pair, options and a progress callback
Configure = Callable[[Pair], tuple[Pair, Options]]
Progress = Callable[[str, float], bool]


@dataclass(frozen=True, slots=True)
class ServedChoice:
    """The models to serve, and how long they stay."""

    offers: Sequence[Offer]
    asked: Sequence[str]  # names of the command line
    folders: Sequence[Path]
    keep_alive: float | None
    keeps: frozenset[str]  # names of those that stay

    @staticmethod
    def of(names: Sequence[str], options: SeveralOptions) -> ServedChoice:
        """Return the models that are named and those in the folders; without names, also those found elsewhere.

        Raises BadParameter for a folder that is none or a duration that cannot be read, and SlipstreamError for a name
        that is not known.
        """
        usual_folders = () if names else map(Path, read_settings().server.models)
        folders = [expanded(each) for each in (*usual_folders, *(options.models or ()))]
        if missing := next((each for each in folders if not each.is_dir()), None):
            raise typer.BadParameter(f"{missing} is not a folder. Name one with GGUF files.", param_hint="'--models'")
        keeps = frozenset(usual(each.strip()) for each in options.keep.split(",") if each.strip())
        made = ServedChoice((), names, folders, seconds_of(options.keep_alive), keeps)
        made = replace(made, offers=made.now())
        if unknown := sorted(keeps - {usual(name) for names, _ in made.offers for name in names}):
            known = nearest(unknown[0], [names[0] for names, _ in made.offers])
            raise typer.BadParameter(f"There is no model '{unknown[0]}' here. {known}", param_hint="'--keep'")
        return made

    def now(self) -> list[Offer]:
        """Return the models that are here now."""
        recent = [*recent_models()]
        if not self.asked:
            last = start_model("").pair.target  # answers requests that name no model
            return sorted(offered(self.folders, all_models(recent)), key=lambda each: each[1].target != last)
        return offered(self.folders, [of_loaded(found(each, recent)) for each in self.asked])

    @property
    def first(self) -> Pair:
        """The first model."""
        return self.offers[0][1]

    def only_names(self, aliases: tuple[str, ...], how: ModelOptions, has_trace: bool) -> tuple[str, ...]:
        """Return the names of the only model; none if there are several. Raises BadParameter for options of one."""
        if len(self.offers) == 1:
            return served_names(self.first.name, aliases)
        given = {"--alias": aliases, "--draft": how.draft not in ("auto", "off"), "--trace": has_trace}
        given |= {"--lora": bool(how.lora and not is_off(how.lora))}
        for option, is_given in given.items():
            if is_given:
                text = f"{len(self.offers)} models are served, and it is for one. Name the model, or leave it out."
                raise typer.BadParameter(text, param_hint=f"'{option}'")
        return ()

    def source(self, open_pair: OpenPair, configure: Configure, policy: ServerPolicy) -> OpenEngine | ServedModels:
        """Return the function that opens the only model, or several models."""
        pair, options = configure(self.first)  # also checks the options
        if len(self.offers) == 1:
            only = replace(pair, name=policy.aliases[0])
            return lambda on_progress: open_pair(only, options, on_progress)

        def opened(pair: Pair, wish: MemoryWish, on_progress: Progress) -> Engine:
            pair, options = configure(pair)
            options = replace(options, reserved=wish.reserved, is_whole=wish.is_whole)
            engine = open_pair(pair, options, on_progress)
            for line in notes(engine):
                print_message(f"{pair.name}: {line}")
            return engine

        most = options.limits.max_waiting
        known = KnownModels(self._served(self.offers), lambda: self._served(self.now()))
        return ServedModels(known, opened, policy, most)

    def _served(self, offers: Sequence[Offer]) -> list[ServedModel]:
        return [
            ServedModel(names, pair, self.keep_alive, not self.keeps.isdisjoint(map(usual, names)))
            for names, pair in offers
        ]


def seconds_of(duration: str) -> float | None:
    """Return a duration in seconds; None for an empty or negative one. Raises BadParameter."""
    if not duration:
        return None
    try:
        seconds = as_seconds(duration)
    except ValueError:
        text = f"'{duration}' is no duration. Write seconds, or a text like 10m or 1h30m."
        raise typer.BadParameter(text, param_hint="'--keep-alive'") from None
    assert isinstance(seconds, float)
    return seconds if seconds >= 0 else None
