"""Progress reports within a stream: prompt tokens read so far, and timings so far.

Must not know an interface.
"""

from __future__ import annotations

from app.server.usage import timings
from app.server.wire import Event
from runtime.engine import Chunk
from runtime.engine.stats import Stats


class ReplyProgress:
    """The progress of one reply. `tells_reading`: events during the prefill; `tells_time`: timings in every event."""

    def __init__(self, tells_reading: bool = False, tells_time: bool = False) -> None:
        self.tells_reading, self.tells_time = tells_reading, tells_time
        self._stats, self._n_tokens, self._n_accepted, self._seconds = Stats(), 0, 0, 0.0

    def see(self, chunk: Chunk) -> None:
        """Count a chunk. To be called for every chunk but the last."""
        self._stats = chunk.stats or self._stats
        self._n_tokens += len(chunk.tokens)
        self._n_accepted += sum(chunk.drafted)
        self._seconds += chunk.made.seconds if chunk.made else 0.0

    def reading(self, chunk: Chunk) -> Event:
        """Return the prefill progress in the chunk, or {} if there is none or it was not requested."""
        stats = chunk.stats
        if not self.tells_reading or stats is None or chunk.finish_reason:
            return {}
        return {
            "prompt_progress": {
                "total": stats.prompt_n,
                "cache": stats.cached_n,
                "processed": chunk.n_read,
                "time_ms": round(1e3 * stats.prompt_seconds),
            }
        }

    def time(self, n_read: int | None = None) -> Event:
        """Return the timings so far, or {} if not requested. `n_read`: prompt tokens read; None: all."""
        if not self.tells_time:
            return {}
        n_prompt = (self._stats.prompt_n if n_read is None else n_read) - self._stats.cached_n
        reading = timings(Stats(prompt_n=n_prompt, prompt_seconds=self._stats.prompt_seconds))
        return {
            "timings": {name: reading[name] for name in reading if name.startswith("prompt_")}
            | {"cache_n": self._stats.cached_n, "draft_n_accepted": self._n_accepted}
            | {"predicted_n": self._n_tokens, "predicted_ms": round(1e3 * self._seconds, 3)}
            | {"predicted_per_second": round(self._n_tokens / self._seconds, 2) if self._seconds else 0.0}
        }
