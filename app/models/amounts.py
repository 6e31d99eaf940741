"""Amounts in words: bytes, parameters, tokens per second."""

from __future__ import annotations


def gigabytes(n: int) -> str:
    """Return a number of bytes as text in GB or MB."""
    return f"{n / 1e9:.2f} GB" if n >= 1e8 else f"{n / 1e6:.1f} MB"


def large(n: int) -> str:
    """Return a number of parameters as text, in billions or millions."""
    return f"{n / 1e9:.2f} billion" if n >= 1e9 else f"{n / 1e6:.1f} million"


def rate(per_second: float) -> str:
    """Return a number of tokens per second as text, rounded as an estimate."""
    return f"{per_second:,.0f}" if per_second >= 9.95 else f"{per_second:.1f}"
