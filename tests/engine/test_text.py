"""Text comes out whole: characters, and nothing that a stop string may still swallow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.engine.text import TextStream


def stream(pieces: list[bytes], stops: list[str]) -> tuple[list[str], TextStream]:
    text = TextStream(stops)
    out = [text.feed(piece) for piece in pieces]
    return [*out, text.finish()], text


def test_a_character_is_held_until_it_is_whole() -> None:
    assert stream(["é".encode()[:1], "é".encode()[1:], b"!"], [])[0] == ["", "é", "!", ""]


def test_broken_utf8_becomes_a_replacement_character() -> None:
    assert "".join(stream([b"a\xff", b"b\xe2\x82"], [])[0]) == "a\ufffdb\ufffd"


def test_the_stop_string_never_shows() -> None:
    out, text = stream([b"one EN", b"D two"], ["END"])
    assert (out, text.stopped) == (["one ", "", ""], True)


def test_what_might_have_become_a_stop_string_comes_later() -> None:
    assert stream([b"one EN", b"ough"], ["END"])[0] == ["one ", "ENough", ""]


def test_the_first_of_several_stop_strings_counts() -> None:
    assert "".join(stream([b"abcdef"], ["ef", "cd"])[0]) == "ab"


@given(st.text(max_size=40), st.lists(st.text(min_size=1, max_size=3), max_size=3), st.integers(1, 5))
def test_any_cut_gives_the_same_text(text: str, stops: list[str], size: int) -> None:
    data = text.encode()
    whole = "".join(stream([data], stops)[0])
    assert "".join(stream([data[i : i + size] for i in range(0, len(data), size)], stops)[0]) == whole or any(
        stop in text for stop in stops
    )
    assert not any(stop in whole for stop in stops)


def test_code_is_what_stands_between_fences_however_they_are_cut() -> None:
    stream, seen = TextStream(), []
    for piece in ("So: `", "``py\nx = `1`", "\n`", "`", "` and", " ```", "a"):
        stream.feed(piece.encode())
        seen.append(stream.is_code)
    assert seen == [False, True, True, True, False, True, True]


@pytest.mark.parametrize(
    ("pieces", "text", "ends"),
    [
        (["a\n", "    b\n", "  c\n"], "a\n    b\n  ", True),
        (["a", "\n", "  ", "  b", "\n", "    c"], "a\n    b\n    c", False),
        (["a\n    b\n\n    c"], "a\n    b\n", True),
        (["a\n\t\t\t\tb\nc"], "a\n\t\t\t\tb\n", True),
        (["  a\n  "], "  a\n  ", False),
    ],
)
def test_a_line_that_is_indented_too_little_ends_the_text(pieces: list[str], text: str, ends: bool) -> None:
    stream = TextStream(n_indent=4)
    found = "".join(stream.feed(piece.encode()) for piece in pieces if not stream.stopped) + stream.finish()
    assert (found, stream.is_outdented) == (text, ends)
