"""A chat carries its model: a reopened one offers it, replies name it, and numbers of two models are never mixed."""

from __future__ import annotations

from pathlib import Path

from app.chats.authors import MODEL, is_other, label_of, loadable
from app.chats.store import StoredMessage
from app.tui.actions.chats import open_chat
from app.tui.widgets.message_view import MessageView
from runtime.models.registry import Pair, load_registry
from tests.support.scripted import ScriptedEngine
from tests.support.tui import ChatPilot, chats_path, opened, piloted

path = chats_path
DEMO = load_registry()["demo"]
GONE = Pair("gone", Path("none.gguf"), temperature=0.0)


async def begun(path: Path, pair: Pair) -> int:
    """A chat with a reply by that model."""
    async with opened(path, ScriptedEngine("First words of it."), pair=pair) as chat:
        await chat.ask("Q")
        assert chat.screen.branch.id is not None
        return chat.screen.branch.id


def labels(chat: ChatPilot) -> list[str]:
    return [str(each.content) for each in chat.screen.query("MessageView .model").results()]  # type: ignore[attr-defined]


@piloted
async def test_a_reopened_chat_offers_the_model_that_wrote_it_by_one_key(path: Path) -> None:
    number = await begun(path, DEMO)
    async with opened(path, ScriptedEngine("no"), ScriptedEngine("yes"), pair=GONE) as chat:
        await open_chat(chat.screen, number)
        await chat.until("demo wrote this chat. gone answers now. F9 loads demo.", "gone is ready", gone="tok/s ·")
        await chat.press("f9")
        await chat.until("Slipstream · demo", "demo is ready", gone="wrote this chat")
        await chat.ask("Q2")
        await chat.until("yes")
        assert labels(chat) == []


@piloted
async def test_a_chat_by_a_model_that_is_gone_says_so_and_can_go_on(path: Path) -> None:
    number = await begun(path, GONE)
    async with opened(path, ScriptedEngine("By demo."), pair=DEMO) as chat:
        await open_chat(chat.screen, number)
        await chat.until("gone, which wrote this chat, is not on this machine any more. demo answers now.")
        await chat.press("f9")
        await chat.until("Nothing is offered now.")
        await chat.ask("What does os.path.join do?")
        await chat.until("By demo.", gone="wrote this chat")
        assert labels(chat) == ["demo"]
        await open_chat(chat.screen, None)
        await open_chat(chat.screen, number)
        await chat.until("By demo.", gone="wrote this chat")
        assert labels(chat) == ["gone", "demo"]


@piloted
async def test_a_chat_is_the_models_that_wrote_most_replies(path: Path) -> None:
    async with opened(path, *[ScriptedEngine("one")] * 2, pair=DEMO) as chat:
        for question in ("one", "two"):
            await chat.ask(question)
        chat.session.pair = GONE
        await chat.ask("three")
        assert chat.screen.branch.messages()[-1].facts["model"] == "gone"
        number = chat.screen.branch.id
    async with opened(path, pair=GONE) as chat:
        await open_chat(chat.screen, number)
        await chat.until("demo wrote this chat. gone answers now. F9 loads demo.")


@piloted
async def test_a_model_chosen_in_the_chat_is_not_questioned(path: Path) -> None:
    async with opened(path, ScriptedEngine("one"), ScriptedEngine("two"), pair=GONE) as chat:
        await chat.ask("Q")
        await chat.say("/model demo")
        await chat.until("demo is ready", gone="wrote this chat")


@piloted
async def test_numbers_of_another_model_are_not_the_loaded_ones(path: Path) -> None:
    number = await begun(path, GONE)
    async with opened(path, ScriptedEngine("two words"), pair=DEMO) as chat:
        await open_chat(chat.screen, number)
        await chat.until("demo is ready")
        assert chat.screen.transcript.passes(chat.session.signature()) == []
        assert "context" not in chat.seen()
        await chat.press("f2")
        await chat.until("demo answers now; the last reply here is by gone", "There are no numbers here yet")
        await chat.press("escape")
        await chat.ask("Q2")
        await chat.until("context")
        own = chat.screen.query(MessageView).last().facts["measured"]["passes"]
        assert len(chat.screen.transcript.passes(chat.session.signature())) == own


def test_the_author_is_known_by_what_loads_it_and_of_old_replies_by_the_name() -> None:
    here, there = {MODEL: "m.gguf", "loads": "/a/m.gguf"}, {MODEL: "m.gguf", "loads": "/b/m.gguf"}
    assert is_other(here, there)
    assert is_other(here, None)
    assert not is_other({MODEL: "m.gguf"}, there)
    assert not is_other({}, None)
    assert loadable(here, []) == "/a/m.gguf"
    assert loadable({MODEL: "m.gguf"}, ["demo", "/c/m.gguf"]) == "/c/m.gguf"
    assert loadable({MODEL: "demo"}, []) == "demo"


def test_a_label_stands_where_the_author_changes() -> None:
    authors = ["", "a", "", "a", "", "b", "", ""]
    messages = [
        StoredMessage(i, i - 1, "assistant" if i % 2 else "user", "", {MODEL: name} if name else {})
        for i, name in enumerate(authors)
    ]
    assert [label_of(messages, each) for each in messages] == ["", "a", "", "", "", "b", "", ""]
    assert [label_of(messages[:5], each) for each in messages[:5]] == [""] * 5
