"""How fast the command starts: `python -m bench.start`. Wanted: `slipstream --help` under 0.3 s."""

from __future__ import annotations

import subprocess
import sys
import time

from bench.timing import interleaved, report, spread

COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "slipstream --help": ["-m", "app.cli", "--help"],
    "slipstream run (demo pair, one token)": ["-m", "app.cli", "run", "What is a list?", "--max-tokens", "1"],
}


def seconds(arguments: list[str]) -> float:
    """Wall time of one process."""
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def main() -> None:
    """Prints the medians."""
    results = {
        name: spread(v) for name, v in interleaved({n: (lambda a=a: seconds(a)) for n, a in COMMANDS.items()}).items()
    }
    report(
        "start, seconds",
        ["command", "median"],
        [[n, str(v)] for n, v in results.items()],
        {n: round(v.median, 3) for n, v in results.items()},
    )


if __name__ == "__main__":
    main()
