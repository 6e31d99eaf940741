"""Describes a function that a model may call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runtime.conversation.calls.schemas import ANY_OBJECT, bound_schema


@dataclass(frozen=True, slots=True)
class Function:
    """A function that may be called, and the JSON schema of its arguments."""

    name: str
    parameters: Mapping[str, Any] | None = None

    @property
    def schema(self) -> dict[str, Any]:
        """The part of the schema that a reply can be constrained to."""
        found: dict[str, Any] = json.loads(bound_schema(self.name, json.dumps(self.parameters or ANY_OBJECT)))
        return found
