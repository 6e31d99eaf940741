"""Finds how deeply things nest that may refer to each other, without recursion."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T")


def deepest(root: T, following: Callable[[T], Iterable[T]], key: Callable[[T], Hashable]) -> int:
    """Return the length of the longest path of a depth-first search, which is how deep a recursion would be. Each thing
    is entered once, by its key.
    """
    path, seen, most = [iter(following(root))], {key(root)}, 1
    while path:
        each = next((each for each in path[-1] if key(each) not in seen), None)
        if each is None:
            path.pop()
            continue
        seen.add(key(each))
        path.append(iter(following(each)))
        most = max(most, len(path))
    return most
