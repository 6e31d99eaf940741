"""Streams of events in every form that the standard allows, from servers on real sockets: the reply is the same."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from runtime.engine import Message, Options, Sampling
from runtime.models.registry import find_pair
from runtime.upstream.connection import UpstreamError
from runtime.upstream.engine import UpstreamEngine
from tests.support.upstream import Answer, delta, elsewhere, models

CHAT = "/v1/chat/completions"
TEXT = "Grüße: \u2028 a\r\nb 🦊"
EVENTS = [delta(content=TEXT[:4]), delta(content=TEXT[4:]), delta("stop")]


def stream(lines: list[str], end: str = "\n") -> bytes:
    return "".join(line + end for line in lines).encode()


def plain(*before: str, tail: tuple[str, ...] = ()) -> list[str]:
    """The lines of the usual form, with others before and behind the data of each event."""
    data = [json.dumps(event, ensure_ascii=False) for event in EVENTS] + ["[DONE]"]
    return [line for each in data for line in (*before, f"data: {each}", *tail, "")]


def in_two() -> list[str]:
    """Each event in as many lines of data as its JSON has."""
    shown = [json.dumps(event, ensure_ascii=False, indent=1).split("\n") for event in EVENTS]
    return [line for each in [*shown, ["[DONE]"]] for line in (*(f"data: {part}" for part in each), "")]


FORMS = {
    "LF": stream(plain()),
    "CR LF": stream(plain(), "\r\n"),
    "CR": stream(plain(), "\r"),
    "lines of data": stream(in_two()),
    "lines of data, CR": stream(in_two(), "\r"),
    "no space": stream([line.replace("data: ", "data:") for line in plain()]),
    "mark": b"\xef\xbb\xbf" + stream(plain()),
    "comments": stream([": hello", "", *plain(": ping")]),
    "empty events": stream(["data", "", "data:", "", "", *plain(tail=("", "data: ", ""))]),
    "other fields": stream(["event: ping", "", "retry: 9", "", *plain("event: message", "id: 7", "new: 1")]),
}


def said(answer: Answer) -> str:
    with (
        elsewhere({"/v1/models": models("m"), CHAT: lambda: answer}) as here,
        closing(UpstreamEngine(find_pair(here.url, {}), Options())) as engine,
    ):
        return "".join(chunk.text for chunk in engine.reply([Message("user", "Q")], Sampling(temperature=0)))


@pytest.mark.parametrize("kind", ["text/event-stream", "Text/Event-Stream; charset=iso-8859-1"])
@pytest.mark.parametrize("form", FORMS)
def test_an_event_is_the_same_in_every_form(form: str, kind: str) -> None:
    assert said(Answer([FORMS[form]], kind=kind)) == TEXT


@pytest.mark.parametrize("form", ["CR LF", "CR", "mark", "lines of data"])
def test_it_may_be_cut_anywhere(form: str) -> None:
    def drops() -> Iterator[bytes]:
        data = FORMS[form]
        for byte in data[:60]:  # its line ends, mark and first characters arrive alone
            yield bytes([byte])
            time.sleep(0.001)
        yield data[60:]

    assert said(Answer(drops(), kind="text/event-stream")) == TEXT


def test_an_event_without_an_end_is_not_kept() -> None:
    def endless() -> Iterator[bytes]:
        yield b"data: "
        while True:
            yield b"x" * 2**20 + b"\ndata: "

    with pytest.raises(UpstreamError, match="does not have OpenAI's interface"):
        said(Answer(endless(), kind="text/event-stream"))
