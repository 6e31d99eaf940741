"""`slipstream run` as a script meets it: what it prints, and the forms a reply can have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.cli.report import speed
from runtime.engine.stats import Pass, Stats
from tests.support.cli import QUESTION, slipstream

pytestmark = pytest.mark.usefixtures("models_here")


def test_the_answer_is_plain_text_on_standard_output() -> None:
    done = slipstream("run", QUESTION)
    assert done.returncode == 0
    assert done.stdout.startswith("Join two or more pathname components")
    assert done.stdout.endswith("\n")
    assert "\x1b" not in done.stdout + done.stderr


def test_the_reason_is_said_when_nothing_was_drafted() -> None:
    assert "drafters are switched off [user]" in slipstream("run", QUESTION, "--stats", "--drafters", "none").stderr


def test_standard_input_is_the_prompt_or_is_appended() -> None:
    alone = slipstream("run", stdin=QUESTION + "\n")
    assert alone.stdout == slipstream("run", QUESTION).stdout
    both = slipstream("run", "What does", "--json", stdin="os.path.join do?")
    assert json.loads(both.stdout)["usage"]["prompt_tokens"] > 10


def test_a_seed_repeats_and_two_seeds_differ() -> None:
    def text(seed: int) -> str:
        return slipstream(
            "run",
            QUESTION,
            "--temperature",
            "2",
            "--seed",
            str(seed),
            "--top-p",
            "1",
            "--min-p",
            "0",
            "--max-tokens",
            "40",
        ).stdout

    assert text(1) == text(1) != text(2)


def test_a_reply_has_the_form_that_was_asked_for(tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(
        '{"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": false}'
    )
    assert json.loads(slipstream("run", QUESTION, "--json-schema", str(schema)).stdout)["n"] in (1, 2)
    assert slipstream("run", QUESTION, "--regex", "(yes|no)!").stdout in ("yes!\n", "no!\n")


def test_log_probabilities_come_with_json() -> None:
    reply = json.loads(slipstream("run", QUESTION, "--json", "--max-tokens", "3", "--logprobs", "2").stdout)
    assert [len(entry["top_logprobs"]) for entry in reply["logprobs"]] == [2, 2, 2]
    assert "".join(entry["token"] for entry in reply["logprobs"]) == reply["text"]


def test_a_full_context_is_said(tmp_path: Path) -> None:
    wild = (
        "--temperature",
        "3",
        "--top-k",
        "0",
        "--top-p",
        "1",
        "--min-p",
        "0",
        "--seed",
        "5",
        "--regex",
        "[a-z ]{400}",
    )
    done = slipstream("run", "Tell me more", "--context", "40", *wild)
    assert done.returncode == 0
    assert "The context of 40 tokens is full" in done.stderr


def test_raw_continues_the_prompt() -> None:
    as_it_is, asked = (
        json.loads(slipstream("run", "import", *raw, "--json", "--max-tokens", "5").stdout) for raw in (["--raw"], [])
    )
    assert as_it_is["usage"]["prompt_tokens"] < asked["usage"]["prompt_tokens"]  # no chat template around it
    assert as_it_is["text"] != asked["text"]


@pytest.mark.parametrize("held_up", [0.0, 0.5])
def test_speed_is_told_without_what_other_programs_took(held_up: float) -> None:
    own = 0.02
    passes = [Pass(own / (1 - held_up), "ngram", 1, 1, 2, 0.0, own, own)] * 5
    told = speed(Stats(steps=passes, decode_seconds=5 * own / (1 - held_up), plain_per_second=80.0))
    assert "1.25 times plain decode" in told
    assert ("other programs took 50% of the time: without them 100.0 tok/s, plain 80.0" in told) == bool(held_up)
    assert ("50.0 tok/s" if held_up else "100.0 tok/s, 1.25 times plain decode (80.0") in told


def test_no_ratio_is_told_above_what_the_passes_allow() -> None:
    passes = [Pass(0.01, "none", 0, 0, 1, 0.0, 0.01, 0.01)] * 10
    assert Stats(steps=passes, decode_seconds=0.1, plain_per_second=10.0).times_plain == 1.0


def test_a_context_longer_than_the_model_was_trained_for_is_said_to_be_shorter() -> None:
    done = slipstream("run", QUESTION, "--context", "16384", "--drafters", "none", "--max-tokens", "1")
    assert done.returncode == 0
    assert "slipstream: the context holds 2048 tokens, not 16384: the model was trained on no more.\n" in done.stderr
