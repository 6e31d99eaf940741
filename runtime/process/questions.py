"""What another process is asked between replies: why passes are as they are, vectors, held conversations."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from runtime.speculative.control.explain import Explanation


class RemoteQuestions:
    """Answered by the process that has the models."""

    @abstractmethod
    def _ask(self, name: str, *args: Any) -> Any:
        """Call a method of the engine there and return what it returns."""

    def explain(self) -> Explanation:
        """As Engine says."""
        explanation: Explanation = self._ask("explain")
        return explanation

    def embed(self, tokens: Sequence[int]) -> list[float]:
        """As Engine says."""
        vector: list[float] = self._ask("embed", list(tokens))
        return vector

    def conversation(self, action: str, number: int, path: str = "") -> tuple[int, int]:
        """As Engine says."""
        found: tuple[int, int] = self._ask("conversation", action, number, path)
        return found
