"""`--trace FILE` writes what every pass was, and `slipstream trace FILE` sums it up as `--stats` does."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from runtime.engine import Chunk, Message, Options, Sampling
from runtime.engine.engine import Ask
from runtime.engine.loaded import LoadedEngine
from runtime.engine.output import ignore
from runtime.engine.stats import reasons
from runtime.engine.trace import TracedPass, TraceFile, as_pass, read, text_of
from runtime.models.registry import load_registry
from runtime.speculative.control.decision import Decision
from runtime.speculative.control.explain import Pass, Why
from runtime.speculative.drafting import Drafting
from tests.conftest import OpenEngine
from tests.support.cli import QUESTION, failing, slipstream

DRAFTED = TracedPass(2, 7, Pass(0.5, "model", 3, 1, 2, 0.125, 0.25, 0.4375, 2), Why(40, (0.5, 0.25), "", 80.0))
WAITS = {"model": "it waits"}
PLAIN = TracedPass(
    2, 8, Pass(0.25, "none", 0, 0, 1, 0.0, 0.25, 0.25), Why(42, (), "nothing paid: “0”", 80.0, ("ngram",), WAITS)
)
HUGE = [
    text_of(DRAFTED).replace(f'"{name}": {value}', f'"{name}": {huge}')
    for name, value in (("k", 3), ("accepted", 1), ("tokens", 2), ("n_context", 40), ("plain_per_second", 80.0))
    for huge in ("1" + "0" * 400, "-7", "1e400", "NaN")[: 4 if name != "plain_per_second" else 1]
]


def plain(reason: str) -> TracedPass:
    return PLAIN._replace(why=PLAIN.why._replace(reason=reason))


@contextmanager
def room_for(n_bytes: int) -> Iterator[None]:
    """No file of this process grows beyond that, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("line", [DRAFTED, PLAIN])
def test_what_is_written_is_read(line: TracedPass) -> None:
    assert as_pass(json.loads(text_of(line))) == line
    assert text_of(line).count("\n") == 1


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], str]:
    """A trace, and what `--json` and `--stats` say of the same reply."""
    path = tmp_path_factory.mktemp("trace") / "trace.jsonl"
    path.write_text(text_of(PLAIN), encoding="utf8")  # of another day
    how = ("--drafters", "model", "--fixed-k", "3", "--threads", "1", "--max-tokens", "30", "--json", "--stats")
    done = slipstream("run", QUESTION, *how, "--trace", str(path))
    return path, json.loads(done.stdout)["timings"], done.stderr


def test_a_reply_is_traced_pass_by_pass(traced: tuple[Path, dict[str, Any], str]) -> None:
    path, timings, _ = traced
    lines = [json.loads(line) for line in path.read_text(encoding="utf8").splitlines()]
    assert [(each["sequence"], each["step"]) for each in lines] == [(1, n + 1) for n in range(len(lines))]
    assert sum(each["k"] for each in lines) == timings["draft_n"] > 0
    assert sum(each["accepted"] for each in lines) >= timings["draft_n_accepted"] > 0
    assert sum(each["tokens"] for each in lines) == timings["predicted_n"]
    assert lines[1]["n_context"] == lines[0]["n_context"] + lines[0]["tokens"]
    for each in lines:
        assert (each["drafter"], bool(each["reason"])) == (("model", False) if each["k"] else (None, True))
        assert len(each["confidences"]) == each["k"]
        assert sum(each["seconds"][part] for part in ("draft", "target", "rest")) <= each["seconds"]["whole"] + 1e-5


def test_every_drafter_was_asked_or_it_says_why_not(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    how = "--drafters", "model,ngram", "--threads", "1", "--max-tokens", "24", "--trace", str(path)
    assert slipstream("run", QUESTION, *how).returncode == 0
    lines = [json.loads(line) for line in path.read_text(encoding="utf8").splitlines()]
    for each in lines[1:-1]:  # the first pass reads the prompt, the last may have room for no draft
        assert {*each["asked"], *each["not_asked"]} == {"model", "ngram"}
        assert not {*each["asked"]} & {*each["not_asked"]}
        assert each["drafter"] in (None, *each["asked"])
    told = slipstream("trace", str(path)).stdout
    for why in {(name, why) for each in lines for name, why in each["not_asked"].items()}:
        assert "did not ask {}: {}".format(*why) in told


def test_a_drafter_that_was_chosen_and_had_no_room_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = LoadedEngine(load_registry()["demo"], Options(threads=1, slots=4, drafters=("model",), fixed_k=2))
    monkeypatch.setattr(Drafting, "_side_by_side", lambda self, drafter, later, room: [])
    for question in (QUESTION, "What does json.dumps do?"):
        engine.add(Ask([Message("user", question)], Sampling(temperature=0), 12, is_traced=True), ignore)
    shared = list[Why]()
    while not engine.core.is_idle:
        for _, came in engine.step():
            if isinstance(came, Chunk) and came.made and came.made.n_together == 2 and came.made.why:
                shared.append(came.made.why)
    engine.close()
    assert Decision.CROWDED.why in {why.unasked.get("model") for why in shared}
    assert not [why for why in shared if "model" in why.asked]


def test_the_sum_says_what_stats_say(traced: tuple[Path, dict[str, Any], str]) -> None:
    path, timings, stats = traced
    done = slipstream("trace", str(path))
    assert done.returncode == 0, done.stderr
    model = next(line.split() for line in done.stdout.splitlines() if line.split()[:1] == ["model"])
    drafted = timings["by_drafter"]["model"]["drafted"]
    assert model[:4] == ["model", str(timings["drafters"]["model"]), str(drafted), str(timings["draft_n_accepted"])]
    told = next(line.split("speed")[1].split("(")[0].strip() for line in stats.splitlines() if "speed" in line)
    assert f"1 reply, {timings['predicted_n']} tokens: {told}" in done.stdout


def test_nothing_is_noted_of_a_reply_that_is_not_traced(open_demo: OpenEngine) -> None:
    from runtime.engine import Sampling

    engine = open_demo(drafters=())
    assert {each.why for chunk in engine.reply("import os", Sampling(), 3) if (each := chunk.made)} == {None}


def test_reasons_are_counted_whatever_their_numbers() -> None:
    said = [plain("right 10% of the time"), plain("off"), plain("right 20.5% of the time"), DRAFTED]
    assert reasons([each.why for each in said]) == [("right 20.5% of the time", 2), ("off", 1)]


def test_a_full_disk_ends_the_trace_with_a_whole_line_and_one_sentence(tmp_path: Path) -> None:
    path, size = tmp_path / "trace.jsonl", len(text_of(PLAIN).encode())
    with closing(TraceFile(path)) as file:
        with room_for(size + size // 2):
            said = [file.write(PLAIN) for _ in range(3)]
        assert (file.write(PLAIN), said[0], said[2]) == ("", "", "")
    assert "ends here" in said[1]
    assert read(path.read_text(encoding="utf8").splitlines(), "it") == [PLAIN]


@pytest.mark.slow
def test_a_full_disk_ends_no_reply() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    done = slipstream("run", QUESTION, "--threads", "1", "--trace", "/dev/full")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert "/dev/full ends here" in done.stderr
    assert done.stdout.startswith("Join two or more pathname components")


@pytest.mark.parametrize("command", [("run", "hi"), ("serve", "demo")])
def test_a_trace_that_cannot_be_written_is_said_before_anything_is_loaded(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.models.seeking.opener", lambda *_, **__: pytest.fail("it was loaded"))
    for path in (tmp_path, tmp_path / "no" / "trace"):
        said = failing(*command, "--trace", str(path))
        assert f"The trace cannot be written to {path} (" in said
        assert "Name a file that you may write." in said


def test_what_another_server_decodes_cannot_be_traced(tmp_path: Path) -> None:
    said = failing("run", "hi", "-m", "http://127.0.0.1:1", "--trace", str(tmp_path / "trace"), code=2)
    assert "about its passes" in said
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize(
    "line",
    [
        *HUGE,
        "",
        "no JSON",
        "[]",
        "1",
        "{}",
        text_of(PLAIN).replace("0.25", '"long"'),
        text_of(PLAIN)[:-9],
        "[" * 100_000,
    ],
)
def test_a_line_that_is_no_pass_is_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(text_of(PLAIN) + line.strip() + "\n", encoding="utf8")
    assert f"Line 2 of {path} is not a pass of a trace." in failing("trace", str(path))


@pytest.mark.parametrize("content", [b"GGUF\x03", b"{}", b"my thesis\n", b'{"sequence": 1}\n', b"\n", b"x" * 2**21])
def test_a_file_that_is_no_trace_is_not_overwritten(content: bytes, tmp_path: Path) -> None:
    path, link = tmp_path / "x.gguf", tmp_path / "link"
    path.write_bytes(content)
    link.symlink_to(path)
    for each in (path, link):
        said = failing("run", "hi", "-m", str(path), "--trace", str(each))
        assert f"{each} is a file that is no trace. Name another one, or remove it." in said
    assert path.read_bytes() == content


@pytest.mark.parametrize("before", ["", text_of(PLAIN) * 2, text_of(PLAIN)[:30]])
def test_a_former_trace_is_overwritten(before: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(before, encoding="utf8")
    with closing(TraceFile(path)) as file:
        file.write(PLAIN)
    assert path.read_text(encoding="utf8") == text_of(PLAIN)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes have no names here")
def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "it is not a file, but a pipe" in failing("run", "hi", "--trace", str(pipe))
    for path in (pipe, Path("/dev/zero")):
        for args in (("trace",), ("run", "hi", "--prediction"), ("run", "hi", "--lark"), ("serve", "--api-key-file")):
            assert "it is not a file" in " ".join(failing(*args, str(path), code=2).replace("│", "").split())


@pytest.mark.parametrize(
    "words",
    ["run hi --trace", "run hi --prediction", "trace", "serve --socket", "serve --slot-save-path", "run hi -m",
     "serve --api-key-file", "run hi --draft", "run hi --json-schema"],
)  # fmt: skip
def test_a_home_of_nobody_is_one_sentence(words: str) -> None:
    done = slipstream(*words.split(), "~nosuchuser/x")
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr


def test_an_empty_trace_is_said(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.touch()
    assert f"{path} is empty" in failing("trace", str(path))
    done = slipstream("trace", str(tmp_path), env={"COLUMNS": "400"})  # nothing is broken in two
    assert (done.returncode, "cannot be read" in done.stderr) == (2, True)
