"""What the bundled pair is asked: questions over its whole corpus."""

from __future__ import annotations

from pathlib import Path

from demo.corpus import load

CORPUS = Path(__file__).parents[2] / "demo" / "corpus.jsonl"


def questions(n: int = 30) -> list[str]:
    """Return so many questions over the whole corpus, or a few more."""
    entries = load(CORPUS)
    return [f"What does {entry.name} do?" for entry in entries[:: len(entries) // n]]
