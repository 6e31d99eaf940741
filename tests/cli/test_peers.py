"""What one types out of habit from other programs works, or is told what it is called here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli import QUESTION, failing, slipstream

pytestmark = pytest.mark.usefixtures("models_here")
SHORT = "--max-tokens", "4"


def test_a_model_and_a_prompt_may_be_named_in_any_usual_way() -> None:
    expected = slipstream("run", QUESTION, *SHORT).stdout
    assert expected.strip()
    for args in (("demo", QUESTION), ("demo", *QUESTION.split()), ("-m", "demo", "-p", QUESTION), QUESTION.split()):
        assert slipstream("run", *args, *SHORT).stdout == expected
    assert slipstream("run", "demo", *SHORT, stdin=QUESTION).stdout == expected


def test_a_model_without_a_prompt_is_no_prompt() -> None:
    assert "slipstream chat" in failing("run", "demo", code=2)


def test_a_path_that_is_there_is_a_model_and_other_words_with_a_slash_are_a_question(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("A walk in the park.")
    assert "not a GGUF file" in failing("run", str(text), QUESTION)
    assert slipstream("run", "What is a tree/heap?", *SHORT).stdout.strip()
    assert slipstream("run", "a/" * 400, *SHORT).returncode == 0


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("run", "-n", "8", QUESTION), "--max-tokens N"),
        (("run", "-c", "4096", QUESTION), "--context N"),
        (("run", "--temp", "0", QUESTION), "--temperature T"),
        (("run", "-md", "draft.gguf", QUESTION), "--draft FILE"),
        (("serve", "-ngl", "99"), "chosen automatically"),
        (("serve", "--ctx-size=4096"), "--context N"),
    ],
)
def test_an_option_of_another_program_is_told_what_it_is_here(args: tuple[str, ...], words: str) -> None:
    assert words in " ".join(failing(*args, code=2).replace("│", " ").split())


def test_what_comes_after_two_dashes_is_the_prompt() -> None:
    assert slipstream("run", *SHORT, "--", "-ngl").returncode == 0


@pytest.mark.parametrize("command", ["serve", "bench"])
def test_the_model_may_be_an_option_of_every_command(command: str) -> None:
    assert "no file /no/such.gguf" in failing(command, "-m", "/no/such.gguf")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("run", "--temperature", "hot", QUESTION), "'hot' is no number."),
        (("run", "--max-tokens", "0", QUESTION), "0 is too small: it must be at least 1."),
        (("serve", "--port", "99999"), "99999 is too large: it may be at most 65535."),
        (("serve", "--reasoning", "maybe"), "'maybe' is not one of 'auto', 'off'."),
        (("worker", "--port", "x"), "'x' is no whole number."),
    ],
)
def test_a_value_is_refused_in_plain_words(args: tuple[str, ...], words: str) -> None:
    assert words in " ".join(failing(*args, code=2).replace("│", " ").split())
