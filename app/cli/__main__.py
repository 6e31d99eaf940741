"""The command `slipstream`, also `python -m app.cli`: what must come before its imports, or beside them."""

import gc
import signal
import sys

from app.cli.streams import fill_gaps, is_terminal

LOADING = ("chat", "run", "serve")  # commands for which the models are loaded at once


def main() -> None:
    """The console script."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else who started it wants no interrupts
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl+C among the imports is no traceback
    fill_gaps()
    args = sys.argv[1:] or ["chat"] * is_terminal()
    is_elsewhere = any(each.startswith(("http://", "https://", "--attach")) for each in args)  # a server has the model
    if args[:1] and args[0] in LOADING and {"-h", "--help"}.isdisjoint(args) and not is_elsewhere:
        prepare_models()
    from app.cli.main import main as command

    try:
        command(args)
    finally:
        gc.freeze()  # the interpreter's end is not the time to look through all that was imported


def prepare_models() -> None:
    """The process that will have the models imports what it needs while this one does."""
    from runtime.process.spawning import HOST, HOST_PIPES, prepare

    prepare(HOST, HOST_PIPES)


if __name__ == "__main__":
    main()
