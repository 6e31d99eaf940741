"""Conversations fitted to templates that take less than others; each template here has one family's ways."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest

from runtime.conversation.chat_template import ChatTemplate, Message
from runtime.conversation.fitting import Fitted, Fitting
from runtime.conversation.past_calls import single_calls, with_ids
from runtime.conversation.prompt import ChatPrompt, PromptEncoder
from runtime.conversation.turns import calls_of, late_system_as_user, one_reply
from runtime.core.errors import TemplateError
from tests.support.awkward import AWKWARD, conversation, texts

TURN = "[{{ m.role }}]{{ m.content }}"
CALLS = "{% for c in m.tool_calls or () %}<{{ c.function.name }} {{ c.function.arguments | tojson }}>{% endfor %}"
LIKE_GEMMA = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}{% for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}{% endif %}"
    f"{TURN}{{% endfor %}}"
)
LIKE_MISTRAL = (
    "{% set ns = namespace(n=0) %}{% for m in messages %}"
    "{% if m.role == 'user' or (m.role == 'assistant' and not m.tool_calls) %}"
    "{% if (m.role == 'user') != (ns.n % 2 == 0) %}{{ raise_exception('alternate') }}{% endif %}"
    "{% set ns.n = ns.n + 1 %}{% endif %}"
    "{% if m.role == 'system' and not loop.first %}{{ raise_exception('no late system') }}{% endif %}"
    "{% for c in m.tool_calls or () %}{% if c.id | length != 9 %}{{ raise_exception('ids') }}{% endif %}{% endfor %}"
    f"{TURN}{CALLS}{{% endfor %}}"
)
LIKE_LLAMA = (
    "{% for m in messages %}{% if m.tool_calls and m.tool_calls | length != 1 %}"
    "{{ raise_exception('one call') }}{% endif %}"
    f"{{% if m.tool_calls %}}[call]{CALLS}{{% else %}}{TURN}{{% endif %}}{{% endfor %}}"
)
DROPS = f"{{% for m in messages %}}{{% if m.role != 'system' or loop.first %}}{TURN}{CALLS}{{% endif %}}{{% endfor %}}"
NO_TOOLS = f"{{% for m in messages %}}{{% if m.role != 'tool' %}}{TURN}{{% endif %}}{{% endfor %}}"
NO_CALLS = f"{{% for m in messages %}}{TURN}{{% endfor %}}"
ONE_RESULT = (
    "{% for m in messages %}{% if m.role == 'tool' and messages[loop.index0 - 1].role == 'tool' %}"
    f"{{{{ raise_exception('one result') }}}}{{% endif %}}{TURN}{CALLS}{{% endfor %}}"
)
LIKE_R1 = (  # calls only beside null, and their arguments as text
    "{% for m in messages %}{% if m.content is none %}{% for c in m.tool_calls %}<"
    "{{ '' + c.function.name + c.function.arguments }}>{% endfor %}"
    f"{{% else %}}{TURN}{{% endif %}}{{% endfor %}}"
)
QUESTION = "{% if messages | selectattr('role', 'equalto', 'user') | list | length == 0 %}{{ raise_exception('q') }}"
NEEDS_QUESTION = f"{QUESTION}{{% endif %}}{{% for m in messages %}}{TURN}{CALLS}{{% endfor %}}"
AFTER_CALLS = (
    "{% set ns = namespace(called=false) %}{% for m in messages %}"
    "{% if m.role == 'tool' and not ns.called %}{{ raise_exception('no call') }}{% endif %}"
    "{% if m.role != 'tool' %}{% set ns.called = m.tool_calls | length > 0 %}{% endif %}"
    f"{TURN}{CALLS}{{% endfor %}}"
).replace("m.tool_calls | length > 0", "(m.tool_calls or ()) | length > 0")
TAKES_ALL = f"{{% for m in messages %}}{TURN}{CALLS}{{% endfor %}}"
ALL = {
    "gemma": LIKE_GEMMA, "mistral": LIKE_MISTRAL, "llama": LIKE_LLAMA, "drops": DROPS, "no tools": NO_TOOLS,
    "no calls": NO_CALLS, "one result": ONE_RESULT, "r1": LIKE_R1, "question": NEEDS_QUESTION, "calls": AFTER_CALLS,
    "all": TAKES_ALL,
}  # fmt: skip


@cache
def fitting(source: str) -> Fitting:
    return Fitting(ChatTemplate(source), has_tools=False)


def fitted(source: str, letters: str) -> Fitted:
    return fitting(source).fit(conversation(letters))


def written(source: str, letters: str) -> str:
    return ChatTemplate(source).render(fitted(source, letters).messages)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("letters", AWKWARD)
def test_every_conversation_is_taken_whole(name: str, letters: str) -> None:
    messages, text = conversation(letters), written(ALL[name], letters)
    assert [word for word in texts(messages) if word not in text] == []


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("letters", AWKWARD)
def test_what_a_template_takes_is_not_touched(name: str, letters: str) -> None:
    messages = conversation(letters)
    try:
        text = ChatTemplate(ALL[name]).render(messages)
    except TemplateError:
        text = ""
    takes = bool(text) and all(word in text for word in texts(messages))
    found = fitted(ALL[name], letters)
    assert (list(found.messages) == messages, found.changes == ()) == (takes, takes)


@pytest.mark.parametrize(
    ("source", "letters", "expected", "changes"),
    [
        (LIKE_GEMMA, "SU", "[user]text0.\n\ntext1.", ["system text moved into a user turn"]),
        (LIKE_GEMMA, "S", "[user]text0.", ["system text moved into a user turn"]),
        (LIKE_GEMMA, "UUAU", "[user]text0.\n\ntext1.[assistant]text2.[user]text3.", ["user messages in a row joined"]),
        (LIKE_GEMMA, "UAAU", "[user]text0.[assistant]text1.\n\ntext2.[user]text3.",
         ["assistant messages in a row joined"]),
        (LIKE_GEMMA, "AU", "[user][assistant]text0.[user]text1.", ["an empty user turn put before the first reply"]),
        (LIKE_GEMMA, "UXT",
         '[user]text0.[assistant]text1.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "town0."}}\n'
         "</tool_call>[user]<tool_response>\ntext2.\n</tool_response>",
         ["calls and their results written as text"]),
        (LIKE_MISTRAL, "SUASU", "[system]text0.[user]text1.[assistant]text2.[user]text3.\n\ntext4.",
         ["a later system message moved into a user turn"]),
        (LIKE_MISTRAL, "SUAS", "[system]text0.[user]text1.[assistant]text2.[user]text3.",
         ["a later system message moved into a user turn"]),
        (LIKE_MISTRAL, "US", "[user]text0.\n\ntext1.", ["a later system message moved into a user turn"]),
        (LIKE_MISTRAL, "SSU", "[system]text0.\n\ntext1.[user]text2.", ["system messages joined"]),
        (LIKE_MISTRAL, "UCTU", '[user]text0.[assistant]<get_weather {"city": "town0."}>[tool]text2.[assistant]'
         "[user]text3.",
         ["a reply put between a tool result and the user's message", "calls written in the template's form"]),
        (LIKE_MISTRAL, "UACT", '[user]text0.[assistant]text1.<get_weather {"city": "town0."}>[tool]text3.',
         ["assistant messages in a row joined", "calls written in the template's form"]),
        (LIKE_LLAMA, "UDTT", '[user]text0.[call]<get_weather {"city": "town0."}>[tool]text2.'
         '[call]<get_weather {"city": "town1."}>[tool]text3.',
         ["each call given a message of its own"]),
        (LIKE_LLAMA, "UXT", '[user]text0.[assistant]text1.[call]<get_weather {"city": "town0."}>[tool]text2.',
         ["text separated from the call after it"]),
        (DROPS, "UAS", "[user]text0.[assistant]text1.[user]text2.", ["a later system message moved into a user turn"]),
        (ONE_RESULT, "UDTT", '[user]text0.[assistant]<get_weather {"city": "town0."}><get_weather {"city": "town1."}>'
         f"[tool]Result of get_weather (call_{0:024}):\n\ntext2.\n\nResult of get_weather (call_{1:024}):\n\ntext3.",
         ["tool results joined"]),
        (LIKE_R1, "UCT", '[user]text0.<get_weather{"city": "town0."}>[tool]text2.',
         ["calls written in the template's form"]),
        (NO_CALLS, "UCT", '[user]text0.[assistant]<tool_call>\n{"name": "get_weather", "arguments": {"city": '
         '"town0."}}\n</tool_call>[tool]text2.', ["calls written as text"]),
        (NEEDS_QUESTION, "S", "[user]text0.", ["system text moved into a user turn"]),
        (AFTER_CALLS, "UTAU", "[user]text0.[user]<tool_response>\ntext1.\n</tool_response>[assistant]text2."
         "[user]text3.", ["a result without a call written as text"]),
    ],
)  # fmt: skip
def test_only_what_is_refused_is_changed(source: str, letters: str, expected: str, changes: Sequence[str]) -> None:
    assert written(source, letters) == expected
    assert list(fitted(source, letters).changes) == changes


def test_an_id_is_the_same_in_every_request_and_the_same_for_call_and_result() -> None:
    def ids(letters: str) -> list[str]:
        found = fitted(LIKE_MISTRAL, letters).messages
        return [call["id"] for m in found for call in m.more.get("tool_calls", ())] + [
            m.more["tool_call_id"] for m in found if m.role == "tool"
        ]

    first, second = ids("UCT"), ids("UCTCT")
    assert (second[0], second[2]) == (first[0], first[1]) == (first[0], first[0])
    assert second[1] == second[3] != second[0]
    assert {len(name) for name in second} == {9}


def test_calls_without_ids_get_them_where_a_template_wants_them() -> None:
    bare = [{key: value for key, value in call.items() if key != "id"} for m in conversation("UD")[1:]
            for call in m.more["tool_calls"]]  # fmt: skip
    asked = [Message("user", "u"), Message("assistant", "", {"tool_calls": bare})]
    found = fitting(LIKE_MISTRAL).fit([*asked, Message("tool", "a"), Message("tool", "b")])
    ids = [call["id"] for call in found.messages[1].more["tool_calls"]]
    assert [m.more["tool_call_id"] for m in found.messages[2:]] == ids
    assert len(set(ids)) == 2
    assert "ids given to calls without one" in found.changes


def test_joined_replies_keep_their_calls_and_thoughts() -> None:
    turns = conversation("UACT")
    turns[1:3] = [replace(m, more={**m.more, "reasoning_content": f"Hm{i}."}) for i, m in enumerate(turns[1:3])]
    found = fitting(LIKE_MISTRAL).fit(turns).messages
    assert [m.role for m in found] == ["user", "assistant", "tool"]
    assert (found[1].content, found[1].more["reasoning_content"]) == ("text1.", "Hm0.\n\nHm1.")
    assert len(found[1].more["tool_calls"]) == 1


def test_what_a_later_system_message_says_is_said_by_the_user() -> None:
    turns = conversation("SUASU")
    found = late_system_as_user(turns)
    assert [m.role for m in found] == ["system", "user", "assistant", "user"]
    assert found[-1].content == f"{turns[3].content}\n\n{turns[4].content}"


def test_replies_that_are_joined_keep_the_calls_of_all() -> None:
    (joined,) = one_reply([*conversation("C"), *conversation("D")])
    assert len(joined.more["tool_calls"]) == 3


def test_what_cannot_be_fitted_keeps_the_templates_own_error() -> None:
    source = "{% if messages | length > 1 %}{{ raise_exception('one at most') }}{% endif %}{{ messages[0].content }}"
    found = fitted(source, "UAU")
    assert found == Fitted(tuple(conversation("UAU")))
    with pytest.raises(TemplateError, match="one at most"):
        written(source, "UAU")
    broken = Fitting(ChatTemplate("{{ x.y.z }}"), has_tools=True)
    assert broken.fit(conversation("SUASU")) == Fitted(tuple(conversation("SUASU")))


def test_text_that_has_no_place_is_told() -> None:
    either = LIKE_MISTRAL.replace(TURN, "{% if not m.tool_calls %}" + TURN + "{% endif %}")
    assert fitted(either, "UXT").changes[-1] == "text left out that the template has no place for"


class Counted(ChatTemplate):
    """A template that counts how often it renders."""

    n = 0

    def render(self, *given: object, **more: object) -> str:
        self.n += 1
        return super().render(*given, **more)  # type: ignore[arg-type]


def test_a_template_is_asked_once() -> None:
    template = Counted(LIKE_GEMMA)
    found = Fitting(template, has_tools=False)
    for letters in ("UAU", "UAUAU", "UAUAUAU"):
        found.fit(conversation(letters))
    assert template.n == 1
    found.fit(conversation("SUAU"))
    before = template.n
    found.fit(conversation("SUAUAU"))
    assert template.n - before <= 4  # what was sent, as it is and repaired


def test_an_encoder_fits_what_it_renders_and_what_it_encodes() -> None:
    class Letters:
        """A vocabulary of characters."""

        n_vocab, bos, eos, longest, adds_bos, marks = 0x110000, 0, 0, 4, False, ()

        def encode(self, text: str, special: bool) -> list[int]:
            return [ord(letter) for letter in text]

        def special_text(self, token: int) -> str:
            return ""

    encoder = PromptEncoder(Letters(), LIKE_GEMMA, "gemma", 4096)  # type: ignore[arg-type]
    expected = "[user]text0.\n\ntext1."
    assert encoder.render(conversation("SU")).text == expected
    assert encoder.render(conversation("SU")).changes
    for prompt in (conversation("SU"), ChatPrompt(tuple(conversation("SU")))):
        assert "".join(map(chr, encoder.encode(prompt))) == expected


def test_results_of_calls_with_the_same_id_belong_to_them_in_order() -> None:
    def turn(*names: str) -> Message:
        calls = [{"id": "call_0", "type": "function", "function": {"name": name, "arguments": {}}} for name in names]
        return Message("assistant", "", {"tool_calls": calls})

    results = [Message("tool", text, {"tool_call_id": "call_0"}) for text in ("R1", "R2", "R3")]
    found = with_ids([turn("read", "write"), *results[:2], turn("read"), results[2]])
    ids = [call["id"] for message in found for call in calls_of(message)]
    assert len(set(ids)) == 3
    assert [message.more["tool_call_id"] for message in found if message.role == "tool"] == ids
    single = single_calls(found)
    assert [message.content for message in single if message.role == "tool"] == ["R1", "R2", "R3"]
    assert [call["function"]["name"] for message in single for call in calls_of(message)] == ["read", "write", "read"]
