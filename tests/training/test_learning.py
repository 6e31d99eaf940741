"""A head that learns: what is kept of replies, when it is trained on, which head is used, and what stays of it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from bench.instruments.heads import head_for, write_head
from runtime.core.draft import Tokens
from runtime.core.errors import SlipstreamError
from runtime.models.registry import load_registry
from runtime.speculative.control.explain import Pass
from runtime.training import conditions, learned_head, training_process
from runtime.training.adapting import adapt
from runtime.training.background import MIN_WINDOWS, PAUSE, QUIET, BackgroundLearner, GeneratedReply
from runtime.training.learned_head import LearnedHead, Measured
from runtime.training.place import Place, forget, place_of, places, root
from runtime.training.samples import Sample
from runtime.training.training_process import TrainerProcess
from runtime.training.windows import LEAD, LENGTH, Windows, missed, window_of
from tests.support.waiting import wait_for

DEMO = load_registry()["demo"]
N_VOCAB = 4096
BETTER = Measured(0.20, 0.30, 900, 0.01)
WORSE = Measured(0.20, 0.15, 900, 0.01)
needs_signals = pytest.mark.skipif(sys.platform == "win32", reason="needs signals")


def plain(n: int = 1) -> list[Pass]:
    return [Pass(0.01, "none", 0, 0, 1)] * n


def drafted(n_drafted: int, n_accepted: int, drafter: str = "eagle") -> Pass:
    return Pass(0.01, drafter, n_drafted, n_accepted, n_accepted + 1)


def reply(n_prompt: int, passes: Sequence[Pass], seed: int = 0) -> GeneratedReply:
    n = n_prompt + sum(each.n_tokens for each in passes)
    return GeneratedReply(np.random.default_rng(seed).integers(0, N_VOCAB, n).astype(np.int32), n_prompt, list(passes))


def window(seed: int, n: int = 40) -> Sample:
    return Sample(np.random.default_rng(seed).integers(0, N_VOCAB, n).astype(np.int32), 10)


def test_a_rejected_draft_and_a_pass_without_one_are_missed_and_an_accepted_one_is_not() -> None:
    passes = [drafted(3, 3), drafted(3, 1), *plain(), drafted(4, 0, "ngram")]
    assert missed(passes, "eagle") == [5, 6]


def test_a_reply_in_which_every_draft_was_accepted_is_not_kept() -> None:
    assert window_of(*reply(30, [drafted(3, 3)] * 10), "eagle") is None


def test_a_long_reply_is_kept_where_most_was_rejected() -> None:
    made = reply(50, [drafted(3, 3)] * 200 + [drafted(3, 0)] * 100 + [drafted(3, 3)] * 200)
    kept = window_of(*made, "eagle")
    assert kept is not None
    assert kept.start == LEAD
    assert len(kept.tokens) == LENGTH
    assert np.array_equal(kept.tokens[LEAD:], made.tokens[850 : 850 + LENGTH - LEAD])


def test_a_short_reply_is_kept_with_the_end_of_its_prompt() -> None:
    made = reply(300, [drafted(3, 1)] * 20)
    kept = window_of(*made, "eagle")
    assert kept is not None
    assert kept.start == LEAD
    assert np.array_equal(kept.tokens, made.tokens[300 - LEAD :])


def test_windows_come_back_as_they_were_and_the_same_one_once(tmp_path: Path) -> None:
    windows = Windows(tmp_path / "w" / "windows", N_VOCAB)
    for seed in (1, 2, 1):
        windows.add(window(seed))
    found = windows.read()
    assert [each.key for each in found] == [window(2).key, window(1).key]
    assert [each.start for each in found] == [10, 10]


def test_windows_take_no_more_bytes_than_they_may_and_the_oldest_go(tmp_path: Path) -> None:
    windows = Windows(tmp_path / "w" / "windows", N_VOCAB, max_bytes=4096)
    for seed in range(100):
        windows.add(window(seed))
    found = windows.read()
    assert sum(4 * len(each.tokens) for each in found) <= 4096
    assert found[-1].key == window(99).key
    assert (tmp_path / "w" / "windows").stat().st_size < 40_000


def test_tokens_that_the_model_does_not_have_are_not_read(tmp_path: Path) -> None:
    Windows(tmp_path / "w" / "windows", N_VOCAB).add(Sample(np.full(20, 4000, dtype=np.int32), 5))
    assert Windows(tmp_path / "w" / "windows", 3000).read() == []


def test_a_damaged_file_of_windows_is_made_anew(tmp_path: Path) -> None:
    windows = Windows(tmp_path / "w" / "windows", N_VOCAB)
    windows.add(window(1))
    (tmp_path / "w" / "windows").write_bytes(b"no database" * 1000)
    assert windows.read() == []
    windows.add(window(2))
    assert [each.key for each in windows.read()] == [window(2).key]


def test_the_same_text_is_always_on_the_same_side() -> None:
    sides = [window(seed).is_held_out for seed in range(400)]
    assert sides == [window(seed).is_held_out for seed in range(400)]
    assert 40 < sum(sides) < 130


# The folder of a head


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    target, head = tmp_path / "target.gguf", tmp_path / "head.gguf"
    target.write_bytes(b"target")
    head.write_bytes(b"head")
    return target, head


@pytest.fixture
def place(files: tuple[Path, Path]) -> Iterator[Place]:
    forget()
    place = place_of(*files)
    place.make({})
    yield place
    forget()


def new_head(place: Place, text: bytes = b"new") -> Path:
    path = place.work / "new.gguf"
    path.write_bytes(text)
    return path


@pytest.mark.skipif(sys.platform == "win32", reason="has other rights")
def test_only_the_user_can_read_what_is_kept(place: Place) -> None:
    Windows(place.windows, N_VOCAB).add(window(1))
    learned_head.take(place, new_head(place), BETTER, 3, "key")
    found = [place.path, *place.path.rglob("*")]
    assert len(found) > 4
    assert all(stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 for path in found)


def test_another_target_or_head_has_another_folder(files: tuple[Path, Path]) -> None:
    before = place_of(*files).path
    files[0].write_bytes(b"another target")
    assert place_of(*files).path != before


def test_nothing_stays_after_forget(place: Place) -> None:
    Windows(place.windows, N_VOCAB).add(window(1))
    learned_head.take(place, new_head(place), BETTER, 3, "key")
    (place.work / "checkpoint").write_bytes(b"weights")
    assert forget() > 0
    assert not root().exists()
    assert not [path for path in root().parent.iterdir() if "forgotten" in path.name or "learned" in path.name]
    assert forget() == 0


def test_what_another_forget_left_half_done_goes_with_the_next(place: Place) -> None:
    left = place.path.rename(root() / "forgotten-0a1b2c3d")
    assert forget() > 0
    assert not left.exists()


# The learned head


def test_a_new_head_is_used_and_the_original_stays_as_it_was(place: Place, files: tuple[Path, Path]) -> None:
    state = learned_head.take(place, new_head(place), BETTER, 3, "key")
    current = learned_head.current(place)
    assert current is not None
    assert current.read_bytes() == b"new"
    assert (state.current, state.measured) == (1, BETTER)
    assert files[1].read_bytes() == b"head"


def test_a_worse_head_is_thrown_away_and_its_windows_are_not_tried_again(place: Place) -> None:
    learned_head.take(place, new_head(place), BETTER, 3, "key")
    path = new_head(place)
    learned_head.discard(place, path, WORSE, "later")
    state = learned_head.read(place)
    assert not path.exists()
    assert (state.current, state.measured, state.n_discarded, state.seen, state.last) == (1, BETTER, 1, "later", WORSE)


def test_one_learned_head_is_kept_until_it_is_gone_back_from(place: Place) -> None:
    for text in (b"1", b"2"):
        learned_head.take(place, new_head(place, text), BETTER, 3, "key")
    (path,) = place.path.glob("head-*.gguf")
    assert path == learned_head.current(place)
    assert path.read_bytes() == b"2"
    learned_head.revert(place)
    assert learned_head.current(place) is None
    assert not [*place.path.glob("head-*.gguf")]
    assert learned_head.take(place, new_head(place), BETTER, 3, "key").current == 3  # open engines see another file


def test_a_head_of_an_earlier_version_of_slipstream_is_used(place: Place) -> None:
    measured = {"before": 0.2, "after": 0.3, "n_positions": 900, "rise": 0.1, "error": 0.01}
    versions = [{"number": n, "parent": n - 1, "time": 1.7e9, "n_windows": 9, "measured": measured} for n in (1, 2, 3)]
    counts = {"current": 2, "n_trained": 3, "n_discarded": 4, "seen": "key"}
    place.write("versions.json", {"versions": versions, "last": measured, **counts})
    for n in (1, 2, 3):
        (place.path / f"head-000{n}.gguf").write_bytes(b"head %d" % n)
    assert learned_head.current(place) == place.path / "head-0002.gguf"
    assert learned_head.read(place) == LearnedHead(2, 3, 4, "key", last=Measured(0.2, 0.3, 900, 0.01))
    learned_head.take(place, new_head(place), BETTER, 3, "key")
    assert [path.name for path in place.path.glob("head-*.gguf")] == ["head-0004.gguf"]


@pytest.mark.parametrize("text", ["", "{", '{"current": "x"}', '{"current": [1]}', "[]"])
def test_a_damaged_record_is_the_original_head(place: Place, text: str) -> None:
    (place.path / "versions.json").write_text(text)
    assert learned_head.current(place) is None


def test_a_learned_head_whose_file_is_gone_is_the_original_head(place: Place) -> None:
    learned_head.take(place, new_head(place), BETTER, 3, "key")
    (place.path / "head-0001.gguf").unlink()
    assert learned_head.current(place) is None


# When it is trained


class Still(TrainerProcess):
    """A training that only notes what it is told."""

    is_running = False  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__("")
        self.told: list[str] = []
        self.end: tuple[int, str] | None = None

    def start(self) -> None:
        self.told.append("start")
        self.is_running = True

    def hold(self) -> None:
        self.told.append("hold")
        self.is_held = self.is_running

    def resume(self) -> None:
        self.told.append("go on")
        self.is_held = False

    def ended(self) -> tuple[int, str] | None:
        end, self.end = self.end, None
        self.is_running = self.is_running and end is None
        return end

    def stop(self) -> None:
        self.told.append("stop")
        self.is_running = self.is_held = False


class World:
    """A learner, its clock and its training."""

    def __init__(self, place: Place, files: tuple[Path, Path]) -> None:
        self.now, self.training = 0.0, Still()
        self.learner = BackgroundLearner(*files, N_VOCAB, place, self.training, lambda: self.now)

    def answer(self, n: int = 1, seed: int = 0) -> None:
        for i in range(n):
            made = reply(20, [drafted(3, 0)] * 20, seed + i)
            self.learner.reply_begins(lambda made=made: made)  # type: ignore[misc]
            self.learner.keep()

    def tend(self, after: float, level: str = "OK") -> str:
        self.now += after
        self.learner.tend(level)
        return self.learner.state


@pytest.fixture
def world(place: Place, files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(conditions, "free_bytes", lambda: 10**12)
    monkeypatch.setattr(conditions, "is_on_battery", lambda: False)
    return World(place, files)


def test_it_is_trained_once_enough_was_rejected_and_nothing_was_asked_for_a_while(world: World) -> None:
    world.answer(3)
    assert f"3 of {MIN_WINDOWS} replies" in world.tend(QUIET)
    world.answer(20, seed=100)
    assert "idle for less than" in world.tend(QUIET / 2)
    assert world.training.told.count("start") == 0
    assert "trained" in world.tend(QUIET)
    assert world.training.is_running


def test_a_reply_holds_it_until_nothing_is_asked_again(world: World) -> None:
    world.answer(20)
    world.tend(QUIET)
    world.learner.reply_begins(lambda: reply(20, [drafted(3, 0)] * 20))
    assert world.training.is_held
    world.tend(1.0)
    assert world.training.is_held
    world.tend(QUIET)
    assert world.training.is_running
    assert not world.training.is_held


@pytest.mark.parametrize("level", ["TIGHT", "CRITICAL"])
def test_it_gives_its_memory_up_when_that_is_short(world: World, level: str) -> None:
    world.answer(20)
    world.tend(QUIET)
    assert world.tend(1.0, level) == f"memory is {level}"
    assert not world.training.is_running


def test_it_is_ended_and_not_only_held_when_a_reply_begins_while_memory_is_short(world: World) -> None:
    world.answer(20)
    world.tend(QUIET)
    world.learner.reply_begins(lambda: reply(20, []), "TIGHT")
    assert not world.training.is_running


def test_it_is_off_on_battery(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.answer(20)
    world.tend(QUIET)
    monkeypatch.setattr(conditions, "is_on_battery", lambda: True)
    assert "battery" in world.tend(1.0)
    assert not world.training.is_running


def test_it_does_not_begin_where_it_would_take_too_much_memory(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions, "free_bytes", lambda: 10**9)
    world.answer(20)
    assert "GB of memory" in world.tend(QUIET)
    assert "start" not in world.training.told


def test_a_failed_training_is_said_and_not_tried_again_at_once(world: World) -> None:
    world.answer(20)
    world.tend(QUIET)
    world.training.end = 1, "No space left on device."
    assert world.tend(1.0) == "the last training failed: No space left on device"
    world.tend(PAUSE / 2)
    assert world.training.told.count("start") == 1
    world.tend(PAUSE)
    assert world.training.told.count("start") == 2


def test_a_training_that_could_do_nothing_is_not_begun_again_at_once(world: World) -> None:
    world.answer(20)
    world.tend(QUIET)
    world.training.end = 0, "there is too little to learn from and to measure on"
    assert "too little" in world.tend(1.0)
    assert "too little" in world.tend(QUIET)
    assert world.training.told.count("start") == 1


def test_what_was_said_before_a_forget_is_not_kept_after_it(world: World, place: Place) -> None:
    world.answer(20)
    world.tend(QUIET)
    world.learner.reply_begins(lambda: reply(20, [drafted(3, 0)] * 20, 99))
    forget()
    world.tend(QUIET)
    assert Windows(place.windows, N_VOCAB).read() == []
    assert not world.training.is_running


def test_where_its_folder_cannot_be_made_it_says_so_and_keeps_nothing(tmp_path: Path, files: tuple[Path, Path]) -> None:
    (tmp_path / "file").write_bytes(b"")
    world = World(Place(tmp_path / "file" / "place"), files)
    world.answer(20)
    assert "cannot be written" in world.tend(QUIET)
    assert world.learner.head is None


@pytest.mark.parametrize(("plugged", "expected"), [(True, False), (False, True), (None, False)])
def test_a_battery_that_nobody_charges_is_one(
    monkeypatch: pytest.MonkeyPatch, plugged: bool | None, expected: bool
) -> None:
    monkeypatch.setattr(psutil, "sensors_battery", lambda: SimpleNamespace(power_plugged=plugged), raising=False)
    assert conditions.is_on_battery() is expected


def test_a_pair_says_why_its_head_does_not_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    assert "`learn = true`" in conditions.why_never(DEMO, "eagle")
    assert "EAGLE-3" in conditions.why_never(replace(DEMO, learn=True), "model")
    monkeypatch.setattr(conditions, "find_spec", lambda name: None)
    assert "pip install" in conditions.why_never(replace(DEMO, learn=True), "eagle")


# The process


def running(text: str) -> TrainerProcess:
    process = TrainerProcess("tests.support.running", text)
    process.start()
    return process


@needs_signals
def test_a_process_that_is_held_stands_still_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "ticks"
    process = running(f"import time\nwhile True: open({str(path)!r}, 'a').write('x'); time.sleep(0.01)")
    wait_for(path.exists)
    process.hold()
    if training_process.CAN_HOLD:
        wait_for(lambda: psutil.Process(process._process.pid).status() == psutil.STATUS_STOPPED)  # type: ignore[union-attr]
        n = path.stat().st_size
        assert process.is_running
        process.resume()
        wait_for(lambda: path.stat().st_size > n)
    process.stop()
    assert not process.is_running


@needs_signals
def test_a_held_process_can_be_ended() -> None:
    process = running("import time; time.sleep(100)")
    process.hold()
    process.stop()
    assert not process.is_running
    assert process.ended() is None


def test_the_last_line_says_how_it_ended() -> None:
    process = running("print('first'); print('the disk is full'); raise SystemExit(1)")
    wait_for(lambda: not process.is_running)
    assert process.ended() == (1, "the disk is full")
    assert process.ended() is None


@pytest.mark.skipif(sys.platform != "linux", reason="the system ends it only there")
def test_a_held_training_ends_with_the_process_that_began_it(tmp_path: Path) -> None:
    child = (
        "from runtime.training.adapting import end_with_parent; import os, time; end_with_parent(); "
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(100)"
    )
    parent = (
        "import os, sys, time\nfrom pathlib import Path\nfrom runtime.training.training_process import TrainerProcess\n"
        f"t = TrainerProcess('tests.support.running', {child!r}); t.start(); path = Path({str(tmp_path / 'pid')!r})\n"
        "while not (path.exists() and path.read_text()): time.sleep(0.01)\n"
        "t.hold(); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", parent], check=False, cwd=Path(__file__).parents[2])
    pid = int((tmp_path / "pid").read_text())
    wait_for(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


# What a training does with what it has made


@pytest.fixture
def demo_place(tmp_path: Path) -> Iterator[tuple[Place, Path]]:
    """The folder of a random head for the bundled target, with windows to learn from."""
    forget()
    head = write_head(tmp_path / "head.gguf", head_for(DEMO.target))
    place = place_of(DEMO.target, head)
    place.make({})
    windows = Windows(place.windows, N_VOCAB)
    for seed in range(40):
        windows.add(window(seed))
    yield place, head
    forget()


Train = Callable[[Path, Path, Sequence[Sample], Sequence[Sample], Path, int], Measured]


def copying(measured: Measured, at_end: Callable[[], object] = lambda: None) -> Train:
    """A training that makes the same head again, and finds that."""

    def train(target: Path, head: Path, learned: object, apart: object, new: Path, seed: int) -> Measured:
        new.write_bytes(head.read_bytes())
        at_end()
        return measured

    return train


def test_a_better_head_is_taken_and_a_worse_one_leaves_nothing(demo_place: tuple[Place, Path]) -> None:
    place, head = demo_place
    assert "head 1 replaced the one before" in adapt(place, DEMO.target, head, copying(BETTER))
    assert "discarded" in adapt(place, DEMO.target, head, copying(WORSE))
    assert learned_head.read(place).current == 1
    assert [*place.work.iterdir()] == []


def test_no_head_is_trained_on_what_it_is_measured_on(demo_place: tuple[Place, Path]) -> None:
    place, head = demo_place
    seen: list[set[bytes]] = []

    def train(target: Path, head: Path, learned: Sequence[Sample], apart: Sequence[Sample], *more: object) -> Measured:
        seen.extend({text.tokens.tobytes() for text in texts} for texts in (learned, apart))
        return WORSE

    adapt(place, DEMO.target, head, train)
    assert all(seen)
    assert not seen[0] & seen[1]


def test_a_rise_within_the_error_is_none() -> None:
    assert BETTER.is_better
    assert not Measured(0.2, 0.3, 20, 0.06).is_better
    assert not Measured(0.200, 0.205, 10**6, 0.0001).is_better


def test_a_training_whose_texts_were_forgotten_leaves_nothing(demo_place: tuple[Place, Path]) -> None:
    place, head = demo_place

    def forget_all() -> None:
        forget()
        place.make({})

    with pytest.raises(SlipstreamError, match="removed meanwhile"):
        adapt(place, DEMO.target, head, copying(BETTER, forget_all))
    assert learned_head.current(place) is None
    assert not [*root().rglob("*.gguf")]


def test_a_training_that_writes_after_a_forget_finds_no_folder(demo_place: tuple[Place, Path]) -> None:
    place, head = demo_place

    def train(*what: object) -> Measured:
        forget()
        place.make({})
        return copying(BETTER)(*what)  # type: ignore[arg-type]

    with pytest.raises(FileNotFoundError):
        adapt(place, DEMO.target, head, train)
    assert not [*root().rglob("*.gguf")]


def test_a_disk_that_is_full_loses_nothing(demo_place: tuple[Place, Path]) -> None:
    place, head = demo_place
    adapt(place, DEMO.target, head, copying(BETTER))

    def train(*what: object) -> Measured:
        raise OSError(28, os.strerror(28), "new.gguf")

    with pytest.raises(OSError, match="No space"):
        adapt(place, DEMO.target, head, train)
    assert learned_head.read(place).current == 1
    assert len(Windows(place.windows, N_VOCAB).read()) == 40


def test_two_processes_do_not_train_one_head(demo_place: tuple[Place, Path]) -> None:
    place, head = demo_place
    with place.locked() as is_ours:
        assert is_ours
        assert "another process" in adapt(place, DEMO.target, head, copying(BETTER))
    assert learned_head.current(place) is None


def test_a_head_that_was_gone_back_from_meanwhile_is_not_replaced(demo_place: tuple[Place, Path]) -> None:
    place, head = demo_place
    adapt(place, DEMO.target, head, copying(BETTER))
    train = copying(BETTER, lambda: learned_head.revert(place))
    assert "discarded" in adapt(place, DEMO.target, head, train)
    assert learned_head.read(place).current == 0


def test_all_folders_are_listed(demo_place: tuple[Place, Path]) -> None:
    assert [each.path for each in places()] == [demo_place[0].path]


def test_tokens_have_one_type() -> None:
    made: Tokens = reply(4, plain(20)).tokens
    assert made.dtype == np.int32
