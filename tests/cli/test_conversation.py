"""`slipstream run` without a model's name, with files, and in a conversation that began before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.chats.authors import RECENT, recent_models
from app.chats.branch import ChatBranch
from app.chats.database import default_path, keep_value
from app.chats.store import Store
from app.cli import choices, conversation, oneshot
from app.tui.attach import attach
from runtime.engine import Message
from runtime.models.registry import load_registry
from tests.support.cli import QUESTION, failing, slipstream

pytestmark = pytest.mark.usefixtures("models_here")
SHORT = "--max-tokens", "4"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[oneshot.OneshotRequest]:
    """The requests that `run` made."""
    requests = list[oneshot.OneshotRequest]()
    printed = oneshot.printed

    def noted(pair: object, options: object, request: oneshot.OneshotRequest, *more: object) -> oneshot.PrintedReply:
        requests.append(request)
        return printed(pair, options, request, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(oneshot, "printed", noted)
    return requests


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A model file of one's own."""
    (path := tmp_path / "mine.gguf").symlink_to(load_registry()["demo"].target.resolve())
    return path


def test_on_a_machine_with_nothing_else_the_demo_answers_without_a_word() -> None:
    done = slipstream("run", QUESTION, *SHORT)
    assert done.stdout.strip()
    assert done.stderr == ""


def test_the_model_that_was_used_last_answers_and_is_named(mine: Path) -> None:
    assert slipstream("run", "-m", str(mine), "Hello", *SHORT).returncode == 0
    assert [*recent_models()] == [str(mine)]
    done = slipstream("run", "Hello", *SHORT)
    assert "mine.gguf answers, the model used last. -m names another." in done.stderr
    assert slipstream("run", "-m", "demo", "Hello", *SHORT).stderr == ""
    assert "mine.gguf answers" in slipstream("run", "Hello", *SHORT).stderr  # the demo is for trying


def test_a_file_that_was_used_is_in_the_list_of_models(mine: Path) -> None:
    assert str(mine) not in slipstream("models", "list").stdout
    slipstream("run", "-m", str(mine), "Hello", *SHORT)
    assert str(mine) in slipstream("models", "list").stdout
    used = json.loads(slipstream("models", "list", "--json").stdout)["used"]
    assert used == [{"path": str(mine), "bytes": mine.stat().st_size}]


def test_a_model_that_was_used_last_and_is_gone_is_named_with_where_the_name_is_from() -> None:
    keep_value(RECENT, "/gone/away.gguf")
    assert "The model used last cannot be loaded" in failing("run", "Hello")


def test_the_model_of_the_settings_answers_before_the_one_used_last(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    keep_value(RECENT, "/gone/away.gguf")
    (folder := tmp_path / "config" / "slipstream").mkdir(parents=True)
    (folder / "settings.toml").write_text(f'model = "{mine}"\n')
    assert "mine.gguf answers, the model of the settings" in slipstream("run", "Hello", *SHORT).stderr


def test_the_next_question_continues_the_conversation_with_its_model(
    mine: Path, asked: list[oneshot.OneshotRequest]
) -> None:
    first = slipstream("run", "-m", "demo", "--system", "Be brief.", QUESTION, *SHORT).stdout
    keep_value(RECENT, str(mine))
    second = slipstream("run", "-c", "And os.path.split?", *SHORT).stdout
    slipstream("run", "--continue", "--system", "Be long.", "Why?", *SHORT)
    system, *turns = asked[-1].conversation
    said = [QUESTION, first.strip(), "And os.path.split?", second.strip(), "Why?"]
    assert system == Message("system", "Be long.")
    assert [each.content.strip() for each in turns] == said
    assert [each.role for each in turns] == ["user", "assistant"] * 2 + ["user"]


def test_there_must_be_something_to_continue() -> None:
    assert "no conversation to continue yet" in failing("run", "-c", "And?")
    slipstream("run", QUESTION, "--raw", *SHORT)
    assert "no conversation to continue yet" in failing("run", "-c", "And?")
    assert "There are no chats yet" in failing("run", "--chat", "soup", "And?")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("-c", "--chat", "soup", "And?"), "give one of them"),
        (("-c", "--raw", "And?"), "leave out --raw"),
        (("-c", "4096", QUESTION), "--context N"),
    ],
)
def test_options_that_contradict_each_other_are_refused(args: tuple[str, ...], words: str) -> None:
    assert words in " ".join(failing("run", *args, code=2).replace("│", " ").split())


def test_what_is_kept_of_the_last_run_can_be_forgotten() -> None:
    slipstream("run", QUESTION, *SHORT)
    assert (default_path().stat().st_mode & 0o777) == 0o600
    slipstream("forget")
    assert "no conversation to continue yet" in failing("run", "-c", "And?")


def chat(title: str, *turns: str) -> int:
    """Store a chat of that title, with these questions and replies in turn; return its number."""
    store = Store(default_path())
    branch = ChatBranch(store)
    for question, reply in zip(turns[::2], turns[1::2], strict=True):
        branch.ask(question)
        message = branch.begin_reply({"model": "demo", "loads": "demo"})
        store.update_message(message.id, reply, {"model": "demo", "loads": "demo"})
    assert branch.id is not None
    store.rename(branch.id, title)
    store.close()
    return branch.id


def test_a_chat_is_continued_by_its_title_and_has_the_turn_afterwards(asked: list[oneshot.OneshotRequest]) -> None:
    number = chat("Onion soup", "How long?", "An hour.")
    chat("Pea soup", "How long?", "Two hours.")
    reply = slipstream("run", "--chat", "onion", "And then?", *SHORT).stdout.strip()
    assert [each.content for each in asked[0].conversation] == ["How long?", "An hour.", "And then?"]
    store = Store(default_path())
    turns = [each.content.strip() for each in ChatBranch(store, number).messages()]
    store.close()
    assert turns == ["How long?", "An hour.", "And then?", reply]


def test_a_title_that_fits_several_chats_or_none_names_them() -> None:
    chat("Onion soup", "a", "b")
    chat("Pea soup", "a", "b")
    told = failing("run", "--chat", "soup", "And?")
    assert "'soup' fits two chats: 'Pea soup' and 'Onion soup'. Name one of them by its whole title." in told
    told = failing("run", "--chat", "pie", "And?")
    assert "No chat has 'pie' in its title: the latest are 'Pea soup' and 'Onion soup'." in told


def test_an_exact_title_goes_before_one_that_only_contains_it() -> None:
    titles = {1: "Soup", 2: "soup", 3: "Onion soup"}
    assert [*conversation.matching("soup", titles)] == [2]
    assert [*conversation.matching("SOUP", titles)] == [1, 2]
    assert [*conversation.matching("onion", titles)] == [3]
    assert [*conversation.matching("pie", titles)] == []


def test_files_after_a_quoted_question_are_attached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.py").write_text("print(1)\n")
    Path("two words.txt").write_text("hello\n")
    text = attach(choices.with_names(["What is wrong here?", "a.py", "two words.txt"]))
    assert text.startswith("a.py:\n```py\nprint(1)\n```\n\ntwo words.txt:\n```txt\nhello\n```\n\nWhat is wrong here?")
    assert attach(choices.with_names(["What is @a.py for?"])).startswith("a.py:\n```py\nprint(1)\n```\n")


def test_words_that_name_no_files_stay_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.py").write_text("print(1)\n")
    assert attach(choices.with_names(["what", "is", "a.py"])) == "what is a.py"
    assert attach(choices.with_names(["Hello there", "friend"])) == "Hello there friend"
    assert attach(choices.with_names(["explain", "a.py"])).startswith("a.py:\n```py\nprint(1)\n```\n\nexplain")
    assert attach(choices.with_names([])) == ""


@pytest.mark.parametrize("name", ["gone.py", "folder", "photo.png", "large.txt"])
def test_a_file_that_cannot_be_attached_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder/inside").mkdir(parents=True)
    Path("photo.png").write_bytes(b"\x89PNG\r\n\x1a\n\xff\xfe")
    Path("large.txt").write_text("x" * (1 << 20) + "x")
    told = " ".join(failing("run", "What is this?", name.replace("folder", "folder/inside"), code=2).split())
    assert "not attached" in told.replace("│ ", "").replace(" │", "")


def test_an_unreadable_name_within_a_question_is_only_mentioned() -> None:
    done = slipstream("run", "Who uses @types/gone here?", *SHORT)
    assert done.returncode == 0
    assert "@" not in done.stderr.split("does not exist")[0]
    assert "types/gone does not exist" in done.stderr


def test_the_object_of_json_is_kept_as_its_text() -> None:
    text = json.loads(slipstream("run", QUESTION, "--json", *SHORT).stdout)["text"]
    assert conversation.last_run().messages[-1] == Message("assistant", text)
