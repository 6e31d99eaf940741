"""The API key of the server, from the command line or a file."""

from __future__ import annotations

from pathlib import Path

import typer

from app.cli.choices import read_file

HINT = "'--api-key' / '--api-key-file'"


def chosen_key(api_key: str, file: Path | None) -> str:
    """Return the key itself or the content of a file. The command line is visible to every user of the machine; a file
    is not.

    Raises BadParameter.
    """
    if file is None:
        return api_key
    if api_key:
        raise typer.BadParameter("The server has one key: leave one of the two out.", param_hint=HINT)
    key = read_file(file).strip()
    if not key or len(key.split()) > 1:
        raise typer.BadParameter(f"{file} has no key in it. Write one word into it.", param_hint=HINT)
    return key
