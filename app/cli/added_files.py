"""Files that a command adds to a model: LoRA adapters, a vision encoder, and the pictures of a question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import typer

from app.chats.pictures import ChatPicture, picture_of
from app.tui.attach import pictures_named
from runtime.core.errors import SettingsError
from runtime.core.outside import expanded, is_off, read_plain
from runtime.models.adapters import adapter_of
from runtime.models.model_files import fetched, find_file
from runtime.models.picture import check_picture
from runtime.models.registry import Pair


def with_adapters(pair: Pair, asked: Sequence[str] | None) -> Pair:
    """Return the pair with these LoRA adapters, each `FILE` or `FILE=SCALE`; None: its own. Raises BadParameter, and
    HubError for one of the hub that is not on this machine.
    """
    if asked is None:
        return pair
    names = [] if is_off(asked) else asked
    if names and pair.upstream:
        text = f"{pair.upstream} has the model, so no adapter can be used here. Leave it out."
        raise typer.BadParameter(text, param_hint="'--lora'")
    try:
        adapters = (adapter_of(each) for each in names)
        return replace(pair, lora=tuple(each._replace(path=expanded(fetched(each.path))) for each in adapters))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="'--lora'") from error


def with_encoder(pair: Pair, file: str) -> Pair:
    """Return the pair with the vision encoder in this file; "auto" and "off" are none. Raises BadParameter."""
    if file in ("auto", "off"):
        return pair
    if pair.upstream:
        raise typer.BadParameter(
            f"{pair.upstream} has the model, so no vision encoder can be used here. Leave it out.",
            param_hint="'--mmproj'",
        )
    return replace(pair, mmproj=find_file(file))


def pictures(paths: Sequence[Path], question: str) -> dict[ChatPicture, bytes]:
    """Return the pictures in these files, and those that a question names, with their files. Raises SettingsError for
    one of the former that cannot be read.
    """
    return dict(map(read_picture, paths)) | pictures_named(question)


def read_picture(path: Path) -> tuple[ChatPicture, bytes]:
    """Return a picture and its file. Raises SettingsError for one that cannot be read."""
    try:
        data = read_plain(expanded(path))
    except OSError as error:
        raise SettingsError(f"{path} cannot be read ({error.strerror}). Check `--image`.") from error
    return picture_of(str(path), data, check_picture(data, path.name)), data
