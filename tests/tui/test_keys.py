"""Keys of the terminal chat that are as in a shell, letters that nothing takes, and where keys are explained."""

from __future__ import annotations

from pathlib import Path

from textual import events
from textual._xterm_parser import XTermParser

from app.tui.widgets.message_view import MessageView
from tests.support.scripted import ScriptedEngine
from tests.support.tui import chats_path, opened, piloted

path = chats_path


@piloted
async def test_letters_and_pastes_that_nothing_takes_go_to_the_prompt(path: Path) -> None:
    async with opened(path, ScriptedEngine("one")) as chat:
        await chat.ask("Q")
        await chat.press("shift+tab")
        assert isinstance(chat.app.focused, MessageView)
        await chat.press("w", "h", "y", "question_mark")
        assert chat.app.focused is chat.screen.prompt
        assert chat.screen.prompt.text == "why?"
        await chat.press("shift+tab")
        await chat.paste(" And so?")
        assert chat.screen.prompt.text == "why? And so?"
        await chat.press("shift+tab", "c")  # this letter is one of the message's
        await chat.until("Copied the message.")
        assert chat.screen.prompt.text == "why? And so?"
        chat.screen.set_focus(None)
        await chat.press("c")
        assert chat.screen.prompt.text == "why? And so?c"


@piloted
async def test_alt_d_ctrl_c_and_ctrl_d_work_as_in_a_shell(path: Path) -> None:
    async with opened(path, ScriptedEngine("one")) as chat:
        await chat.type("first words here")
        await chat.press("ctrl+a", "alt+d", "ctrl+d")
        assert chat.screen.prompt.text == "words here"
        await chat.press("ctrl+c")
        assert chat.screen.prompt.text == ""
        await chat.press("up")
        assert chat.screen.prompt.text == "words here"
        await chat.press("shift+home", "ctrl+c")  # what is selected is copied
        assert (chat.copied(), chat.screen.prompt.text) == ("words here", "words here")
        await chat.press("end", "ctrl+c", "ctrl+c")
        await chat.until("Press Ctrl+C again to leave.")
        await chat.ask("Q")
        await chat.press("f4", "ctrl+c")
        assert not chat.screen.prompt.is_rewriting
        assert chat.app.is_running
        await chat.press("f6", "ctrl+d")  # a dialog's empty box does not end the chat
        await chat.until("System prompt")
        await chat.press("escape", "ctrl+d")
        assert chat.app._exit


def alt(letter: str) -> events.Key:
    """The key that Textual reads from a terminal: it has a character, other than that of its pilot."""
    parser = XTermParser()
    (key,) = [each for each in (*parser.feed(f"\x1b{letter}"), *parser.feed("")) if isinstance(each, events.Key)]
    assert key.character == letter
    return key


@piloted
async def test_alt_types_no_letter_and_deletes_a_word(path: Path) -> None:
    async with opened(path, ScriptedEngine("one")) as chat:
        await chat.type("one two three")
        await chat.press("home")
        for letter in "dxc":
            chat.app.post_message(alt(letter))
        await chat.press("x")
        assert chat.screen.prompt.text == "x two three"
        await chat.ask("Q")
        chat.screen.set_focus(None)
        chat.app.post_message(alt("x"))
        await chat.press("x")
        assert chat.screen.prompt.text == "x"


@piloted
async def test_the_help_names_the_keymap_file_and_breaks_no_line_in_the_middle_of_a_key(path: Path) -> None:
    async with opened(path, size=(80, 60)) as chat:
        await chat.press("f1")
        await chat.until("Keys and commands")
        chat.app.screen.query_one(".dialog").scroll_end(animate=False)
        await chat.until("Keys are changed in", '"chat.theme" = "ctrl+t"')
        assert "keymap.toml" in "".join(chat.seen().replace("│", "").split())
        await chat.until("Ctrl+D while nothing is written: leave", "Left, Right other versions of it;")
