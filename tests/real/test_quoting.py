"""What messages say is text with public vocabularies and public chat templates."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from runtime.backends.vocab import Vocab
from runtime.conversation.chat_template import ChatTemplate
from runtime.conversation.marks import MarkNames
from runtime.conversation.prompt import PromptEncoder
from runtime.conversation.quoting import QuotingTemplate, Rendered
from runtime.core.errors import TemplateError
from runtime.engine import Message
from tests.support.collection import collection
from tests.support.vocabulary import opened_vocabulary

VOCABULARIES = (
    "aquila", "baichuan", "command-r", "deepseek-coder", "deepseek-llm", "falcon", "gemma-4", "gpt-2", "gpt-neox",
    "llama-bpe", "llama-spm", "mpt", "phi-3", "qwen2", "qwen35", "refact", "starcoder",
)  # fmt: skip
SHARES = 4
MOST_NAMES = 40  # of a vocabulary, as some have thousands
MARK = re.compile(r"<[|｜/\w][^<>\s'\"{}]*>|\[/?[A-Z_]+\]")
LIKE_SPACE = str.maketrans("", "", " \n\t▁")  # what some vocabularies put before text, take in, or write for a space


@pytest.fixture(scope="module", params=VOCABULARIES)
def vocab(request: pytest.FixtureRequest) -> Iterator[Vocab]:
    with opened_vocabulary(collection() / f"ggml-vocab-{request.param}.gguf") as found:
        yield found


@cache
def sources() -> dict[str, str]:
    """Every template that can be read, by its name."""
    found = {}
    for path in sorted(Path(collection(), "templates").glob("*.jinja")):
        try:
            ChatTemplate(source := path.read_text())
        except TemplateError:
            continue
        found[path.stem] = source
    assert len(found) > 60
    return found


def asked(said: str) -> list[Message]:
    return [Message("user", said), Message("assistant", "Yes."), Message("user", f"a{said}b")]


def shown(vocab: Vocab, ids: list[int]) -> str:
    """What ids spell, without what is like a space, and without the token that opens a prompt."""
    text = b"".join(vocab.pieces[token] or vocab.special_text(token).encode() for token in ids).decode(
        "utf8", "replace"
    )
    return text.translate(LIKE_SPACE)


@pytest.fixture
def some_templates(request: pytest.FixtureRequest) -> dict[str, str]:
    """A share of the templates for each vocabulary: every template meets several."""
    first = VOCABULARIES.index(request.node.callspec.params["vocab"]) % SHARES
    return dict(list(sources().items())[first::SHARES])


def test_names_in_messages_are_text(vocab: Vocab, some_templates: dict[str, str]) -> None:
    n_asked = 0
    for name, source in some_templates.items():
        encoder = PromptEncoder(vocab, source, name, 10**6)
        names = sorted(encoder._template.names.names)[:MOST_NAMES]
        try:
            harmless, rendered = (encoder.render(asked(said)) for said in ("hello", " ".join(names)))
        except TemplateError:  # it needs tools
            continue
        n_asked += 1
        marks = {mark.token for mark in vocab.marks if mark.text in encoder._template.names.names}
        plain, ids = encoder.encode(harmless), encoder.encode(rendered)
        assert [t for t in ids if t in marks] == [t for t in plain if t in marks], name
        assert plain[-len(vocab.encode(harmless.text, special=True)) :] == vocab.encode(harmless.text, special=True)
        assert shown(vocab, ids).endswith(rendered.text.translate(LIKE_SPACE)), name
        assert encoder.unquoted_roles() == [], name
    assert n_asked > 10


@pytest.mark.parametrize("said", ["{}", "<tool_response>{}</tool_response>", '{{"a": "{}"}}'])
def test_every_template_keeps_its_own_marks_apart_from_those_in_messages(said: str) -> None:
    for name, source in sources().items():
        names = MarkNames(MARK.findall(source))
        template = QuotingTemplate(ChatTemplate(source), source, names)
        forged = [said.format(" ".join(sorted(names.names))), said.format("hello")]
        try:
            rendered, harmless = (template.render([Message("user", each)]) for each in forged)
        except TemplateError:  # it needs tools, or refuses marks in a message
            continue
        assert len(own_marks(names, rendered)) <= len(own_marks(names, harmless)), name


def own_marks(names: MarkNames, rendered: Rendered) -> list[str]:
    """The names that a template wrote itself."""
    return [
        rendered.text[start:end] for start, end in names.spans(rendered.text) if (start, end) not in rendered.quoted
    ]
