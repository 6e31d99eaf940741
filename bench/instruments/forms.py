"""A JSON schema for replies, and a validator that is independent of the grammar library.

Used by tests and the long test of `bench.prove`.
"""

from __future__ import annotations

import json

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "function": {"type": "string", "maxLength": 12},
            "safe": {"type": "boolean"},
            "arity": {"enum": [1, 2, 3]},
        },
        "required": ["function", "safe", "arity"],
        "additionalProperties": False,
    }
)


def follows_schema(text: str) -> bool:
    """Return whether the text follows SCHEMA."""
    try:
        found = json.loads(text)
    except ValueError:
        return False
    kinds = {"function": str, "safe": bool, "arity": int}
    return (
        {key: type(value) for key, value in found.items()} == kinds
        and found["arity"] in (1, 2, 3)
        and len(found["function"]) <= 12
    )
