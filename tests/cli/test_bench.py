"""`slipstream bench`: what it plans, how many engines it opens, and short runs on the bundled pair."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from app.cli import bench as command
from app.cli import bench_runs as runs
from app.cli.bench_plan import ADAPTIVE, PLAIN, Way, make_plan
from app.cli.bench_results import Results
from app.cli.bench_runs import Engines, Runs
from app.cli.main import app
from runtime.core.errors import ContextError
from runtime.engine import Options
from runtime.models.registry import load_registry
from tests.support.bench import PLAN, made


def test_an_option_changes_the_quick_plan_where_it_was_given() -> None:
    given: dict[str, Any] = {"kinds": None, "ks": None, "runs": None, "max_tokens": None}
    full, quick = (make_plan(("ngram",), quick=quick, **given) for quick in (False, True))
    assert (
        len(quick.ways) * len(quick.cells) * quick.runs * quick.max_tokens
        < len(full.ways) * len(full.cells) * full.runs * full.max_tokens / 10
    )
    assert make_plan(("ngram",), quick=True, **given | {"ks": "3, 1,3", "runs": 7}) == replace(quick, ks=(1, 3), runs=7)


class FakeEngine:
    """Counts how many are open."""

    n_open = most = 0

    def __init__(self, pair: object, options: Options, on_progress: object) -> None:
        FakeEngine.n_open += 1
        FakeEngine.most = max(FakeEngine.most, FakeEngine.n_open)

    def close(self) -> None:
        FakeEngine.n_open -= 1


@pytest.mark.parametrize(("n_fit", "is_enough"), [(1, False), (3, False), (6, True)])
def test_no_more_engines_are_open_than_memory_holds(
    monkeypatch: pytest.MonkeyPatch, n_fit: int, is_enough: bool
) -> None:
    pair = load_registry()["demo"]
    available = n_fit * runs.engine_bytes(pair) / runs.SHARE + 100
    monkeypatch.setattr(runs.psutil, "virtual_memory", lambda: SimpleNamespace(available=available))
    monkeypatch.setattr(runs, "LoadedEngine", FakeEngine)
    monkeypatch.setattr(FakeEngine, "most", 0)
    with Engines(pair, Options(), PLAN.ways, lambda: True) as opened:
        assert opened.all_fit == is_enough
        order = [task.way.name for task in Runs(opened, PLAN, lambda: False).tasks()]
        for name in order:
            with opened.lent(next(way for way in PLAN.ways if way.name == name)):
                pass
    assert (FakeEngine.most, FakeEngine.n_open) == (n_fit, 0)
    n_turns = 1 + sum(before != after for before, after in pairwise(order))
    assert n_turns == (len(order) if is_enough else len(PLAN.ways))


def test_a_difference_makes_the_exit_code_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for results, code in (
        (made(), 0),
        (made(n_rounded=3), 0),
        (made(n_different=1), 1),
        (made(is_interrupted=True), 130),
    ):
        monkeypatch.setattr(command, "measure", lambda *_, results=results: results)
        assert command.run(load_registry()["demo"], Options(), PLAN, None, None) == code


def bench(*args: str) -> Result:
    return CliRunner().invoke(app, ["bench", *args])


SHORT = ("--quick", "--kinds", "question", "--runs", "1", "--ks", "3", "--max-tokens", "8", "--threads", "1")


def test_a_run_prints_a_table_ends_in_json_and_writes_the_report(tmp_path: Path) -> None:
    done = bench(*SHORT, "--html", str(tmp_path / "report.html"), "--json", str(tmp_path / "replies.json"))
    assert done.exit_code == 0, done.output
    assert "About" in done.stderr
    summary, kept = json.loads(done.stdout.splitlines()[-1]), json.loads((tmp_path / "replies.json").read_text())
    assert (summary["compared"], summary["different"], summary["is_interrupted"]) == (
        14,
        0,
        False,
    )  # 4 ways, 2 temperatures, 2 rounds, less plain's first
    assert [set(cell["tokens_per_second"]) for cell in summary["cells"]] == 2 * [
        {PLAIN, ADAPTIVE, "model K=3", "ngram K=3"}
    ]
    assert [reply["n_tokens"] for reply in kept["replies"]] == 8 * [8]
    assert sum(steps[2] for reply in kept["replies"] if reply["way"] == "model K=3" for steps in reply["steps"]) > 0
    assert kept.items() >= summary.items()
    assert "What speculation gains on this machine" in (tmp_path / "report.html").read_text()


def test_a_model_without_a_chat_template_is_given_plain_text(tiny: Path) -> None:
    done = bench(str(tiny), *SHORT)
    assert done.exit_code == 0, done.output
    assert set(json.loads(done.stdout.splitlines()[-1])["cells"][0]["tokens_per_second"]) == {
        PLAIN,
        ADAPTIVE,
        "ngram K=3",
    }


def test_the_files_are_written_although_nobody_reads_the_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def show_nobody(results: Results) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(command, "measure", lambda *_: made())
    monkeypatch.setattr(command, "show", show_nobody)
    with pytest.raises(BrokenPipeError):
        command.run(load_registry()["demo"], Options(), PLAN, None, tmp_path / "replies.json")
    assert json.loads((tmp_path / "replies.json").read_text())["compared"] == 40


def test_ctrl_c_prints_what_was_measured() -> None:
    args = [sys.executable, "-m", "app.cli", "bench", *SHORT, "--runs", "100000", "--drafters", "none"]
    process = subprocess.Popen(
        args,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    assert "Ctrl+C" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert err in ("", "slipstream: interrupted before anything was measured\n")
    assert json.loads(out.splitlines()[-1])["is_interrupted"] is True


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--kinds", "qestion"), "Did you mean 'question'?"),
        (("--kinds", ","), "No kinds of text are named"),
        (("--drafters", "modle"), "Did you mean 'model'?"),
        (("--drafters", "grammar"), "Leave it out"),
        (("--drafters", "ngram,suffix"), "it drafts from past replies"),
        (("--ks", "0"), "Give numbers from 1 to 16"),
        (("--ks", "2,many"), "are not draft lengths"),
        (("--html", "/no/such/folder/report.html"), "cannot be written"),
        (("--json", "/"), "cannot be written"),
    ],
)
def test_wrong_usage_is_found_before_anything_is_loaded(
    args: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "LoadedEngine", None)
    done = bench(*args)
    assert done.exit_code == 2
    assert words in " ".join(done.stderr.replace("│", " ").split())


def test_a_prompt_that_does_not_fit_is_named_before_the_first_reply() -> None:
    done = bench("--kinds", "summary", "--context", "100", "--drafters", "none", "--threads", "1")
    assert isinstance(done.exception, ContextError)
    assert "kind 'summary'" in str(done.exception)


def test_help_loads_neither_models_nor_plots() -> None:
    code = (
        "import sys; sys.argv = ['slipstream', 'bench', '--help']\nfrom app.cli.__main__ import main\n"
        "try: main()\nexcept SystemExit: pass\n"
    )
    script = code + "print('LOADED', *{'llama_cpp', 'numpy', 'pygal', 'jinja2', 'app.cli.bench'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.rpartition("LOADED")[2].split() == []
    assert "--quick" in done.stdout


def test_adaptive_decoding_is_offered_every_drafter() -> None:
    assert PLAN.ways[:2] == [Way(PLAIN), Way(ADAPTIVE, ("model", "ngram"))]
    assert replace(PLAN, drafters=()).ways == [Way(PLAIN)]
