"""`slipstream run` as a person and as a script meet it: output, exit codes, one clear line when something is wrong."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SLIPSTREAM = [sys.executable, "-m", "app.cli"]
QUESTION = "What does os.path.join do?"


def slipstream(*args: str, stdin: str | None = None, **more: object) -> subprocess.CompletedProcess[str]:
    fed = {"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}
    return subprocess.run([*SLIPSTREAM, *args], capture_output=True, text=True, timeout=120, check=False, **fed, **more)  # type: ignore[call-overload]


def failing(*args: str, code: int = 1) -> str:
    """Standard error of a call that must fail in one line."""
    done = slipstream(*args)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    if code == 1:
        assert done.stderr.count("\n") == 1
        assert done.stdout == ""
    return " ".join(done.stderr.split())


def test_the_answer_is_plain_text_on_standard_output() -> None:
    done = slipstream("run", QUESTION)
    assert done.returncode == 0
    assert done.stdout.startswith("Join two or more pathname components")
    assert done.stdout.endswith("\n")
    assert "\x1b" not in done.stdout + done.stderr


def test_stats_go_to_standard_error() -> None:
    done = slipstream("run", QUESTION, "--stats", "--drafters", "model", "--fixed-k", "3")
    for word in (
        "tok/s",
        "plain decode",
        "accepted",
        "per target pass",
        "K used",
        "draft",
        "verify",
        "other",
        "memory",
        "at load",
        "accepted at once",
    ):
        assert word in done.stderr
        assert word == "other" or word not in done.stdout


def test_the_numbers_begin_on_a_line_of_their_own() -> None:
    done = subprocess.run(
        [*SLIPSTREAM, "run", QUESTION, "--stats"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    assert "\n          prompt  " in done.stdout


def test_the_reason_is_said_when_nothing_was_drafted() -> None:
    assert "drafters are switched off [user]" in slipstream("run", QUESTION, "--stats", "--drafters", "none").stderr


def test_json_is_one_object() -> None:
    done = slipstream("run", QUESTION, "--json", "--max-tokens", "7")
    reply = json.loads(done.stdout)
    assert reply["finish_reason"] == "length"
    assert reply["memory"]["level"] in ("OK", "TIGHT", "CRITICAL")
    assert "MiB" in reply["memory"]["fit"]
    assert reply["usage"]["completion_tokens"] == 7
    for name in (
        "prompt_n",
        "predicted_per_second",
        "plain_per_second",
        "draft_n",
        "draft_n_accepted",
        "draft_ms",
        "verify_ms",
        "drafter",
        "fallback_reason",
    ):
        assert name in reply["timings"]


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
    assert slipstream("run", "import", "--raw", "--max-tokens", "5").returncode == 0


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("-m", "demmo"), "no pair 'demmo'. Did you mean 'demo'?"),
        (("-m", "/no/such.gguf"), "no file /no/such.gguf"),
        (("-m", "{junk}"), "not a GGUF file"),
        (("-m", "{cut}"), "damaged or incomplete. Download it again"),
        (("-m", "{headless}"), "damaged or incomplete"),
        (("-m", "{foreign}"), "architecture 'martian', which this version of llama.cpp cannot run"),
        (("-m", "{folder}"), "Name one of them"),
        (
            ("--draft", "{tiny}"),
            "tiny.gguf cannot draft for target.gguf: token 0 is '<|endoftext|>' in the target and '!' in the draft",
        ),
        (("--draft", "{cut}"), "damaged or incomplete"),
        (("-m", "{tiny}"), "has no chat template"),
        (("--temperature", "-1"), "temperature is -1.0"),
        (("--top-p", "0"), "top_p is 0.0"),
        (("--repetition-penalty", "0"), "repetition_penalty is 0.0"),
        (("--regex", "(open"), "The regex cannot be used"),
        (("--json-schema", "{schema}"), "The json_schema is not valid JSON"),
        (("--context", "16"), "the context holds 16"),
    ],
)
def test_bad_input_gets_one_line_with_the_remedy(bad_files: dict[str, Path], args: tuple[str, ...], words: str) -> None:
    assert words in failing(
        "run", "What is a list in Python, and what is it good for?", *(arg.format(**bad_files) for arg in args)
    )


@pytest.fixture(scope="module")
def bad_files(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> dict[str, Path]:
    folder, data = tmp_path_factory.mktemp("bad"), tiny.read_bytes()
    contents = {
        "junk": b"not a model",
        "cut": data[: len(data) // 2],
        "headless": data[:100],
        "foreign": data.replace(b"llama", b"marti", 0),
    }
    files = {name: folder / f"{name}.gguf" for name in contents}
    for name, content in contents.items():
        files[name].write_bytes(content)
    from tests.support.shapes import TINY, write_random

    write_random(files["foreign"], TINY, architecture="martian")
    (folder / "schema.json").write_text('{"type":')
    return {**files, "tiny": tiny, "folder": folder, "schema": folder / "schema.json"}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("run",), "There is no prompt"),
        (("run", "x", "--drafters", "modle"), "Did you mean 'model'?"),
        (("run", "x", "--max-k", "0"), "--max-k"),
        (("run", "x", "--nonsense"), "--nonsense"),
        (("run", "x", "--draft", "off", "--drafters", "model"), "needs a draft model"),
        (("run", "x", "--regex", "a", "--json-object"), "A reply has one form"),
        (("run", "x", "--logprobs", "2"), "add --json"),
        (("run", "x", "--lark", "/no/such/grammar"), "cannot be read"),
        (("nonsense",), "nonsense"),
    ],
)
def test_wrong_usage_exits_with_two(args: tuple[str, ...], words: str) -> None:
    assert words in failing(*args, code=2).replace("│ ", "")


def test_a_closed_pipe_is_no_error() -> None:
    process = subprocess.Popen(
        [*SLIPSTREAM, "run", QUESTION], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait(60) == 0
    assert process.stderr.read() == b""


def test_a_full_disk_is_said_in_one_line() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*SLIPSTREAM, "run", QUESTION],
            stdout=full,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


def read_terminal(fd: int, until: float) -> bytes:
    """What a pseudo-terminal shows until it closes or the time is up."""
    shown = b""
    while time.monotonic() < until and select.select([fd], [], [], max(0.0, until - time.monotonic()))[0]:
        try:
            data = os.read(fd, 4096)
        except OSError:
            break
        if not data:
            break
        shown += data
    return shown


def on_a_terminal(*args: str) -> tuple[subprocess.Popen[bytes], int]:
    ours, theirs = pty.openpty()
    process = subprocess.Popen([*SLIPSTREAM, *args], stdout=theirs, stderr=theirs, stdin=theirs, start_new_session=True)
    os.close(theirs)
    return process, ours


def test_accepted_draft_tokens_are_coloured_on_a_terminal_when_asked() -> None:
    for color, marked in (((), False), (("--color",), True)):
        process, fd = on_a_terminal("run", QUESTION, "--drafters", "model", "--fixed-k", "3", *color)
        shown = read_terminal(fd, time.monotonic() + 60)
        assert process.wait(60) == 0
        assert (b"\x1b[36m" in shown.rpartition(b"\x1b[?25h")[2]) == marked  # behind the progress bar


def test_ctrl_c_in_the_middle_exits_with_130_and_keeps_what_came() -> None:
    process = subprocess.Popen(
        [*SLIPSTREAM, "run", QUESTION, "--temperature", "5", "--top-p", "1", "--min-p", "0", "--top-k", "0", "--seed",
        "1"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    first = process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode in (130, 0)  # 0: the reply had ended before the signal came
    assert first
    assert (out.endswith(b"\n"), err) == (True, b"")
