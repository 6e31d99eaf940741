"""Tiny models of every family whose headers contradict their layers: one thing is changed, and the file written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bench.instruments.architectures.family import Family, Value
from bench.instruments.architectures.writer import Tensors, write

HUGE = 2**31 - 1
LAYER = re.compile(r"^blk\.\d+\.")


@dataclass(frozen=True, slots=True)
class Mutation:
    """A change: a value of the metadata, or a missing kind of tensor."""

    key: str = ""
    value: Value = 0
    tensor: str = ""

    def __str__(self) -> str:
        return f"{self.key} = {self.value}" if self.key else f"without {self.tensor}"


def mutations(family: Family, tensors: Tensors) -> Iterator[Mutation]:
    """Yield all mutations of a family."""
    for key, value in family.metadata.items():
        yield from (Mutation(key, changed) for changed in others(value))
    kinds = {LAYER.sub("", name) for name in tensors if LAYER.match(name)}
    yield from (Mutation(tensor=kind) for kind in sorted(kinds))
    yield from (Mutation(tensor=name) for name in tensors if not LAYER.match(name))


def others(value: Value) -> list[Value]:
    """Return other values for an integer, or for the last integer of a list; nothing for other types."""
    if isinstance(value, list):
        *before, last = value
        return [[*before, each] for each in (0, last + 1, HUGE)] if type(last) is int else []
    return [0, value + 1, HUGE] if type(value) is int else []


def mutated(path: Path, name: str, family: Family, tensors: Tensors, mutation: Mutation) -> Path:
    """Write the family's file with that change. A layer's tensor is missing in the last layer that has it."""
    if mutation.key:
        family = replace(family, metadata={**family.metadata, mutation.key: mutation.value})
    without = [each for each in tensors if mutation.tensor and LAYER.sub("", each) == mutation.tensor][-1:]
    return write(path, name, family, {each: data for each, data in tensors.items() if each not in without})
