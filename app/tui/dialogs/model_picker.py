"""The list of models with their expected speed and memory fit: recently used, on this machine, to fetch; and presets.

Knows names, files and prospects; loads and fetches nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widgets import Input

from app.models.library import Model, all_models, of_loaded
from app.models.prospects import (
    FITS_ALONE,
    TOO_LARGE,
    Machine,
    Prospect,
    free_memory,
    prospect,
)
from app.terminal import clean, gigabytes, rate
from app.tui.completion import common, last_part, paths
from app.tui.dialogs.basic import PickDialog
from app.tui.presets import PICKED, Preset
from runtime.models.registry import Pair

HINT = (
    " · Tab completes a path\n"
    "↓ is downloaded first. ~ is an estimate without drafting. draft: a small draft model guesses ahead. In names, 4B "
    "is 4 billion weights, Q4_K_M about 4 bits for each, it or instruct: for chats."
)
NOTHING = "No model has this name. A file's path or hf:owner/repo works, too."
NAME, SIZE, FIT, SPEED = 26, 9, 10, 12  # columns
ANYWHERE = ("/", "~", "./", "../")  # beginnings of a path
SHORT = {FITS_ALONE: "no draft"}
Line = tuple[str | Content, str | None]


class ModelPicker(PickDialog[str]):
    """All models. Returns the name of the model to load, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("tab", "complete", "Complete", show=False, priority=True)]

    placeholder = "Type to search, or the path of a GGUF file, or hf:owner/repo"

    @dataclass
    class Looked(Message):
        """From the thread: the models, and their prospects by name so far."""

        models: Sequence[Model] = ()
        prospects: Mapping[str, Prospect] = field(default_factory=dict)
        free: int = 0
        machine: Machine = field(default_factory=Machine)

    def __init__(
        self,
        title: str,
        recent: Sequence[str],
        loaded: Pair | None,
        estimates: Sequence[Callable[[], Machine]],
        check: Callable[[str], str],
        presets: Mapping[str, Preset],
        is_second: bool = False,
    ) -> None:
        super().__init__(title, self._find, HINT)
        self._check = check  # returns a model's name if it can be loaded, or raises SlipstreamError
        self._presets, self._is_second = presets, is_second  # whether the loaded model stays, and is not listed
        self._recent, self._loaded, self._estimates = recent, loaded, estimates
        self._looked = self.Looked()

    def on_mount(self) -> None:
        """Search for models in a thread: reading headers takes time, and a disk may have to spin up."""
        self.run_worker(self._look, thread=True)

    def _look(self) -> None:
        models = all_models(self._recent)
        self.post_message(self.Looked(models))
        held = prospect(of_loaded(self._loaded)).needed if self._loaded is not None and not self._is_second else 0
        prospects, free = {each.name: prospect(each) for each in models}, free_memory() + held
        self.post_message(self.Looked(models, prospects, free))
        for estimate in self._estimates:
            self.post_message(self.Looked(models, prospects, free, estimate()))

    @on(Looked)
    def _show(self, event: Looked) -> None:
        self._looked, before = event, self.picked()
        self.refill()
        self.highlight(before)

    def _find(self, typed: str) -> Sequence[Line]:
        if typed.startswith(ANYWHERE):
            return [(clean(last_part(path)), path) for path in paths(typed, ".gguf")]
        if not self._looked.models:
            return [("Looking for models ...", None)]
        fit = [each for each in self._looked.models if is_meant(each, typed) and self._is_offered(each)]
        lately = [each for name in self._recent for each in fit if each.is_among([name])]
        here = [each for each in fit if each.is_here and each not in lately]
        missing = sorted((each for each in fit if not each.is_here), key=self._order)
        lines = [
            *section("Used recently", map(self._row, lately)),
            *section("Presets", preset_rows(self._presets, typed)),
        ]
        for heading, models in {"On this machine": here, "To fetch": missing}.items():
            lines += section(heading, map(self._row, models))
        return lines or [(NOTHING, None)]

    def _row(self, model: Model) -> Line:
        return self._line(model), model.name

    def _order(self, model: Model) -> tuple[bool, bool, int]:
        return not model.fetched, self._fit(model) == TOO_LARGE, model.size or 2**63

    def _fit(self, model: Model) -> str:
        known = self._looked.prospects.get(model.name)
        return known.fit(self._looked.free) if known is not None else ""

    def _line(self, model: Model) -> Content:
        fit, speed = self._fit(model), self._speed(model)
        title = clean(model.title)
        cut = title if len(title) <= NAME else f"{title[: NAME - 1]}…"
        size = gigabytes(model.size) if model.size else ""
        draft = "draft" if model.pair.draft else ""
        mark = "↓" if not model.is_here else "▸" if self._is_loaded(model) else " "
        text = f"{mark} {cut:<{NAME}} {size:>{SIZE}}  {SHORT.get(fit, fit):<{FIT}}{speed:<{SPEED}}{draft}"
        return Content.styled(text, "dim") if fit == TOO_LARGE else Content(text)

    def _speed(self, model: Model) -> str:
        if model.fetched:
            return f"{model.fetched} fetched"
        known = self._looked.prospects.get(model.name)
        if known is None or self._fit(model) == TOO_LARGE:
            return ""
        if known.step_seconds:
            return f"{rate(1 / known.step_seconds)} tok/s"
        estimate = known.per_second(self._looked.machine)
        return f"~ {rate(estimate)} tok/s" if estimate else ""

    def _is_offered(self, model: Model) -> bool:
        return not (self._is_second and self._is_loaded(model))

    def _is_loaded(self, model: Model) -> bool:
        return self._loaded is not None and model.is_here and place_of(model.pair) == place_of(self._loaded)

    def told_of(self, value: str) -> str:
        """Return the fetched share of a model, its refusal, description or else kind and name, and its license."""
        model = next((each for each in self._looked.models if each.name == value), None)
        if model is None:
            return ""
        known = self._looked.prospects.get(value, Prospect())
        licence = f" · {model.pair.licence}" if model.pair.licence else ""
        told = known.refusal or model.pair.description or " · ".join(filter(None, [known.kind, model.name]))
        return clean(self._begun(model) + told + licence)

    def _begun(self, model: Model) -> str:
        """Return a line about an unfinished download; "" if there is none."""
        then = "" if self._is_second else " Enter fetches the rest and loads it."
        return f"{model.fetched} of {gigabytes(model.size)} is here.{then}\n" if model.fetched else ""

    def action_complete(self) -> None:
        """Complete a path up to the longest common prefix."""
        box = self.query_one(Input)
        if len(same := common(paths(box.value, ".gguf"))) > len(box.value) and box.value.startswith(ANYWHERE):
            box.value, box.cursor_position = same, len(same)

    def choose(self, value: str) -> None:
        """Enter a folder, or return a preset or a model. Raises SlipstreamError for a model that cannot be loaded."""
        if value.endswith("/"):
            box = self.query_one(Input)
            box.value, box.cursor_position = value, len(value)
        else:
            super().choose(value if value.startswith(PICKED) else self._check(value))

    def typed(self, text: str) -> str | None:
        """Return a typed name if it can be loaded. Raises SlipstreamError."""
        return self._check(text) if text else None


def place_of(pair: Pair) -> tuple[Path, str, str]:
    """Return what tells a model from others: its file, or its server and its name there."""
    return pair.target.absolute(), pair.upstream, pair.upstream_model


def section(heading: str, lines: Iterable[Line]) -> list[Line]:
    """Return lines below a heading; nothing without lines."""
    return [(Content.styled(heading, "bold"), None), *found] if (found := list(lines)) else []


def preset_rows(presets: Mapping[str, Preset], typed: str) -> Iterator[Line]:
    """Yield a line for each preset whose name or contents contain every typed word."""
    for name, preset in presets.items():
        line = clean(f"  {name:<{NAME}} {preset.told}")
        if all(word in line.lower() for word in typed.lower().split()):
            yield line, f"{PICKED}{name}"


def is_meant(model: Model, typed: str) -> bool:
    """Return whether the model's name, its file's name or its description contains every typed word."""
    text = f"{model.title} {model.name} {model.pair.target.name} {model.pair.description}".lower()
    return all(word in text for word in typed.lower().split())
