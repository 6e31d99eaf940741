"""The listening sockets: a TCP address, and a Unix socket that only its owner can open. Must not know a protocol."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from pathlib import Path

from runtime.core.errors import SlipstreamError
from runtime.core.outside import expanded

BACKLOG = 128  # connections that may wait for accept
OLLAMA_PORT = 11434
LONGEST_PATH = 100  # bytes; about the limit that systems set for a Unix socket's path


class AddressError(SlipstreamError):
    """The server cannot listen at the given address."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """A TCP address and the path of a Unix socket. Each is optional."""

    host: str
    port: int | None
    path: Path | None
    ollama: bool = False  # also listen on Ollama's port if it is free


def check(addresses: Addresses, api_key: str) -> None:
    """Raises AddressError for an address that other machines can reach, without a key."""
    is_tcp = addresses.port is not None or addresses.ollama
    if is_tcp and not api_key and not is_loopback(addresses.host):
        raise AddressError(
            f"Other machines can reach {addresses.host}. Set an API key (SLIPSTREAM_API_KEY or --api-key), or leave "
            "--host out."
        )


def is_loopback(host: str) -> bool:
    """Return whether this name or address leads to this machine alone. A name may end with a dot, as complete ones do
    in DNS.
    """
    host = host.removesuffix(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


@contextmanager
def listening(addresses: Addresses) -> Iterator[list[socket.socket]]:
    """Open the sockets until the block ends, then remove the socket file. Ollama's port is left out if it is taken.
    Raises AddressError.
    """
    with ExitStack() as stack:
        sockets = []
        if addresses.port is not None:
            sockets.append(stack.enter_context(tcp(addresses.host, addresses.port)))
        if addresses.path is not None:
            sockets.append(stack.enter_context(unix(addresses.path)))
        if addresses.ollama:
            with suppress(AddressError):
                sockets.append(stack.enter_context(tcp(addresses.host, OLLAMA_PORT)))
        yield sockets


def tcp(host: str, port: int) -> socket.socket:
    """Return a socket that listens on the first address of `host`. Raises AddressError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise AddressError(
            f"{host} is not an address of this machine ({error.strerror}). Name another with --host."
        ) from error
    try:
        claim(sock)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise AddressError(
            f"Port {port} of {host} cannot be used ({error.strerror}). Name another with --port."
        ) from error
    return sock


def claim(sock: socket.socket) -> None:
    """Let the socket have a port that a program which has ended used a moment ago, but none that is in use."""
    # On Windows, two programs with SO_REUSEADDR share a port, and either may get a connection
    option = getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR)
    sock.setsockopt(socket.SOL_SOCKET, option, 1)


@contextmanager
def unix(path: Path) -> Iterator[socket.socket]:
    """Open a socket at `path` that only this user can open. Raises AddressError."""
    if not hasattr(socket, "AF_UNIX"):
        raise AddressError("Python on this system has no Unix sockets. Use --port instead of --socket.")
    path = expanded(path)
    refuse_in_use(path)
    sock = bound_to(path)
    own = path.lstat().st_ino
    try:
        yield sock
    finally:
        sock.close()
        with suppress(OSError):
            if path.lstat().st_ino == own:  # not a later server's socket
                path.unlink()


def bound_to(path: Path) -> socket.socket:
    """Return a listening socket at `path`. It is bound to a temporary name and then moved, so that nobody can find it
    before it listens.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    if len(os.fsencode(temporary)) > LONGEST_PATH:
        raise AddressError(
            f"{path} is too long for a socket. Name a path of less than {LONGEST_PATH - 20} bytes with --socket."
        )
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        sock.bind(str(temporary))
        sock.listen(BACKLOG)
        temporary.replace(path)
    except OSError as error:
        sock.close()
        temporary.unlink(missing_ok=True)
        raise AddressError(
            f"A socket cannot be made at {path} ({error.strerror}). Name another path with --socket."
        ) from error
    finally:
        os.umask(mask)
    return sock


def refuse_in_use(path: Path) -> None:
    """Raises AddressError unless the path is free or is a socket without a listener."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return
    if not stat.S_ISSOCK(mode):
        raise AddressError(f"{path} is a file, not a socket. Name another path with --socket.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return
        except OSError:
            pass  # treated as in use: its owner must not lose it
    raise AddressError(f"A server listens on {path} already. Stop it, or name another path with --socket.")
