"""The drafters that there are: each says in its own file what it is called, what it must be given and what it costs.

Knows none of them by name. Their files are found in this package and imported when somebody first asks, so that this
module is light to import.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Literal, TypeVar

if TYPE_CHECKING:
    from runtime.core.drafter import Drafter

    Kind = TypeVar("Kind", bound=type[Drafter])

LAST = 100
KNOWN: dict[str, Registered] = {}  # of the files that were imported


class Cost(IntEnum):
    """What a draft token costs, the least first: drafters are offered in this order."""

    GIVEN = auto()  # nothing: the request says it
    LOOKUP = auto()  # a look into an index
    PASS = auto()  # a pass of a small model or a head
    TARGET = auto()  # work of the target itself


class Needs(Enum):
    """What a drafter cannot do without, and its class is called with."""

    NOTHING = auto()
    REPLIES = auto()  # where past replies are kept
    DRAFT = auto()  # a draft model, with what else ModelDrafter asks for
    HEAD = auto()  # a head beside the target, with what else HeadDrafter asks for
    EARLY_EXIT = auto()  # the target's first layers, and how many words it has
    WINDOW = auto()  # the shape of a window that rides along in the target's passes


@dataclass(slots=True)
class Registered:
    """What is said of a drafter once, above its class, which it decorates and gives its name."""

    name: str
    cost: Cost
    needs: Needs = Needs.NOTHING
    label: str = ""  # who guesses, for people; "": its name says it
    colour: Literal["accent", "error", "primary", "success", "warning"] = "accent"  # of its tokens, a theme's word
    is_usual: bool = False  # does it draft where a pair names no drafters?
    place: int = LAST  # among the names, where people are told all of them
    file: str = ""  # what it drafts with that has to be named with `--draft`
    unmeasured: str = ""  # why a benchmark says nothing about it
    kind: type[Drafter] = field(init=False)

    def __call__(self, kind: Kind) -> Kind:
        """Registers that class."""
        assert self.name not in KNOWN, f"two drafters are called {self.name}"
        kind.name, self.kind = self.name, kind
        KNOWN[self.name] = self
        return kind


@cache
def import_all() -> None:
    """Imports the files of this package, each of which registers its drafter."""
    import pkgutil

    package = __name__.rpartition(".")[0]
    for module in pkgutil.iter_modules(import_module(package).__path__):
        import_module(f"{package}.{module.name}")


def registered() -> list[Registered]:
    """All drafters, in the order in which people are told of them."""
    import_all()
    return sorted(KNOWN.values(), key=lambda each: (each.place, each.name))


def find(name: str) -> Registered | None:
    """The drafter of that name, if there is one."""
    import_all()
    return KNOWN.get(name)


def known_names() -> list[str]:
    """The names of all, in that order."""
    return [each.name for each in registered()]


def usual() -> tuple[str, ...]:
    """The drafters of a pair that names none."""
    return tuple(each.name for each in registered() if each.is_usual)


def needing(wanted: Iterable[str], *needs: Needs) -> list[str]:
    """Those of the `wanted` names whose drafters are given one of these."""
    return [name for name in wanted if (each := find(name)) and each.needs in needs]
