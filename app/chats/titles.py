"""Titles of chats: from the first line, or from a model's reply. Knows text; runs no model itself."""

from __future__ import annotations

import re

from runtime.engine import Message

MAX_CHARACTERS = 48  # characters
FEWEST_WORDS, MAX_WORDS = 2, 9
MIN_OVERLAP = 2 / 3  # of the title's words must occur in the question
BEGINNING = 400  # characters of the question in the request for a title
EXAMPLES = (
    ("Could you please tell me how to boil eggs so that the yolk stays soft?", "Soft boiled eggs"),
    ("Why does my car make a noise when I brake?", "Noise when braking"),
    ("Write me a letter to my landlord about the broken heating", "Letter about broken heating"),
)
WORD = re.compile(r"\w+")
AROUND = " \t*_#`'\"“”‘’«»().,:;!?-"
NO_TITLE = re.compile(r"[][{}<>=\"\\]")  # signs of code or quoted text
FENCES = ("```", "~~~")
STEM = 4  # letters that two forms of a word share


def title_of(text: str) -> str:
    """Return a title for a chat that begins with this text: its first line, and the next after a colon, cut between
    words, or within a very long one.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(FENCES)] or ["New chat"]
    line = " ".join(lines[: 1 + lines[0].endswith(":")])
    if len(line) <= MAX_CHARACTERS:
        return line
    words = line[:MAX_CHARACTERS].rpartition(" ")[0].strip()
    if len(words) < MAX_CHARACTERS // 2:  # a very long word, such as an address
        return line[: MAX_CHARACTERS - 1] + "…"
    return words + " …"


def request_for(question: str) -> list[Message]:
    """Return the prompt for a title. It has examples, which small models also understand."""
    turns = [Message("user", "Give each question a title of two to five words.\n\nTitle of: " + EXAMPLES[0][0])]
    turns.append(Message("assistant", EXAMPLES[0][1]))
    for example, title in EXAMPLES[1:]:
        turns += [Message("user", f"Title of: {example}"), Message("assistant", title)]
    return [*turns, Message("user", f"Title of: {question[:BEGINNING]}")]


def title_from(reply: str, question: str) -> str:
    """Return the title in a model's reply, or "" if it is invalid: too long, or not about the question."""
    line = next((line for line in reply.splitlines() if line.strip(AROUND)), "")
    title = re.sub(r"^\W*title( of)?\W*:\s*", "", line, flags=re.IGNORECASE).strip(AROUND)
    for text in (title, re.split(r"[,;(]", title)[0].strip(AROUND)):
        if len(text) <= MAX_CHARACTERS and not NO_TITLE.search(text) and is_about(text, question.lower()):
            return as_written(text, question) if text.isupper() else text
    return ""


def as_written(title: str, question: str) -> str:
    """Return the title with the question's own capitalization, if it occurs there."""
    at = question.lower().find(title.lower())
    return title if at < 0 else question[at : at + len(title)]


def is_about(title: str, question: str) -> bool:
    """Return whether the title is a few words, most of which occur in the question in some form."""
    words = WORD.findall(title.lower())
    stems = [word[:STEM] for word in words if len(word) >= STEM]
    return (
        bool(stems)
        and FEWEST_WORDS <= len(words) <= MAX_WORDS
        and sum(map(question.__contains__, stems)) >= MIN_OVERLAP * len(stems)
    )
