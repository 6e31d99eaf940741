"""The command `slipstream`, also `python -m app.cli`: the work before or during its slow imports."""

import gc
import signal
import sys

from app.cli.streams import fill_gaps, is_terminal

LOADING = ("chat", "run", "serve")  # commands that load models right away


def main() -> None:
    """Run the console script."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else the parent disabled interrupts
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback for Ctrl+C during the imports
    fill_gaps()
    args = sys.argv[1:] or ["chat"] * is_terminal()
    is_elsewhere = any(each.startswith(("http://", "https://", "--attach")) for each in args)  # remote model
    if args[:1] and args[0] in LOADING and {"-h", "--help"}.isdisjoint(args) and not is_elsewhere:
        prepare_models()
    from app.cli.main import main as command

    try:
        command(args)
    finally:
        gc.freeze()  # skips garbage collection of all imported modules at exit


def prepare_models() -> None:
    """Start the process for the models, so that it imports its modules while this one does."""
    from runtime.process.spawning import prepare

    prepare()


if __name__ == "__main__":
    main()
