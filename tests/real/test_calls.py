"""Tool calls in the form of every public template that offers tools, on public vocabularies: what is rendered is read
back, and a reply that is bound by the grammar is a call.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.backends.vocab import Vocab
from runtime.conversation.calls import CallForm, call_grammar, form_of
from runtime.conversation.calls.past import written_calls
from runtime.conversation.chat_template import ChatTemplate
from tests.support.calls import CALLS, CLOSED, Calls, read, rendered_turn, turn
from tests.support.carried import cases, fate
from tests.support.collection import collection
from tests.support.marks import walk
from tests.support.vocabulary import opened_vocabulary

# Models whose templates offer tools and take no calls of earlier turns, or write only the first one of several
AS_TEXT = ("LFM2-8B-A1B", "LFM2.5-Instruct", "ibm-granite-granite-3.3-2B-Instruct")
ONE_AT_A_TIME = ("GigaChat3-10B-A1.8B", "GigaChat3.1-10B-A1.8B", "openai-gpt-oss-120b")
ONE_AT_A_TIME += (
    "meta-llama-Llama-3.1-8B-Instruct",
    "meta-llama-Llama-3.2-3B-Instruct",
    "meta-llama-Llama-3.3-70B-Instruct",
)
VOCABULARIES = ("qwen2", "gemma-4", "phi-3")
N_TEMPLATES = 63
SPACE = "▁"  # in many vocabularies the same as a space
MOST = 600  # tokens of a random reply


@cache
def offering() -> dict[str, str]:
    """The templates that offer tools, by name."""
    paths = sorted((collection() / "templates").glob("*.jinja"))
    sources = {path.stem: path.read_text(encoding="utf8") for path in paths}
    return {name: source for name, source in sources.items() if "tools" in source}


@cache
def forms() -> dict[str, CallForm]:
    """Their forms."""
    found = {name: form_of(source) for name, source in offering().items()}
    assert all(found.values()), [name for name, form in found.items() if form is None]
    return {name: form for name, form in found.items() if form}


def test_every_template_that_offers_tools_has_a_form() -> None:
    assert len(forms()) >= N_TEMPLATES
    assert {name for name, form in forms().items() if form.past is None} == set(AS_TEXT)


def region(name: str, calls: Calls) -> str:
    """What a model's template writes of a turn with these calls."""
    form = forms()[name]
    if form.past is None:
        return written_calls(form, turn(calls).more["tool_calls"])
    return rendered_turn(ChatTemplate(offering()[name], "<s>", "</s>"), form, calls)


@pytest.mark.parametrize("case", CALLS)
def test_what_a_template_writes_is_read_back(case: str) -> None:
    for name, form in forms().items():
        calls = CALLS[case]
        if len(calls) > 1 and name.startswith(ONE_AT_A_TIME):
            continue
        text = region(name, calls)
        text = text[text.index(form.trigger or form.opening.strip() or calls[0][0]) :]
        for sizes in ((10**6,), (1, 4)):
            _, found = read(form, text, sizes)
            assert found == calls, (name, text)


@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_hostile_arguments_are_read_back_or_told(data: st.DataObject) -> None:
    for name, form in forms().items():
        case = data.draw(cases(form), label=name)
        fate(form, case)


@pytest.fixture(scope="module", params=VOCABULARIES)
def vocab(request: pytest.FixtureRequest) -> Iterator[Vocab]:
    """One of the collection's, in which marks are of any type."""
    with opened_vocabulary(collection() / f"ggml-vocab-{request.param}.gguf") as found:
        yield found


def test_a_bound_reply_is_a_call_whatever_the_model(vocab: Vocab) -> None:
    for seed, (name, form) in enumerate(forms().items()):
        if SPACE in form.opening + form.closing and vocab.encode(SPACE, special=False) == vocab.encode(
            " ", special=False
        ):
            continue  # such a vocabulary cannot spell DeepSeek's marks
        grammar = call_grammar(form, CLOSED, required=True, parallel=False)
        words, calls = read(form, walk(vocab, grammar, seed, most=MOST), (3,))
        assert (words.strip(), len(calls)) == ("", 1), name
