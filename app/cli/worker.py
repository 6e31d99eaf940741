"""`slipstream worker`: lets this machine compute for others, through llama.cpp's own RPC server.

Knows the terminal; the runtime does the computing.
"""

from __future__ import annotations

import signal
import socket

from app.server.sockets import claim, is_loopback
from app.terminal import ENDING, print_note
from runtime.core.errors import SettingsError
from runtime.tools import worker

OPEN = """\
slipstream: WARNING: anyone who can reach {host}:{port} can use this machine and, by bugs in llama.cpp, take it over:
slipstream: its protocol is neither encrypted nor authenticated. Never do this on a network that you do not trust.
slipstream: Safer: a worker without --host, and on the other machine:  ssh -N -L {port}:127.0.0.1:{port} THIS-MACHINE"""
AWAY = """\
slipstream: only this machine can reach it. From another one:  ssh -N -L {port}:127.0.0.1:{port} THIS-MACHINE
slipstream: and there:  slipstream run "Hello" --rpc 127.0.0.1:{port}"""


def run(host: str, port: int, threads: int | None, keeps_tensors: bool) -> None:
    """Compute until Ctrl+C. Raises SettingsError if the worker cannot start."""
    worker.require()
    address = address_of(host, port)
    print_note((AWAY if is_loopback(host) else OPEN).format(host=host, port=port))
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)  # the library never returns to Python, which would handle signals
    worker.serve(address, port, threads, keeps_tensors)
    raise SettingsError(f"The worker has ended: it cannot listen at {host}:{port}. See llama.cpp's message above.")


def address_of(host: str, port: int) -> str:
    """Return the IPv4 address of that name. Raises SettingsError if this machine cannot listen at it."""
    try:
        address = socket.gethostbyname(host)
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
            claim(trial)
            trial.bind((address, port))
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise SettingsError(
            f"A worker cannot listen at {host}:{port} ({why}). Choose another --host or --port."
        ) from error
    return address
