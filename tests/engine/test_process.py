"""The models in a process of their own: whatever happens to it, replies go on with the same text, or end with a
sentence.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from random import Random
from threading import Event, Thread

import psutil
import pytest

from bench.instruments.concurrent_replies import Concurrent
from runtime.core.errors import ContextError, SettingsError, TemplateError
from runtime.engine import Chunk, Grammar, Message, Options, Sampling, sampling_of
from runtime.engine.process import answers, client
from runtime.engine.process.client import EngineProcess
from runtime.models.registry import load_registry
from tests.conftest import OpenEngine
from tests.support.mishaps import PIECE
from tests.support.quick import others_slow

DEMO = load_registry()["demo"]
QUESTION = [Message("user", "What does os.path.join do?")]
LONG = [Message("user", "Explain this:\n" + "def f(x): return x + 1\n" * 25)]
GREEDY, SEEDED = Sampling(temperature=0), Sampling(temperature=0.9, seed=7)
MIROSTAT = sampling_of({"mirostat": 2, "mirostat_eta": 0.9, "temperature": 2.5}, seed=7)
SIGNALS = (signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV)


@pytest.fixture
def engine(said: list[str]) -> Iterator[EngineProcess]:
    found = EngineProcess(DEMO, Options(threads=1), say=said.append)
    yield found
    found.close()


def hit(engine: EngineProcess, number: signal.Signals = signal.SIGKILL) -> None:
    """Ends the engine's process."""
    with suppress(ProcessLookupError):  # it was hit before
        os.kill(engine.kept.current._process.pid, number)


def text_of(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks)


@pytest.mark.parametrize("sampling", others_slow([GREEDY, SEEDED, MIROSTAT], [SEEDED]))
@pytest.mark.parametrize("number", SIGNALS)
def test_a_reply_goes_on_with_the_same_text(
    engine: EngineProcess, said: list[str], open_demo: OpenEngine, sampling: Sampling, number: signal.Signals
) -> None:
    whole = list(open_demo(threads=1).reply(QUESTION, sampling, 120))
    chunks: list[Chunk] = []
    for chunk in engine.reply(QUESTION, sampling, 120):
        chunks.append(chunk)
        if len(chunks) == 2:
            hit(engine, number)
    assert text_of(chunks) == text_of(whole)
    assert [token for chunk in chunks for token in chunk.tokens] == [t for chunk in whole for t in chunk.tokens]
    assert (chunks[-1].finish_reason, len(said)) == (whole[-1].finish_reason, 1)
    stats = chunks[-1].stats
    assert stats is not None
    assert stats.predicted_n == sum(len(chunk.tokens) for chunk in chunks) == sum(p.n_tokens for p in engine.passes())


@pytest.mark.parametrize("seed", others_slow(range(2), [0]))
def test_it_may_be_lost_at_any_moment(engine: EngineProcess, open_demo: OpenEngine, seed: int) -> None:
    """While it reads, replies, rewinds or starts."""
    rng, plain = Random(seed), open_demo(threads=1, drafters=())
    for _ in range(3):
        question, sampling = rng.choice([QUESTION, LONG]), rng.choice([GREEDY, SEEDED])
        killer = Thread(target=lambda: (time.sleep(rng.uniform(0, 0.3)), hit(engine, rng.choice(SIGNALS))))
        killer.start()
        said = text_of(list(engine.reply(question, sampling, 30)))
        killer.join()
        assert said == text_of(list(plain.reply(question, sampling, 30)))


def test_what_binds_a_reply_binds_it_after_a_loss(engine: EngineProcess, open_demo: OpenEngine) -> None:
    form = Grammar("regex", r"[a-z]{8} [A-Z]{8} [0-9]{8}")
    whole = list(open_demo(threads=1).reply(QUESTION, GREEDY, 60, stops=["7"], grammar=form, n_logprobs=2))
    chunks: list[Chunk] = []
    for chunk in engine.reply(QUESTION, GREEDY, 60, ["7"], grammar=form, n_logprobs=2):
        chunks.append(chunk)
        if len(chunks) in (2, 9):
            hit(engine)
    assert text_of(chunks) == text_of(whole)
    assert [entry.token for c in chunks for entry in c.logprobs] == [entry.token for c in whole for entry in c.logprobs]


def test_replies_in_turns_all_go_on(open_demo: OpenEngine) -> None:
    engine = EngineProcess(DEMO, Options(threads=1, slots=3))
    whole = [text_of(list(open_demo(threads=1).reply(QUESTION, each, 30))) for each in (GREEDY, SEEDED)]
    replies = [engine.reply(QUESTION, each, 30) for each in (GREEDY, SEEDED)]
    said = ["", ""]
    for n in range(200):
        for i, reply in enumerate(replies):
            said[i] += next(reply, Chunk("")).text
        if n == 3:
            hit(engine)
    assert said == whole
    engine.close()


def test_text_and_replies_get_over_losses_side_by_side(engine: EngineProcess) -> None:
    wanted, n_asked, errors = engine.tokenize("a list of lists"), 0, list[Exception]()
    is_over = Event()

    def ask() -> None:
        nonlocal n_asked
        while not is_over.is_set():
            try:
                assert engine.tokenize("a list of lists") == wanted
            except Exception as error:
                errors.append(error)
            n_asked += 1

    threads = [Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(2):
        before = n_asked
        text_of(list(engine.reply(QUESTION, GREEDY, 5)))
        hit(engine)
        while n_asked < before + 100:
            time.sleep(0.01)
    is_over.set()
    for thread in threads:
        thread.join()
    assert not errors


def test_a_reply_is_not_blamed_for_what_happens_beside_it(open_demo: OpenEngine) -> None:
    whole = text_of(list(open_demo(threads=1).reply(QUESTION, GREEDY, 30)))
    engine = EngineProcess(DEMO, Options(threads=1, slots=3, drafters=()))
    reply = engine.reply(QUESTION, GREEDY, 30)
    said = next(reply).text
    for _ in range(3):  # one more than a reply survives
        next(other := engine.reply(LONG, SEEDED, 30))
        hit(engine)
        next(other)
        said += next(reply).text
    assert said + text_of(list(reply)) == whole
    engine.close()


def test_who_cancels_does_not_wait_for_what_hangs(unlucky: EngineProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "LAST", 0.5)
    n_asked = count()
    *_, last = unlucky.reply("[hang] What is a list?", GREEDY, 20, cancel=lambda: next(n_asked) > 20)
    assert last.finish_reason == "cancelled"
    assert text_of(list(unlucky.reply(QUESTION, GREEDY, 20))).startswith("Join")  # after a new start


def test_what_nobody_wants_any_more_is_not_begun(engine: EngineProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = list[object]()
    monkeypatch.setattr(engine.kept.living(), "add", lambda *asked: begun.append(asked))
    (last,) = engine.reply(QUESTION, GREEDY, cancel=lambda: True)
    assert (last.text, last.finish_reason, begun) == ("", "cancelled", [])


def test_text_that_takes_too_long_is_given_up(unlucky: EngineProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "SECONDS", 0.3)
    with pytest.raises(TemplateError, match="was stopped"):
        unlucky.tokenize("[slow text]")
    assert unlucky.tokenize("quick")


def test_what_takes_too_long_to_begin_is_given_up(unlucky: EngineProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:  # a new process takes longer, as it begins another one for templates
        patch.setattr(client, "BEGIN", 1.0)
        with pytest.raises(SettingsError, match=r"took more than 1 s, so it was stopped"):
            unlucky.reply("[slow beginning] What is a list?", GREEDY, 20)
    assert text_of(list(unlucky.reply(QUESTION, GREEDY, 20))).startswith("Join")


def test_who_comes_while_others_read_a_long_piece_waits(
    unlucky: EngineProcess, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    together = Concurrent(unlucky)
    first = together.add(("[long piece] What is a list?", GREEDY, None), 20)
    together.until(lambda: first.n_pieces)
    monkeypatch.setattr(client, "BEGIN", PIECE / 3)  # from here on, as this process prepares its first request slowly
    second = together.add(("What is a tuple?", GREEDY, None), 20)
    together.until(lambda: not together.live)
    assert (first.error, second.error, said) == (None, None, [])
    assert first.tokens
    assert second.tokens


def test_errors_come_as_they_are(engine: EngineProcess, open_demo: OpenEngine) -> None:
    bad, errors = Sampling(logit_bias=((10**6, 1.0),)), list[str]()
    for each in (open_demo(threads=1), engine):
        with pytest.raises(SettingsError) as raised:
            each.reply(QUESTION, bad)
        errors.append(str(raised.value))
    assert errors[0] == errors[1]
    with pytest.raises(TypeError, match="len"):
        engine.tokenize(5)  # type: ignore[arg-type]


def test_what_is_refused_is_not_held_on_to(engine: EngineProcess) -> None:
    """A cycle with the error's traceback would keep it until the next collection, which may be long."""
    text = "word " * 20 * engine.facts.n_ctx
    before = sys.getrefcount(text)
    gc.disable()
    try:
        with suppress(ContextError):
            engine.tokenize(text, bos=True)
            pytest.fail("it fits")
        assert sys.getrefcount(text) == before
    finally:
        gc.enable()


def test_loading_can_be_given_up(said: list[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        EngineProcess(DEMO, Options(threads=1), lambda what, share: False)


def test_nothing_is_left_when_the_person_is_gone() -> None:
    script = (
        "import time\nfrom runtime.models.registry import load_registry\n"
        "from runtime.engine.process.client import EngineProcess\n"
        "from runtime.engine import Options\n"
        "engine = EngineProcess(load_registry()['demo'], Options(threads=1))\n"
        "print(engine.kept.current._process.pid, flush=True)\ntime.sleep(60)"
    )
    person = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert person.stdout is not None
    child = psutil.Process(int(person.stdout.readline()))
    person.kill()
    person.wait()
    person.stdout.close()
    gone, _ = psutil.wait_procs([child], timeout=20)
    assert gone
