"""`slipstream worker`: lets this machine compute for others, through llama.cpp's own RPC server.

Knows the terminal; the runtime does the computing. Imports what it needs when it runs.
"""

from __future__ import annotations

import signal
import socket
from typing import Annotated

from app.cli.options import listening, models
from app.terminal import ENDING, print_note
from runtime.core.errors import SettingsError
from runtime.models.addresses import WORKER_PORT

OPEN = """\
slipstream: WARNING: anyone who can reach {host}:{port} can use this machine and, by bugs in llama.cpp, take it over:
slipstream: its protocol is neither encrypted nor authenticated. Never do this on a network that you do not trust.
slipstream: Safer: a worker without --host, and on the other machine:  ssh -N -L {port}:127.0.0.1:{port} THIS-MACHINE"""
AWAY = """\
slipstream: only this machine can reach it. From another one:  ssh -N -L {port}:127.0.0.1:{port} THIS-MACHINE
slipstream: and there:  slipstream run "Hello" --rpc 127.0.0.1:{port}"""


def worker(
    host: Annotated[
        str, listening(help="Address to listen at; anyone who can reach it can use this machine.")
    ] = "127.0.0.1",
    port: Annotated[int, listening(min=1, max=65535, help="TCP port.")] = WORKER_PORT,
    threads: Annotated[
        int | None, models("--threads", min=1, max=512, help="Number of processor threads.", show_default=False)
    ] = None,
    cache: Annotated[
        bool, models("--cache", help="Keep large tensors on disk, so that they are sent only once.")
    ] = False,
) -> None:
    """Compute for another machine's models.

    It takes layers by llama.cpp's RPC, whose protocol is neither encrypted nor authenticated: docs/machines.md shows
    how to tunnel it through ssh. On the other machine: slipstream run "Hello" --rpc HOST:PORT
    """
    from app.server.sockets import is_loopback  # importing them is slow, and help is shown without
    from runtime.loading.worker import require, serve

    require()
    address = address_of(host, port)
    print_note((AWAY if is_loopback(host) else OPEN).format(host=host, port=port))
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)  # the library never returns to Python, which would handle signals
    serve(address, port, threads, cache)
    raise SettingsError(f"The worker has ended: it cannot listen at {host}:{port}. See llama.cpp's message above.")


def address_of(host: str, port: int) -> str:
    """Return the IPv4 address of that name. Raises SettingsError if this machine cannot listen at it."""
    from app.server.sockets import claim

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
