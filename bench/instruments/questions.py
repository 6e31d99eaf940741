"""Questions for benchmarks: about the bundled pair's whole corpus, and for other models a few for prose."""

from __future__ import annotations

from pathlib import Path

from demo.corpus import load

CORPUS = Path(__file__).parents[2] / "demo" / "corpus.jsonl"
PROSE = (
    "Why is the sky blue?",
    "Give me three tips for sleeping better.",
    "Write a short letter to a landlord about a broken heater.",
    "What is the difference between a virus and a bacterium?",
    "Tell me about the history of the bicycle.",
    "How do I make a simple tomato soup?",
    "Explain what inflation means to a teenager.",
    "Describe a walk through a forest in autumn.",
)


def questions(n: int = 30) -> list[str]:
    """Return `n` questions over the whole corpus, or a few more."""
    entries = load(CORPUS)
    return [f"What does {entry.name} do?" for entry in entries[:: len(entries) // n]]
