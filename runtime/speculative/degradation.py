"""What is given up when memory is short, between two tokens, and taken back when it is not: drafters, never the target.

TIGHT closes the draft model and all conversations but the latest; drafters without a model go on. CRITICAL leaves plain
decode, and drafters whose memory can be built again from the context or from disk are made anew, empty. The text does
not depend on any of it: the loop may lose and gain drafters at every step. Knows drafters and the level; reads no
memory itself, and changes nothing of the loop: it returns what has changed.
"""

from __future__ import annotations

import ctypes
import logging
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from runtime.core.backend import Reloadable
from runtime.core.drafter import Drafter
from runtime.core.errors import SlipstreamError
from runtime.memory.pressure import Level, PressureMonitor
from runtime.speculative.control.reasons import Reason

log = logging.getLogger(__name__)


class Change(NamedTuple):
    """What an update gave up and took back."""

    suspended: tuple[Drafter, ...] = ()
    restored: tuple[Drafter, ...] = ()
    failed: Reason | None = None  # why a drafter that should have come back did not
    slots: int | None = None  # conversations that the target holds from now on, where that has changed


class Degradation:
    """Which drafters memory allows. `make` makes one by name with an empty memory; `draft` is the draft model or head,
    whose drafter's name is `owner`.
    """

    def __init__(
        self,
        monitor: PressureMonitor,
        make: Callable[[str], Drafter],
        draft: Reloadable | None = None,
        slots: int = 1,
        owner: str = "model",
    ) -> None:
        self._owner = owner
        self.monitor, self._make, self._draft, self._slots = monitor, make, draft, slots
        self.level = Level.OK  # that drafters are kept to
        self.reason: Reason | None = None  # for what is given up now
        self._suspended: dict[str, Drafter | None] = {}  # None: to be made anew

    def update(self, drafters: Sequence[Drafter]) -> Change:
        """Reads the level; says which of `drafters` have to go, and which may come back and are there."""
        level = self.monitor.update()
        if level == self.level:
            return self._restore() if self._suspended else Change()
        is_worse, self.level = level > self.level, level
        suspended = tuple(drafter for drafter in drafters if self._is_disallowed(drafter.name))
        self._suspend(suspended)
        if is_worse and self._suspended:
            trim_heap()
            log.warning("%s", self.reason and self.reason.text)
        return self._restore()._replace(suspended=suspended, slots=self._slots if level == Level.OK else 1)

    def renew(self, drafters: Sequence[Drafter]) -> Change:
        """Lets the draft go, so that it comes back as its file is now; where memory has taken it, it will anyway."""
        going = tuple(drafter for drafter in drafters if drafter.name == self._owner)
        self._suspended |= {drafter.name: None for drafter in going}
        if self._draft is not None and self._owner in self._suspended:
            self._draft.close()
        return self._restore()._replace(suspended=going)

    def _is_disallowed(self, name: str) -> bool:
        return self.level == Level.CRITICAL or (self.level == Level.TIGHT and name == self._owner)

    def _suspend(self, drafters: Sequence[Drafter]) -> None:
        """Frees what the level does not allow."""
        self._suspended |= {drafter.name: None if drafter.name == self._owner else drafter for drafter in drafters}
        if self._draft is not None and self._is_disallowed(self._owner):
            self._draft.close()
        if self.level == Level.CRITICAL:
            for name, drafter in self._suspended.items():
                self._suspended[name] = drafter if drafter is not None and drafter.has_passes else None
        if self._suspended and self.level != Level.OK:
            lost = "no drafter is used" if self.level == Level.CRITICAL else f"the {self._owner} drafter was given up"
            self.reason = Reason("memory", f"{lost}, because {self.monitor.found.text}")

    def _restore(self) -> Change:
        """Takes back drafters that are allowed again; the model drafter once its model is open."""
        restored, failed = list[Drafter](), None
        for name in [name for name in self._suspended if not self._is_disallowed(name)]:
            try:
                if name == self._owner and not self._is_draft_open():
                    continue
                restored.append(self._suspended[name] or self._make(name))
                log.info("the %s drafter is back", name)
            except (SlipstreamError, MemoryError, OSError) as error:
                why = f"the {name} drafter could not be loaded again: {error or type(error).__name__}"
                failed = Reason("draft-error", why)
            del self._suspended[name]
        self.reason = self.reason if self._suspended else None
        return Change(restored=tuple(restored), failed=failed)

    def _is_draft_open(self) -> bool:
        """Has the draft model come back? It is opened if nobody has begun to."""
        if self._draft is None:
            return True
        self._draft.reopen()
        return self._draft.is_open


def trim_heap() -> None:
    """Has the C library return freed memory to the system, where it keeps some (glibc)."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
        trim(0)
