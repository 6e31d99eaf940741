"""Terminal support: control characters as symbols, amounts in words, progress, signals that end a program, color."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from rich.progress import TaskID

# Signals that end a program: Ctrl+C, `kill`, a closed terminal. Windows lacks the last one
ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
Handler = Callable[[int, FrameType | None], object]
MARK, PLAIN = "\x1b[36m", "\x1b[0m"
# Control characters become their visible symbols (U+2400 and on), so that a reply cannot move the cursor or set a
# title.
INERT = (
    {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}
    | {0x7F: 0x2421}
    | dict.fromkeys((*range(128, 160), *range(0xD800, 0xE000)), 65533)  # lone surrogates cannot be encoded
)


REORDERING = dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), 65533)  # for left-to-right and back
SEPARATORS = str.maketrans("\u2028\u2029", "\n\n")
# The same characters where JSON writes them as they are
ESCAPED = {code: f"\\u{code:04x}" for code in (*range(127, 160), *range(0xD800, 0xE000))}


def inert(text: str) -> str:
    """Return the text with every control character replaced by a visible symbol."""
    return text.translate(INERT)


def clean(text: str) -> str:
    """Return the text with control characters made visible and a single kind of line separator, as Markdown has."""
    return inert(text.translate(SEPARATORS))


def in_order(text: str) -> str:
    """Return the text so that no name in it can change the order in which the rest is shown. Replies may."""
    return inert(text).translate(REORDERING)


def print_text(text: str) -> None:
    """Print a sentence or a table on standard output; names in it may be anybody's."""
    print(in_order(text))


def print_note(text: str) -> None:
    """Print what is not part of the output on standard error."""
    print(in_order(text), file=sys.stderr, flush=True)


def print_message(text: str) -> None:
    """Print a message of the program itself on standard error."""
    print_note(f"slipstream: {text}")


def print_json(data: object) -> None:
    """Print plain data on standard output, as one line of JSON."""
    print(json.dumps(data, ensure_ascii=False).translate(ESCAPED), flush=True)


def marked(pieces: Sequence[str], drafted: Sequence[bool]) -> str:
    """Return the text of the tokens, with accepted draft tokens in color."""
    flags = [*drafted, *[False] * (len(pieces) - len(drafted))]
    return "".join(
        f"{MARK}{inert(text)}{PLAIN}" if flag and text else inert(text)
        for text, flag in zip(pieces, flags, strict=True)
    )


def gigabytes(n: int) -> str:
    """Return a number of bytes as text in GB or MB."""
    return f"{n / 1e9:.2f} GB" if n >= 1e8 else f"{n / 1e6:.1f} MB"


def large(n: int) -> str:
    """Return a number of parameters as text, in billions or millions."""
    return f"{n / 1e9:.2f} billion" if n >= 1e9 else f"{n / 1e6:.1f} million"


def rate(per_second: float) -> str:
    """Return a number of tokens per second as text, rounded as an estimate."""
    return f"{per_second:,.0f}" if per_second >= 9.95 else f"{per_second:.1f}"


class InertFormatter(logging.Formatter):
    """Writes log records with control characters as symbols."""

    def format(self, record: logging.LogRecord) -> str:
        """See Formatter."""
        return inert(super().format(record))


def is_dumb() -> bool:
    """Return whether the terminal only prints lines."""
    return os.environ.get("TERM", "").lower() in ("dumb", "unknown")


def show_cursor() -> None:
    """Show the cursor again, which a progress bar may have hidden. Raises OSError if the terminal is gone."""
    if sys.stderr.isatty() and not is_dumb():
        sys.stderr.write("\x1b[?25h")
        sys.stderr.flush()


class WaitProgress:
    """What a command waits for, on standard error: models that load, a prompt that is read. Does nothing if that is not
    a terminal.
    """

    def __enter__(self) -> WaitProgress:
        self._progress = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            self._progress = Progress(console=Console(stderr=True), transient=True, redirect_stdout=False)
            self._progress.start()
        self._tasks: dict[str, TaskID] = {}
        return self

    def load(self, what: str, share: float, *, keep_loading: bool) -> bool:
        """Show the loaded share of `what`. Returns `keep_loading`, as the loader's callback must."""
        self._show(what, f"Loading the {what} model", share, 1.0)
        return keep_loading

    def read(self, n_read: int, n_prompt: int) -> None:
        """Show how many of the prompt's tokens have been read, in place of the loaded models; (0, 0): it begins."""
        numbers = f"{n_read:,} of {n_prompt:,} tokens" if n_prompt else "the prompt"
        for name in self._tasks.keys() - {"prompt"}:
            self._hide(name)
        self._show("prompt", f"Reading {numbers}", n_read, n_prompt or None)

    def _show(self, name: str, what: str, done: float, total: float | None) -> None:
        if self._progress is None:
            return
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(what, total=total)
        self._progress.update(self._tasks[name], description=what, completed=done, total=total)

    def _hide(self, name: str) -> None:
        if self._progress is not None:
            self._progress.remove_task(self._tasks.pop(name))

    def stop(self) -> None:
        """Remove it from the screen."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


@contextmanager
def handling(handle: Handler, numbers: Sequence[signal.Signals] = ENDING) -> Iterator[None]:
    """Handle signals until the block ends, except those that are ignored, as `nohup` does with SIGHUP."""
    before = {number: signal.getsignal(number) for number in numbers}
    heeded = [number for number in numbers if before[number] not in (signal.SIG_IGN, None)]
    for number in heeded:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number in heeded:
            signal.signal(number, before[number])


def leave(number: int, frame: FrameType | None = None) -> NoReturn:
    """End the program as a signal does in a shell, after all cleanup. Raises SystemExit."""
    raise SystemExit(128 + number)


class Interrupt:
    """A signal that ends the program as a flag that the engine checks between steps. The second one raises SystemExit
    immediately.
    """

    def __init__(self) -> None:
        self.number = 0  # of the signal
        self._on_press: Callable[[], object] = lambda: None

    def heed(self, on_press: Callable[[], object]) -> None:
        """Call this when a signal comes, or now if one has come."""
        self._on_press = on_press
        if self.pressed:
            on_press()

    @property
    def pressed(self) -> bool:
        """Whether a signal has come."""
        return self.number > 0

    @property
    def code(self) -> int:
        """The exit code of a program that ends for it."""
        return 128 + (self.number or signal.SIGINT)

    @contextmanager
    def watching(self) -> Iterator[Interrupt]:
        """Handle the signals until the block ends. Raises SystemExit if they stop a model from loading."""
        try:
            with handling(self._press):
                yield self
        except KeyboardInterrupt:  # raised by the loader
            raise SystemExit(self.code) from None

    def _press(self, number: int, frame: FrameType | None) -> None:
        if self.pressed:
            leave(number)
        self.number = number
        self._on_press()
