"""Replies in the terminal chat, by what is seen: they come, stop, go on, are kept, coloured and folded."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

from app.chats.branch import INTERRUPTED, ChatBranch
from app.chats.store import Store
from app.tui.widgets.message_view import MessageView
from runtime.engine import ChatPrompt, Message
from tests.support.scripted import ScriptedEngine
from tests.support.tui import chats_path, engine_of, opened, piloted, strips

path = chats_path


@piloted
async def test_a_reply_is_rendered_as_markdown_with_its_numbers(path: Path) -> None:
    async with opened(path, ScriptedEngine("Please use **this**:\n\n```python\nprint(1)\n```\n")) as chat:
        await chat.ask("How?")
        await chat.until(
            "How?",
            "use this:",
            "print(1)",
            "100 tok/s",
            "context 7/256",
            gone="guesses",  # of one guess nothing is told
        )
        assert "```" not in chat.seen()
        assert "**" not in chat.seen()


@piloted
async def test_the_screen_is_there_before_the_model_and_shows_its_progress(path: Path) -> None:
    go, engine = threading.Event(), ScriptedEngine("Late.")

    def slow(pair: Any, options: Any, on_progress: Any) -> ScriptedEngine:
        on_progress("target", 0.5)
        go.wait(5)
        return engine

    async with opened(path, slow, wait=False) as chat:
        await chat.until("Ask something", "Loading the target model of scripted", "50%")
        await chat.say("Early question")  # is answered once the model is there
        await chat.until("Early question")
        go.set()
        await chat.until("Late.")


@piloted
async def test_esc_stops_a_reply_and_keeps_what_came(path: Path) -> None:
    async with opened(path, ScriptedEngine("one two [wait]three four")) as chat:
        await chat.say("Count")
        await chat.until("one two")
        await chat.press("escape")
        await chat.idle()
        await chat.until("one two", "stopped")
        assert "three" not in chat.seen()
        assert chat.session.store.branch(2)[-1].content == "one two"


@piloted
async def test_what_came_of_a_running_reply_is_on_disk_within_a_second(path: Path) -> None:
    async with opened(path, ScriptedEngine("one two [wait]three")) as chat:
        await chat.say("Count")
        await chat.until("one two")
        await asyncio.sleep(1)
        other = Store(path)
        _, reply = other.branch(other.chats()[0].leaf)
        assert (reply.content, reply.facts["end"]) == ("one two", "interrupted: /continue goes on")
        other.close()


@piloted
async def test_a_reply_that_was_interrupted_says_so_until_something_follows(path: Path) -> None:
    store = Store(path)
    number = store.new_chat("Count")
    question = store.add_message(number, None, "user", "Count")
    store.update_message(store.add_message(number, question, "assistant", ""), "one", {"end": INTERRUPTED})
    store.close()
    async with opened(path, ScriptedEngine("two")) as chat:
        await chat.press("ctrl+o", "enter")
        await chat.until("interrupted: /continue goes on")
        await chat.ask("More")
        await chat.until("interrupted", "two", gone="/continue")


@piloted
async def test_whoever_has_scrolled_up_is_told_of_the_reply(path: Path) -> None:
    async with opened(path, ScriptedEngine("\n\n".join(["line"] * 40), "one [wait]two")) as chat:
        await chat.ask("First")
        await chat.say("Second")
        await chat.until("Second", "one")
        await chat.press("home")
        await chat.until("▌ First", "The reply continues below")
        engine_of(chat).go.set()
        await chat.until("The reply has ended below")
        await chat.press("end")
        await chat.until("one two", gone="below")


@piloted
async def test_esc_waits_for_no_engine(path: Path) -> None:
    go = threading.Event()
    engine = ScriptedEngine("two")
    answer, engine.answer = engine.answer, lambda *asked: (go.wait(5), answer(*asked))[1]  # type: ignore[method-assign]
    async with opened(path, engine) as chat:
        await chat.say("Q")
        await chat.until("Reading ")
        await chat.press("escape")
        await chat.until("stopped", gone="Reading ")
        await chat.press("ctrl+n")
        await chat.say("Q2")
        await chat.until("Q2", "Reading ", gone="is being written")
        go.set()
        await chat.until("two")


@piloted
async def test_one_key_colours_the_tokens_by_their_drafter(path: Path) -> None:
    async with opened(path, ScriptedEngine("mine theirs **mine**")) as chat:
        await chat.ask("Q")
        await chat.press("ctrl+t")
        await chat.until("■ a draft model", "mine theirs **mine**")
        styles = {segment.text.strip(): segment.style for strip in strips(chat.app) for segment in strip}
        assert styles["theirs"].color != styles["mine"].color  # type: ignore[union-attr]
        await chat.press("ctrl+t")
        await chat.until("mine theirs mine", gone="■ a draft model")


@piloted
async def test_colours_of_a_kept_chat_are_kept(path: Path) -> None:
    async with opened(path, ScriptedEngine("mine theirs mine")) as chat:
        await chat.ask("Q")
    async with opened(path) as chat:
        await chat.press("ctrl+o", "enter", "ctrl+t")
        await chat.until("■ a draft model", "mine theirs mine")
        pieces = chat.app.screen.query(MessageView).last().pieces
        assert [(piece.text, piece.drafter) for piece in pieces] == [("mine", ""), (" theirs", "model"), (" mine", "")]


@piloted
async def test_what_an_engine_held_back_comes_with_the_end(path: Path) -> None:
    async with opened(path, ScriptedEngine("one two[tail] three")) as chat:
        await chat.ask("Q")
        await chat.until("one two three")


@piloted
async def test_continue_goes_on_in_the_same_message(path: Path) -> None:
    async with opened(path, ScriptedEngine("one two three", " four five")) as chat:
        await chat.ask("/set max_tokens 2")
        await chat.ask("Count")
        await chat.until("one two", "cut off", gone="three")
        await chat.ask("/continue")
        await chat.until("one two four")
        assert engine_of(chat).asked[1][0] == ChatPrompt((Message("user", "Count"),), "one two", plain=True)


@piloted
async def test_a_reply_that_goes_on_and_gets_nothing_more_is_what_it_was(path: Path) -> None:
    async with opened(path, ScriptedEngine("one two", "[wait]more", "[fail]", "")) as chat:
        await chat.ask("Count")
        before = chat.session.store.branch(2)[-1]
        await chat.say("/continue")
        await chat.until("Reading ")
        await chat.press("escape")
        await chat.idle()
        assert chat.session.store.branch(2)[-1] == before
        await chat.ask("/continue")
        await chat.until("x.gguf does not answer.", "one two", gone="broken off")
        await chat.ask("/continue")
        await chat.until("The reply had come to its end, so nothing was added.", "one two")
        assert chat.session.store.branch(2)[-1] == before


@piloted
async def test_a_reply_that_was_interrupted_before_its_first_word_can_go_on(path: Path) -> None:
    store = Store(path)
    store.add_message(number := store.new_chat("Count"), None, "user", "Count")
    branch = ChatBranch(store, number)
    branch.begin_reply()
    store.close()
    async with opened(path, ScriptedEngine("one two")) as chat:
        await chat.press("ctrl+o", "enter")
        await chat.until("interrupted: /continue goes on")
        await chat.ask("/continue")
        await chat.until("one two", gone="interrupted")
        assert engine_of(chat).asked[0][0] == [Message("user", "Count")]


@piloted
async def test_thinking_is_folded_and_not_sent_again(path: Path) -> None:
    async with opened(path, ScriptedEngine("<think>\nsecretly pondering\n</think>\n\nForty-two.")) as chat:
        await chat.ask("Q")
        await chat.until("Thinking, 2 words", "Forty-two.", gone="secretly")
        chat.app.screen.query(MessageView).last().focus()
        await chat.press("enter")
        await chat.until("secretly pondering")
        await chat.press("escape")
        await chat.ask("More")
        assert engine_of(chat).asked[1][0][1].content == "Forty-two."


@piloted
async def test_what_looks_like_html_is_text(path: Path) -> None:
    async with opened(path, ScriptedEngine("A List<String> is <b>bold</b>\n\n<div>a block</div>")) as chat:
        await chat.ask("Q")
        await chat.until("A List<String> is <b>bold</b>", "<div>a block</div>")


@piloted
async def test_an_engine_error_is_a_sentence_and_the_chat_goes_on(path: Path) -> None:
    async with opened(path, ScriptedEngine("[fail]", "fine")) as chat:
        await chat.ask("Q")
        await chat.until("no reply came", "x.gguf does not answer.", gone="is ready")
        await chat.ask("Q2")
        await chat.until("fine", gone="does not answer")
        assert engine_of(chat).asked[1][0] == [Message("user", "Q\n\nQ2")]


@piloted
async def test_a_question_that_is_too_long_is_left_out_of_what_follows(path: Path) -> None:
    async with opened(path, ScriptedEngine("fine", "shorter")) as chat:
        await chat.ask("word " * 300)
        await chat.until("The question is too long: the prompt has 303 tokens or more", "/edit shortens it", "left out")
        await chat.ask("Q2")
        await chat.until("fine", gone="The question is too long:")
        assert engine_of(chat).asked[0][0] == [Message("user", "Q2")]


@piloted
async def test_a_reply_that_fills_the_context_is_not_said_to_go_on(path: Path) -> None:
    async with opened(path, ScriptedEngine("one two [full] three")) as chat:
        await chat.ask("Q")
        await chat.until("cut off: the context is full", gone="/continue")


@piloted
async def test_escape_sequences_and_broken_markdown_are_inert(path: Path) -> None:
    async with opened(path, ScriptedEngine("a\x1b]0;title\x07b [bold]c[/] \x1b[31mred `` ``` | x |\n|-")) as chat:
        await chat.ask("[red]Q[/red] \x1b[2J")
        await chat.until("␛]0;title␇b", "[bold]c[/]", "[red]Q[/red]")
        assert "\x1b" not in chat.seen()
