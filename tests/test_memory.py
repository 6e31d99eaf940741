"""Memory that runs short costs drafters, never a reply: every transition with an injected reader, and the bundled pair
in mid-reply.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from runtime.backends.reloadable import Releasable
from runtime.core.draft import Drafter
from runtime.core.errors import ModelError, SettingsError
from runtime.drafters.model import ModelDrafter
from runtime.drafters.ngram import NgramDrafter
from runtime.engine import Engine, Message, Options, Sampling
from runtime.engine.stats import Stats
from runtime.memory.pressure import MIB, Level, Place, Reading, Thresholds, Watch, judge
from runtime.memory.system import System, stalls
from runtime.models.registry import load_registry
from runtime.sampling.sampler import Sampler
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.costs import PassCosts
from runtime.speculative.degradation import Shortage
from runtime.speculative.loop import SpecLoop
from tests.support.toy import ToyBackend

TOTAL = 16_000 * MIB
OK, TIGHT, CRITICAL = Level.OK, Level.TIGHT, Level.CRITICAL
FREE = {OK: 9000, TIGHT: 1000, CRITICAL: 300}  # MiB
GREEDY = Sampling(temperature=0)
SEEDED = Sampling(temperature=1.2, seed=11)


def reading(free: int, **more: float) -> Reading:
    """`free` MiB of 16,000."""
    return Reading((Place("this machine", free * MIB, TOTAL),), **more)  # type: ignore[arg-type]


class Machine:
    """A reader and a clock that do as they are told."""

    def __init__(self, thresholds: Thresholds | None = None, reserve: int = 0) -> None:
        self.now, self.free, self.n_read = 0.0, FREE[OK], 0
        self.watch = Watch(self.read, thresholds or Thresholds(), lambda: self.now, reserve)

    def read(self) -> Reading:
        self.n_read += 1
        return reading(self.free)

    def after(self, seconds: float, free: int) -> Level:
        """Looks after so many seconds of that much memory."""
        self.now, self.free = self.now + seconds, free
        return self.watch.look()

    def calm(self, seconds: int = 21) -> Level:
        """All is free for so many seconds."""
        return [self.after(1, FREE[OK]) for _ in range(seconds + 1)][-1]


@pytest.mark.parametrize(("before", "after"), [(OK, TIGHT), (OK, CRITICAL), (TIGHT, CRITICAL)])
def test_the_level_rises_at_the_first_look(before: Level, after: Level) -> None:
    machine = Machine()
    assert machine.after(1, FREE[before]) == before
    assert machine.after(1, FREE[after]) == after
    assert f"{FREE[after]:,} MiB" in machine.watch.text


@pytest.mark.parametrize(("before", "after"), [(TIGHT, OK), (CRITICAL, TIGHT), (CRITICAL, OK)])
def test_the_level_falls_when_more_than_enough_was_free_for_a_while(before: Level, after: Level) -> None:
    machine = Machine()
    machine.after(1, FREE[before])
    levels = [machine.after(1, FREE[after]) for _ in range(22)]
    assert levels[:20] == [before] * 20
    assert levels[-1] == after


def test_it_does_not_fall_while_only_just_enough_is_free_or_not_for_long() -> None:
    machine = Machine()
    machine.after(1, FREE[TIGHT])
    assert {machine.after(1, 1400) for _ in range(60)} == {TIGHT}  # 1280 are wanted, 1600 to come back
    assert {machine.after(1, FREE[OK] if n % 15 else FREE[TIGHT]) for n in range(60)} == {TIGHT}


def test_what_would_be_taken_again_must_be_free_as_well() -> None:
    machine = Machine(reserve=2000 * MIB)
    machine.after(1, FREE[TIGHT])
    assert {machine.after(1, 3500) for _ in range(60)} == {TIGHT}
    assert [machine.after(1, 3700) for _ in range(60)][-1] == OK


def test_a_calm_that_was_deceptive_must_last_longer_the_next_time() -> None:
    machine, taken = Machine(), []
    for _ in range(3):
        machine.after(1, FREE[TIGHT])
        began = machine.now
        while machine.calm(0) != OK:
            pass
        taken.append(machine.now - began)
    assert taken == [21, 41, 81]
    machine.after(5000, FREE[OK])
    machine.after(1, FREE[TIGHT])
    assert machine.calm() == OK


def test_it_is_read_at_most_every_quarter_second_and_for_a_thousandth_of_the_time() -> None:
    machine = Machine()
    for _ in range(1000):
        machine.now += 0.01
        machine.watch.look()
    assert machine.n_read <= 41
    slow = Machine()

    def read() -> Reading:
        slow.now, slow.n_read = slow.now + 0.002, slow.n_read + 1
        return reading(FREE[OK])

    slow.watch.source = read
    while slow.now < 100:
        slow.now += 0.01
        slow.watch.look()
    assert 30 < slow.n_read <= 51


def test_a_reader_that_fails_leaves_the_level_and_says_so() -> None:
    machine = Machine()
    machine.after(1, FREE[TIGHT])

    def fail() -> Reading:
        raise RuntimeError("no such counter")

    working, machine.watch.source = machine.watch.source, fail
    assert machine.calm() == TIGHT
    assert "no such counter" in machine.watch.problem
    machine.watch.source = working
    assert machine.calm() == OK
    assert machine.watch.problem == ""


@pytest.mark.parametrize(("free", "total"), [(0, 0), (-1, 10), (11 * MIB, 10 * MIB), (5, -5)])
def test_a_place_that_cannot_be_is_not_believed(free: int, total: int) -> None:
    assert judge(Reading((Place("GPU", free, total, True), Place("GPU", free, total))), Thresholds()).level == OK


@pytest.mark.parametrize(
    ("found", "level"),
    [
        (Reading(), OK),
        (Reading(waited=0.05, stood=0.05), OK),
        (Reading(waited=0.2, stood=0.1), TIGHT),
        (Reading(waited=0.5, stood=0.4), CRITICAL),
        (Reading(waited=7.0, stood=-1.0), OK),
        (Reading(waited=math.nan), OK),
        (Reading(said=TIGHT), TIGHT),
        (Reading((Place("GPU", 200 * MIB, 8000 * MIB, True),)), TIGHT),
        (Reading((Place("GPU", 50 * MIB, 8000 * MIB, True),)), CRITICAL),
        (Reading((Place("GPU", 600 * MIB, 8000 * MIB, True),)), OK),
    ],
)
def test_stalls_the_system_and_devices_have_a_say(found: Reading, level: Level) -> None:
    assert judge(found, Thresholds()).level == level


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"tight_share": 0.01}, "critical_share is 0.03, more than tight_share"),
        ({"critical_bytes": 2**40}, "critical_bytes"),
        ({"critical_device_bytes": 2**40}, "critical_device_bytes"),
        ({"recovery": 0.5}, "recovery is 0.5"),
        ({"interval": -1.0}, "interval is -1"),
        ({"calm_seconds": math.nan}, "calm_seconds is nan"),
        ({"tight_waited": 10.0}, "tight_waited is 10.0"),
    ],
)
def test_thresholds_that_make_no_sense_are_named(wrong: dict[str, float], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        Thresholds(**wrong)  # type: ignore[arg-type]


# -- what the machine says


def place(root: Path, **files: str) -> System:
    """A System that finds these files under `root`, their names with "__" for "/"."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return System(root=root)


def group(system: System) -> list[tuple[int, int]]:
    return [(found.free, found.total) for found in system().places if "cgroup" in found.name]


def test_without_proc_the_machine_itself_is_still_known(tmp_path: Path) -> None:
    found = System(root=tmp_path)()
    assert [place.name for place in found.places] == ["this machine"]
    assert found.places[0].total == psutil.virtual_memory().total
    assert (found.waited, found.stood) == (0, 0)


V2 = {
    "proc__self__cgroup": "0::/a/b\n",
    "sys__fs__cgroup__a__b__memory.current": "700\n",
    "sys__fs__cgroup__a__b__memory.max": "1000\n",
}


def test_limits_of_cgroup_v2_and_of_those_above_are_read(tmp_path: Path) -> None:
    above = {"sys__fs__cgroup__a__memory.max": "900", "sys__fs__cgroup__a__memory.current": "850"}
    files = {
        "sys__fs__cgroup__a__b__memory.stat": "anon 5\ninactive_file 100\n",
        "sys__fs__cgroup__a__b__memory.pressure": "some avg10=12.50 avg60=0",
    }
    system = place(tmp_path, **V2, **above, **files)
    assert group(system) == [(400, 1000), (50, 900)]
    assert system().waited == 0.125


def test_a_limit_of_cgroup_v1_is_read(tmp_path: Path) -> None:
    at = "sys__fs__cgroup__memory__x__memory."
    files = {f"{at}limit_in_bytes": "5000", f"{at}usage_in_bytes": "6000", f"{at}stat": "total_inactive_file 9999999"}
    system = place(tmp_path, proc__self__cgroup="9:cpu:/y\n4:memory:/x\n", **files)
    assert group(system) == [(5000, 5000)]


@pytest.mark.parametrize(
    "odd",
    [
        {"sys__fs__cgroup__a__b__memory.max": "max\n"},
        {"sys__fs__cgroup__a__b__memory.max": "9223372036854771712"},
        {"sys__fs__cgroup__a__b__memory.max": "0"},
        {"sys__fs__cgroup__a__b__memory.max": "lots"},
        {"sys__fs__cgroup__a__b__memory.current": ""},
        {"sys__fs__cgroup__a__b__memory.stat": "inactive_file lots\n"},
        {"proc__self__cgroup": "rubbish"},
        {"proc__self__cgroup": "0::/../../etc\n"},
        {"proc__self__cgroup": "::\n:::\n"},
    ],
)
def test_odd_cgroup_files_are_left_out(tmp_path: Path, odd: dict[str, str]) -> None:
    system = place(tmp_path, **{**V2, **odd})
    assert group(system) == []
    assert system().places[0].total > 0


def test_stalls_are_shares_and_rubbish_is_none() -> None:
    assert stalls("some avg10=3.00 avg60=1.00 total=9\nfull avg10=1.50 avg60=0.00 total=9\n") == (0.03, 0.015)
    assert stalls("some avg10=much\nnothing") == (0, 0)


def test_devices_without_memory_or_that_fail_are_left_out() -> None:
    listed = [("CPU", "a processor", 5, 9), ("CUDA", "a GPU", 7 * MIB, 9 * MIB)]
    assert [found.name for found in System(lambda: listed)().places if found.is_device] == ["a GPU"]

    def fail() -> list[tuple[str, str, int, int]]:
        raise OSError("the driver is gone")

    assert not any(found.is_device for found in System(fail)().places)


def test_this_machine_can_be_read() -> None:
    found = System()()
    assert 0 < found.places[0].free <= found.places[0].total


# -- what is given up


def open_toy(opened: list[ToyBackend], gate: threading.Event | None = None) -> Callable[..., ToyBackend]:
    """Opens toys, the second and later ones when the gate is open."""

    def opens(stack: ExitStack, on_progress: Callable[[str, float], bool]) -> ToyBackend:
        if opened and gate is not None:
            while not gate.wait(0.01):
                if not on_progress("draft", 0.5):
                    raise KeyboardInterrupt
        opened.append(ToyBackend())
        stack.callback(opened[-1].close)
        return opened[-1]

    return opens


def go(what: str, share: float) -> bool:
    return True


class Bench:
    """A loop on toys, with a draft model and lookup, whose memory is told."""

    def __init__(self, opens: Callable[..., ToyBackend] | None = None) -> None:
        self.opened: list[ToyBackend] = []
        self.draft = Releasable(opens or open_toy(self.opened), go)
        costs = PassCosts()
        costs.set(1, 1.0)
        drafters: list[Drafter] = [NgramDrafter(), ModelDrafter(self.draft, 6)]
        controller = Controller(costs, {drafter.name: 0.05 for drafter in drafters}, max_k=8, fixed_k=2, free=["ngram"])
        self.loop = SpecLoop(ToyBackend(), drafters, controller)
        self.machine = Machine(Thresholds(calm_seconds=2))
        self.shortage = Shortage(self.loop, self.machine.watch, self.draft, lambda: [NgramDrafter()], n_kept=3)
        self.loop.watch = self.shortage.look
        self.context = [1, 2]

    def step(self, level: Level) -> str:
        """A step a second later; returns who drafted."""
        self.machine.now, self.machine.free = self.machine.now + 1, FREE[level]
        step = self.loop.step(np.array(self.context, dtype=np.int32), Sampler(GREEDY), len(self.context) - 2, 10)
        self.context += step.tokens
        return step.drafter

    def until(self, names: list[str]) -> None:
        """Steps with all memory free until these are back."""
        for _ in range(300):
            if [drafter.name for drafter in self.loop.drafters] == names:
                return
            self.step(OK)
            threading.Event().wait(0.005)
        raise AssertionError(f"{names} did not come back")

    def is_plain_text(self) -> bool:
        """Is the text what the target alone says?"""
        said = [1, 2]
        while len(said) < len(self.context):
            said.append(int(ToyBackend().row(said).argmax()))
        return said == self.context


def test_tight_memory_forgets_conversations_until_there_is_room_again() -> None:
    bench, target = Bench(), ToyBackend()
    bench.loop.backend = target
    bench.step(TIGHT)
    assert target.n_kept == 1
    bench.until(["ngram", "model"])
    assert target.n_kept == 3


def test_tight_memory_frees_the_draft_model_and_lookup_goes_on() -> None:
    bench = Bench()
    assert bench.step(OK) == "model"
    bench.step(TIGHT)
    assert bench.opened[0].closed
    assert not bench.draft.is_open
    assert [drafter.name for drafter in bench.loop.drafters] == ["ngram"]
    assert "ngram" in {bench.step(TIGHT) for _ in range(12)}
    why = bench.loop.why_plain()
    assert why.code == "memory"
    assert (
        "the model drafter was given up, because this machine had 1,000 MiB of memory left, where 1,280 MiB should "
        "stay free" in why.text
    )
    assert bench.is_plain_text()


class OwnLayers(Drafter):
    """Guesses from what the target has in memory anyway."""

    name = "layerskip"


def test_tight_memory_takes_nothing_from_drafters_without_memory_of_their_own() -> None:
    bench, own = Bench(), OwnLayers()
    bench.loop.drafters.append(own)
    bench.loop.controller.known["layerskip"] = bench.loop.controller.known["ngram"]
    bench.step(TIGHT)
    assert own in bench.loop.drafters
    assert {"ngram", "layerskip"} == bench.loop.controller.known.keys()


def test_critical_memory_leaves_plain_decode_and_empty_drafters() -> None:
    bench = Bench()
    lookup = bench.loop.drafters[0]
    assert {bench.step(CRITICAL) for _ in range(9)} == {"none"}
    assert (bench.loop.drafters, bench.loop.controller.known, bench.opened[0].closed) == ([], {}, True)
    assert "no drafter is used, because this machine had 300 MiB" in bench.loop.why_plain().text
    for _ in range(9):
        bench.step(TIGHT)
    assert [drafter.name for drafter in bench.loop.drafters] == ["ngram"]
    assert bench.loop.drafters[0] is not lookup
    assert bench.is_plain_text()


def test_everything_comes_back_with_what_was_learned_and_a_reason_until_the_next_reply() -> None:
    bench = Bench()
    bench.step(OK)
    known = bench.loop.controller.known["model"]
    bench.step(CRITICAL)
    bench.until(["ngram", "model"])
    assert bench.loop.controller.known["model"] is known
    assert bench.draft.is_open
    assert len(bench.opened) == 2
    assert bench.loop.why_plain().code == "memory"
    bench.loop.prepare(np.array(bench.context, dtype=np.int32), 9, lambda: False)
    assert bench.loop.why_plain().code != "memory"
    assert bench.is_plain_text()


def test_a_draft_that_is_being_opened_is_given_up_again() -> None:
    opened: list[ToyBackend] = []
    bench = Bench(open_toy(opened, threading.Event()))
    bench.step(TIGHT)
    for _ in range(9):
        bench.step(OK)
    assert not bench.draft.is_open
    bench.step(TIGHT)
    assert len(opened) == 1
    assert [drafter.name for drafter in bench.loop.drafters] == ["ngram"]
    assert bench.is_plain_text()


@pytest.mark.parametrize("broken", [ModelError, MemoryError, OSError])
def test_a_draft_that_cannot_be_opened_again_costs_nothing_but_itself(broken: type[Exception]) -> None:
    closed: list[str] = []

    def opens(stack: ExitStack, on_progress: Callable[[str, float], bool]) -> ToyBackend:
        stack.callback(closed.append, "weights")
        if closed:
            raise broken("draft.gguf is gone")
        return ToyBackend()

    bench = Bench(opens)
    bench.step(TIGHT)
    assert closed == ["weights"]
    for _ in range(20):
        bench.step(OK)
        threading.Event().wait(0.005)
    assert closed == ["weights", "weights"]
    assert [drafter.name for drafter in bench.loop.drafters] == ["ngram"]
    bench.loop.prepare(np.array(bench.context, dtype=np.int32), 9, lambda: False)
    assert bench.loop.why_plain().code == "draft-error"
    assert "draft.gguf is gone" in bench.loop.why_plain().text
    assert bench.is_plain_text()


def test_closing_while_a_draft_is_on_its_way_closes_it() -> None:
    opened: list[ToyBackend] = []
    gate = threading.Event()
    draft = Releasable(open_toy(opened, gate), go)
    draft.close()
    assert not draft.reopen()
    gate.set()
    draft.close()
    draft.close()
    assert all(toy.closed for toy in opened)
    assert not draft.is_open


def test_what_was_learned_of_drafters_that_are_away_is_kept_at_the_end() -> None:
    bench = Bench()
    bench.step(CRITICAL)
    bench.shortage.close()
    assert bench.loop.controller.state().keys() == {"ngram", "model"}


# -- the bundled pair


@pytest.fixture(scope="module")
def demo() -> Iterator[Engine]:
    engine = Engine(load_registry()["demo"], Options(fixed_k=3, memory=Thresholds(calm_seconds=2)))
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def plain() -> Iterator[Engine]:
    engine = Engine(load_registry()["demo"], Options(drafters=()))
    yield engine
    engine.close()


def told(engine: Engine) -> Machine:
    """A machine that this engine takes for its own."""
    machine, watch = Machine(), engine.loop.watch.__self__.watch  # type: ignore[attr-defined]
    watch.source, watch.clock, watch._next = machine.read, lambda: machine.now, 0.0
    return machine


def answer(
    engine: Engine,
    prompt: str,
    sampling: Sampling,
    machine: Machine | None = None,
    changes: dict[int, Level] | None = None,
) -> tuple[list[int], Stats]:
    """The reply's tokens; `changes` says from which chunk on memory is how."""
    tokens, stats = list[int](), None
    for n, chunk in enumerate(engine.reply([Message("user", prompt)], sampling, 80)):
        tokens, stats = tokens + list(chunk.tokens), chunk.stats
        if machine is not None:
            machine.now, machine.free = (
                machine.now + 1,
                FREE[(changes or {}).get(n, OK)] if n in (changes or {}) else machine.free,
            )
    assert stats is not None
    return tokens, stats


PROMPTS = ["What does os.path.join do?", "What does re.compile do?", "What is collections.deque?"]
CHANGES = [{2: TIGHT}, {2: CRITICAL}, {1: TIGHT, 3: CRITICAL, 5: OK}, {1: CRITICAL, 2: OK, 9: TIGHT}]


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_text_is_plain_decodes_when_memory_runs_short_in_mid_reply(
    demo: Engine, plain: Engine, sampling: Sampling, changes: dict[int, Level]
) -> None:
    machine = told(demo)
    for prompt in PROMPTS[:2]:
        machine.free = FREE[OK]
        tokens, stats = answer(demo, prompt, sampling, machine, changes)
        assert tokens == answer(plain, prompt, sampling)[0]
        assert stats.reason is not None
        assert stats.reason.code == "memory"
        assert "MiB" in stats.reason.text
        assert stats.timings()["memory_level"] == demo.memory_level


def test_the_draft_model_comes_back_and_drafts(demo: Engine, plain: Engine) -> None:
    machine = told(demo)
    answer(demo, PROMPTS[0], GREEDY, machine, {1: CRITICAL})
    machine.free = FREE[OK]
    for _ in range(50):
        tokens, stats = answer(demo, PROMPTS[1], GREEDY, machine)
        threading.Event().wait(0.02)
        if stats.drafters["model"]:
            break
    assert stats.drafters["model"] > 0
    assert tokens == answer(plain, PROMPTS[1], GREEDY)[0]


def test_memory_is_looked_after_between_replies_too(demo: Engine) -> None:
    machine = told(demo)
    answer(demo, PROMPTS[2], GREEDY, machine)
    machine.free = FREE[CRITICAL]
    machine.now += 1
    demo.tend()
    assert (demo.memory_level, demo.loop.drafters) == ("CRITICAL", [])
    assert demo.given_up.startswith("no drafter is used, because this machine had 300 MiB")
    machine.free = FREE[OK]
    for _ in range(500):
        machine.now += 1
        demo.tend()
        threading.Event().wait(0.01)
        if len(demo.loop.drafters) == len(demo.pair.drafters):
            break
    assert (demo.memory_level, demo.given_up) == ("OK", "")
    assert "model" in [drafter.name for drafter in demo.loop.drafters]


def test_freeing_the_draft_model_gives_its_memory_back() -> None:
    engine = Engine(load_registry()["demo"], Options(drafters=("model",)))
    machine = told(engine)
    answer(engine, PROMPTS[0], GREEDY, machine)
    before = psutil.Process().memory_full_info().uss
    answer(engine, PROMPTS[0], GREEDY, machine, {0: TIGHT})
    freed = before - psutil.Process().memory_full_info().uss
    assert engine.loop.drafters == []
    assert freed > 0.8 * load_registry()["demo"].draft.stat().st_size  # type: ignore[union-attr]
    engine.close()


def test_the_wrong_vocabulary_in_place_of_the_draft_is_refused_when_it_is_opened_again(
    tmp_path: Path, tiny: Path, plain: Engine
) -> None:
    pair = load_registry()["demo"]
    assert pair.draft is not None
    draft = tmp_path / "draft.gguf"
    draft.write_bytes(pair.draft.read_bytes())
    engine = Engine(replace(pair, draft=draft, drafters=("model",)), Options(memory=Thresholds(calm_seconds=2)))
    machine = told(engine)
    answer(engine, PROMPTS[0], GREEDY, machine, {0: TIGHT})
    draft.unlink()
    draft.write_bytes(tiny.read_bytes())
    machine.free = FREE[OK]
    for _ in range(50):
        tokens, stats = answer(engine, PROMPTS[1], GREEDY, machine)
        threading.Event().wait(0.02)
        if stats.reason is not None and stats.reason.code == "draft-error":
            break
    assert stats.reason is not None
    assert "draft.gguf cannot draft for" in stats.reason.text
    assert tokens == answer(plain, PROMPTS[1], GREEDY)[0]
    engine.close()
