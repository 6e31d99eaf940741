"""The key that clients of the server must know, as the command line names it."""

from __future__ import annotations

from pathlib import Path

import typer

from app.cli.choices import read_file

HINT = "'--api-key' / '--api-key-file'"


def chosen_key(api_key: str, file: Path | None) -> str:
    """The key itself, or what a file says: one key is not on the command line, which every user of the machine sees."""
    if file is None:
        return api_key
    if api_key:
        raise typer.BadParameter("The server has one key: leave one of the two out.", param_hint=HINT)
    key = read_file(file).strip()
    if not key or len(key.split()) > 1:
        raise typer.BadParameter(f"{file} holds no key. Write one word into it.", param_hint=HINT)
    return key
