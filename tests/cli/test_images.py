"""`run` asks about pictures: named by an option, after an `@`, or after the question; in a chat they stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.chats.branch import ChatBranch
from app.chats.database import default_path
from app.chats.pictures import ChatPicture
from app.chats.store import Store
from app.cli import oneshot
from runtime.engine import Pictured, mark_of
from tests.support.cli import slipstream
from tests.support.eyes import needs_mtmd, width_of, write_projector, write_target
from tests.support.pictures import noise, png

pytestmark = pytest.mark.usefixtures("models_here")
PHOTO, OTHER = png(noise(64, 48)), png(noise(20, 10, 1))
ASK = "run", "-m", "demo", "--max-tokens", "4"


@pytest.fixture(autouse=True)
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures in the folder."""
    monkeypatch.chdir(tmp_path)
    Path("photo.png").write_bytes(PHOTO)
    Path("other.png").write_bytes(OTHER)
    Path("cut.png").write_bytes(PHOTO[:-30])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[oneshot.OneshotRequest]:
    """The requests that `run` made; all are answered by a word."""
    requests = list[oneshot.OneshotRequest]()

    def noted(pair: object, options: object, request: oneshot.OneshotRequest, *more: object) -> oneshot.PrintedReply:
        requests.append(request)
        return oneshot.PrintedReply("Word.", 0)

    monkeypatch.setattr(oneshot, "printed", noted)
    return requests


@pytest.mark.parametrize(
    "words",
    [
        ("--image", "photo.png", "--image", "other.png", "What is new?"),
        ("What is new in @photo.png and @other.png?",),
        ("What is new?", "photo.png", "other.png"),
    ],
)
def test_pictures_are_named_in_three_ways(asked: list[oneshot.OneshotRequest], words: tuple[str, ...]) -> None:
    done = slipstream(*ASK, *words)
    assert (done.returncode, done.stderr) == (0, "")
    prompt = asked[0].text(sees=True)
    assert isinstance(prompt, Pictured)
    assert prompt.images == (PHOTO, OTHER)
    text = prompt.prompt.messages[-1].content  # type: ignore[union-attr]
    assert text.startswith(f"{mark_of(PHOTO)}\n{mark_of(OTHER)}\nWhat is new")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--image", "cut.png", "Hi"), "cut.png is damaged or incomplete"),
        (("--image", "none.png", "Hi"), "none.png cannot be read"),
        (("What is this?", "cut.png"), "cut.png is damaged or incomplete"),
        (("--image", "photo.png", "Hi"), "cannot see images"),
        (("What is in @photo.png",), "cannot see images"),
    ],
)
def test_what_cannot_be_seen_is_a_sentence(words: tuple[str, ...], message: str) -> None:
    done = slipstream(*ASK, *words)
    assert done.returncode
    assert message in " ".join(done.stderr.replace("│", " ").split())


def test_a_question_in_a_chat_keeps_its_pictures_and_the_next_one_shows_them(
    asked: list[oneshot.OneshotRequest],
) -> None:
    store = Store(default_path())
    store.new_chat("Holiday")
    store.close()
    for words in (("--image", "photo.png", "What is this?"), ("And now?",)):
        assert slipstream(*ASK, "--chat", "Holiday", *words).returncode == 0
    assert asked[1].earlier == (PHOTO,)
    assert isinstance(asked[1].text(sees=True), Pictured)
    assert not isinstance(asked[1].text(sees=False), Pictured)
    store = Store(default_path())
    first, _, second, _ = ChatBranch(store, 1).messages()
    assert first.content == "What is this? @photo.png"
    assert [ChatPicture(*each).name for each in first.facts["pictures"]] == ["photo.png"]
    assert second.facts == {}
    store.close()


@needs_mtmd
def test_a_model_that_sees_answers(tmp_path: Path) -> None:
    target = write_target(tmp_path, "mlp")
    encoder = write_projector(tmp_path / "eyes.gguf", "mlp", width_of(target))
    done = slipstream("run", "-m", str(target), "--mmproj", str(encoder), "--image", "photo.png", "--json", "Hi")
    assert done.returncode == 0, done.stderr
    blind = slipstream("run", "-m", str(target), "--mmproj", "off", "--image", "photo.png", "Hi")
    assert "cannot see images" in blind.stderr
