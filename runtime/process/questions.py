"""What the model process tells of itself, and calls between replies: explanations, embeddings, conversations."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from runtime.process.messages import Status
from runtime.speculative.control.explain import Explanation


class RemoteQuestions:
    """Methods of Engine that the model process answers."""

    @property
    @abstractmethod
    def _status(self) -> Status:
        """The last status of the process."""

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

    @property
    def holds_one(self) -> bool:
        """See Engine."""
        return self._status.holds_one

    @property
    def n_waiting(self) -> int:
        """See Engine."""
        return self._status.n_waiting

    @property
    def n_held(self) -> int:
        """See Engine."""
        return self._status.n_held

    @property
    def memory_level(self) -> str:
        """See Engine."""
        return self._status.memory_level

    @property
    def given_up(self) -> str:
        """See Engine."""
        return self._status.given_up

    @property
    def learning(self) -> str:
        """See Engine."""
        return self._status.learning
