"""`models distill` in a profile of its own, in this process and without PyTorch: everything is real but the training
itself and the last measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

import runtime.training
from app.chats.database import default_path
from app.chats.store import Store
from app.models import distill
from runtime.engine.paired import Trial
from runtime.engine.pairing import Target
from runtime.models.registry import load_registry
from runtime.training import begun
from runtime.training.begun import Begun
from runtime.training.place import trainings

DEMO = load_registry()["demo"]
NEVER = 10**9


class Distilling:
    """The command, and what becomes of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys, self._monkeypatch = capsys, monkeypatch
        self.looks_left, self.gains, self.trained = NEVER, list[float](), list[Any]()
        self.at_look: Callable[[], object] | None = None  # instead of being cancelled
        self.err = self.out = ""
        monkeypatch.setattr(distill, "require_extra", lambda: None)
        monkeypatch.setattr(distill, "Interrupt", lambda: self)
        fake = SimpleNamespace(require_device=lambda name: None, train=self._train)
        monkeypatch.setattr(runtime.training, "run", fake, raising=False)
        monkeypatch.setattr(
            Target, "try_out", lambda *args: Trial(self.gains.pop(0) if self.gains else 0.9, 0.5, 1.0, 99, per_pass=1.5)
        )

    code = 130

    @contextmanager
    def watching(self) -> Iterator[Distilling]:
        """As Interrupt does."""
        yield self

    @property
    def pressed(self) -> bool:
        """As Interrupt has it."""
        self.looks_left -= 1
        if self.looks_left == 0 and self.at_look:
            self.at_look()
        return self.looks_left <= 0 and not self.at_look

    def _train(self, job: Any, work: Path, report: object, is_cancelled: object) -> Any:
        self.trained.append(job)
        assert DEMO.draft is not None
        (work / "draft.gguf").write_bytes(DEMO.draft.read_bytes())
        return work / "draft.gguf", 0.01, 0.1

    def run(self, name: str = "demo", kind: str = "", source: str = "", looks: int = NEVER, n_tokens: int = 500) -> int:
        """The exit code; it is cancelled after that many looks at whether it is."""
        self.looks_left = looks
        try:
            distill.distill(name, kind, source, n_tokens, 10**9, 1, "cpu", 1)
        except typer.Exit as end:
            return end.exit_code
        finally:
            said = self._capsys.readouterr()
            self.out, self.err = said.out, " ".join(said.err.split())
        return 0

    def promising(self, kind: str) -> None:
        """What promises most by what passes cost."""
        self._monkeypatch.setattr(distill, "most_promising", lambda facts, passes: kind)


def folders() -> list[Path]:
    """Those of the trainings that were begun."""
    return sorted(trainings().glob("*")) if trainings().exists() else []


def kept(name: str) -> dict[str, int]:
    """The files of the only training, with when they were written."""
    (folder,) = folders()
    return {path.name: path.stat().st_mtime_ns for path in folder.glob(f"work-*/{name}/*")}


def begun_with() -> Begun:
    """What the only training was begun with."""
    (folder,) = folders()
    found = begun.read(folder)
    assert found is not None
    return found


def asked(*questions: str) -> None:
    """Adds chats with these questions, and the leave to learn from them."""
    default_path().parent.mkdir(parents=True, exist_ok=True)
    distill.answer_file().write_text(distill.YES)
    store = Store(default_path())
    for question in questions:
        store.add_message(store.new_chat(question), None, "user", question)
    store.close()


@pytest.fixture
def distilling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Distilling:
    for kind in ("CACHE", "DATA", "CONFIG"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind))
    return Distilling(monkeypatch, capsys)
