"""Apps and pages from elsewhere: closed unless they are named, on the command line or in the settings file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
import typer

from app.cli.main import main
from app.cli.serve import allowed_origins
from app.server import command
from app.server.command import ServerSettings
from app.settings import as_origin, default_path, read_settings
from runtime.core.errors import SettingsError
from tests.support.serving import open_plain, running

ALLOWED = ("app://obsidian.md", "vscode-webview://*", "https://notes.example:8443")
ASKS = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def client() -> Iterator[httpx2.Client]:
    with running(open_plain, allow_origins=ALLOWED) as here:
        yield here.client()


@pytest.fixture(scope="module")
def closed() -> Iterator[httpx2.Client]:
    with running(open_plain) as here:
        yield here.client()


@pytest.mark.parametrize(
    "origin", ["app://obsidian.md", "vscode-webview://1f2e-33", "https://notes.example:8443", "http://localhost:3000"]
)
def test_an_app_that_is_named_asks_and_reads(client: httpx2.Client, origin: str) -> None:
    before = client.options(CHAT, headers={"origin": origin, **ASKS, "access-control-request-private-network": "true"})
    assert before.status_code == 200
    assert before.headers["access-control-allow-origin"] == origin
    assert "POST" in before.headers["access-control-allow-methods"]
    assert before.headers["access-control-allow-headers"] == ASKS["access-control-request-headers"]
    assert before.headers["access-control-allow-private-network"] == "true"
    asked = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    reply = client.post(CHAT, json=asked, headers={"origin": origin})
    assert reply.status_code == 200
    assert "x-request-id" in reply.headers["access-control-expose-headers"]
    for answer in (before, reply):
        assert answer.headers["access-control-allow-origin"] == origin
        assert answer.headers["access-control-allow-credentials"] == "true"
        assert "Origin" in answer.headers["vary"]


def test_only_who_asks_for_the_private_network_is_told_of_it(client: httpx2.Client) -> None:
    before = client.options(CHAT, headers={"origin": ALLOWED[0], **ASKS})
    assert "access-control-allow-private-network" not in before.headers


@pytest.mark.parametrize(
    "origin", ["app://obsidian.md.evil", "app://other", "vscode-webview://a/b", "https://notes.example", "null"]
)
def test_nobody_else_does(client: httpx2.Client, origin: str) -> None:
    for reply in (
        client.get("/v1/models", headers={"origin": origin}),
        client.options(CHAT, headers={"origin": origin, **ASKS}),
    ):
        assert reply.status_code == 403
        assert "access-control-allow-origin" not in reply.headers


@pytest.mark.parametrize("origin", ["app://obsidian.md", "tauri://localhost", "chrome-extension://abc"])
def test_by_default_it_is_closed_and_says_how_to_open_it(closed: httpx2.Client, origin: str) -> None:
    for reply in (
        closed.get("/health", headers={"origin": origin}),
        closed.options(CHAT, headers={"origin": origin, **ASKS}),
    ):
        error = reply.json()["error"]
        assert (reply.status_code, error["code"]) == (403, "wrong_origin")
        assert "--allow-origin" in error["message"]
        assert "allow_origins" in error["message"]


def test_with_a_key_a_page_anywhere_asks_first_without_it() -> None:
    with running(open_plain, api_key="k") as here:
        client, page = here.client(), {"origin": "https://app.example"}
        assert client.options(CHAT, headers={**page, **ASKS}).status_code == 200
        refused = client.get("/v1/models", headers=page)
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == page["origin"]  # so that it can be read


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("obsidian", "is not an origin. Write SCHEME://HOST"),
        ("app://obsidian.md/path", "is not an origin"),
        ("*", "is not an origin"),
        ("null", "is not an origin"),
        ("https://*", "would admit every web page"),
    ],
)
def test_what_is_no_origin_is_said(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=words.replace("*", r"\*")):
        as_origin(text)
    with pytest.raises(typer.BadParameter, match=words):
        allowed_origins([text])
    path = tmp_path / "settings.toml"
    path.write_text(f'[server]\nallow_origins = ["app://obsidian.md", "{text}"]\n')
    with pytest.raises(SettingsError, match=words) as error:
        read_settings(path)
    assert f"{path}: [server]: 'allow_origins'" in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("allow_origins = 'app://x'", "must be a list of texts"),
        ("allow_origins = [1]", "must be a list of texts"),
        ("allow_origin = []", "Did you mean 'allow_origins'?"),
    ],
)
def test_a_mistake_in_the_settings_file_is_named(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(f"[server]\n{text}\n")
    with pytest.raises(SettingsError, match=words.replace("?", r"\?")):
        read_settings(path)


def test_the_settings_file_and_the_command_line_add_up() -> None:
    path = default_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('[server]\nallow_origins = ["app://obsidian.md"]\n')
    try:
        assert allowed_origins(["TAURI://localhost/"]) == ["app://obsidian.md", "tauri://localhost"]
        assert allowed_origins(None) == ["app://obsidian.md"]
    finally:
        path.unlink()


@pytest.mark.parametrize("quiet", [False, True])
def test_the_command_hands_on_whom_to_let_in(monkeypatch: pytest.MonkeyPatch, quiet: bool) -> None:
    given: list[ServerSettings] = []
    monkeypatch.setattr(command, "serve", lambda open_engine, settings: given.append(settings))
    args = ["serve", "--allow-origin", "app://obsidian.md", "--allow-origin", "tauri://localhost"]
    with pytest.raises(SystemExit) as end:
        main([*args, "--quiet" if quiet else "--verbose"])
    assert end.value.code == 0
    assert given[0].verbose is not quiet
    assert (given[0].allow_origins, given[0].quiet) == (("app://obsidian.md", "tauri://localhost"), quiet)


def test_a_wrong_origin_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["serve", "--allow-origin", "obsidian"])
    assert end.value.code == 2
    assert "--allow-origin" in capsys.readouterr().err
