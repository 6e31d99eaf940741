"""Servers in processes of their own: a free port, and `slipstream serve` until the block ends."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryFile

import httpx2

LOADING = 120  # maximal seconds to load


def free_port() -> int:
    """Return an unused port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextmanager
def serving(pair: str, more: list[str]) -> Iterator[str]:
    """Yield the address of a server of its own."""
    port = free_port()
    command = [sys.executable, "-m", "app.cli", "serve", pair, "--port", str(port), "--quiet", *more]
    # An unread pipe would fill up and block the server
    with TemporaryFile("w+") as log, subprocess.Popen(command, stderr=log, text=True) as server:
        try:
            wait_until_loaded(f"http://127.0.0.1:{port}", server)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait()
            log.seek(0)
            complaints = log.read().strip().splitlines()[1:]
            print("\n".join(complaints) if complaints else "the server said nothing else")


def wait_until_loaded(url: str, server: subprocess.Popen[str]) -> None:
    """Wait until the server is loaded. Raises SystemExit if it ends or takes too long."""
    end = time.monotonic() + LOADING
    # Only one, as creating clients keeps a core busy while the server times its passes
    with httpx2.Client(trust_env=False) as client:
        while server.poll() is None and time.monotonic() < end:
            with suppress(httpx2.HTTPError):
                if client.get(f"{url}/health").status_code == 200:
                    return
            time.sleep(0.1)
    raise SystemExit("The server did not start. Run `slipstream serve` to see why.")
