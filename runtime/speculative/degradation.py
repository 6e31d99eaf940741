"""What is given up when memory is short, between two tokens, and taken back when it is not: drafters, never the target.

TIGHT closes the draft model and forgets all conversations but the last; those who guess without memory of their own go
on. CRITICAL leaves plain decode, and drafters whose memory can be built again from the context or from disk are made
anew, empty. The text does not depend on any of it: the loop may lose and gain drafters at every step. Knows the loop
and the level; reads no memory itself.
"""

from __future__ import annotations

import ctypes
import logging
import sys
from collections.abc import Callable, Sequence

from runtime.backends.reloadable import Releasable
from runtime.core.draft import Drafter, Tokens
from runtime.core.errors import SlipstreamError
from runtime.drafters.model import ModelDrafter
from runtime.memory.pressure import Level, Watch
from runtime.speculative.control.drafter_state import Known
from runtime.speculative.control.reasons import Reason
from runtime.speculative.loop import SpecLoop

log = logging.getLogger(__name__)


class Shortage:
    """Keeps a loop's drafters to what memory allows."""

    def __init__(
        self,
        loop: SpecLoop,
        watch: Watch,
        draft: Releasable | None,
        renew: Callable[[], Sequence[Drafter]],
        n_kept: int = 1,
    ) -> None:
        self.n_kept = n_kept  # conversations that the target's cache holds while there is room
        self.loop, self.watch, self._draft, self._renew = loop, watch, draft, renew
        self.level = Level.OK  # that the loop is kept to
        self.reason = Reason("memory", "")  # for what was given up last
        self._order = [drafter.name for drafter in loop.drafters]
        self._away: dict[str, tuple[Drafter, Known]] = {}

    def look(self, context: Tokens) -> None:
        """Between two tokens: gives up, or takes back what may come back and is there."""
        level = self.watch.look()
        if level != self.level:
            self._change(level)
        if self._away:
            self.loop.short = self.reason
            self._take_back(context)

    def _change(self, level: Level) -> None:
        """Gives up what the level does not allow."""
        is_worse, self.level = level > self.level, level
        self.loop.backend.keep(self.n_kept if level == Level.OK else 1)
        self.loop.memory_level = level.name
        for drafter in [drafter for drafter in self.loop.drafters if self._is_barred(drafter.name)]:
            self.loop.drafters.remove(drafter)
            self._away[drafter.name] = drafter, self.loop.controller.known.pop(drafter.name)
        if self._draft is not None and self._is_barred(ModelDrafter.name):
            self._draft.close()
        if level == Level.CRITICAL:
            self._forget()
        if self._away and level != Level.OK:
            lost = "no drafter is used" if level == Level.CRITICAL else f"the {ModelDrafter.name} drafter was given up"
            self.reason = Reason("memory", f"{lost}, because {self.watch.text}")
        if is_worse and self._away:
            give_back()
            log.warning("%s", self.reason.text)

    def _is_barred(self, name: str) -> bool:
        return self.level == Level.CRITICAL or (self.level == Level.TIGHT and name == ModelDrafter.name)

    def _forget(self) -> None:
        """Drafters with empty memories in place of those that went."""
        for drafter in self._renew():
            if drafter.name in self._away:
                self._away[drafter.name] = drafter, self._away[drafter.name][1]

    def _take_back(self, context: Tokens) -> None:
        """Those that are allowed again; the draft model when it has been opened beside the decoding."""
        for name in [name for name in self._away if not self._is_barred(name)]:
            try:
                if name == ModelDrafter.name and self._draft is not None and not self._draft.reopen():
                    continue
            except (SlipstreamError, MemoryError, OSError) as error:
                del self._away[name]
                self.loop.failed = Reason(
                    "draft-error", f"the {name} drafter could not be loaded again: {error or type(error).__name__}"
                )
                continue
            drafter, self.loop.controller.known[name] = self._away.pop(name)
            self.loop.drafters = sorted([*self.loop.drafters, drafter], key=lambda each: self._order.index(each.name))
            self.loop.admit(drafter, context)
            log.info("the %s drafter is back", name)

    @property
    def given_up(self) -> str:
        """What is lacking now and why, as a clause; "" where nothing is."""
        return self.reason.text if self._away else ""

    def close(self) -> None:
        """What was learned of drafters that are away is kept with the rest."""
        self.loop.controller.known.update({name: known for name, (_, known) in self._away.items()})
        self._away.clear()


def give_back() -> None:
    """Has the C library return freed memory to the system, where it keeps some (glibc)."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
        trim(0)
