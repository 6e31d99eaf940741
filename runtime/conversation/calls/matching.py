"""Matches literals of a form against streamed text. Knows text alone."""

from __future__ import annotations

import re

from runtime.conversation.calls.form import HOLES, KEY

WAIT, DIFFERS = -1, -2  # more text is needed; the text does not match
NAME_OR_ID, KEY_NAME = re.compile(r"[\w.:$-]*"), re.compile(r"[\w.$-]*")


def match(literal: str, text: str, start: int = 0) -> int:
    """Return the position in `text` after a literal that begins at `start`; WAIT or DIFFERS if there is none.

    Whitespace may be missing or added, as models vary it. A hole matches a name or a number.
    """
    i = start
    for character in literal:
        if HOLES.match(character):
            i = (KEY_NAME if character == KEY else NAME_OR_ID).match(text, i).end()  # type: ignore[union-attr]  # matches anything
            if i == len(text):
                return WAIT
            continue
        while i < len(text) and text[i] != character and text[i].isspace():
            i += 1
        if i < len(text) and text[i] == character:
            i += 1
        elif not character.isspace():
            return WAIT if i >= len(text) else DIFFERS
    return WAIT if literal and literal[-1].isspace() and i >= len(text) else i


def before_overlap(text: str, mark: str) -> int:
    """Return the length of the text before a possible beginning of a mark at its end."""
    for n in range(min(len(text), len(mark) - 1), 0, -1):
        if text.endswith(mark[:n]):
            return len(text) - n
    return len(text)
