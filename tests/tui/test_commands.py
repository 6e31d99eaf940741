"""Commands of the terminal chat are found without a manual: the list that a slash opens, completion, what is meant."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from app.tui.commands import COMMANDS
from app.tui.completion import complete, matching, meant, parse, paths
from app.tui.widgets.prompt import PromptBox
from runtime.core.errors import SettingsError
from tests.support.scripted import ScriptedEngine
from tests.support.tui import ChatPilot, chats_path, engine_of, opened, piloted
from tests.tui.test_terminal import Terminal, terminal  # noqa: F401 (a fixture)

path = chats_path


def box(chat: ChatPilot) -> PromptBox:
    return chat.screen.prompt


@piloted
async def test_a_slash_lists_every_command_and_typing_narrows_it(path: Path) -> None:
    async with opened(path, size=(120, 40)) as chat:
        await chat.type("/")
        await chat.until("/help Keys and commands", "/why Whether replies are faster")
        assert chat.screen.composer.suggestions.option_count == len(COMMANDS)
        await chat.type("exp")
        await chat.until("/export [--numbers]", "Write this chat", gone="/help")
        await chat.press("escape")
        await chat.until("/exp", gone="Write this chat")
        await chat.type("o")
        await chat.until("Write this chat")


@piloted
async def test_enter_does_what_is_chosen_and_waits_for_what_must_follow(path: Path) -> None:
    async with opened(path) as chat:
        await chat.type("/set")
        await chat.press("down", "enter")
        await chat.until("Settings", "temperature", "Slipstream's default")
        await chat.press("escape")
        await chat.type("/pul")
        await chat.press("down", "enter")
        assert box(chat).text == "/pull "
        box(chat).begin()
        await chat.type("/keys")
        await chat.press("enter")
        await chat.until("Colour the words that were guessed")
        assert engine_of(chat).asked == []


@piloted
@pytest.mark.parametrize(
    ("typed", "said"), [("/file", "/diff"), ("/delete", "/delete-turn"), ("/hel", "/help"), ("/", "F1 lists all")]
)
async def test_letters_that_only_begin_or_resemble_a_command_run_nothing(typed: str, said: str, path: Path) -> None:
    async with opened(path, size=(120, 40)) as chat:
        await chat.type(typed)
        await chat.press("enter")
        await chat.until(said, "begin with a space")
        assert box(chat).text == typed
        assert engine_of(chat).asked == []


@piloted
async def test_tab_completes_arguments_of_commands(path: Path) -> None:
    Path("weights").mkdir()
    Path("weights", "a b.gguf").touch()
    Path("weights", "notes.txt").touch()
    async with opened(path) as chat:
        await chat.type("/model dem")
        await chat.press("tab")
        assert box(chat).text == "/model demo"
        box(chat).begin()
        await chat.paste(f"/model {path.parent}/wei")
        await chat.press("tab", "tab")
        assert box(chat).text == f"/model {path.parent}/weights/a b.gguf"
        box(chat).begin()
        await chat.type("/set temp")
        await chat.press("tab")
        assert box(chat).text == "/set temperature "
        await chat.until("restores it")


@piloted
async def test_files_are_completed_by_absolute_path_and_with_a_space_in_quotation_marks(path: Path) -> None:
    Path("my notes.md").write_text("inside")
    async with opened(path) as chat:
        await chat.paste(f"Read @{path.parent}/my")
        await chat.until("my notes.md")
        await chat.press("tab")
        assert box(chat).text == f'Read @"{path.parent}/my notes.md"'
        await chat.press("enter")
        await chat.idle()
        assert "inside" in engine_of(chat).asked[0][0][-1].content


@piloted
async def test_a_file_is_chosen_from_the_list_and_what_history_brings_back_opens_none(path: Path) -> None:
    for name in ("one.py", "two.py"):
        Path(name).write_text(name)
    async with opened(path, ScriptedEngine("ok")) as chat:
        await chat.type("See @")
        await chat.until("one.py", "two.py")
        await chat.press("down", "up")
        await chat.press("enter")
        assert box(chat).text == "See @two.py"
        await chat.press("enter")
        await chat.idle()
        await chat.ask("second")
        await chat.press("up", "up")
        assert box(chat).text == "See @two.py"
        await chat.press("down")
        assert box(chat).text == "second"


@pytest.mark.parametrize(
    ("typed", "said"),
    [("bye", "/quit"), ("load", "/model"), ("download", "/pull"), ("retry", "/regenerate"), ("expert", "/export")],
)
def test_an_unknown_command_is_taken_by_its_meaning(typed: str, said: str) -> None:
    assert said in meant(typed)


def test_what_means_nothing_here_is_said_to(path: Path) -> None:
    assert matching("wat") == []
    assert "/ alone lists" in meant("wat")


def test_no_name_for_something_else_is_a_command_or_two() -> None:
    names = [each.name for each in COMMANDS]
    aliases = [alias for each in COMMANDS for alias in each.aliases]
    assert len(aliases) == len(set(aliases))
    assert not set(aliases) & set(names)


@pytest.mark.parametrize("text", ["", "hello", "/etc/hosts", "mail me@home", "/model x\nmore"])
def test_nothing_is_suggested_where_nothing_is_named(text: str) -> None:
    assert complete(text, {}).suggestions == ()


def test_a_home_that_is_nobodys_and_a_name_with_a_null_have_no_paths() -> None:
    assert paths("~nobody-of-that-name/") == paths("a\0b/") == []


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_ctrl_z_goes_to_the_shell_and_fg_comes_back(terminal: Terminal) -> None:  # noqa: F811
    terminal.begin(100, 30)
    terminal.until("sane$")
    terminal.line("set -m")
    terminal.chat()
    terminal.until("demo is ready")
    terminal.tmux("send-keys", "-l", "a draft")
    terminal.until("a draft")
    terminal.keys("C-z")
    terminal.until("Stopped")
    terminal.line("echo shell $((6 * 7))")
    terminal.until("shell 42")
    terminal.line("fg")
    terminal.until("demo is ready", "a draft")
    terminal.keys("BSpace")
    terminal.until("a draf")
    terminal.keys("C-_")
    terminal.until("a draft")
    terminal.keys("C-q")
    terminal.until("sane$")
    assert terminal.state() == "0 0 1"


@pytest.mark.parametrize(
    ("text", "name", "argument"),
    [
        ("/download x", "pull", "x"),
        ("/temperature 0.5", "set", "temperature 0.5"),
        ("/temperature", "set", ""),
    ],
)
def test_an_alias_runs_its_command_and_the_name_of_a_setting_belongs_to_the_argument(
    text: str, name: str, argument: str
) -> None:
    found = parse(text)
    assert found is not None
    assert (found[0].name, found[1]) == (name, argument)


@pytest.mark.parametrize(("text", "nearest"), [("/file", "/diff or /undo"), ("/delete", "/delete-turn or /chats")])
def test_the_beginning_of_a_name_or_a_word_of_its_help_runs_nothing(text: str, nearest: str) -> None:
    with pytest.raises(SettingsError, match=f"There is no command {text}. Did you mean {nearest}"):
        parse(text)
