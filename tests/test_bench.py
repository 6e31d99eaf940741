"""`slipstream bench`: the arithmetic and the report from made-up results, and short runs on the bundled pair."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from app.bench import command, engines
from app.bench.facts import Facts
from app.bench.hindsight import Guesser, right_at, seconds_by_length, shortest
from app.bench.page import page
from app.bench.plan import ADAPTIVE, PLAIN, Cell, Plan, Way, make_plan
from app.bench.plots import plots
from app.bench.results import Results, Sample, Step
from app.bench.runs import Runs
from app.bench.table import show
from app.bench.words import as_json, headlines, rows, verdict
from app.cli.main import app
from bench import plots as drawings
from runtime.core.errors import ContextError
from runtime.engine import Options
from runtime.loading.exactness import Exactness
from runtime.models.registry import load_registry

PLAN = Plan(("model", "ngram"), kinds=("question", "prose"), ks=(2, 4), runs=2, n_prompts=1)
SECONDS = {PLAIN: 0.2, ADAPTIVE: 0.1, "model K=2": 0.125, "model K=4": 0.16, "ngram K=2": 0.25, "ngram K=4": 0.4}
STEPS: tuple[Step, ...] = ((0.02, "model", 4, 4), (0.01, "model", 4, 1), (0.01, "none", 0, 0))
FACTS = Facts(
    "A <fast> machine",
    "Linux",
    "slipstream 0",
    "<script>alert(1)</script>.gguf, 1 MB",
    "none",
    "5 rounds",
    "2026-01-01 00:00",
)


def made(plan: Plan = PLAN, **more: Any) -> Results:
    """Twenty tokens a reply; the second round is three times as slow in all ways, and prose is written best without
    drafts.
    """
    results = Results(
        plan, n_compared=40, costs={1: 0.002, 2: 0.003, 4: 0.0035}, exactness="exact up to width 9", **more
    )
    for number in (1, 2):
        for cell in plan.cells:
            for way in plan.ways:
                seconds = (
                    0.19
                    if cell.kind == "prose" and way.name == PLAIN
                    else 0.2
                    if cell.kind == "prose"
                    else SECONDS[way.name]
                )
                results.samples.append(
                    Sample(way.name, cell, 0, number, 20, seconds * (3 if number == 2 else 1), STEPS)
                )
    return results


def test_a_ratio_is_of_the_same_round_so_a_slow_round_leaves_it_alone() -> None:
    ratio, speed = (
        made().ratio(ADAPTIVE, PLAIN, [Cell("question", 0.0)]),
        made().speed(ADAPTIVE, [Cell("question", 0.0)]),
    )
    assert ratio is not None
    assert speed is not None
    assert (ratio.least, ratio.most) == pytest.approx((2, 2))
    assert (speed.least, speed.most) == pytest.approx((20 / 0.3, 20 / 0.1))


def test_a_reply_that_has_no_counterpart_counts_for_no_ratio() -> None:
    results = made()
    results.samples.append(Sample(ADAPTIVE, Cell("question", 0.0), 1, 1, 1000, 1e-3, STEPS))
    results.samples.append(Sample(ADAPTIVE, Cell("question", 0.0), 0, 3, 1000, 1e-3, STEPS))
    assert results.ratio(ADAPTIVE, PLAIN, [Cell("question", 0.0)]) == made().ratio(
        ADAPTIVE, PLAIN, [Cell("question", 0.0)]
    )


def test_the_reference_is_the_fastest_setting_of_each_kind_and_may_be_plain() -> None:
    results = made()
    assert [results.best_fixed(Cell(kind, 0.8)) for kind in ("question", "prose")] == ["model K=2", PLAIN]
    assert results.share_of_best() == pytest.approx((1.25 * 0.95) ** 0.5)


def test_a_draft_token_counts_as_tried_when_all_before_it_were_accepted() -> None:
    assert made().acceptance("model", 0.0) == pytest.approx([1, 0.5, 1, 1])
    longer = made()
    longer.plan = replace(PLAN, ks=(2, 4, 6))
    longer.samples = [replace(sample, way="model K=6") for sample in longer.samples]
    assert longer.acceptance("model", 0.0)[4:] == [None, None]


def test_hindsight_drafts_exactly_what_comes_true() -> None:
    right = right_at(6, [[(1.0, "model", 4, 2), (1.0, "model", 4, 1)], [(1.0, "model", 2, 0), (1.0, "model", 2, 1)]])
    assert right == [2, 1, 0, 1, 0, 0]
    seconds = seconds_by_length(
        [(3.0, "model", 2, 0), (5.0, "model", 2, 2), (4.0, "model", 2, 2), (2.5, "model", 1, 1), (2.0, "none", 0, 0)]
    )
    assert seconds == {2: 4.0, 1: 2.5, 0: 2.0}
    # Two and the next, one and the next, and the last alone
    assert shortest(6, 2.0, [Guesser(right, seconds)]) == 4.0 + 2.5 + 2.0
    assert shortest(6, 2.0, []) == 12.0


def test_the_ceiling_is_compared_over_all_prompts_of_a_cell() -> None:
    cell = Cell("question", 0.0)
    assert 0 < made().against_hindsight()[cell] < made().ratio(ADAPTIVE, PLAIN, [cell]).median  # type: ignore[union-attr]
    results = made()
    results.samples = [sample for sample in results.samples if sample.way != PLAIN]
    assert not results.against_hindsight()


def test_lengths_stand_where_the_pass_began() -> None:
    assert made().lengths("question") == [(0, 4), (5, 4), (7, 0)]


def test_the_headlines_are_the_gain_the_worst_case_the_reference_and_the_differences() -> None:
    found = [headline.number for headline in headlines(made())]
    assert found == ["1.30", "0.95", "1.09", "0"]
    assert "prose" in headlines(made())[1].text


def test_a_difference_is_a_fault_only_where_kernels_are_exact() -> None:
    assert "same as plain" in verdict(made())
    assert "fault of Slipstream" in verdict(made(n_different=1))
    assert "--exact" in verdict(made(n_rounded=1))


def test_differences_are_counted_by_what_the_kernels_promise() -> None:
    runs = Runs(SimpleNamespace(), PLAN, lambda: False)  # type: ignore[arg-type]
    task: Any = SimpleNamespace(cell=Cell("question", 0.0), prompt=0)
    for exactness, tokens in (
        (Exactness(9, 9), [1, 2]),
        (Exactness(9, 9), [1, 2]),
        (Exactness(9, 9), [1, 3]),
        (Exactness(3, 9), [1]),
    ):
        runs._compare(SimpleNamespace(exactness=exactness), task, tokens)  # type: ignore[arg-type]
    assert (runs.results.n_compared, runs.results.n_different, runs.results.n_rounded) == (3, 1, 1)


def test_the_table_has_a_row_per_way_and_marks_the_fastest(capsys: pytest.CaptureFixture[str]) -> None:
    found = {row.way: row for row in rows(made(), 0.0)}
    assert list(found) == [way.name for way in PLAN.ways]
    assert found[PLAIN].by_kind[0] == "67 tok/s"
    assert (found[ADAPTIVE].by_kind, found[ADAPTIVE].is_best, found[PLAIN].is_best) == (
        ["2.00", "0.95"],
        [True, False],
        [False, True],
    )
    show(made())
    shown = capsys.readouterr().out
    assert all(way.name in shown for way in PLAN.ways)
    assert "1.30 times plain decode on this machine" in shown


def test_the_json_object_says_what_the_table_says() -> None:
    found = json.loads(json.dumps(as_json(made(), FACTS)))
    assert (found["times_plain"], found["times_best_fixed"], found["pass_cost"]) == (
        1.3,
        1.0897,
        {"1": 1.0, "2": 1.5, "4": 1.75},
    )
    assert found["cells"][0]["tokens_per_second"][PLAIN] == 66.6667
    assert found["acceptance_by_depth"]["ngram, temperature 0.8"] == [1.0, 0.5, 1.0, 1.0]


class Tags(HTMLParser):
    """Elements, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.attributes, self.text = list[str](), dict[str, str](), ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.update({name: value or "" for name, value in attrs})

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("plan", [PLAN, replace(PLAN, drafters=())], ids=["drafters", "plain"])
def test_the_report_needs_nothing_from_outside_and_escapes_what_it_shows(plan: Plan) -> None:
    results = made(plan)
    text = page(results, FACTS)
    found = Tags(text)
    assert not {"script", "link", "img", "iframe", "object", "embed"} & set(found.tags)
    assert not {"src", "href", "xlink:href", "onload", "onclick"} & set(found.attributes)
    assert not [
        word
        for word in ("url(", "@import", "http:", "https:")
        if word in text.replace('xmlns="http://www.w3.org/2000/svg"', "")
    ]
    assert "<script>alert(1)</script>.gguf" in found.text
    assert found.tags.count("svg") == len(plots(results)) > 1
    assert "prefers-color-scheme: dark" in text
    assert "A <fast> machine" in found.text


def test_every_colour_of_a_plot_is_one_that_the_page_defines() -> None:
    many = replace(PLAN, kinds=("question", "code", "edit", "summary", "turns", "prose"))
    text = page(made(many), FACTS)
    used = {part.partition(")")[0] for part in text.split("var(")[1:]}
    assert used
    assert all(text.count(f"{name}: #") == 2 for name in used)  # in light and in dark


def test_an_axis_reaches_above_every_range() -> None:
    results = made()
    results.samples = [
        replace(sample, seconds=sample.seconds / (9 if sample.round == 1 else 1)) for sample in results.samples
    ]
    # The fastest round makes 1,200 tokens a second, the fastest median 667
    assert ">1200</text>" in plots(results)[0].svg


def test_an_interrupted_report_says_so() -> None:
    assert "interrupted" in page(made(is_interrupted=True), FACTS)
    assert "interrupted" not in page(made(), FACTS)


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
    available = n_fit * engines.engine_bytes(pair) / engines.SHARE + 100
    monkeypatch.setattr(engines.psutil, "virtual_memory", lambda: SimpleNamespace(available=available))
    monkeypatch.setattr(engines, "Engine", FakeEngine)
    monkeypatch.setattr(FakeEngine, "most", 0)
    with engines.Engines(pair, Options(), PLAN.ways, lambda: True) as opened:
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
        assert command.run(load_registry()["demo"], Options(), PLAN, command.Files(None, None)) == code


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
    assert "What speculation is worth here" in (tmp_path / "report.html").read_text()


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
        command.run(load_registry()["demo"], Options(), PLAN, command.Files(None, tmp_path / "replies.json"))
    assert json.loads((tmp_path / "replies.json").read_text())["compared"] == 40


def test_ctrl_c_prints_what_was_measured_and_exits_with_130() -> None:
    args = [sys.executable, "-m", "app.cli", "bench", *SHORT, "--runs", "100000", "--drafters", "none"]
    process = subprocess.Popen(
        args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    assert process.stderr is not None
    assert "Ctrl+C" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) in ((130, ""), (130, "slipstream: interrupted before anything was measured\n"))
    assert json.loads(out.splitlines()[-1])["is_interrupted"] is True


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--kinds", "qestion"), "Did you mean 'question'?"),
        (("--kinds", ","), "There is no kind in it"),
        (("--drafters", "modle"), "Did you mean 'model'?"),
        (("--drafters", "grammar"), "Leave it out"),
        (("--drafters", "ngram,suffix"), "it repeats past replies"),
        (("--ks", "0"), "Give numbers from 1 to 16"),
        (("--ks", "2,many"), "are not draft lengths"),
        (("--html", "/no/such/folder/report.html"), "cannot be written"),
        (("--json", "/"), "cannot be written"),
    ],
)
def test_wrong_usage_is_found_before_anything_is_loaded(
    args: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "Engine", None)
    done = bench(*args)
    assert done.exit_code == 2
    assert words in " ".join(done.stderr.replace("│", " ").split())


def test_a_prompt_that_does_not_fit_is_named_before_the_first_reply() -> None:
    done = bench("--kinds", "summary", "--context", "100", "--drafters", "none", "--threads", "1")
    assert isinstance(done.exception, ContextError)
    assert "kind 'summary'" in str(done.exception)


def test_help_loads_neither_models_nor_plots() -> None:
    code = (
        "import sys; sys.argv = ['slipstream', 'bench', '--help']\nfrom app.cli.main import main\ntry: main()\nexcept "
        "SystemExit: pass\n"
    )
    script = code + "print('LOADED', *{'llama_cpp', 'numpy', 'pygal', 'jinja2', 'app.bench'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.rpartition("LOADED")[2].split() == []
    assert "--quick" in done.stdout


def test_adaptive_decoding_is_offered_every_drafter() -> None:
    assert PLAN.ways[:2] == [Way(PLAIN), Way(ADAPTIVE, ("model", "ngram"))]
    assert replace(PLAN, drafters=()).ways == [Way(PLAIN)]


def test_the_plots_of_the_docs_are_those_that_the_script_draws() -> None:
    for name, plot in drawings.PLOTS.items():
        assert (drawings.DOCS / name).read_text(encoding="utf8") == plot()
    assert [drawings.tokens_per_pass(share, 3) for share in (0.0, 0.5, 1.0)] == [1.0, 1.875, 4.0]
