"""Token trees in llama.cpp's cache: every root-to-leaf path is a sequence of its own over shared cells.

Knows sequences and positions; knows no logits. When the accepted branch was not decoded first, rejected cells lie
between its cells. They are kept in a garbage sequence that nothing attends to: freeing them would let later tokens use
them out of order, and then sums over the cache would round differently from plain decode. Rejected cells behind the
last accepted one are freed.
"""

from __future__ import annotations

import ctypes
from typing import Any

import llama_cpp.llama_cpp as lib

from runtime.backends.library import INT32_P
from runtime.core.draft import Draft, Tokens, common_start

MAIN, GARBAGE, FIRST_BRANCH = 0, 1, 2


def path_to(draft: Draft, node: int) -> list[int]:
    """Return the nodes from the root down to `node`."""
    path = []
    while node >= 0:
        path.append(node)
        node = draft.parent(node)
    return path[::-1]


def branches(draft: Draft) -> list[list[int]]:
    """Return the nodes from the root to each leaf of a draft."""
    inner = {draft.parent(node) for node in range(len(draft))}
    return [path_to(draft, node) for node in range(len(draft)) if node not in inner]


class TreeCache:
    """The branches of the last decoded tree, kept until the accepted branch is known."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory
        self.draft, self.start = Draft(), 0  # the tree, and the position of its first nodes
        self._begin = 0  # their place among the tokens
        self._paths: list[list[int]] = []
        self.garbage: list[tuple[int, int]] = []  # (start of its tree, position) of each garbage cell
        self._batch_parts: list[Any] = []  # arrays that the batch points to

    def batch(self, last: int, begin: int, draft: Draft, shift: int = 0) -> lib.llama_batch:
        """Open the branches after `begin` tokens, of which `last` is the last one; return the batch to decode. Their
        positions differ from their numbers by `shift`.

        The batch has [1 + len(draft)] rows.
        """
        start = begin + shift
        self.draft, self.start, self._begin, self._paths = draft, start, begin, branches(draft)
        for branch in range(len(self._paths)):
            lib.llama_memory_seq_cp(self.memory, MAIN, FIRST_BRANCH + branch, -1, -1)
        positions = [start - 1 + len(path_to(draft, node)) for node in range(-1, len(draft))]
        members = [
            [FIRST_BRANCH + branch for branch, path in enumerate(self._paths) if node in path]
            for node in range(len(draft))
        ]
        root = [MAIN, *range(FIRST_BRANCH, FIRST_BRANCH + len(self._paths))]
        return self._as_batch([last, *draft.tokens], positions, [root, *members])

    def _as_batch(self, tokens: list[int], positions: list[int], members: list[list[int]]) -> lib.llama_batch:
        """Return a batch over ctypes arrays, which are kept alive until the next batch."""
        n, int32 = len(tokens), ctypes.c_int32
        sequences = [(int32 * len(each))(*each) for each in members]
        parts = [(int32 * n)(*tokens), (int32 * n)(*positions), (int32 * n)(*map(len, members))]
        pointers = (INT32_P * n)(*[ctypes.cast(each, INT32_P) for each in sequences])
        flags = (ctypes.c_int8 * n)(*[1] * n)
        self._batch_parts = [*sequences, *parts, pointers, flags]
        return lib.llama_batch(n, parts[0], None, parts[1], parts[2], pointers, flags)

    def taken(self, context: Tokens) -> list[int]:
        """Return the nodes that `context` follows, from the root; it must contain the tokens before the tree."""
        node, found = -1, list[int]()
        for token in context[self._begin :].tolist() if len(self.draft) else ():
            child = self.draft.child(node, token)
            if child is None:
                break
            found.append(node := child)
        return found

    def settle(self, taken: list[int]) -> None:
        """Move accepted nodes to the main sequence and rejected ones between them to garbage; free the others."""
        if not len(self.draft):
            return
        winner, last = FIRST_BRANCH, max(taken, default=-1)
        for branch, path in enumerate(self._paths, start=FIRST_BRANCH):
            shared = common_start(path, taken)
            winner = branch if shared == len(taken) else winner
            in_front = sum(1 for node in path[shared:] if node < last)
            if in_front:
                lib.llama_memory_seq_cp(
                    self.memory, branch, GARBAGE, self.start + shared, self.start + shared + in_front
                )
        for branch in range(FIRST_BRANCH, FIRST_BRANCH + len(self._paths)):
            if branch != winner:
                lib.llama_memory_seq_rm(self.memory, branch, -1, -1)
        lib.llama_memory_seq_cp(self.memory, winner, MAIN, self.start, self.start + len(taken))
        lib.llama_memory_seq_rm(self.memory, winner, -1, -1)
        losers = (node for node in range(last) if node not in taken)
        self.garbage += [(self.start, self.start + len(path_to(self.draft, node)) - 1) for node in losers]
        self.draft = Draft()

    def rewind(self, start: int) -> None:
        """Free garbage after the main sequence was truncated at position `start`, but only behind all cells that stay.

        Rejected nodes of a tree that started before may lie in front of its accepted ones.
        """
        if self.garbage:
            free = max([start, *(position + 1 for tree, position in self.garbage if tree < start)])
            lib.llama_memory_seq_rm(self.memory, GARBAGE, free, -1)
            self.garbage = [(tree, position) for tree, position in self.garbage if position < free]

    def clear(self) -> None:
        """Forget the tree and the garbage after the whole cache was emptied."""
        self.draft, self.garbage = Draft(), []
