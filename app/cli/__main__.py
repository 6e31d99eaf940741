"""The command `slipstream`, also `python -m app.cli`: the work before or during its slow imports."""

import atexit
import gc
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from app.cli.streams import fill_gaps, is_terminal, take_any_text
from app.terminal import ENDING, show_cursor
from runtime.core.errors import NO_MEMORY, is_lack_of_memory

LOADING = ("chat", "run", "serve")  # commands that load models right away
WITHOUT_MEMORY = f"slipstream: {NO_MEMORY}\n".encode()  # written without taking any
OWN = ("-h", "--help", "--version", "--install-completion", "--show-completion")  # options without a command


def main() -> None:
    """Run the console script."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else the parent disabled interrupts
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback for Ctrl+C during the imports
    fill_gaps()
    take_any_text()
    ended_by = list[int]()
    atexit.register(lambda: [*map(end_by, ended_by)])  # first, so that it is called last
    args = sys.argv[1:] or ["chat"] * is_terminal()
    if args and (is_option_of_a_command(args[0]) or args[0].endswith(".gguf")):
        args = ["chat", *args]
    is_elsewhere = any(each.startswith(("http://", "https://", "--attach")) for each in args)  # remote model
    if args[:1] and args[0] in LOADING and {"-h", "--help"}.isdisjoint(args) and not is_elsewhere:
        prepare_models()
    command = imported()
    try:
        command(args)
    except SystemExit as end:
        ended_by.extend(number for number in ENDING if end.code == 128 + number and sys.platform != "win32")
        raise
    finally:
        gc.freeze()  # skips garbage collection of all imported modules at exit


def imported() -> Callable[[Sequence[str]], None]:
    """Return the command, whose imports take most of its start."""
    try:
        from app.cli.main import main as command
    except (ImportError, MemoryError, RuntimeError, SystemError) as error:
        if not is_lack_of_memory(error):
            raise
        os.write(2, WITHOUT_MEMORY)
        os._exit(1)
    return command


def is_option_of_a_command(arg: str) -> bool:
    """Whether the first argument is an option of a command that is left out, which is `chat`."""
    return arg.startswith("-") and arg.partition("=")[0] not in OWN


def end_by(number: int) -> None:
    """End this process by a signal, or the loop of a shell would go on with the next command after Ctrl+C. A progress
    bar that has just begun may have hidden the terminal's cursor.
    """
    with suppress(OSError, ValueError):  # the terminal is gone
        show_cursor()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def prepare_models() -> None:
    """Start the process for the models, so that it imports its modules while this one does."""
    from runtime.core.spawning import prepare

    prepare()


if __name__ == "__main__":
    main()
