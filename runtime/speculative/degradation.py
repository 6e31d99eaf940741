"""Suspends drafters between two tokens when memory is short, and restores them when it is not; never the target.

TIGHT closes the draft model and all cached conversations but the latest; drafters without a model continue. CRITICAL
leaves plain decode; drafters whose state can be rebuilt from the context or from disk are created again, empty. A draft
model can also rest until a reply finds room for it. The text does not depend on any of this: the loop may lose and gain
drafters at every step. Knows drafters and the memory level; does not read memory and does not change the loop, but
returns the changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from runtime.core.backend import Reloadable
from runtime.core.drafter import Drafter
from runtime.core.errors import SlipstreamError
from runtime.core.memory import trim_heap
from runtime.core.pressure import Level, PressureMonitor
from runtime.drafters.registry import described
from runtime.speculative.control.reasons import Reason

log = logging.getLogger(__name__)


class Change(NamedTuple):
    """Result of an update: the drafters that were suspended and restored."""

    suspended: tuple[Drafter, ...] = ()
    restored: tuple[Drafter, ...] = ()
    failed: Reason | None = None  # why a drafter could not be restored
    slots: int | None = None  # new number of conversations that the target caches; None: unchanged


class Degradation:
    """The drafters that the memory level allows.

    `make` creates a drafter by name with empty state; `draft` is the draft model or head of the drafter named `owner`.
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
        self.level = Level.OK  # the level applied to the drafters
        self.reason: Reason | None = None  # why drafters are suspended now
        self._suspended: dict[str, Drafter | None] = {}  # by name; None: to be created again
        self._is_resting = False  # whether the draft model or head stays closed until a reply finds room for it

    def update(self, drafters: Sequence[Drafter], is_replying: bool = False) -> Change:
        """Read the memory level; suspend those of `drafters` that it does not allow and restore those that it does."""
        level = self.monitor.update()
        self._is_resting &= not (is_replying and self.monitor.has_room)
        if level == self.level:
            return self._restore() if self._suspended else Change()
        is_worse, self.level = level > self.level, level
        suspended = tuple(drafter for drafter in drafters if self._is_disallowed(drafter.name))
        self._suspend(suspended)
        if is_worse and self._suspended:
            trim_heap()
            log.warning("%s", self.reason and self.reason.text)
        return self._restore()._replace(suspended=suspended, slots=self._slots if level == Level.OK else 1)

    def rest(self, drafters: Sequence[Drafter]) -> Change:
        """Close the draft model or head until a reply finds room for it, as another program needs its memory."""
        going = tuple(drafter for drafter in drafters if drafter.name == self._owner)
        if self._draft is None or not going:
            return Change()
        self._is_resting = True
        self._suspend(going)
        self.reason = Reason("memory", "another model needed the memory of its drafts")
        trim_heap()
        return Change(suspended=going)

    def renew(self, drafters: Sequence[Drafter]) -> Change:
        """Close the draft model or head so that it is reopened from its current file, now or once memory allows."""
        going = tuple(drafter for drafter in drafters if drafter.name == self._owner)
        self._suspended |= {drafter.name: None for drafter in going}
        if self._draft is not None and self._owner in self._suspended:
            self._draft.close()
        return self._restore()._replace(suspended=going)

    def _is_disallowed(self, name: str) -> bool:
        is_owners = name == self._owner and (self.level == Level.TIGHT or self._is_resting)
        return self.level == Level.CRITICAL or is_owners

    def _suspend(self, drafters: Sequence[Drafter]) -> None:
        """Suspend drafters and free the memory that the level does not allow."""
        self._suspended |= {drafter.name: None if drafter.name == self._owner else drafter for drafter in drafters}
        if self._draft is not None and self._is_disallowed(self._owner):
            self._draft.close()
        if self.level == Level.CRITICAL:
            for name, drafter in self._suspended.items():
                self._suspended[name] = drafter if drafter is not None and drafter.has_passes else None
        if self._suspended and self.level != Level.OK:
            unloaded = "the draft model" if self._owner == "model" else "the head"
            lost = "nothing is guessed ahead" if self.level == Level.CRITICAL else f"{unloaded} was unloaded"
            self.reason = Reason("memory", f"{lost}, because {self.monitor.found.text}")

    def _restore(self) -> Change:
        """Restore drafters that are allowed again; the one with the draft model once that is open."""
        restored, failed = list[Drafter](), None
        for name in [name for name in self._suspended if not self._is_disallowed(name)]:
            try:
                if name == self._owner and not self._is_draft_open():
                    continue
                restored.append(self._suspended[name] or self._make(name))
                log.info("the %s drafter is used again", name)
            except (SlipstreamError, MemoryError, OSError) as error:
                why = f"guessing from {described(name)} could not begin again: {error or type(error).__name__}"
                failed = Reason("draft-error", why)
            del self._suspended[name]
        self.reason = self.reason if self._suspended else None
        return Change(restored=tuple(restored), failed=failed)

    def _is_draft_open(self) -> bool:
        """Return whether the draft model is open; start opening it if necessary."""
        if self._draft is None:
            return True
        self._draft.reopen()
        return self._draft.is_open
