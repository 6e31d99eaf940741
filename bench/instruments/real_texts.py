"""The prompts of `bench.real`: six kinds of text, as instructions and as beginnings for continuation.

Plain data; knows no model.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from app.bench.prompts import LIBRARY
from bench.instruments.edits import edits


@dataclass(frozen=True, slots=True)
class Kind:
    """An instruction; the beginning of its reply, for a model without a chat template; the JSON schema of the reply."""

    instruction: str
    beginning: str
    form: str = ""

    def text(self, is_raw: bool) -> str:
        """Return the prompt for a model with a chat template, or for one that only continues texts."""
        return f"{self.instruction}\n\n{self.beginning}" if is_raw else self.instruction


RECIPE = json.dumps(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 40},
            "minutes": {"type": "integer", "minimum": 1, "maximum": 240},
            "difficulty": {"enum": ["easy", "medium", "hard"]},
            "ingredients": {
                "type": "array",
                "items": {"type": "string", "maxLength": 30},
                "minItems": 3,
                "maxItems": 6,
            },
            "vegetarian": {"type": "boolean"},
        },
        "required": ["name", "minutes", "difficulty", "ingredients", "vegetarian"],
        "additionalProperties": False,
    }
)

EDIT, N_LINES = edits()["rename a variable"], 40
FILE = "".join(EDIT.before.splitlines(keepends=True)[:N_LINES])
COPY = "".join(EDIT.after.splitlines(keepends=True)[:2])

KINDS = {
    "chat": Kind("Why does the moon cause tides? Explain it to a child.", "The moon causes tides because"),
    "story": Kind(
        "Write the beginning of a story about a lighthouse keeper who finds a letter in a bottle.",
        "The storm had blown itself out by morning, and the keeper",
    ),
    "code": Kind(
        "Write a Python function that returns the prime numbers below n, with a docstring and a test.",
        "def primes_below(n):\n",
    ),
    "edit": Kind(
        f"{EDIT.instruction}\n\n```python\n{FILE}```",
        f"The same code with `content`:\n\n```python\n{COPY}",
    ),
    "summary": Kind(f"Sum up this text in three sentences.\n\n{LIBRARY}", "Summary: The town library"),
    "JSON": Kind("Describe a recipe for tomato soup as JSON.", "The recipe:\n\n", RECIPE),
}
