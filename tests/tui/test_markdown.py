"""Replies as Markdown on screen: what a model meant is what is seen, while it comes and after."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.app import App, ComposeResult
from textual.containers import Horizontal

import app.tui as style
from app.tui.markdown_dialect import markdown_parser
from app.tui.private_textual import MarkdownBullet, MarkdownFence, MarkdownTable
from app.tui.widgets.message_view import MessageView
from app.tui.widgets.reply_markdown import ReplyMarkdown
from tests.support.quick import others_slow
from tests.support.scripted import ScriptedEngine
from tests.support.tui import ChatPilot, chats_path, engine_of, opened, piloted, strips

path = chats_path
WIDE = "very_long_name(" + ", ".join(f"argument_{i}" for i in range(20)) + ")"


GROWING = [
    "One line\nand another one, which is so long that it needs a second line on a screen of sixty columns\n\nText",
    "- one\n- two\n\n  more of two\n- three",
    "9. nine\n10. ten\n11. eleven",
    "1. one\n1. two\n1. three\n\n   ```python\n   x = 1\n   y = 2\n   ```\n   text\n1. four",
    "- one\n  - inner\n  - inner two\n    1. deep\n    2. deeper\n- two",
    "- a title\n---\ntext\n- [ ] task\n> quote\n> goes on\n- last",
    "```python\ndef f():\n    return 1\n```\n\nThat is `f`:\n\n    code by indentation\n    goes on\n\n# Title",
    "1) other\n2) marks",
    "| a | b |\n|--:|---|\n| 1 | 2 |\n| 333 | 4 |\n\nText",
]


def lines(chat: ChatPilot) -> list[str]:
    """The lines of the reply on screen, without what is at their sides."""
    return [line[3:-1].rstrip() for line in chat.seen().splitlines()[4:]]


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        (">>> bin(2)\n'0b10'\n\nText", ["fence", "paragraph_open"]),
        ("It is so:\n>>> bin(2)\n'0b10'", ["paragraph_open", "fence"]),
        ("> a quote", ["blockquote_open", "paragraph_open"]),
        ("    >>> bin(2)", ["code_block"]),
        ("- item\n\n  >>> bin(2)\n\n- item", ["bullet_list_open", "list_item_open", "paragraph_open", "fence"]),
    ],
)
def test_a_doctest_is_code_up_to_the_next_empty_line(text: str, kinds: list[str]) -> None:
    found = [each.type for each in markdown_parser().parse(text)]
    assert [kind for kind in found if not kind.endswith("_close") and kind != "inline"][: len(kinds)] == kinds


@pytest.mark.parametrize(
    "text",
    [
        "a.__init__, __main__ and __class_getitem__",
        "List<String> and <b>b</b>",
        "main.py, os.path",
        "f(*args, **kwargs)",
    ],
)
def test_what_is_no_markup_stays_as_it_is(text: str) -> None:
    children = markdown_parser().parse(text)[1].children or []
    assert {each.type for each in children} == {"text"}
    assert "".join(each.content for each in children) == text


@piloted
async def test_lines_begin_where_the_model_began_them(path: Path) -> None:
    text = "key\n  A function\n    of `one` argument\n\n- item\n  goes on"
    async with opened(path, ScriptedEngine(text)) as chat:
        await chat.ask("Q")
        assert lines(chat)[:6] == ["key", "  A function", "    of one argument", "", "• item", "  goes on"]


@piloted
async def test_columns_of_a_table_are_aligned_and_no_wider_than_needed(path: Path) -> None:
    table = "| name | n |\n|:--|--:|\n| alpha | 1 |\n| beta | 22222 |\n"
    async with opened(path, ScriptedEngine(table), size=(119, 24)) as chat:
        await chat.ask("Q")
        assert [line.strip() for line in lines(chat) if "alpha" in line] == ["│ alpha │     1 │"]


@piloted
async def test_wide_code_scrolls_by_key(path: Path) -> None:
    async with opened(path, ScriptedEngine(f"```python\n{WIDE}\n```")) as chat:
        await chat.ask("Q")
        assert "argument_19" not in chat.seen()
        await chat.press("shift+tab", *["shift+right"] * 30)
        await chat.until("argument_19", gone="very_long_name")
        await chat.press(*["shift+left"] * 30)
        await chat.until("very_long_name", gone="argument_19")


@piloted
async def test_text_is_no_wider_than_one_reads_and_code_may_be(path: Path) -> None:
    async with opened(path, ScriptedEngine(f"{'word ' * 60}\n\n```python\n{WIDE}\n```"), size=(200, 30)) as chat:
        await chat.ask("Q")
        await chat.press("ctrl+b")
        view = chat.app.screen.query(MessageView).last()
        assert max(block.region.width for block in view.query("MarkdownParagraph")) == 100
        assert view.query_one(MarkdownFence).region.width > 150


@piloted
async def test_what_comes_piece_by_piece_looks_as_what_is_there_at_once(path: Path) -> None:
    text = "Text:\n>>> bin(2)\n'0b10'\n\n| a | b |\n|--:|---|\n| 1 | 2 |\n| 333 | [wait]4 |\n\nkey\n  value"
    async with opened(path, ScriptedEngine(text)) as chat:
        await chat.say("Q")
        await chat.until("0b10", "333")
        engine_of(chat).go.set()
        await chat.idle()
        await chat.until("│", "333 │ 4", "value")


@piloted
async def test_code_that_goes_on_stays_one_block(path: Path) -> None:
    async with opened(path, ScriptedEngine("Code:\n\n```\none\ntwo three never", "\nfour\nfive [wait]six")) as chat:
        await chat.ask("/set max_tokens 2")
        await chat.ask("Q")
        await chat.until("cut off")
        await chat.say("/continue")
        await chat.until("▌ one ▌ two three ▌ four ▌ five", gone="cut off")
        engine_of(chat).go.set()
        await chat.until("▌ one ▌ two three ▌ four ▌ five six")


class Shown(App[None]):
    """Two replies beside each other, each of them sixty columns wide."""

    CSS_PATH = Path(style.__file__).with_name("style.tcss")
    CSS = "MessageView { border: none !important; padding: 0 !important; } ReplyMarkdown { width: 60; }"

    def compose(self) -> ComposeResult:
        with type("MessageView", (Horizontal,), {})():  # whose style is meant
            yield ReplyMarkdown()
            yield ReplyMarkdown()

    def sides(self) -> tuple[list[str], list[str]]:
        """The lines of each."""
        lines = [strip.text for strip in strips(self)]
        return [line[:60].rstrip() for line in lines], [line[60:].rstrip() for line in lines]


@pytest.mark.parametrize("text", others_slow(GROWING, list(GROWING)[::3]))
@piloted
async def test_markdown_that_grows_looks_as_what_is_there_at_once(text: str) -> None:
    async with Shown().run_test(size=(120, 30)) as pilot:
        app, step = pilot.app, 3
        assert isinstance(app, Shown)
        grown, whole = app.query(ReplyMarkdown)
        for begin in range(0, len(text), step):
            await grown.append(text[begin : begin + step])
            await whole.update("")
            await whole.update(text[: begin + step])
            await pilot.pause()
            left, right = app.sides()
            assert left == right
        assert any(left)


@pytest.mark.parametrize("mark", ["-", "1."])
@piloted
async def test_a_list_that_grows_keeps_the_items_that_it_has(mark: str) -> None:
    async with Shown().run_test(size=(120, 30)) as pilot:
        reply = pilot.app.query(ReplyMarkdown).first()
        await reply.append(f"{mark} one\n{mark} two")
        before = list(reply.query("*"))
        await reply.append(f" goes on\n{mark} three\n\nThat is all.")
        assert list(reply.query("*"))[: len(before)] == before
        assert len(reply.query(MarkdownBullet)) == 3


@piloted
async def test_text_that_needs_no_other_room_lays_nothing_out_again() -> None:
    async with Shown().run_test(size=(120, 30)) as pilot:
        reply = pilot.app.query(ReplyMarkdown).first()
        await reply.append("Some words")
        await pilot.pause()
        laid_out = list[object]()
        pilot.app.screen.screen_layout_refresh_signal.subscribe(reply, laid_out.append)
        await reply.append(" and more")
        await pilot.pause()
        assert not laid_out
        await reply.append(" and more" * 9)
        await pilot.pause()
        assert laid_out


@piloted
async def test_what_has_grown_stays_when_the_reply_is_complete() -> None:
    async with Shown().run_test(size=(120, 30)) as pilot:
        assert isinstance(pilot.app, Shown)
        reply = pilot.app.query(ReplyMarkdown).first()
        text = "Text\n\n- one\n- two\n\n| a |\n|---|\n| 1 |\n\n```\ncode\n```\n"
        await reply.append(text[:20])
        await reply.append(text[20:])
        await pilot.pause()
        before = list(reply.query("*"))
        await reply.update(text)
        assert list(reply.query("*")) == before
        await reply.update(text.replace("| 1 |", "| 2 |"))
        await pilot.pause()
        after, table = list(reply.query("*")), reply.query_one(MarkdownTable)
        assert after[: after.index(table)] == before[: after.index(table)]
        assert set(after[after.index(table) :]).isdisjoint(before)
        assert " 2 " in "".join(pilot.app.sides()[0])
