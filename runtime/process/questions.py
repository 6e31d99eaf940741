"""Calls to the model process between replies: explanations, embeddings, cached conversations."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from runtime.speculative.control.explain import Explanation


class RemoteQuestions:
    """Methods of Engine that the model process answers."""

    @abstractmethod
    def _ask(self, name: str, *args: Any) -> Any:
        """Call a method of the remote engine and return its result."""

    def explain(self) -> Explanation:
        """See Engine."""
        explanation: Explanation = self._ask("explain")
        return explanation

    def embed(self, tokens: Sequence[int]) -> list[float]:
        """See Engine."""
        vector: list[float] = self._ask("embed", list(tokens))
        return vector

    def conversation(self, action: str, number: int, path: str = "") -> tuple[int, int]:
        """See Engine."""
        found: tuple[int, int] = self._ask("conversation", action, number, path)
        return found
