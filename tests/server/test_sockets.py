"""The sockets that the server listens on: who may open them, which are taken, what is left of them."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest

from app.server.sockets import AddressError, Addresses, listening
from tests.support.serving import (
    Running,
)


def test_a_socket_is_for_its_owner_and_goes_in_the_end(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with listening(Addresses("127.0.0.1", None, path)) as (sock,):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert sock.family == socket.AF_UNIX
        with pytest.raises(AddressError, match="already"), listening(Addresses("127.0.0.1", None, path)):
            pass
        assert path.exists()
    assert list(tmp_path.iterdir()) == []


def test_a_stale_socket_is_replaced_and_a_file_is_not(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with listening(Addresses("127.0.0.1", None, path)), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    path.write_text("mine")
    with pytest.raises(AddressError, match="not a socket"), listening(Addresses("127.0.0.1", None, path)):
        pass
    assert path.read_text() == "mine"


def test_a_port_that_is_taken_is_named(here: Running) -> None:
    with pytest.raises(AddressError, match=f"Port {here.port}"), listening(Addresses("127.0.0.1", here.port, None)):
        pass
