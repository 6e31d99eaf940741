"""Parses addresses that a person writes: of other servers (`upstream`) and of workers (`rpc`).

Knows text; contacts no server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

WEB = ("http://", "https://")
API = "/v1"  # the default path of OpenAI's interface
WORKER_PORT = 50052  # the default port of ggml-rpc-server
MAX_WORKERS = 16  # GGML_RPC_MAX_SERVERS in ggml-rpc.h
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252})")


def is_web(name: str) -> bool:
    """Whether this is the address of another server, rather than a file or a pair."""
    return name.startswith(WEB)


def as_upstream(url: str) -> str:
    """Return the base address of OpenAI's interface. Raises ValueError, in a sentence."""
    example = "Write one such as http://192.168.1.20:8000/v1."
    try:
        parts = urlsplit(url)
        is_valid = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_valid = False
    if not (is_web(url) and is_valid and url.isascii() and url.isprintable() and " " not in url):
        raise ValueError(f"'{url[:100]}' is not the address of a server. {example}")
    if parts.username or parts.password:
        raise ValueError(
            "An upstream's address must hold no name or password. Put the key into an environment variable."
        )
    if parts.query or parts.fragment:
        raise ValueError(f"'{url[:100]}' has something after its path. {example}")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/') or API}"


def as_worker(text: str) -> str:
    """Return `host:port`, with the default port if none is given. Raises ValueError, in a sentence."""
    host, colon, port = text.strip().partition(":")
    number = int(port) if port.isascii() and port.isdecimal() and len(port) < 6 else 0
    if not HOST.fullmatch(host) or (colon and not 0 < number < 65536):
        raise ValueError(
            f"'{text.strip()[:100]}' is not the address of a worker. Write host:port, such as "
            f"192.168.1.21:{WORKER_PORT}; an IPv6 address needs a host name, as llama.cpp requires."
        )
    return f"{host}:{number or WORKER_PORT}"


def as_workers(addresses: Iterable[str]) -> tuple[str, ...]:
    """Return the addresses without duplicates. Raises ValueError."""
    found = tuple(dict.fromkeys(map(as_worker, addresses)))
    if len(found) > MAX_WORKERS:
        raise ValueError(f"{len(found)} workers are named, but llama.cpp takes {MAX_WORKERS}. Leave some out.")
    return found
