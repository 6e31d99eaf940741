"""The terminal chat begins where it was left: with the last chat, or that of a title, and the model that wrote it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.chats.store import Store
from app.cli.main import app
from runtime.core.errors import SettingsError
from tests.support.tui import chats_path, opened, piloted
from tests.tui.test_last_model import home as home_without_models
from tests.tui.test_last_model import placed, used

path, home = chats_path, home_without_models


@piloted
async def test_enter_in_a_new_chat_opens_the_last_one_which_is_named_first(path: Path) -> None:
    async with opened(path) as chat:
        assert "Continue" not in chat.seen()
        await chat.press("enter")
        await chat.ask("About fruit")
    for keys in (["enter"], ["ctrl+s"], ["shift+tab", "enter"]):
        async with opened(path) as chat:
            await chat.until("new chat", "Continue: About fruit (Enter)")
            assert chat.seen().splitlines()[1].strip() == "Continue: About fruit (Enter)"
            await chat.press("space", "enter", "backspace")
            await chat.until("new chat")
            await chat.press(*keys)
            await chat.until("Slipstream · scripted · About fruit", "Hello.", gone="Continue")
            await chat.press("enter", "ctrl+n")
            await chat.until("new chat", "Continue: About fruit (Enter)")


@pytest.mark.parametrize(
    ("before", "paste", "after", "title"),
    [
        ("", "def f():\n    return 1\n", "What is wrong here?", "What is wrong here?"),
        ("", "\n".join(["x = 1"] * 20), " Explain.", "Explain."),
        ("Look: ", "\n".join(["x = 1"] * 20), "", "Look:"),
        ("", "\n".join(["x = 1"] * 20), "", "Pasted text, 20 lines"),
        ("", "How do I boil eggs?", "", "How do I boil eggs?"),
    ],
)
@piloted
async def test_the_title_is_what_was_typed_and_no_paste(
    path: Path, before: str, paste: str, after: str, title: str
) -> None:
    async with opened(path) as chat:
        await chat.type(before)
        await chat.paste(paste)
        await chat.type(after)
        await chat.press("enter")
        await chat.until("Hello.")
        assert [each.title for each in chat.session.store.chats()] == [title]
        assert chat.screen.branch.messages()[0].content == f"{before}{paste}{after}".strip()


def written(path: Path, title: str, *models: str) -> int:
    """A chat with a reply by each of these models."""
    store = Store(path)
    number, leaf = store.new_chat(title), None
    for model in models:
        leaf = store.add_message(number, leaf, "user", "Q")
        leaf = store.add_message(number, leaf, "assistant", "A", {"model": Path(model).name, "loads": model})
    store.close()
    return number


@pytest.mark.parametrize(
    ("words", "title", "model"),
    [
        ((), "Pea soup", "mine.gguf"),
        (("onion",), "Onion soup", "other.gguf"),
        (("demo",), "Pea soup", "demo"),
        (("Twice",), "Twice", "mine.gguf"),
        (("gone",), "Gone", "other.gguf"),
    ],
)
def test_a_chat_is_opened_with_the_model_that_wrote_most_of_it_or_the_named_one(
    path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], title: str, model: str
) -> None:
    monkeypatch.setattr("app.cli.streams.is_terminal", lambda: True)
    opened: list[Any] = []
    monkeypatch.setattr("app.tui.app.run", lambda *given: opened.extend((given[0], given[-1].chat)))
    mine, other = str(placed(home / "a")), str(placed(home / "b", "other.gguf"))
    used(path, mine, other)
    chats = {"Gone": written(path, "Gone", "/gone/away.gguf"), "Twice": written(path, "Twice", other)}
    chats["Twice"] = written(path, "Twice", mine)
    chats["Onion soup"] = written(path, "Onion soup", mine, other)
    chats["Pea soup"] = written(path, "Pea soup", mine, mine, other)
    result = CliRunner().invoke(app, ["chat", "-c", *words, "--chats", str(path)])
    assert result.exit_code == 0, result.output
    assert (opened[0].pair.name, opened[1]) == (model, chats[title])


def test_a_title_that_fits_two_chats_is_one_sentence_that_names_both(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.cli.streams.is_terminal", lambda: True)
    with pytest.raises(SettingsError, match=r"no chats yet\. Leave out -c"):
        CliRunner().invoke(app, ["chat", "-c", "--chats", str(path)], catch_exceptions=False)
    written(path, "Onion soup")
    written(path, "Pea soup")
    with pytest.raises(SettingsError, match="'soup' fits two chats: 'Pea soup' and 'Onion soup'"):
        CliRunner().invoke(app, ["chat", "-c", "soup", "--chats", str(path)], catch_exceptions=False)


@piloted
async def test_a_chat_that_is_opened_at_the_start_offers_the_model_that_wrote_it(path: Path) -> None:
    number = written(path, "Onion soup", "/gone/away.gguf")
    async with opened(path, first=number) as chat:
        await chat.until("Slipstream · scripted · Onion soup", "away.gguf, which wrote this chat, is not on this")
