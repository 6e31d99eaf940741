"""Runs the person's own editor. Knows processes and files; knows no widget but the app that it suspends."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from textual.app import App, SuspendNotSupported

from runtime.core.errors import SettingsError


def write_in_editor(app: App[None], text: str) -> str:
    """Open a text in the editor and return the edited text. Raises SettingsError if the editor cannot run."""
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "message.md"
        path.write_text(text, encoding="utf8")
        try:
            with app.suspend():
                subprocess.run([*shlex.split(command), str(path)], check=False)
        except (OSError, ValueError) as error:
            raise SettingsError(
                f"The editor '{command}' cannot be run ({error}). Set EDITOR to one that can."
            ) from error
        except SuspendNotSupported as error:
            raise SettingsError("This terminal cannot run an editor. Write here; Ctrl+J starts a line.") from error
        return path.read_text(encoding="utf8", errors="replace").rstrip("\n")
