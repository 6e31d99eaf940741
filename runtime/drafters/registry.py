"""Registry of drafters: each declares its name, its requirements and its cost in its own file.

Knows none of them by name. Their files are found in this package and imported on first use, so that importing this
module is fast.
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
    from runtime.drafters.network import NetworkHead

    Kind = TypeVar("Kind", bound=type[Drafter])

LAST = 100
KNOWN: dict[str, Registered] = {}  # by name, from the files imported so far


class Cost(IntEnum):
    """Cost of a draft token, cheapest first: the order in which drafters are tried."""

    GIVEN = auto()  # nothing: the request contains it
    LOOKUP = auto()  # a lookup in an index
    PASS = auto()  # a pass of a draft model or a head
    TARGET = auto()  # computation of the target itself


class Needs(Enum):
    """Requirement of a drafter, which is passed to its class."""

    NOTHING = auto()
    SPELLING = auto()  # the bytes of the target's tokens, and the tokens of a text
    REPLIES = auto()  # the store of past replies
    DRAFT = auto()  # a draft model, with the other arguments of ModelDrafter
    HEAD = auto()  # a head on the target, with the other arguments of HeadDrafter
    EARLY_EXIT = auto()  # the target's first layers, and its vocabulary size
    WINDOW = auto()  # the shape of the window that is added to the target's passes


@dataclass(slots=True)
class Registered:
    """Declaration of a drafter: a decorator that registers the class and sets its name."""

    name: str
    cost: Cost
    needs: Needs = Needs.NOTHING
    label: str = ""  # description for users, as of a source of guesses; "": its name
    colour: Literal["accent", "error", "primary", "success", "warning"] = "accent"  # theme color of its tokens
    is_usual: bool = False  # whether it drafts for a pair that names no drafters
    place: int = LAST  # position in lists shown to users
    file: str = ""  # description of the file to pass with `--draft`, if it needs one
    unmeasured: str = ""  # reason why benchmarks cannot measure it
    network: type[NetworkHead] | None = None  # computation of its heads, whose files name it as their kind
    kind: type[Drafter] = field(init=False)

    def __call__(self, kind: Kind) -> Kind:
        """Register the class."""
        assert self.name not in KNOWN, f"two drafters are named {self.name}"
        kind.name, self.kind = self.name, kind
        KNOWN[self.name] = self
        return kind


@cache
def import_all() -> None:
    """Import the files of this package, each of which registers its drafter."""
    import pkgutil

    package = __name__.rpartition(".")[0]
    for module in pkgutil.iter_modules(import_module(package).__path__):
        import_module(f"{package}.{module.name}")


def registered() -> list[Registered]:
    """Return all drafters, in the order shown to users."""
    import_all()
    return sorted(KNOWN.values(), key=lambda each: (each.place, each.name))


def find(name: str) -> Registered | None:
    """Return the drafter of that name, or None."""
    import_all()
    return KNOWN.get(name)


def described(name: str) -> str:
    """Return the description for users of a drafter, or of the first of several combined with +."""
    first = name.partition("+")[0]
    known = find(first)
    return (known and known.label) or first


def known_names() -> list[str]:
    """Return the names of all drafters, in the order shown to users."""
    return [each.name for each in registered()]


def usual() -> tuple[str, ...]:
    """Return the names of the drafters for a pair that names none."""
    return tuple(each.name for each in registered() if each.is_usual)


def networks() -> dict[str, type[NetworkHead]]:
    """Return the kinds of heads that are computed here, by the drafter's name."""
    import_all()
    return {each.name: each.network for each in KNOWN.values() if each.network}


def needing(wanted: Iterable[str], *needs: Needs) -> list[str]:
    """Return those of the `wanted` names whose drafters have one of these requirements."""
    return [name for name in wanted if (each := find(name)) and each.needs in needs]
