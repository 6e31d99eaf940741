"""The bundled pair through the engine: the same text with every drafter, stops, limits, cancellation, edits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from demo.conversations import QUESTIONS
from demo.corpus import load
from demo.screenshot import picture
from runtime.core.errors import SettingsError
from runtime.engine import Engine, Message, Sampling
from runtime.engine.stats import Stats
from tests.conftest import OpenEngine

ENTRIES = load(Path(__file__).parents[2] / "demo" / "corpus.jsonl")
PROMPTS = [QUESTIONS[i % len(QUESTIONS)].format(entry.name) for i, entry in enumerate(ENTRIES[:: len(ENTRIES) // 104])]
FEW = PROMPTS[::20]
GREEDY = Sampling(temperature=0)
PlainTokens = Callable[[str, Sampling], list[int]]
WAYS = [
    {"drafters": ("model",), "fixed_k": 1},
    {"drafters": ("model",), "fixed_k": 3},
    {"drafters": ("model",), "fixed_k": 8},
    {"drafters": ("model",)},
    {"drafters": ("ngram",), "fixed_k": 4},
    {"drafters": ("ngram",)},
    {"drafters": ("lookahead",), "fixed_k": 1, "max_k": 2},
    {"drafters": ("lookahead",), "fixed_k": 3, "max_k": 4},
    {"drafters": ("lookahead",), "fixed_k": 7},
    {"drafters": ("layerskip",), "fixed_k": 3},
    {},
]


def name_of(way: dict[str, object]) -> str:
    return "-".join(f"{key}={value}" for key, value in way.items()) or "all"


def ask(engine: Engine, prompt: str, sampling: Sampling = GREEDY, **more: object) -> tuple[list[int], str, Stats]:
    chunks = list(engine.reply([Message("user", prompt)], sampling, **{"max_tokens": 60, **more}))  # type: ignore[arg-type]
    stats = chunks[-1].stats
    assert stats is not None
    return [token for chunk in chunks for token in chunk.tokens], "".join(chunk.text for chunk in chunks), stats


@pytest.fixture(scope="module")
def plain(open_demo: OpenEngine) -> Engine:
    return open_demo(drafters=())


@pytest.fixture(scope="module")
def plain_tokens(plain: Engine) -> PlainTokens:
    """Return what computes the tokens of plain decode."""
    return cache(lambda prompt, sampling: ask(plain, prompt, sampling)[0])


@pytest.mark.parametrize("way", WAYS, ids=name_of)
@pytest.mark.parametrize("prompts", [FEW, pytest.param(PROMPTS, marks=pytest.mark.slow)], ids=["few", "hundred"])
def test_greedy_text_is_plain_decodes(
    open_demo: OpenEngine, plain_tokens: PlainTokens, way: dict[str, object], prompts: list[str]
) -> None:
    engine, drafted = open_demo(**way), 0
    for prompt in prompts:
        tokens, _, stats = ask(engine, prompt)
        assert tokens == plain_tokens(prompt, GREEDY), prompt
        drafted += stats.draft_n
    assert drafted > 0 or "fixed_k" not in way  # else whether drafting pays is this machine's to say


@pytest.mark.parametrize("way", WAYS[1:], ids=name_of)
def test_seeded_text_is_plain_decodes(open_demo: OpenEngine, plain_tokens: PlainTokens, way: dict[str, object]) -> None:
    for seed, prompt in enumerate(FEW):
        sampling = Sampling(temperature=1.2, seed=seed)
        assert ask(open_demo(**way), prompt, sampling)[0] == plain_tokens(prompt, sampling)


def test_it_knows_the_library_and_the_draft_helps(open_demo: OpenEngine) -> None:
    known = drafted = accepted = 0
    for entry in ENTRIES[::40]:
        _, text, stats = ask(open_demo(drafters=("model",), fixed_k=3), f"What does {entry.name} do?", max_tokens=120)
        known += text[:200] == entry.doc[:200]
        drafted, accepted = drafted + stats.draft_n, accepted + stats.draft_n_accepted
    assert known >= 0.85 * len(ENTRIES[::40])
    assert accepted >= 0.85 * drafted


def test_drafters_may_change_in_mid_reply(open_demo: OpenEngine, plain: Engine) -> None:
    engine, prompt = open_demo(), PROMPTS[3]
    everyone, tokens = engine.decoder.active.drafters, list[int]()
    for n, chunk in enumerate(engine.reply([Message("user", prompt)], GREEDY, max_tokens=60)):
        tokens += chunk.tokens
        engine.decoder.active.drafters = [each for i, each in enumerate(everyone) if (n + i) % 2]
    engine.decoder.active.drafters = everyone
    assert tokens == ask(plain, prompt)[0]


@pytest.mark.parametrize("way", [WAYS[1], WAYS[-2], {}], ids=name_of)
def test_logprobs_are_plain_decodes(open_demo: OpenEngine, plain: Engine, way: dict[str, object]) -> None:
    def all_of(engine: Engine) -> list[object]:
        chunks = engine.reply([Message("user", PROMPTS[5])], GREEDY, max_tokens=40, n_logprobs=3)
        return [entry for chunk in chunks for entry in zip(chunk.tokens, chunk.logprobs, strict=True)]

    found = all_of(open_demo(**way))
    assert found == all_of(plain)
    assert len(found) > 3


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"stops": ["x"] * 10_000}, "stop has 10000"),
        ({"max_tokens": -1}, "max_tokens is -1"),
        ({"n_logprobs": 4097}, "n_logprobs"),
        ({"n_logprobs": -1}, "n_logprobs"),
    ],
)
def test_senseless_wishes_are_named(plain: Engine, more: dict[str, object], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        plain.reply("Q", GREEDY, **more)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="names token 4096, but the model has 4096"):
        plain.reply("Q", Sampling(logit_bias=((4096, 1.0),)))


def test_an_edited_conversation_is_answered_as_a_fresh_one(open_demo: OpenEngine, plain: Engine) -> None:
    first, second = Message("user", "What does math.sqrt do?"), Message("user", "And math.floor?")
    for turns in (
        [first],
        [first, Message("assistant", "Something else."), second],
        [second],
        [first, Message("assistant", "Else."), second],
    ):
        texts = {"".join(c.text for c in engine.reply(turns, GREEDY, max_tokens=40)) for engine in (open_demo(), plain)}
        assert len(texts) == 1


def test_the_context_may_fill_to_its_last_token(open_demo: OpenEngine) -> None:
    for options in ({}, {"drafters": ("model",), "fixed_k": 8}, {"drafters": ()}):
        engine = open_demo(n_ctx=48, **options)
        chunks = list(
            engine.reply("What is a list" * 7, Sampling(temperature=3.0, seed=1, top_k=0, top_p=1.0, min_p=0.0))
        )
        n_prompt = chunks[-1].stats.prompt_n if chunks[-1].stats else 0
        n_reply = sum(len(chunk.tokens) for chunk in chunks)
        assert chunks[-1].finish_reason in ("length", "stop")
        assert n_prompt + n_reply <= 48
        assert chunks[-1].finish_reason == "stop" or n_prompt + n_reply == 48


def test_a_second_turn_decodes_only_what_is_new(open_demo: OpenEngine) -> None:
    engine, turns = open_demo(drafters=("ngram",)), [Message("user", "What does re.compile do?")]
    reply = "".join(chunk.text for chunk in engine.reply(turns, GREEDY))
    turns += [Message("assistant", reply), Message("user", "What does re.escape do?")]
    last = list(engine.reply(turns, GREEDY))[-1]
    assert last.stats is not None
    assert last.stats.cached_n > 0.5 * last.stats.prompt_n


@pytest.mark.slow
def test_the_picture_of_the_readme_can_be_made_anew(tmp_path: Path) -> None:
    asyncio.run(picture(tmp_path / "chat.svg"))
    drawn = (tmp_path / "chat.svg").read_text(encoding="utf8").replace("&#160;", " ")
    assert "What is collections.deque?" in drawn
    assert "Guessed ahead" in drawn
