"""The short form of a question on screen: its beginning and end, and a line for each attached file.

Knows text; knows no widgets.
"""

from __future__ import annotations

from app.tui.desktop.attach import attached_in, without_attached

FIRST_LINES, LAST_LINES = 8, 5  # of a long text; the lines between them are folded
FIRST_CHARACTERS, LAST_CHARACTERS = 900, 500
HOW = "(Enter on this message)"


def folded(question: str) -> tuple[str, str]:
    """Return the short text of a question, and a line for each file attached to it."""
    files = [f"attached: {path}, {counted(text)}" for path, text in attached_in(question).items()]
    return shortened(without_attached(question).strip()), "\n".join(f"{line} {HOW}" for line in files)


def shortened(text: str) -> str:
    """Return the first and last lines of a long text around a line about those between; a short text unchanged."""
    if text.count("\n") < FIRST_LINES + LAST_LINES + 1 and len(text) <= FIRST_CHARACTERS + LAST_CHARACTERS:
        return text
    first = "\n".join(text.split("\n")[:FIRST_LINES])[:FIRST_CHARACTERS]
    rest = text[len(first) :]
    last = "\n".join(rest.split("\n")[-LAST_LINES:])[-LAST_CHARACTERS:]
    left_out = rest[: len(rest) - len(last)].strip("\n")
    n_lines = left_out.count("\n") + 1
    what = f"{n_lines} more lines" if n_lines > 1 else f"{len(left_out)} more characters"
    return f"{first}\n… {what} {HOW}\n{last}"


def counted(text: str) -> str:
    """Return the number of lines in words."""
    n = len(text.splitlines())
    return f"{n} line{'s' * (n != 1)}"
