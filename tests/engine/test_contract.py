"""What an engine promises those who ask it for replies, held against the one in another process, as people have it, the
one in this process, and the scripted one that stands in for both; with drafts and without.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from runtime.core.draft import NO_DRAFT, Draft, Logits, Tokens
from runtime.core.errors import ContextError
from runtime.engine import ChatPrompt, Chunk, Engine, Ids, Message, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.engine.order import PIECE
from runtime.engine.process.client import EngineProcess
from runtime.models.registry import load_registry
from tests.conftest import OpenEngine
from tests.support.scripted import ScriptedEngine
from tests.support.serving import shared_process

SAID = "Join two or more pathname components as needed, and leave out what comes before an absolute one."
QUESTION = [Message("user", "What does os.path.join do?")]
GREEDY = Sampling(temperature=0)
AnyEngine = Engine | ScriptedEngine


@pytest.fixture(params=["real", "real, plain", "real, here", "scripted", "scripted, plain"])
def engine(request: pytest.FixtureRequest, open_demo: OpenEngine) -> AnyEngine:
    """One that drafts, or one that does not."""
    engines: dict[str, Callable[[], AnyEngine]] = {
        "real": lambda: shared_process(drafters=("model",), fixed_k=3),
        "real, plain": lambda: shared_process(drafters=()),
        "real, here": lambda: open_demo(drafters=("model",), fixed_k=3),
        "scripted": lambda: ScriptedEngine(SAID),
        "scripted, plain": lambda: ScriptedEngine(SAID, drafter=""),
    }
    return engines[request.param]()


@pytest.fixture
def drafts(request: pytest.FixtureRequest) -> bool:
    """Does the engine of this test draft?"""
    return "plain" not in request.node.callspec.params["engine"]


def text_of(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks)


def tokens_of(chunks: list[Chunk]) -> list[int]:
    return [token for chunk in chunks for token in chunk.tokens]


def after(n: int) -> Callable[[], bool]:
    """Says yes when it was asked `n` times."""
    left = iter([False] * n)
    return lambda: next(left, True)


def test_the_text_is_that_of_the_pieces_and_every_token_has_a_piece_and_a_flag(engine: AnyEngine) -> None:
    *chunks, last = engine.reply(QUESTION, GREEDY)
    assert chunks
    for chunk in chunks:
        assert chunk.tokens
        assert len(chunk.tokens) == len(chunk.pieces) == len(chunk.drafted)
        assert "".join(chunk.pieces) == chunk.text
    assert (last.tokens, last.drafted, "".join(last.pieces)) == ((), (), last.text)
    assert text_of([*chunks, last]).startswith("Join two or more")


def test_the_last_token_of_a_pass_is_the_targets_own_unless_the_reply_ends_before_it(engine: AnyEngine) -> None:
    *chunks, before_last, _ = engine.reply(QUESTION, GREEDY)
    assert not any(chunk.drafted[-1] for chunk in chunks)
    for chunk in [*chunks, before_last]:
        assert list(chunk.drafted) == sorted(chunk.drafted, reverse=True)


def test_only_the_last_chunk_has_a_reason_and_numbers(engine: AnyEngine) -> None:
    *chunks, last = engine.reply(QUESTION, GREEDY)
    assert {(chunk.finish_reason, chunk.stats) for chunk in chunks} == {(None, None)}
    assert last.finish_reason == "stop"
    assert last.stats is not None


def test_the_numbers_add_up(engine: AnyEngine, drafts: bool) -> None:
    *chunks, last = engine.reply(QUESTION, GREEDY)
    stats, flags = last.stats, [flag for chunk in chunks for flag in chunk.drafted]
    assert stats is not None
    assert stats.prompt_n == len(engine.encode(QUESTION))
    assert stats.predicted_n == len(tokens_of(chunks)) == len(flags)
    assert stats.n_passes == len(chunks) == sum(stats.k.values()) == sum(stats.drafters.values())
    assert stats.draft_n_accepted == sum(flags) <= stats.draft_n
    assert sum(k * n for k, n in stats.k.items()) == stats.draft_n
    assert 0 < stats.draft_seconds + stats.verify_seconds <= stats.decode_seconds
    assert (stats.draft_n > 0) == (sum(flags) > 0) == drafts
    assert (stats.reason is None) == drafts  # else it says why passes were plain
    assert stats.timings()["predicted_n"] == stats.predicted_n


@pytest.mark.parametrize("n", [1, 2, 5])
def test_max_tokens_are_kept_to_the_token(engine: AnyEngine, n: int) -> None:
    whole = tokens_of(list(engine.reply(QUESTION, GREEDY)))
    *chunks, last = engine.reply(QUESTION, GREEDY, max_tokens=n)
    assert (tokens_of(chunks), last.finish_reason) == (whole[:n], "length")
    assert last.stats is not None
    assert last.stats.predicted_n == n


def test_a_stop_string_and_what_follows_it_never_come(engine: AnyEngine) -> None:
    whole = text_of(list(engine.reply(QUESTION, GREEDY)))
    stop = whole[len(whole) // 2 :][:5]
    *chunks, last = engine.reply(QUESTION, GREEDY, stops=[stop])
    assert text_of([*chunks, last]) == whole[: whole.index(stop)]
    assert last.finish_reason == "stop"


@pytest.mark.parametrize("drafters", [(), ("model",)])
def test_one_pass_reads_a_prompt_and_says_the_first_token(open_demo: OpenEngine, drafters: tuple[str, ...]) -> None:
    engine, asked = open_demo(drafters=drafters), list[int]()
    forward = engine.decoder.target.backend.forward

    def counted(context: Tokens, draft: Draft = NO_DRAFT, exact: bool = True) -> Logits:
        asked.append(len(draft.tokens))
        return forward(context, draft, exact)

    engine.decoder.target.backend.forward = counted  # type: ignore[method-assign]
    *_, last = engine.reply([Message("user", "What does shutil.rmtree do?")], GREEDY, 1)
    assert asked == [0]
    assert last.stats is not None
    assert last.stats.prompt_seconds > 0 < last.stats.decode_seconds


@pytest.mark.parametrize("engine", ["real", "real, plain", "real, here"], indirect=True)
def test_a_prompt_may_be_read_alone(engine: AnyEngine) -> None:
    *_, last = engine.reply(QUESTION, GREEDY, 0)
    assert (last.text, last.finish_reason, last.stats and last.stats.predicted_n) == ("", "length", 0)
    *_, last = engine.reply(QUESTION, GREEDY, 1)
    assert last.stats is not None
    assert last.stats.cached_n == last.stats.prompt_n - 1


@pytest.mark.parametrize("n_asked", [0, 1, 3, 5])
def test_who_cancels_gets_what_came_and_an_end(engine: AnyEngine, n_asked: int) -> None:
    whole = text_of(list(engine.reply(QUESTION, GREEDY)))
    *chunks, last = engine.reply(QUESTION, GREEDY, cancel=after(n_asked))
    assert last.finish_reason == "cancelled"
    assert whole.startswith(text_of([*chunks, last]))
    assert len(chunks) <= n_asked or isinstance(engine, EngineProcess)  # which may send several before one is asked for
    assert last.stats is not None
    assert last.stats.predicted_n == len(tokens_of(chunks))


def test_reading_a_prompt_is_reported_up_to_its_last_token_but_one(engine: AnyEngine) -> None:
    seen: list[tuple[int, int]] = []
    list(engine.reply(QUESTION, GREEDY, 1, on_prefill=lambda *progress: seen.append(progress)))
    total = len(engine.encode(QUESTION)) - 1
    assert seen == sorted(seen)
    assert seen[-1] == (total, total)


@pytest.mark.parametrize("engine", ["real", "real, here"], indirect=True)
def test_what_was_read_of_a_prompt_before_it_was_cancelled_is_not_read_again(engine: AnyEngine) -> None:
    long, seen = [Message("user", "What does os.path.join do? " * 80)], list[tuple[int, int]]()

    def has_read_a_piece() -> bool:
        return bool(seen) and seen[-1][0] >= PIECE

    list(engine.reply(long, GREEDY, 1, on_prefill=lambda *progress: seen.append(progress), cancel=has_read_a_piece))
    n_read, total = seen[-1]
    assert n_read < total
    seen.clear()
    *_, last = engine.reply(long, GREEDY, 1, on_prefill=lambda *progress: seen.append(progress))
    assert last.stats is not None
    assert n_read <= seen[0][0] == last.stats.cached_n
    assert seen[-1] == (total, total)


def test_passes_and_what_decides_can_be_looked_at_during_a_reply_and_after_it(engine: AnyEngine) -> None:
    for n, chunk in enumerate(engine.reply(QUESTION, GREEDY), start=1):
        if chunk.finish_reason is None:
            assert len(engine.passes()) >= n  # of quick ones several come in a message
            assert engine.passes(n - 1)[0].n_tokens == len(chunk.tokens)
        decision = engine.explain()
        assert min(decision.pass_seconds) > 0
        assert decision.plain_per_second > 0
    passes = engine.passes()
    assert chunk.stats is not None
    assert sum(each.n_tokens for each in passes) == chunk.stats.predicted_n
    assert sum(each.n_drafted for each in passes) == chunk.stats.draft_n
    assert all(each.n_tokens <= each.n_accepted + 1 <= each.n_drafted + 1 for each in passes)
    assert engine.passes(len(passes)) == ()


def test_a_prompt_that_does_not_fit_is_refused_when_it_is_asked(engine: AnyEngine) -> None:
    for prompt in ([Message("user", "many words " * engine.facts.n_ctx)], Ids((5,) * engine.facts.n_ctx)):
        with pytest.raises(ContextError, match=f"but the context holds {engine.facts.n_ctx}"):
            engine.reply(prompt, GREEDY)
    with pytest.raises(ContextError, match="empty"):
        engine.reply("", GREEDY)
    assert text_of(list(engine.reply(QUESTION, GREEDY))).startswith("Join two")


def test_turns_may_be_left_out_of_a_conversation_that_does_not_fit(engine: AnyEngine) -> None:
    long = [Message("user", "many words " * (engine.facts.n_ctx // 2)), Message("assistant", "Yes.")]
    with pytest.raises(ContextError):
        engine.reply([*long, *QUESTION], GREEDY)
    *_, last = engine.reply([*long, *QUESTION], GREEDY, 3, when_full="drop-oldest")
    assert last.stats is not None
    assert last.stats.prompt_n == len(engine.encode(QUESTION))


def test_who_cancels_before_the_reply_begins_hears_that_it_ended(engine: AnyEngine) -> None:
    long = [Message("user", "many words " * (engine.facts.n_ctx // 2)), Message("assistant", "Yes.")]
    for prompt in ([*long, *QUESTION], QUESTION):
        chunks = list(engine.reply(prompt, GREEDY, cancel=lambda: True, when_full="drop-oldest"))
        assert (chunks[-1].finish_reason, tokens_of(chunks)) == ("cancelled", [])
    assert text_of(list(engine.reply(QUESTION, GREEDY))).startswith("Join two")


def test_a_conversation_goes_on_after_what_its_reply_has_begun_with(engine: AnyEngine) -> None:
    whole = text_of(list(engine.reply(QUESTION, GREEDY)))
    begun = whole[: whole.index(" ", len(whole) // 3)]
    if not isinstance(engine, ScriptedEngine):  # which says the same whatever it is asked
        assert begun + text_of(list(engine.reply(ChatPrompt(tuple(QUESTION), begun), GREEDY))) == whole
    assert engine.encode(ChatPrompt(tuple(QUESTION))) == engine.encode(QUESTION)


def test_a_reply_that_nobody_wants_to_hear_to_its_end_harms_no_other(engine: AnyEngine) -> None:
    whole = tokens_of(list(engine.reply(QUESTION, GREEDY)))
    for n in range(3):
        chunks = engine.reply(QUESTION, GREEDY)
        for _ in range(n):
            next(chunks)
        chunks.close()  # type: ignore[attr-defined]
        assert tokens_of(list(engine.reply(QUESTION, GREEDY))) == whole


def test_token_ids_are_a_prompt_as_they_are(engine: AnyEngine) -> None:
    ids = Ids(tuple(engine.encode(QUESTION)))
    assert engine.encode(ids) == list(ids.tokens)
    assert text_of(list(engine.reply(ids, GREEDY, 5))) == text_of(list(engine.reply(QUESTION, GREEDY, 5)))
    assert engine.tokenize("") == []
    assert len(engine.tokenize("two words")) >= 2


def test_memory_is_told_in_words(engine: AnyEngine) -> None:
    assert engine.status.memory_level == "OK"
    assert "fits" in engine.facts.fit
    assert (engine.facts.left_out, engine.status.given_up) == ("", "")


@pytest.mark.parametrize(
    "opens",
    [
        lambda: LoadedEngine(load_registry()["demo"], Options(threads=1, drafters=())),
        lambda: EngineProcess(load_registry()["demo"], Options(threads=1, drafters=())),
        lambda: ScriptedEngine(SAID),
    ],
)
def test_it_may_be_closed_twice(opens: Callable[[], AnyEngine]) -> None:
    engine = opens()
    first = next(iter(engine.reply(QUESTION, GREEDY)))
    engine.close()
    engine.close()
    assert first.text.startswith("Join")


@pytest.mark.parametrize("name", ["answer", "encode", "tokenize", "passes", "explain", "close"])
def test_the_scripted_engine_takes_only_what_the_real_one_takes(name: str) -> None:
    real, scripted = (
        list(inspect.signature(getattr(kind, name)).parameters) for kind in (LoadedEngine, ScriptedEngine)
    )
    assert scripted == [parameter for parameter in real if parameter in scripted]
