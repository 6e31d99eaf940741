"""A machine with memory for so many models, and engines that take it, for tests of who is loaded beside whom."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from app.server.known_models import KnownModels
from app.server.policy import ServerPolicy
from app.server.served_model import MemoryWish, ServedModel
from app.server.served_models import ServedModels
from bench.instruments.toy import facts
from runtime.core.errors import ModelError, NoMemoryError
from runtime.models.registry import Pair

MIB = 2**20


class Loaded:
    """An engine of a model that takes a hundred MiB of the machine."""

    facts, limits = facts(), None

    def __init__(self, machine: Machine, pair: Pair) -> None:
        self.machine, self.pair = machine, pair
        self.cancelled: list[int] = []
        self.n_drafts = machine.n_drafts.get(pair.name, 0)  # bytes that it takes in addition

    def pending_bytes(self, files: Sequence[Path]) -> int:
        """What is mapped from its files, and so still free as the system counts."""
        return 0 if {self.pair.draft, self.pair.target} & {*files} else 60 * MIB

    def watch(self, on_lost: Callable[[Exception], None]) -> None:
        self.lose = on_lost

    def cancel(self, number: int) -> None:
        self.cancelled.append(number)

    def close_drafts(self) -> int:
        freed, self.n_drafts = self.n_drafts, 0
        return freed

    def close(self) -> None:
        self.machine.loaded.remove(self)


class Machine:
    """Memory for so many models of a hundred MiB each. What they have mapped counts as free, as on Linux."""

    def __init__(self, room: float) -> None:
        self.room, self.loaded, self.opened = room, list[Loaded](), list[str]()
        self.broken, self.n_drafts = set[str](), dict[str, int]()

    def open_pair(self, pair: Pair, wish: MemoryWish, on_progress: Callable[[str, float], bool]) -> Any:
        self.opened.append(pair.name)
        if pair.name in self.broken:
            raise ModelError("its file is damaged. Fetch it again.")
        free = 100 * MIB * self.room - 40 * MIB * len(self.loaded) - sum(each.n_drafts for each in self.loaded)
        if free - wish.reserved < 100 * MIB:
            raise NoMemoryError(f"{pair.name} needs 100 MiB of memory. Close other programs.")
        engine = Loaded(self, pair)
        self.loaded.append(engine)
        return engine

    @property
    def names(self) -> list[str]:
        return [each.pair.name for each in self.loaded]


def pair(name: str) -> Pair:
    return Pair(name, Path(f"{name}.gguf"))


def models_on(machine: Machine, *names: str, **more: Any) -> ServedModels:
    known = KnownModels([ServedModel([name], pair(name), **more) for name in names])
    return ServedModels(known, machine.open_pair, ServerPolicy())


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 20))


@contextmanager
def using(model: ServedModel) -> Iterator[None]:
    model.hold()
    yield
    model.release()


async def use(models: ServedModels, name: str) -> None:
    model = await models.known.find(name)
    await models.hold(model)
    assert model in models.models
    await asyncio.sleep(0)
    model.release()
