"""The whole way of a head that learns, with PyTorch: rejected drafts are kept, trained on in a process of its own,
measured, used, and forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from demo.conversations import QUESTIONS
from runtime.core.pressure import Thresholds
from runtime.engine import Message, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import Pair, load_registry
from runtime.training import background, conditions, learned_head
from runtime.training.place import forget, place_of, root
from runtime.training.training_process import TrainerProcess
from tests.support.waiting import wait_for

torch = pytest.importorskip("torch")
pytest.importorskip("gguf")

from runtime.training import run  # noqa: E402 (needs what may be lacking)
from runtime.training.adapting import adapt  # noqa: E402

pytestmark = pytest.mark.slow
DEMO = load_registry()["demo"]
NAMES = "os.path.join", "textwrap.wrap"
ASKED = [text.format(name) for text in QUESTIONS[:8] for name in NAMES]
N_TOKENS = 40
# A short training, which does not give way: beside a test suite it would wait for long
SHORT = """
import sys
from runtime.training import adapting, run

adapting.give_way, run.STEPS = lambda: None, 4
sys.exit(adapting.main(sys.argv[1:]))
"""
NEVER = Thresholds(0, 0, 0, 0, 0, 0)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """The bundled target with a head that has learned nothing yet."""
    from demo.export import write_head
    from demo.model import TARGET
    from runtime.training.layers import Head

    torch.manual_seed(0)
    write_head(tmp_path / "head.gguf", Head(TARGET), "a head")
    forget()
    yield replace(DEMO, draft=tmp_path / "head.gguf", learn=True)
    forget()


def ask(engine: LoadedEngine, text: str) -> tuple[list[int], float]:
    """The reply's tokens, and the share of drafted ones that were accepted."""
    chunks = list(engine.reply([Message("user", text)], Sampling(temperature=0), N_TOKENS))
    assert chunks[-1].stats is not None
    return [token for chunk in chunks for token in chunk.tokens], chunks[-1].stats.acceptance_rate


@pytest.fixture
def engine(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoadedEngine]:
    """One that has answered, and whose head was wrong."""
    monkeypatch.setattr(conditions, "free_bytes", lambda: None)
    monkeypatch.setattr(conditions, "is_on_battery", lambda: False)
    short = lambda module, *args: TrainerProcess("tests.support.running", SHORT, *args)  # noqa: E731
    monkeypatch.setattr(background, "TrainerProcess", short)
    options = Options(512, fixed_k=3, drafters=("model",), threads=1, memory=NEVER)
    with closing(LoadedEngine(pair, options, learns=True)) as engine:
        for text in ASKED:
            ask(engine, text)
            engine.tend()
        yield engine


def test_a_training_in_a_process_of_its_own_ends_with_a_measured_head(
    pair: Pair, engine: LoadedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "QUIET", 0.0)
    place = place_of(pair.target, pair.draft or Path())
    expected = ask(engine, ASKED[0])[0]
    wait_for(lambda: learned_head.read(place).last, engine.tend)
    last = learned_head.read(place).last
    assert last is not None
    assert last.n_positions > 50
    assert ask(engine, ASKED[0])[0] == expected
    forget()
    engine.tend()
    assert not [path for path in root().rglob("*") if path.is_file() and path.suffix in (".gguf", ".npz")]


def test_a_head_learns_what_is_asked_and_the_text_stays_as_it_was(
    pair: Pair, engine: LoadedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "RATE", 2e-3)  # it knows nothing that could be lost
    monkeypatch.setattr(run, "MAX_EPOCHS", 15)
    before = [ask(engine, text) for text in ASKED[:8]]
    place = place_of(pair.target, pair.draft or Path())
    told = adapt(place, pair.target, pair.draft or Path(), run.train_further)
    assert "replaced the one before" in told, told
    wait_for(lambda: engine._loaded.learned and engine.decoder.active.drafters, engine.tend)
    after = [ask(engine, text) for text in ASKED[:8]]
    assert [tokens for tokens, _ in after] == [tokens for tokens, _ in before]
    assert sum(share for _, share in after) > sum(share for _, share in before)
    assert not [*place.work.iterdir()]


def test_a_training_without_its_modules_says_what_to_install(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    head = pair.draft or Path()
    place = place_of(pair.target, head)
    place.make({})
    training = TrainerProcess(background.MODULE, place.path, pair.target, head)
    training.start()
    wait_for(lambda: not training.is_running)
    ended = training.ended()
    assert ended is not None
    assert ended[0] == 1
    assert "pip install" in ended[1]
