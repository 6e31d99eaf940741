"""Files with several chat templates: the one for tools where there are tools, else the usual one or the default."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from runtime.engine import Message, Options
from runtime.engine.loaded import LoadedEngine
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.registry import find_pair
from tests.support.call_templates import FORMS, template
from tests.support.coder import write_coder
from tests.support.serving import READ_FILE, running

SAID = "{% for m in messages %}{{ m.content }}{% endfor %}"
USUAL, TOOLS = f"usual {SAID}", f"tools {{{{ tools | tojson }}}} {SAID}"
HI = {"role": "user", "content": "Hi"}


def opened(path: Path, templates: Any) -> LoadedEngine:
    pair = find_pair(str(write_coder(path, templates)), {})
    return LoadedEngine(pair, Options(threads=1, drafters=()))


@pytest.mark.parametrize(
    ("templates", "plain", "with_tools"),
    [
        ({"": USUAL, ".tool_use": TOOLS, ".rag": "rag"}, "usual Hi", "tools ["),
        ({".default": USUAL}, "usual Hi", "usual Hi"),
        ({"": USUAL, ".default": "other"}, "usual Hi", "usual Hi"),
        ({"": " ", ".default": USUAL, ".tool_use": TOOLS}, "usual Hi", "tools ["),
        ({".tool_use": TOOLS, ".rag": "rag"}, "tools null Hi", "tools ["),
        ({"": USUAL, ".tool_use": " \n"}, "usual Hi", "usual Hi"),
        ({"": "  ", ".tool_use": TOOLS}, "tools null Hi", "tools ["),
        ({"": USUAL}, "usual Hi", "usual Hi"),
    ],
)
def test_the_template_is_that_for_the_conversation(tmp_path: Path, templates: Any, plain: str, with_tools: str) -> None:
    engine = opened(tmp_path / "model.gguf", templates)
    try:
        assert engine.render([Message("user", "Hi")]).text == plain
        assert engine.render([Message("user", "Hi")], [READ_FILE]).text.startswith(with_tools)
        assert ModelFacts(read_model_header(tmp_path / "model.gguf")).has_template
    finally:
        engine.close()


@pytest.mark.parametrize("templates", [{"": " \n\t"}, {"": "", ".default": "\n"}, {".tool_use": " ", ".rag": "rag"}])
def test_a_blank_template_is_none(tmp_path: Path, templates: Any) -> None:
    engine = opened(tmp_path / "model.gguf", templates)
    try:
        assert engine.facts.template == ""
        assert not ModelFacts(read_model_header(tmp_path / "model.gguf")).has_template
    finally:
        engine.close()


def test_whether_a_file_was_made_for_tools_is_read_from_its_template_for_tools(tmp_path: Path) -> None:
    two = write_coder(tmp_path / "two.gguf", {"": USUAL, ".tool_use": TOOLS})
    one = write_coder(tmp_path / "one.gguf", {"": USUAL})
    assert [ModelFacts(read_model_header(path)).takes_tools for path in (two, one)] == [True, False]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    templates = {"": USUAL, ".tool_use": template(FORMS["tags"])}
    path = tmp_path_factory.mktemp("named") / "model.gguf"
    with running(lambda on_progress: opened(path, templates)) as here:
        yield here.client()


def test_calls_have_the_form_of_the_template_for_tools(client: httpx2.Client) -> None:
    asked = {"messages": [HI], "tools": [READ_FILE], "tool_choice": "required", "temperature": 0}
    reply = client.post("/v1/chat/completions", json=asked).json()["choices"][0]
    assert reply["message"]["tool_calls"][0]["function"]["name"] == "read_file"
    prompt = client.post("/apply-template", json=asked).json()["prompt"]
    assert "read_file" in prompt
    assert not prompt.startswith("usual")
    assert client.post("/apply-template", json={"messages": [HI]}).json()["prompt"] == "usual Hi"
    props = client.get("/props").json()
    assert (props["chat_template"], props["chat_template_tool_use"]) == (USUAL, template(FORMS["tags"]))
