"""Rewrites remedies of the command line as remedies for clients. Knows text alone."""

from __future__ import annotations

import re

ALTERNATIVE, SENTENCE = re.compile(r",? or [^.,`]*`-[^.,]*"), re.compile(r"(?<=[.:]) [^.]*`-[^.]*\.")
REMEDIES = {
    "Use `--raw` to send the prompt as it is.": "Send the prompt as text to /v1/completions.",
    "Raise `--context`.": "Shorten it.",
}


def for_clients(message: str) -> str:
    """Return a message without options of the command line, which a client cannot give."""
    for remedy, other in REMEDIES.items():
        message = message.replace(remedy, other)
    return SENTENCE.sub("", ALTERNATIVE.sub("", message))
