"""A context that fills up: whole turns go, the system prompt and the last question stay, or the reply ends with a
sentence.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from runtime.conversation.chat_template import Message
from runtime.conversation.prompt import PromptEncoder
from runtime.conversation.window import PromptWindow, fit, to_block, without_oldest
from runtime.core.errors import ContextError, SettingsError, TemplateError
from runtime.engine import ChatPrompt, Sampling
from tests.conftest import OpenEngine
from tests.support.scripted import Encoder, ScriptedEngine

SYSTEM = Message("system", "Be brief.")
TALK = [
    SYSTEM,
    Message("user", "a"),
    Message("assistant", "b"),
    Message("user", "c"),
    Message("assistant", "d"),
    Message("user", "e"),
]
# Never ends its turn
WILD = Sampling(temperature=3.0, seed=1, top_k=0, top_p=1.0, min_p=0.0, logit_bias=((2, float("-inf")),))


def test_the_oldest_turn_goes_whole() -> None:
    assert [m.content for m in without_oldest(TALK)] == ["Be brief.", "c", "d", "e"]
    assert [m.content for m in without_oldest(TALK, 2)] == ["Be brief.", "e"]


def test_the_last_question_and_the_system_prompt_stay() -> None:
    assert without_oldest([SYSTEM, Message("user", "e")]) == [SYSTEM, Message("user", "e")]


def test_a_system_message_stays_wherever_it_stands() -> None:
    late = [*TALK[1:3], SYSTEM, *TALK[3:]]
    assert [m.content for m in without_oldest(late, 2)] == ["Be brief.", "e"]


def test_turns_go_for_the_reply_as_well() -> None:
    """Before it begins for all of it, up to a quarter of the context; when that is full, for what it has said."""
    talk = [Message(role, "one two three four") for _ in range(20) for role in ("user", "assistant")][:-1]
    window = PromptWindow(talk, Encoder(ScriptedEngine("")), 80, drops=True)  # type: ignore[arg-type]
    assert 40 < len(window.begin(10)) <= 70
    assert 30 < len(window.begin(None)) <= 60
    assert 0 < len(window.shrink(45)) <= 15


def test_no_more_turns_go_than_must() -> None:
    encode = lambda messages: [0] * sum(len(m.content) for m in messages)  # noqa: E731
    count = lambda message: len(message.content)  # noqa: E731
    assert [m.content for m in fit(TALK, encode, count, 12)[0]] == ["Be brief.", "c", "d", "e"]
    assert fit(TALK, encode, count, 14)[0] == TALK
    assert [m.content for m in fit(TALK, encode, count, 1)[0]] == ["Be brief.", "e"]


def test_no_more_of_a_long_talk_is_encoded_than_has_room() -> None:
    talk, encoded = [SYSTEM, *TALK[1:-1] * 1000, TALK[-1]], list[int]()

    def encode(messages: Sequence[Message]) -> list[int]:
        encoded.append(len(messages))
        return [0] * sum(len(m.content) + 3 for m in messages)

    kept, ids = fit(talk, encode, lambda message: len(message.content), 100)
    assert len(ids) <= 100 < len(encode([*talk[:1], *talk[-len(kept) - 1 :]]))
    assert sum(encoded) < 300


def test_a_talk_that_has_room_is_encoded_once_and_no_turn_is_counted() -> None:
    encoded = list[int]()

    def encode(messages: Sequence[Message]) -> list[int]:
        encoded.append(len(messages))
        return [0] * 6

    def count(message: Message) -> int:
        raise AssertionError(message)

    assert fit(TALK, encode, count, 12) == (TALK, [0] * 6)
    assert encoded == [6]


def test_the_next_questions_of_a_full_chat_begin_with_the_same_turns() -> None:
    talk = [SYSTEM, *(Message(role, f"{i:07} ") for i in range(1000) for role in ("user", "assistant"))]
    left_out = [to_block(talk, n, 256) for n in range(1, 100)]
    assert all(0 <= more - n < 16 for n, more in enumerate(left_out, start=1))  # a turn has 16 characters
    assert len(set(left_out)) < 10
    assert to_block(talk, 0, 256) == 0


def test_a_reply_that_goes_on_leaves_turns_out_too(open_demo: OpenEngine) -> None:
    talk = ChatPrompt(tuple(long_talk(20)), "It is a sequence of")
    *chunks, last = open_demo(n_ctx=128).reply(talk, WILD, max_tokens=3, when_full="drop-oldest")
    assert sum(len(chunk.tokens) for chunk in chunks) == 3
    assert "oldest turns were left out" in last.notice


def test_a_model_without_a_template_gets_plain_turns_where_that_may_be(open_demo: OpenEngine) -> None:
    vocab = open_demo().vocab
    encoder = PromptEncoder(vocab, "", "base.gguf", 128)
    ids = encoder.encode(ChatPrompt((SYSTEM, Message("user", "What is a list?")), "It is", plain=True))
    text = b"".join(vocab.pieces[token] for token in ids).decode()
    assert text == "Be brief.\n\nUser: What is a list?\n\nAssistant:It is"
    with pytest.raises(TemplateError, match=r"base.gguf has no chat template"):
        encoder.encode(ChatPrompt((SYSTEM, Message("user", "What is a list?"))))


def long_talk(n: int) -> list[Message]:
    turns = [Message(role, f"word {i} " * 3) for i in range(n) for role in ("user", "assistant")]
    return [SYSTEM, *turns, Message("user", "What is a list?")]


@pytest.mark.parametrize(
    "options", [{}, {"drafters": ("model",), "fixed_k": 5}, {"drafters": ()}], ids=["all", "model", "plain"]
)
def test_dropping_goes_on_where_stopping_ends(open_demo: OpenEngine, options: dict[str, object]) -> None:
    engine = open_demo(n_ctx=128, **options)
    talk = long_talk(3)
    stopped = list(engine.reply(talk, WILD))
    n_prompt = stopped[-1].stats.prompt_n if stopped[-1].stats else 0
    assert (stopped[-1].finish_reason, n_prompt + sum(len(c.tokens) for c in stopped)) == ("length", 128)
    assert "context of 128 tokens is full" in stopped[-1].notice
    longer = list(engine.reply(talk, WILD, max_tokens=60, when_full="drop-oldest"))
    assert sum(len(c.tokens) for c in longer) == 60
    assert "left out" in longer[-1].notice


def test_dropping_in_mid_reply_gives_the_same_text_with_any_drafter(open_demo: OpenEngine) -> None:
    texts = set()
    for options in ({}, {"drafters": ("model",), "fixed_k": 5}, {"drafters": ()}):
        chunks = open_demo(n_ctx=128, **options).reply(long_talk(2), WILD, max_tokens=100, when_full="drop-oldest")
        texts.add(tuple(token for chunk in chunks for token in chunk.tokens))
    assert len(texts) == 1


def test_a_talk_that_is_too_long_fits_when_turns_may_go(open_demo: OpenEngine) -> None:
    engine = open_demo(n_ctx=128)
    with pytest.raises(ContextError):
        engine.reply(long_talk(20), WILD)
    last = list(engine.reply(long_talk(20), WILD, max_tokens=3, when_full="drop-oldest"))[-1]
    assert last.finish_reason == "length"
    assert "oldest turns were left out" in last.notice


def test_an_unknown_policy_is_named(open_demo: OpenEngine) -> None:
    with pytest.raises(SettingsError, match="when_full is 'forget'"):
        open_demo().reply("Q", WILD, when_full="forget")
