"""The model behind the terminal chat, by what is seen: it fails, is switched, is short of memory; once a real one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event

from textual.widgets import Markdown

from app.tui.widgets.message_view import MessageView
from bench.instruments.toy import facts
from runtime.core.errors import ModelError, NoMemoryError
from runtime.engine import Message, Options, Sampling
from runtime.engine.output import Status
from runtime.engine.process.client import EngineProcess
from runtime.models.registry import Pair, load_registry
from tests.support.scripted import ScriptedEngine
from tests.support.tui import chats_path, opened, piloted

path = chats_path


@piloted
async def test_a_model_that_fails_to_load_says_why_and_another_can_be_taken(path: Path) -> None:
    second = ScriptedEngine("From the second.")
    async with opened(path, ModelError("x.gguf is damaged. Download it again."), second, wait=False) as chat:
        await chat.until("x.gguf is damaged. Download it again.", "Load another model")
        await chat.press("escape")
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
        await chat.until("The reply was stopped to load demo. /continue continues it.")
        await chat.until("Slipstream · demo", "stopped")
        assert first.closed
        await chat.say("/model nothing")
        await chat.until("There is no model 'nothing'")


@piloted
async def test_what_is_given_up_for_want_of_memory_is_said_while_it_lasts(path: Path) -> None:
    engine = ScriptedEngine("Hello there, you.")
    engine.facts = facts(left_out="memory is short: left out the draft model: all of it needs 900 MiB")
    async with opened(path, engine) as chat:
        await chat.until("memory is short: left out the draft model")
        given_up = "the draft model was unloaded, because this machine had 900 MiB of memory left"
        engine.facts, engine.status = facts(), Status(memory_level="TIGHT", given_up=given_up)
        await chat.ask("Q")
        await chat.until("tok/s", f"memory is short: {given_up}")
        chat.screen.host.look_at_memory()
        engine.status = Status()
        chat.screen.host.look_at_memory()
        await chat.until("Hello there, you.", gone="memory")
        assert "back" in chat.session.log[-1]


@piloted
async def test_the_demo_pair_says_in_the_chat_what_the_engine_says(path: Path, demo_process: EngineProcess) -> None:
    question = "What does os.path.join do?"
    chunks = demo_process.reply([Message("user", question)], Sampling(temperature=0))
    expected = "".join(chunk.text for chunk in chunks)
    async with opened(path, lambda *_: demo_process, pair=load_registry()["demo"]) as chat:
        await chat.ask(question)
        turn = chat.app.screen.query(MessageView).last()
        assert turn.text == expected
        assert turn.query_one(Markdown).source == expected
        assert "tok/s" in chat.seen()


@piloted
async def test_a_model_that_cannot_be_loaded_leaves_the_one_that_works(path: Path) -> None:
    first = ScriptedEngine("Still here.")
    async with opened(path, first, ModelError("demo is damaged."), pair=named("first")) as chat:
        await chat.say("/model demo")
        await chat.until("demo is damaged.", "Slipstream · first")
        await chat.ask("Q")
        await chat.until("Still here.", "Slipstream · first")
        assert not first.closed


@piloted
async def test_of_two_models_chosen_at_once_the_later_one_answers(path: Path) -> None:
    first, slow, third = ScriptedEngine("first"), ScriptedEngine("slow"), ScriptedEngine("third")
    is_wanted = Event()

    def open_slowly(pair: Pair, options: Options, on_progress: Callable[[str, float], bool]) -> ScriptedEngine:
        is_wanted.wait(10)
        return slow

    async with opened(path, first, open_slowly, third, pair=named("first")) as chat:
        await chat.say("/model demo")
        await chat.until("Slipstream · first")
        chat.screen.host.load(named("third"))
        is_wanted.set()
        await chat.ask("Q")
        await chat.until("third", "Slipstream · third")
        assert (first.closed, slow.closed, third.closed) == (True, True, False)


@piloted
async def test_the_reasons_name_the_model_that_answers_and_the_one_that_wrote(path: Path) -> None:
    async with opened(path, ScriptedEngine("one two"), ScriptedEngine("three"), pair=named("first")) as chat:
        await chat.ask("Q")
        await chat.press("f2")
        await chat.until("first", "Is it faster?", gone="answers now")
        await chat.press("escape")
        await chat.say("/model demo")
        await chat.until("demo is ready")
        await chat.press("f2")
        await chat.until("demo answers now; the last reply here is by first")


@piloted
async def test_esc_leaves_a_model_that_is_being_loaded(path: Path) -> None:
    first, slow, is_wanted = ScriptedEngine("Still here."), ScriptedEngine("slow"), Event()

    def open_slowly(pair: Pair, options: Options, on_progress: Callable[[str, float], bool]) -> ScriptedEngine:
        is_wanted.wait(10)
        return slow

    async with opened(path, first, open_slowly, pair=named("first")) as chat:
        await chat.say("/model demo")
        await chat.until("Loading demo")
        await chat.press("escape")
        await chat.until("first still answers", gone="Loading demo")
        await chat.ask("Q")
        is_wanted.set()
        await chat.until("Still here.", "Slipstream · first")
        await chat.screen.workers.wait_for_complete()
        await chat.pilot.pause()
        assert (first.closed, slow.closed) == (False, True)


@piloted
async def test_where_memory_does_not_suffice_for_two_models_the_old_one_goes_first(path: Path) -> None:
    first, second = ScriptedEngine("first"), ScriptedEngine("second")
    async with opened(path, first, NoMemoryError("too little"), second, pair=named("first")) as chat:
        await chat.say("/model demo")
        await chat.until("Slipstream · demo", "demo is ready")
        assert first.closed


@piloted
async def test_where_it_fails_all_the_same_the_old_one_comes_back(path: Path) -> None:
    first, again, full = ScriptedEngine("first"), ScriptedEngine("again"), NoMemoryError("demo needs too much.")
    async with opened(path, first, full, full, again, pair=named("first")) as chat:
        await chat.say("/model demo")
        await chat.until("demo needs too much.", "Slipstream · first")
        await chat.ask("Q")
        await chat.until("again")


@piloted
async def test_a_typed_path_is_refused_before_anything_is_loaded(path: Path, tmp_path: Path) -> None:
    (tmp_path / "torn.gguf").write_bytes(b"GGUF")
    async with opened(path, ScriptedEngine("Still here."), pair=named("first")) as chat:
        await chat.say(f"/model {tmp_path}/torn.gguf")
        await chat.until("torn.gguf", "Slipstream · first", gone="Loading")
        await chat.ask("Q")
        await chat.until("Still here.")


@piloted
async def test_without_a_model_a_question_is_kept_and_gets_a_sentence(path: Path) -> None:
    async with opened(path, ModelError("x.gguf is damaged."), wait=False) as chat:
        await chat.until("x.gguf is damaged.", "Slipstream · no model", "Load another model")
        await chat.press("escape")
        await chat.say("Who are you?")
        await chat.until("No model is loaded", "/model chooses one", "Who are you?")


def named(name: str) -> Pair:
    return Pair(name, Path("none.gguf"), temperature=0.0)
