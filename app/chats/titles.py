"""What chats are called: after their first line, or as a model puts it. Knows text; asks no model itself."""

from __future__ import annotations

import re
from collections.abc import Sequence

from runtime.engine import Message

LONGEST = 48  # characters
MOST_WORDS = 7
REQUEST = "Give this conversation a title of two to five words. Answer with the title only."
WORD = re.compile(r"\w+")
AROUND = " \t*_#`'\"“”‘’«»().,:;!?-"
STEM = 4  # letters that two forms of a word have in common


def title_of(text: str) -> str:
    """A title for a chat that begins with this text: its first line, cut between words."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "New chat")
    if len(line) <= LONGEST:
        return line
    if " " in line[:LONGEST]:
        return line[:LONGEST].rpartition(" ")[0].strip() + " …"
    return line[: LONGEST - 1] + "…"


def title_from(reply: str, talk: Sequence[Message]) -> str:
    """The title in what a model answered to REQUEST; "" where it is none: too long, or not about what was said."""
    line = next((line for line in reply.splitlines() if line.strip(AROUND)), "")
    title = re.sub(r"^\W*title\W*:\s*", "", line, flags=re.IGNORECASE).strip(AROUND)
    words = [word.lower() for word in WORD.findall(title)]
    said = " ".join(message.content.lower() for message in talk)
    about = [word for word in words if len(word) >= STEM]
    n_said = sum(word[:STEM] in said for word in about)
    is_title = len(title) <= LONGEST and len(words) <= MOST_WORDS and about and 2 * n_said >= len(about)
    return title if is_title else ""
