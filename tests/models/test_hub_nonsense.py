"""A hub that answers nonsense, or drop by drop: one sentence, after a bounded time, and Ctrl+C at once."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.instruments.servers import http, never_wait
from runtime.models.hub import asking, fetch
from runtime.models.hub.fetch import Hub
from runtime.models.hub.names import HubError
from tests.support.hub_server import COMMIT
from tests.support.raw_hub import answering, as_json, model

CONTENT = b"hello"
CHECKSUM = hashlib.sha1(b"blob 5\0" + CONTENT, usedforsecurity=False).hexdigest().encode()
HEAD = http(b"", b"X-Repo-Commit: " + COMMIT.encode(), b'ETag: "' + CHECKSUM + b'"', length=b"5")
CIRCLE = http(b"", b"Location: /again", status=b"302 Found")
ANSWERS = {
    "html": http(b"<html>Log in</html>", b"Content-Type: text/html"),
    "list": as_json([1]),
    "text": as_json("x"),
    "null": as_json(None),
    "number": as_json(5),
    "no keys": as_json({}),
    "files as text": model(siblings="abc"),
    "files as null": model(siblings=[None]),
    "names as numbers": model(siblings=[{"rfilename": 5}]),
    "names as lists": model(siblings=[{"rfilename": ["a"]}]),
    "no names": model(siblings=[{}]),
    "sizes as text": model(siblings=[{"rfilename": "small.gguf", "size": "x"}]),
    "half a character": model(siblings=[{"rfilename": "\ud800.gguf", "size": 5}]),
    "a date that is none": model(lastModified="yesterday"),
    "nested without end": http(b"[" * 200_000),
    "a number of many digits": http(b'{"id":' + b"1" * 10_000 + b"}"),
    "no bytes of a text": http(b'{"id":"\xff\xfe"}'),
    "an error that is none": http(b"[1]", b"Content-Type: application/json", status=b"400 Bad"),
    "an error": http(b"", status=b"501 No"),
    "a circle": CIRCLE,
    "nowhere": http(b"", status=b"302 Found"),
    "a bad place": http(b"", b"Location: http://[::bad", status=b"302 Found"),
    "more than announced": http(b'{"id": "x"}', length=b"3"),
    "less than announced": http(b"{}", length=b"50"),
    "a length that is none": http(b"{}", length=b"abc"),
    "an empty body": http(b""),
    "nothing": b"",
    "a long head": http(b"{}", b"X-Long: " + b"a" * 300_000),
    "no HTTP": b"\x00\x01\x02 hello\r\n\r\n",
    "not packed": http(b"{}", b"Content-Encoding: gzip"),
}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Neither we nor the client wait between attempts; those that nobody waits for end before the next test."""
    monkeypatch.setattr(fetch, "PAUSE", 0.0)
    never_wait(monkeypatch)
    yield
    for thread in threading.enumerate():
        if thread.name == asking.NAME:
            thread.join(20)


@pytest.mark.parametrize("kind", ANSWERS)
def test_nonsense_is_one_sentence(tmp_path: Path, kind: str) -> None:
    with answering(lambda head: ANSWERS[kind]) as endpoint:
        hub = Hub(endpoint, tmp_path)
        with pytest.raises(HubError, match=r"\.$"):
            hub.plan("owner/small")
        if kind != "no keys":  # a page without repositories
            with pytest.raises(HubError, match=r"\.$"):
                hub.search("small")


@pytest.mark.parametrize("size", [b"-7", b"abc", b"0", b"9" * 5000])
def test_a_file_of_no_size_is_refused(tmp_path: Path, size: bytes) -> None:
    head = HEAD.replace(b"Connection: close", b"Connection: close\r\nX-Linked-Size: " + size)
    with answering(lambda asked: head if asked.startswith(b"HEAD") else model()) as endpoint:  # noqa: SIM117
        with pytest.raises(HubError, match="no checksum or size"):
            Hub(endpoint, tmp_path).plan("owner/small")


@pytest.mark.parametrize(
    "answer", [CIRCLE, b"", http(b"he"), http(b"jello"), http(b"", status=b"416 No"), b"\x00\r\n\r\n"], ids=len
)
def test_content_that_is_none_is_one_sentence(tmp_path: Path, answer: bytes) -> None:
    with answering(lambda asked: whole_hub(asked, answer)) as endpoint:
        hub = Hub(endpoint, tmp_path)
        with pytest.raises(HubError, match=r"\.$"):
            hub.pull("owner/small", hub.plan("owner/small"), lambda file, n: None)


def is_for_content(asked: bytes) -> bool:
    return asked.startswith(b"GET") and b"/api/" not in asked


def whole_hub(asked: bytes, content: bytes) -> bytes:
    """A sound hub but for the content of its one file."""
    if asked.startswith(b"HEAD"):
        return HEAD
    return content if is_for_content(asked) else model()


@pytest.mark.parametrize("what", ["search", "plan"])
def test_an_answer_that_drips_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.setattr(asking, "TIMEOUT", 0.3)
    with answering(lambda asked: model(), drip=0.05) as endpoint:
        hub, began = Hub(endpoint, tmp_path), time.monotonic()
        with pytest.raises(HubError, match=r"not answered .* within 0\.3 seconds"):
            hub.search("small") if what == "search" else hub.plan("owner/small")
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("slow", [http(CONTENT * 99, length=b"5"), http(CONTENT, b"X-Long: " + b"a" * 9000)], ids=len)
def test_content_that_drips_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: bytes) -> None:
    monkeypatch.setattr(asking, "TIMEOUT", 0.5)
    with answering(lambda asked: whole_hub(asked, slow), drip=0.04, drips=is_for_content) as endpoint:
        hub = Hub(endpoint, tmp_path)
        with pytest.raises(HubError, match=r"not answered .* within 0\.5 seconds"):
            hub.pull("owner/small", hub.plan("owner/small"), lambda file, n: None)


def test_content_that_comes_too_slowly_is_given_up_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(lambda asked: whole_hub(asked, http(CONTENT)), drip=0.005, drips=is_for_content) as endpoint:
        hub = Hub(endpoint, tmp_path)
        (file,) = hub.plan("owner/small")

        def wait_no_more(name: str, n_bytes: int) -> None:
            monkeypatch.setattr(asking, "TIMEOUT", 0.0)

        with pytest.raises(HubError, match=r"too slowly: . bytes in 0 seconds\. Pull it again"):
            hub.pull("owner/small", [file], wait_no_more)
    assert 0 < file.n_here < len(CONTENT)


def test_ctrl_c_ends_a_search_that_drips_at_once(tmp_path: Path) -> None:
    was_asked = threading.Event()
    with answering(lambda asked: (was_asked.set(), as_json([]))[1], drip=1.0) as endpoint:
        place = {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
        process = subprocess.Popen(
            [sys.executable, "-m", "app.cli", "models", "search", "small"], stderr=subprocess.PIPE, text=True,
            env=os.environ | place,
        )  # fmt: skip
        assert was_asked.wait(60)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (-signal.SIGINT, "")
    assert time.monotonic() - began < 5
