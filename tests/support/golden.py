"""What is written to a client or a terminal, as text that is the same on every machine and in every run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx2

MARK, MOST_SHOWN = "…", 400
# Of what is another one in every run, or on another machine
VARIES = re.compile(
    r"^created|_at$|ms$|per_second$|^times_plain$|^held_up$|^memory_|^level$|^fit$|fingerprint|^exact_width$|^is_exact$"
    r"|^near_ties$|logprob$|^build_info$|^model_path$"
)
RANDOM_ID = re.compile(r"\b(chatcmpl|cmpl|resp|msg|rs|fc|call|toolu|req)([-_])[0-9A-Za-z]{6,}")
MEASURED = re.compile(r"^( *(?:speed|time|memory|at load|reproducible)  ).*$|[\d.,]+(?= ms\b)", re.MULTILINE)


def steady(value: Any, key: str = "") -> Any:
    """JSON with marks for numbers and texts that vary."""
    if isinstance(value, dict):
        return {name: steady(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [steady(each, key) for each in value]
    if VARIES.search(key) and value is not None:
        return MARK
    return shortened(RANDOM_ID.sub(rf"\1\2{MARK}", value)) if isinstance(value, str) else value


def shortened(text: str) -> str:
    """A text of which nobody would read all."""
    return text if len(text) <= MOST_SHOWN else f"{text[:40]}{MARK} ({len(text)} characters)"


def exchange(reply: httpx2.Response) -> str:
    """A request, its answer and what the answer says of itself, as one reads them."""
    asked = reply.request.content.decode("utf8", "replace")
    kind = reply.headers["content-type"]
    body = stream(reply.text) if kind.startswith("text/event-stream") else pretty(reply.text)
    head = f"{reply.request.method} {reply.request.url.raw_path.decode()}\n{pretty(asked)}".rstrip("\n")
    return f"{head}\n\n{reply.status_code} {kind}\n{body}\n"


def pretty(text: str) -> str:
    """JSON with a line for each of its parts; anything else as it is, but for what is too long to be read."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return json.dumps(steady(value), ensure_ascii=False, indent=2)


def stream(text: str) -> str:
    """Server-sent events, each in a paragraph, without signs of life."""
    lines = [line for line in text.split("\n") if not line.startswith(":")]
    return "\n".join(event_line(line) for line in lines).strip("\n")


def event_line(line: str) -> str:
    """A field of an event; JSON in it is steady."""
    name, _, value = line.partition(": ")
    try:
        return f"{name}: {json.dumps(steady(json.loads(value)), ensure_ascii=False)}"
    except ValueError:
        return line


def steady_text(text: str) -> str:
    """What a command writes beside its answer, with marks for what is measured."""
    return MEASURED.sub(lambda found: (found[1] or "") + MARK, text)


class Golden:
    """Texts in files of their own, NAME.txt in a folder; those that `updates` says are written anew."""

    def __init__(self, folder: Path, updates: bool) -> None:
        self.folder, self._updates = folder, updates

    def check(self, name: str, text: str) -> None:
        """Is it the text of that file?"""
        path = self.folder / f"{name}.txt"
        if self._updates:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf8")
        assert path.is_file(), f"there is no {path.name} yet: pytest --snapshot-update writes it"
        assert text == path.read_text(encoding="utf8")
