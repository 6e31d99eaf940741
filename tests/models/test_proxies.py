"""Proxies of the environment are for the internet: this machine is asked without them, and one that fails is named."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from huggingface_hub import get_session

from bench.instruments.servers import default_client_factory
from runtime.core.errors import SlipstreamError
from runtime.engine import Message, Options, Sampling
from runtime.models.hub import fetch
from runtime.models.hub.fetch import Hub
from runtime.models.proxies import client, is_here, proxy_of
from runtime.models.registry import find_pair
from runtime.upstream.engine import UpstreamEngine
from tests.support.cli import spawned
from tests.support.hub_server import Behaviour, serving
from tests.support.upstream import as_events, as_json, delta, elsewhere, models

CHAT = "/v1/chat/completions"
NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy")
FAR = "http://far.example:81"
Reply = Callable[[socket.socket], object]


@contextmanager
def proxy(reply: Reply, heard: list[bytes] | None = None) -> Iterator[str]:
    """The place of a proxy that handles each connection so, and the first bytes of each that it heard."""
    heard = [] if heard is None else heard

    def serve(line: socket.socket) -> None:
        with line, suppress(OSError):
            heard.append(line.recv(2**16, socket.MSG_PEEK))
            reply(line)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        with suppress(OSError):  # or the thread would go on waiting
            server.shutdown(socket.SHUT_RDWR)


def saying(reply: bytes) -> Reply:
    """One that reads a request and says this."""
    return lambda line: (line.recv(2**16), line.sendall(reply))


def copied(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(2**16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def socks(port: int) -> Reply:
    """A proxy by SOCKS 5 that knows one place, at that port, whatever it is asked for."""

    def reply(line: socket.socket) -> None:
        line.recv(2**10)
        line.sendall(b"\x05\x00")
        line.recv(2**10)
        line.sendall(b"\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x50")
        with socket.create_connection(("127.0.0.1", port)) as there:
            threading.Thread(target=copied, args=(line, there), daemon=True).start()
            copied(there, line)

    return reply


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def text_of(url: str) -> str:
    with closing(UpstreamEngine(find_pair(url, {}), Options())) as engine:
        return "".join(chunk.text for chunk in engine.reply([Message("user", "Q")], Sampling(temperature=0)))


@pytest.mark.parametrize("kind", ["http", "socks5", "socks4"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"])
def test_a_server_on_this_machine_is_asked_without_a_proxy(
    host: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[bytes] = []
    answers = {"/v1/models": models("m"), CHAT: lambda: as_events(delta(content="Paris."), delta("stop"))}
    with proxy(saying(b"no"), heard) as place, elsewhere(answers) as here:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"{kind}://{place}")
        assert text_of(here.url.replace("127.0.0.1", host)) == "Paris."
    assert heard == []


def test_the_command_asks_without_one_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    heard: list[bytes] = []
    answers = {"/v1/models": models("m"), CHAT: lambda: as_events(delta(content="Paris."), delta("stop"))}
    with proxy(saying(b"no"), heard) as place, elsewhere(answers) as here:
        monkeypatch.setenv("HTTP_PROXY", f"http://{place}")
        monkeypatch.setenv("ALL_PROXY", f"socks5://{place}")
        done = spawned("run", "-m", here.url, "Q")
        assert (done.returncode, done.stdout) == (0, "Paris.\n"), done.stderr
        with serving(Behaviour({"owner/small/small-Q8_0.gguf": b"x" * 99})) as hub:
            monkeypatch.setenv("HF_ENDPOINT", hub)
            monkeypatch.setenv("HF_HOME", str(tmp_path))
            done = spawned("models", "pull", "owner/small")
            assert "small-Q8_0.gguf" in done.stdout + done.stderr
    assert heard == []


@pytest.mark.parametrize(
    "url", ["http://[::1]:80/v1", "https://localhost.:1/v1", "http://LOCALHOST", "http://127.9.8.7:1"]
)
def test_this_machine_has_many_names(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://proxy.example:3128")
    assert is_here(url)
    assert proxy_of(url) == ""


@pytest.mark.parametrize("url", ["http://far.example", "http://10.0.0.7:8000", "http://[2001:db8::1]/v1", "http://a:b"])
def test_others_are_asked_through_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://me:secret@proxy.example:3128")
    assert not is_here(url)
    assert proxy_of(url) == "http://proxy.example:3128"
    monkeypatch.setenv("HTTP_PROXY", "other.example:80")
    assert proxy_of(url) == "http://other.example:80"
    monkeypatch.setenv("NO_PROXY", "*")
    assert proxy_of(url) == ""


@pytest.mark.parametrize("kind", ["http", "socks5", "socks5h"])
def test_a_reply_comes_through_a_proxy(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy for HTTP is asked for whole addresses."""
    root = FAR if kind == "http" else ""
    chat = as_events(delta(content="Paris."), delta("stop"))
    with elsewhere({f"{root}/v1/models": models("m"), f"{root}{CHAT}": lambda: chat}) as there:
        place = there.url.removeprefix("http://").removesuffix("/v1")
        with proxy(socks(int(place.partition(":")[2]))) as by_socks:
            monkeypatch.setenv("ALL_PROXY", f"{kind}://{place if kind == 'http' else by_socks}")
            assert text_of(FAR) == "Paris."


FAILING = {
    "refused": ("http", None, "connection refused"),
    "refused by SOCKS": ("socks5", None, "connection refused"),
    "busy": ("http", b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n", "cannot answer now|503"),
    "forbids": ("http", b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n", "requires a key|403"),
    "a password": ("http", b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n", "password|407"),
    "silent": ("http", b"", "not HTTP, or incomplete"),
    "another protocol": ("http", b"220 mail.example ESMTP\r\n", "not HTTP, or incomplete"),
    "HTTP for SOCKS": ("socks5", b"HTTP/1.1 400 Bad Request\r\n\r\n", "malformed reply"),
    "a password for SOCKS": ("socks5", b"\x05\xff", "username/password"),
}


@contextmanager
def failing(kind: str, reply: bytes | None, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The environment's proxy fails so: its place."""
    with proxy(saying(reply or b"")) as running, socket.create_server(("127.0.0.1", 0)) as free:
        place = running if reply is not None else f"127.0.0.1:{free.getsockname()[1]}"
        free.close()
        monkeypatch.setenv("ALL_PROXY", f"{kind}://me:secret@{place}")
        yield place


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("name", FAILING)
def test_a_proxy_that_fails_is_named(name: str, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, reply, why = FAILING[name]
    with failing(kind, reply, monkeypatch) as place, pytest.raises(SlipstreamError, match=why) as raised:
        text_of(f"{scheme}://far.example:81")
    assert f"{kind}://{place}" in str(raised.value)
    assert "secret" not in str(raised.value)
    assert str(raised.value).isprintable()


@pytest.mark.parametrize("name", ["refused", "a password", "busy", "HTTP for SOCKS"])
def test_so_it_is_where_the_hub_is_asked(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, reply, _ = FAILING[name]
    with failing(kind, reply, monkeypatch) as place, pytest.raises(SlipstreamError) as raised:
        Hub("http://hub.example", tmp_path).names("owner/small")
    assert f"{kind}://{place}" in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("address", ["socks4://proxy.example:1080", "ftp://me:secret@proxy.example", "::::"])
def test_a_proxy_that_cannot_be_used_is_one_sentence(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", address)
    with pytest.raises(SlipstreamError, match=r"No such proxy can be used: .* ALL_PROXY, or unset it") as raised:
        text_of(FAR)
    assert "secret" not in str(raised.value)
    done = spawned("run", "-m", FAR, "Q")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    with as_json_server() as url, client(url) as direct:
        assert direct.get(f"{url}/models").status_code == 200


@contextmanager
def as_json_server() -> Iterator[str]:
    with elsewhere({"/v1/models": lambda: as_json({})}) as here:
        yield here.url


def test_offline_stays_offline(tmp_path: Path) -> None:
    """The hub's own client refuses requests then, and so does ours."""
    done = spawned("models", "pull", "owner/small", env={"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)})
    assert "HF_HUB_OFFLINE is set" in done.stderr


@pytest.mark.parametrize("key", ["schlüssel", "a\x00b", "a\nb", "caf\udce9"])
def test_a_key_that_no_header_carries_is_one_sentence(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {"SLIPSTREAM_UPSTREAM_KEY": key})
    with pytest.raises(SlipstreamError, match="SLIPSTREAM_UPSTREAM_KEY has characters that no key may have"):
        UpstreamEngine(find_pair(FAR, {}))


def test_our_client_for_the_hub_is_like_its_own_but_for_proxies() -> None:
    assert fetch.Hub  # its module sets the client
    with default_client_factory() as own:
        for name in ("event_hooks", "follow_redirects", "timeout", "headers", "trust_env"):
            assert getattr(get_session(), name) == getattr(own, name), name
