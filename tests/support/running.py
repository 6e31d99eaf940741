"""Runs the code in its first argument, as a child's module: `python -m tests.support.running CODE`."""

import sys

exec(sys.argv.pop(1))
