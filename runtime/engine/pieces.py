"""Splits a prompt that is read in several passes into pieces. Pure; knows numbers only."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.loading.exactness import Exactness

PIECE = 256  # tokens prefilled between two checks for cancellation


def piece_end(n_cached: int, n_prompt: int, n_read: int, exactness: Exactness | None, n_ctx: int) -> int:
    """Return the end of the next piece of the first `n_read` tokens, of which `n_cached` are cached.

    The borders do not depend on the tokens that drafts left in the cache. Reply tokens after the prompt of `n_prompt`
    tokens are read as they were generated: in passes no wider than the exact ones.
    """
    borders = _borders(n_cached, n_prompt - 1, n_read, exactness, n_ctx)
    return next((border for border in borders if border > n_cached), n_read)


def _borders(n_cached: int, n_asked: int, n_read: int, exactness: Exactness | None, n_ctx: int) -> Iterator[int]:
    yield from range((n_cached // PIECE + 1) * PIECE, n_asked, PIECE)
    end = n_asked
    yield end
    while end < n_read:
        end += PIECE if exactness is None or exactness.is_exact else exactness.rows_at(end + 1, n_ctx)
        yield min(end, n_read)
