"""Terminal support: a progress bar for loading, Ctrl+C, color, and escaping of control characters."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import TaskID

MARK, PLAIN = "\x1b[36m", "\x1b[0m"
# Control characters become their visible symbols (U+2400 and on), so that a reply cannot move the cursor or set a
# title.
INERT = (
    {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}
    | {0x7F: 0x2421}
    | dict.fromkeys((*range(128, 160), *range(0xD800, 0xE000)), 65533)  # lone surrogates cannot be encoded
)


def inert(text: str) -> str:
    """Return the text with every control character replaced by a visible symbol."""
    return text.translate(INERT)


def marked(pieces: Sequence[str], drafted: Sequence[bool]) -> str:
    """Return the text of the tokens, with accepted draft tokens in color."""
    flags = [*drafted, *[False] * (len(pieces) - len(drafted))]
    return "".join(
        f"{MARK}{inert(text)}{PLAIN}" if flag and text else inert(text)
        for text, flag in zip(pieces, flags, strict=True)
    )


class LoadProgress:
    """A progress bar on standard error while models load. Does nothing if that is not a terminal."""

    def __enter__(self) -> LoadProgress:
        self._progress = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            self._progress = Progress(console=Console(stderr=True), transient=True)
            self._progress.start()
        self._tasks: dict[str, TaskID] = {}
        return self

    def update(self, what: str, share: float, *, keep_loading: bool) -> bool:
        """Show the loaded share of `what`. Returns `keep_loading`, as the loader's callback must."""
        if self._progress is not None:
            if what not in self._tasks:
                self._tasks[what] = self._progress.add_task(f"Loading the {what} model", total=1.0)
            self._progress.update(self._tasks[what], completed=share)
        return keep_loading

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()


class Interrupt:
    """Ctrl+C as a flag that the engine checks between steps. The second Ctrl+C raises KeyboardInterrupt immediately."""

    def __init__(self) -> None:
        self.pressed = False

    @contextmanager
    def watching(self) -> Iterator[Interrupt]:
        """Handle Ctrl+C until the block ends."""
        before = signal.signal(signal.SIGINT, self._press)
        try:
            yield self
        finally:
            signal.signal(signal.SIGINT, before)

    def _press(self, number: int, frame: FrameType | None) -> None:
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True
