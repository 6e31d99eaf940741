"""Calls to the model process between replies: explanations, embeddings, cached conversations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runtime.process.kept import KeptProcess
from runtime.process.messages import Call
from runtime.speculative.control.explain import Explanation


class RemoteQuestions:
    """Methods of Engine that the model process answers."""

    kept: KeptProcess

    def _ask(self, name: str, *args: Any) -> Any:
        return self.kept.call(lambda process: process.ask(Call(name, args)))

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
