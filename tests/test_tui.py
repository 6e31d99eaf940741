"""The terminal chat, by what is seen: replies, keys, commands, branches, what must go wrong.

The engine is scripted but for one test.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pyperclip
import pytest
from textual._compositor import LayoutUpdate
from textual.events import Key, Resize
from textual.geometry import Size
from textual.widgets import Markdown

from app.chats.store import Store
from app.tui.panel import SidePanel
from app.tui.prompt import PromptBox
from app.tui.turn import Turn
from runtime.core.errors import ModelError
from runtime.engine import Engine, Ids, Message, Sampling
from runtime.models.registry import load_registry
from tests.conftest import OpenEngine
from tests.support.scripted import ScriptedEngine
from tests.support.tui import PATIENCE, opened, piloted


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the chats are; exports and attachments go by the folder of the test, and the desktop's clipboard is a file
    in it.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pyperclip, "copy", lambda text: (tmp_path / "desktop").write_text(text, encoding="utf8"))
    return tmp_path / "chats.db"


@piloted
async def test_a_reply_is_rendered_as_markdown_with_its_numbers(path: Path) -> None:
    async with opened(path, ScriptedEngine("Please use **this**:\n\n```python\nprint(1)\n```\n")) as chat:
        await chat.ask("How?")
        await chat.until(
            "How?",
            "use this:",
            "print(1)",
            "100 tok/s · 1.00× plain · 100% accepted",
            "K 1 model · 1.5/pass",
            "ctx 7/256",
        )
        assert "```" not in chat.seen()
        assert "**" not in chat.seen()


@piloted
async def test_the_screen_is_there_before_the_model_and_shows_its_progress(path: Path) -> None:
    import threading

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
        assert [each.content for each in other.branch(other.chats()[0].leaf)] == ["Count", "one two"]
        other.close()


@piloted
async def test_one_key_colours_the_tokens_by_their_drafter(path: Path) -> None:
    async with opened(path, ScriptedEngine("mine theirs **mine**")) as chat:
        await chat.ask("Q")
        await chat.press("ctrl+t")
        await chat.until("■ model", "mine theirs **mine**")
        styles = {
            segment.text.strip(): segment.style
            for strip in chat.app.screen._compositor.render_strips()
            for segment in strip
        }
        assert styles["theirs"].color != styles["mine"].color  # type: ignore[union-attr]
        await chat.press("ctrl+t")
        await chat.until("mine theirs mine", gone="■ model")


@piloted
async def test_colours_of_a_kept_chat_are_kept(path: Path) -> None:
    async with opened(path, ScriptedEngine("mine theirs mine")) as chat:
        await chat.ask("Q")
    async with opened(path) as chat:
        await chat.press("ctrl+o", "enter", "ctrl+t")
        await chat.until("■ model", "mine theirs mine")
        pieces = chat.app.screen.query(Turn).last().pieces
        assert [(piece.text, piece.drafter) for piece in pieces] == [("mine", ""), (" theirs", "model"), (" mine", "")]


@piloted
async def test_the_reason_is_said_when_speculation_is_off(path: Path) -> None:
    async with opened(path, ScriptedEngine("one two three", drafter="")) as chat:
        await chat.ask("Q")
        assert "accepted" not in chat.seen()
        await chat.until("K 0")
        await chat.say("Q")
        await chat.until("plain decode:", gone="accepted")


@piloted
async def test_a_burst_of_keys_keeps_its_order(path: Path) -> None:
    async with opened(path) as chat:
        for key in "hi":
            chat.app.post_message(Key(key, key))
        chat.app.post_message(Key("ctrl+j", "\n"))
        chat.app.post_message(Key("x", "x"))
        chat.app.post_message(Key("enter", "\r"))
        await chat.until("Hello.")
        assert engine_of(chat).asked[0][0][-1].content == "hi\nx"


@piloted
async def test_several_lines_history_and_its_search(path: Path) -> None:
    async with opened(path, ScriptedEngine("ok")) as chat:
        await chat.ask("first\nline")
        await chat.ask("second")
        assert [turns[-1].content for turns, _, _ in engine_of(chat).asked] == ["first\nline", "second"]
        box = chat.app.screen.query_one("#prompt", PromptBox)
        await chat.type("draft")
        await chat.press("up")
        assert box.text == "second"
        await chat.press("up", "up")
        assert box.text == "first\nline"
        await chat.press("down", "down", "down")
        assert box.text == "draft"
        await chat.press("ctrl+r", "f", "i", "enter")
        assert box.text == "first\nline"


def engine_of(chat: Any) -> ScriptedEngine:
    return chat.session.engine  # type: ignore[no-any-return]


@piloted
async def test_a_long_paste_is_a_chip_and_is_sent_whole(path: Path) -> None:
    async with opened(path) as chat:
        long = "\n".join(f"line {i}" for i in range(20))
        await chat.paste("short ")
        await chat.paste(long)
        await chat.until("short [Pasted #1: 20 lines, 149 characters]")
        await chat.press("enter")
        await chat.idle()
        assert engine_of(chat).asked[0][0][-1].content == "short " + long
        await chat.until("more lines")


@piloted
async def test_regenerating_keeps_both_versions_and_arrows_go_between_them(path: Path) -> None:
    async with opened(path, ScriptedEngine("first answer", "second answer")) as chat:
        await chat.ask("Q")
        await chat.press("ctrl+g")
        await chat.until("second answer", "version 2 of 2")
        await chat.idle()
        assert [message.content for message in engine_of(chat).asked[1][0]] == ["Q"]
        chat.app.screen.query(Turn).last().focus()
        await chat.press("left")
        await chat.until("first answer", "version 1 of 2", gone="second answer")


@piloted
async def test_a_key_that_bounces_makes_one_reply_at_a_time(path: Path) -> None:
    async with opened(path, ScriptedEngine("one", "two [wait]three")) as chat:
        await chat.ask("Q")
        chat.app.post_message(Key("ctrl+g", None))
        chat.app.post_message(Key("ctrl+g", None))
        await chat.until("two", "still to come")
        assert len(engine_of(chat).asked) == 2
        assert len(chat.app.screen.query(Turn)) == 2


@piloted
async def test_what_an_engine_held_back_comes_with_the_end(path: Path) -> None:
    async with opened(path, ScriptedEngine("one two[tail] three")) as chat:
        await chat.ask("Q")
        await chat.until("one two three")


@piloted
async def test_an_edited_question_branches_the_chat(path: Path) -> None:
    async with opened(path, ScriptedEngine("one", "two", "three")) as chat:
        await chat.ask("cats")
        await chat.ask("more")
        chat.app.screen.query(Turn).first().focus()
        await chat.press("e")
        await chat.until("Editing")
        await chat.ask(" dogs")
        await chat.until("cats dogs", "three", "version 2 of 2", gone="more")
        assert [message.content for message in engine_of(chat).asked[2][0]] == ["cats dogs"]
        chat.app.screen.query(Turn).first().focus()
        await chat.press("left")
        await chat.until("cats", "one", "more", "two")


@piloted
async def test_esc_leaves_editing_without_a_trace(path: Path) -> None:
    async with opened(path) as chat:
        await chat.ask("Q")
        await chat.press("f4")
        await chat.until("Editing")
        await chat.press("escape")
        await chat.until(gone="Editing")
        await chat.ask("next")
        assert [message.content for message in engine_of(chat).asked[1][0]] == ["Q", "Hello.", "next"]


@piloted
async def test_continue_goes_on_in_the_same_message(path: Path) -> None:
    async with opened(path, ScriptedEngine("one two three", " four five")) as chat:
        await chat.ask("/set max_tokens 2")
        await chat.ask("Count")
        await chat.until("one two", "cut off", gone="three")
        await chat.ask("/continue")
        await chat.until("one two four")
        assert engine_of(chat).asked[1][0] == Ids((5, 0, 0, 0, 3, 3))  # "Count", the template, what was said


@piloted
async def test_copying_gives_raw_text_and_single_code_blocks(path: Path) -> None:
    reply = "See:\n\n```py\nx = '**'\n```\n\nDone."
    async with opened(path, ScriptedEngine(reply)) as chat:
        await chat.ask("Q")
        await chat.press("f5")
        assert chat.copied() == reply
        await chat.app.workers.wait_for_complete()
        assert (path.parent / "desktop").read_text(encoding="utf8") == reply
        await chat.ask("/copy code")
        assert chat.copied() == "x = '**'\n"
        chat.app.screen.query(Turn).first().focus()
        await chat.press("c")
        assert chat.copied() == "Q"


@piloted
async def test_the_system_prompt_is_sent_first_and_kept_with_the_chat(path: Path) -> None:
    async with opened(path) as chat:
        await chat.ask("/system Be brief.")
        await chat.ask("Q")
        assert engine_of(chat).asked[0][0] == [Message("system", "Be brief."), Message("user", "Q")]
    async with opened(path) as chat:
        await chat.press("ctrl+o", "enter", "f6")
        await chat.until("System prompt", "Be brief.")


@piloted
async def test_a_named_file_is_attached_and_a_bad_one_refused(path: Path) -> None:
    Path("note.py").write_text("x = 1\n```\n")
    Path("bad.bin").write_bytes(b"\xff\xfe\x00")
    async with opened(path) as chat:
        await chat.type("Explain @no")
        await chat.press("tab", "enter")
        await chat.idle()
        assert engine_of(chat).asked[0][0][-1].content == "Explain @note.py\n\nnote.py:\n````py\nx = 1\n```\n````"
        await chat.say("And @bad.bin")
        await chat.until("is not UTF-8 text", "And @bad.bin")
        assert len(engine_of(chat).asked) == 1
        await chat.press("ctrl+a", "ctrl+k")
        await chat.ask("Mail me @home")
        assert engine_of(chat).asked[1][0][-1].content == "Mail me @home"


@piloted
async def test_an_unknown_command_names_the_nearest(path: Path) -> None:
    async with opened(path) as chat:
        await chat.say("/expert")
        await chat.until("no command /expert", "'/export'")
        assert engine_of(chat).asked == []


@piloted
async def test_settings_reach_the_engine_and_senseless_ones_are_refused(path: Path) -> None:
    async with opened(path) as chat:
        await chat.ask("/set temperature 0.5")
        await chat.ask("/set seed 7")
        await chat.ask("Q")
        assert (engine_of(chat).asked[0][1].temperature, engine_of(chat).asked[0][1].seed) == (0.5, 7)
        await chat.say("/set temperature warm")
        await chat.until("'warm' is not a number")
        await chat.say("/set temprature 1")
        await chat.until("Did you mean 'temperature'?")


@piloted
async def test_chats_are_titled_found_renamed_and_deleted(path: Path) -> None:
    async with opened(path, ScriptedEngine("Bananas are yellow.", "Plums are blue.")) as chat:
        await chat.ask("About fruit")
        await chat.until("Slipstream · scripted · About fruit")
        await chat.press("ctrl+n")
        await chat.until("new chat", gone="Bananas")
        await chat.ask("Other fruit")
        await chat.press("ctrl+o")
        await chat.until("About fruit", "Other fruit")
        await chat.type("banan")
        await chat.until("About fruit", "Bananas are yellow")
        await chat.press("ctrl+e", "ctrl+a", "ctrl+k")
        await chat.type("Yellow things")
        await chat.press("enter")
        await chat.until("Yellow things")
        await chat.press("enter")
        await chat.until("Slipstream · scripted · Yellow things", "Bananas are yellow.")
        await chat.press("ctrl+o")
        await chat.type("plum")
        await chat.press("ctrl+d", "ctrl+d")
        await chat.press("escape")
        assert [each.title for each in chat.session.store.chats()] == ["Yellow things"]


@piloted
async def test_exports_are_written_and_nothing_is_overwritten(path: Path) -> None:
    async with opened(path) as chat:
        await chat.say("/export")
        await chat.until("nothing to export yet")
        await chat.ask("Q")
        await chat.ask("/export out.json")
        assert json.loads(Path("out.json").read_text())["messages"][-1] == {"role": "assistant", "content": "Hello."}
        await chat.say("/export out.json")
        await chat.until("exists already")


@piloted
async def test_thinking_is_folded_and_not_sent_again(path: Path) -> None:
    async with opened(path, ScriptedEngine("<think>\nsecretly pondering\n</think>\n\nForty-two.")) as chat:
        await chat.ask("Q")
        await chat.until("Thinking, 2 words", "Forty-two.", gone="secretly")
        chat.app.screen.query(Turn).last().focus()
        await chat.press("enter")
        await chat.until("secretly pondering")
        await chat.press("escape")
        await chat.ask("More")
        assert engine_of(chat).asked[1][0][1].content == "Forty-two."


@piloted
async def test_why_shows_the_costs_the_choice_and_what_was_observed(path: Path) -> None:
    async with opened(path, ScriptedEngine("one two three four"), size=(160, 48)) as chat:
        await chat.ask("Q")
        await chat.press("f2")
        await chat.until(
            "T(n)",
            "10.00 1.00",
            "30.00 3.00",
            "plain decode",
            "Acceptance by depth",
            "ledger of probes",
            "100%",
            "1 1 1.80 2.00 100%",
        )
        await chat.press("escape")
        await chat.until("one two three four")


@piloted
async def test_the_side_panel_draws_draft_lengths(path: Path) -> None:
    async with opened(path, ScriptedEngine("one two three four")) as chat:
        await chat.ask("Q")
        assert "draft length" not in chat.seen()
        await chat.press("ctrl+b")
        await chat.until("K, draft length: 0", "acceptance: 100%", "33% model", "67% plain decode")
        assert chat.app.screen.query_one(SidePanel).region.width > 20


@piloted
async def test_what_is_given_up_for_want_of_memory_is_said_while_it_lasts(path: Path) -> None:
    engine = ScriptedEngine("Hello there, you.")
    engine.left_out = "memory is short: left out the draft model: all of it needs 900 MiB"
    async with opened(path, engine) as chat:
        await chat.until("memory is short: left out the draft model")
        engine.left_out, engine.memory_level = "", "TIGHT"
        engine.given_up = "the model drafter was given up, because this machine had 900 MiB of memory left"
        await chat.ask("Q")
        await chat.until("tok/s · memory TIGHT", f"memory is TIGHT: {engine.given_up}")
        engine.tend = lambda: (setattr(engine, "given_up", ""), setattr(engine, "memory_level", "OK"))[0]  # type: ignore[assignment]
        chat.app.screen_stack[0].tend_memory()  # type: ignore[attr-defined]
        await chat.until("Hello there, you.", gone="memory")
        assert "back" in chat.session.log[-1]


@piloted
async def test_a_model_that_fails_to_load_says_why_and_another_can_be_taken(path: Path) -> None:
    second = ScriptedEngine("From the second.")
    async with opened(path, ModelError("x.gguf is damaged. Download it again."), second, wait=False) as chat:
        await chat.until("x.gguf is damaged. Download it again.", "Ctrl+L chooses another model")
        await chat.press("ctrl+l")
        await chat.until("Load another model", "demo")
        await chat.press("enter")
        await chat.until("Slipstream · demo", "demo is ready", gone="damaged")
        await chat.ask("Q")
        await chat.until("From the second.")


@piloted
async def test_switching_stops_the_reply_and_closes_the_old_pair(path: Path) -> None:
    first, second = ScriptedEngine("one [wait]two"), ScriptedEngine("new model")
    async with opened(path, first, second) as chat:
        await chat.say("Q")
        await chat.until("one")
        await chat.ask("/model demo")
        await chat.until("Slipstream · demo", "stopped")
        assert first.closed
        await chat.say("/model nothing")
        await chat.until("There is no pair 'nothing'")


@piloted
async def test_an_engine_error_is_a_sentence_and_the_chat_goes_on(path: Path) -> None:
    async with opened(path, ScriptedEngine("[fail]", "fine")) as chat:
        await chat.ask("Q")
        await chat.until("the context holds 256. Shorten it.")
        await chat.ask("Q2")
        await chat.until("fine", gone="Shorten it")
        assert engine_of(chat).asked[1][0] == [Message("user", "Q\n\nQ2")]


@piloted
async def test_escape_sequences_and_broken_markdown_are_inert(path: Path) -> None:
    async with opened(path, ScriptedEngine("a\x1b]0;title\x07b [bold]c[/] \x1b[31mred `` ``` | x |\n|-")) as chat:
        await chat.ask("[red]Q[/red] \x1b[2J")
        await chat.until("␛]0;title␇b", "[bold]c[/]", "[red]Q[/red]")
        assert "\x1b" not in chat.seen()


@piloted
async def test_an_unwritable_store_is_said_and_chatting_goes_on(path: Path) -> None:
    path.mkdir()
    async with opened(path) as chat:
        await chat.until("kept in memory only")
        await chat.ask("Q")
        await chat.until("Hello.", "kept in memory only")


@piloted
async def test_a_tiny_terminal_and_resizes_in_mid_reply_are_survived(path: Path) -> None:
    async with opened(path, ScriptedEngine("one two [wait]three"), size=(20, 5)) as chat:
        await chat.say("Q")
        await chat.until("one two")
        for size in ((160, 48), (5, 2), (80, 24)):
            await chat.pilot.resize_terminal(*size)
            await chat.pilot.pause()
        engine_of(chat).go.set()
        await chat.until("one two three")
        for key in ("f1", "f2", "ctrl+o"):
            await chat.pilot.resize_terminal(20, 5)
            await chat.press(key, "escape")


@piloted
async def test_a_terminal_that_was_another_size_for_a_moment_is_drawn_whole(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(path) as chat:
        drawn: list[object] = []
        monkeypatch.setattr(chat.app, "_display", lambda screen, frame: drawn.append(frame))
        for size in (Size(20, 5), Size(80, 24)):
            chat.app.post_message(Resize(size, size))
        end = time.monotonic() + PATIENCE
        while not any(isinstance(frame, LayoutUpdate) and frame.region.size == (80, 24) for frame in drawn):
            assert time.monotonic() < end
            await asyncio.sleep(0.02)


@piloted
async def test_help_names_every_command_and_keys_of_the_keymap(path: Path) -> None:
    async with opened(path, size=(120, 60), keymap={"chat.why": "f9"}) as chat:
        await chat.press("f1")
        await chat.until("/regenerate", "Ctrl+T /tokens", "F9 /why")
        await chat.press("escape", "f9")
        await chat.until("T(n)")


@piloted
async def test_the_palette_runs_commands(path: Path) -> None:
    async with opened(path) as chat:
        await chat.press("ctrl+p")
        await chat.type("graphs")
        await chat.until("Live graphs")
        await chat.press("enter")
        await chat.until("K, draft length")


@piloted
async def test_one_key_changes_between_dark_and_light(path: Path) -> None:
    async with opened(path) as chat:
        dark = chat.app.screen.styles.background.brightness
        await chat.press("f3")
        assert chat.app.screen.styles.background.brightness > dark + 0.5


@piloted
async def test_a_chat_of_five_thousand_lines_is_scrolled_from_its_end_to_its_beginning(path: Path) -> None:
    store = Store(path)
    number, leaf = store.new_chat("long"), None
    for i in range(50):
        leaf = store.say(number, leaf, "user", f"Question {i}.")
        leaf = store.say(
            number, leaf, "assistant", "\n".join(["```", *(f"line {100 * i + j}." for j in range(100)), "```"])
        )
    store.close()
    async with opened(path) as chat:
        await chat.press("ctrl+o", "enter")
        await chat.until("line 4999.")
        for n in (80, 100):
            chat.app.screen.query_one("#earlier").focus()
            await chat.press("enter")
            await chat.until(f"Question {30 if n == 80 else 10}.")
            assert len(chat.app.screen.query(Turn)) == n
        transcript = chat.app.screen.query_one("#transcript")
        assert transcript.virtual_size.height > 5000
        await chat.press("pageup")
        await chat.until("line 999.")
        transcript.scroll_home(animate=False)
        await chat.until("Question 0.", "line 0.")
        transcript.scroll_end(animate=False)
        await chat.until("line 4999.")


@piloted
async def test_the_theme_is_there_again_at_the_next_start(path: Path) -> None:
    async with opened(path) as chat:
        await chat.press("f3")
        await chat.pilot.pause()
    async with opened(path) as chat:
        assert not chat.app.current_theme.dark
        assert chat.app.screen.styles.background.brightness > 0.5


@piloted
async def test_ctrl_c_twice_leaves_and_once_does_not(path: Path) -> None:
    async with opened(path) as chat:
        await chat.press("ctrl+c")
        await chat.until("Press Ctrl+C again")
        assert chat.app.is_running
        await chat.press("ctrl+c")
        assert not chat.app.is_running or chat.app._exit


@piloted
async def test_the_log_tells_what_was_loaded_and_said(path: Path) -> None:
    async with opened(path) as chat:
        await chat.ask("Q")
        await chat.press("f8")
        await chat.until("loaded scripted", "256 tokens of context", "reply: 100 tok/s")


@piloted
async def test_the_demo_pair_says_in_the_chat_what_the_engine_says(path: Path, open_demo: OpenEngine) -> None:
    question = "What does os.path.join do?"
    expected = "".join(chunk.text for chunk in open_demo().reply([Message("user", question)], Sampling(temperature=0)))
    async with opened(path, Engine, pair=load_registry()["demo"]) as chat:
        await chat.ask(question)
        turn = chat.app.screen.query(Turn).last()
        assert turn.text == expected
        assert turn.query_one(Markdown).source == expected
        assert "tok/s" in chat.seen()
        assert chat.session.engine is not None
        chat.session.engine.close()
