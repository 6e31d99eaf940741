"""The page for people at `/`: it says what runs and how clients are set up, and loads nothing."""

from __future__ import annotations

import re
import threading
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx2
import pytest

from runtime.engine import Engine
from tests.support.serving import Running, open_plain, running
from tests.support.waiting import PATIENCE

EDITORS = Path(__file__).parents[2] / "docs" / "editors.md"
KEY = "sk-ü"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(open_plain, tmp_path_factory.mktemp("socket") / "s") as found:
        yield found


def number(page: httpx2.Response, name: str) -> str:
    found = re.search(f"<dt>{name}</dt><dd>(.*?)</dd>", page.text)
    assert found
    return found[1]


def test_it_says_what_runs_and_where(here: Running) -> None:
    page = here.client().get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "<strong>demo</strong>" in page.text
    assert "Its context has 2,048 tokens." in page.text
    assert f"<code>{here.url}/v1</code>" in page.text
    assert f"<code>{here.path}</code>" in page.text


def test_its_numbers_are_those_of_metrics(here: Running) -> None:
    client = here.client()
    client.post("/completion", json={"prompt": "import os", "n_predict": 3, "ignore_eos": True})
    page, metrics = client.get("/"), client.get("/metrics").text
    for name, metric in (
        ("Tokens written", "slipstream_predicted_tokens_total"),
        ("Replies", "slipstream_replies_total"),
    ):
        counted = sum(float(value) for value in re.findall(rf"^{metric}(?:{{.*}})? (.*)$", metrics, re.MULTILINE))
        assert number(page, name) == f"{counted:,.0f}" != "0"


class Finder(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: set[str] = set()
        self.handlers: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links |= {value or "" for name, value in attrs if name in ("src", "href")}
        self.handlers |= {name for name, _ in attrs if name.startswith("on") or name == "style"}


def test_it_has_no_script_and_nothing_from_elsewhere(here: Running) -> None:
    page, found = here.client().get("/"), Finder()
    found.feed(page.text)
    assert not found.tags & {"script", "link", "img", "iframe", "form", "object"}
    assert found.links == {"/openapi.json", "/metrics"}
    assert not found.handlers
    policy = page.headers["content-security-policy"]
    style = page.text.split("<style>")[1].split("</style>")[0].encode()
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{b64encode(sha256(style).digest()).decode()}';")
    assert "unsafe" not in policy
    assert "url(" not in style.decode()


def test_it_refreshes_itself_and_suits_light_and_dark(here: Running) -> None:
    page = here.client().get("/").text
    assert '<meta http-equiv="refresh"' in page
    assert "prefers-color-scheme: dark" in page


def test_the_settings_are_those_of_the_docs(here: Running) -> None:
    page = here.client().get("/", headers={"host": "127.0.0.1:8012"}).text
    shown = [unescape(text) for text in re.findall("<pre>(.*?)</pre>", page, re.DOTALL)]
    documented = plain(EDITORS.read_text(encoding="utf8"))
    assert len(shown) > 8
    assert [text for text in shown if plain(text) not in documented] == []


def plain(text: str) -> str:
    """Without the length of the context, which is the model's."""
    return re.sub(r'(max_tokens": |context_window = )\d+', r"\1N", text)


def test_what_a_client_sends_is_not_taken_for_markup(here: Running) -> None:
    page = here.client().get("/", headers={"host": "127.0.0.1:80<script>"})
    assert "<script" not in page.text


def test_with_a_key_a_browser_is_asked_for_it() -> None:
    with running(open_plain, api_key=KEY) as here:
        client = here.client()
        refused = client.get("/")
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"].startswith("Basic ")
        typed = {"authorization": f"Basic {b64encode(f'me:{KEY}'.encode()).decode()}"}
        page = client.get("/", headers=typed)
        assert page.status_code == 200
        assert "KEY" in page.text
        assert KEY not in page.text
        for wrong in ("me:other", "me"):
            asked = {"authorization": f"Basic {b64encode(wrong.encode()).decode()}"}
            assert client.get("/", headers=asked).status_code == 401
        assert client.get("/", headers={"authorization": "Basic %"}).status_code == 401
        assert client.get("/", headers=typed | {"sec-fetch-mode": "navigate"}).status_code == 200
        assert client.get("/", headers=typed | {"sec-fetch-mode": "cors"}).status_code == 401
        assert client.get("/v1/models", headers=typed).status_code == 401  # a browser would send it for any page


def test_while_the_model_is_loaded_it_says_so() -> None:
    go_on = threading.Event()

    def never(on_progress: Any) -> Engine:
        go_on.wait(PATIENCE)
        raise KeyboardInterrupt

    with running(never, loads=False) as here:
        page = here.client().get("/")
        go_on.set()
    assert page.status_code == 503
    assert "The model is still being loaded." in page.text
    assert '<meta http-equiv="refresh"' in page.text
