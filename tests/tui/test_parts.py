"""The parts of the chat that need no screen: keymap, commands, attachments, thinking, the text of Why, command line."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from app.reply_text import split_reasoning
from app.tui.actions import HANDLERS
from app.tui.app import known_ids
from app.tui.commands import COMMANDS
from app.tui.completion import parse
from app.tui.dialogs.help_page import read_keymap
from app.tui.dialogs.why_screen import depths, observed, sections
from app.tui.dialogs.why_summary import picture, three_sentences
from app.tui.numbers import fitted, kept, line, speed, stats_of, times, usage
from app.tui.pace import FIRST, MAX_INTERVAL, PAUSE, SHARE, Pace
from app.tui.replies import chat_prompt_of
from runtime.core.drafter import Traits
from runtime.core.errors import SettingsError
from runtime.engine import Message, Sampling
from runtime.engine.process.client import EngineProcess
from runtime.engine.stats import RemoteCounts, Stats
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.drafter_state import DraftOutcome
from runtime.speculative.control.explain import Explanation, Pass, expected_tokens, explain
from runtime.speculative.control.reasons import Reason
from tests.support.control import begin, costs_of, learn


def controller(times: tuple[float, ...], drafted: float) -> Controller:
    return Controller(costs_of(*times), {"model": Traits(drafted)}, max_k=len(times) - 1)


def heard(controller: Controller, right: int, known: int) -> Explanation:
    """After a drafter was scored often enough to be believed."""
    for _ in range(60):
        begin(controller, 0)
        drafted = DraftOutcome("model", [0.95] * known, known, right, 1e-4, 1e-4, known - 1, known)
        learn(controller, [drafted], 1 + right, 1e-4, 10e-3, 11e-3)
    begin(controller, 0)
    return explain(controller, 0, "of a reason")


def test_what_is_explained_is_what_the_controller_chooses() -> None:
    good = heard(controller((10e-3, 11e-3, 12e-3, 13e-3), 1e-4), 3, 3)
    assert good.chosen == "model"
    assert good.drafters[0].best_k == 3
    assert good.drafters[0].acceptance > 0.9
    assert good.rate > good.plain_per_second
    bad = heard(controller((10e-3, 20e-3, 30e-3, 40e-3), 5e-3), 0, 1)
    assert bad.chosen is None
    assert max(bad.drafters[0].per_second) < bad.plain_per_second


def test_expected_tokens_follow_the_closed_form() -> None:
    for a, k in ((0.5, 1), (0.8, 4), (0.0, 3)):
        assert expected_tokens(a, k) == pytest.approx((1 - a ** (k + 1)) / (1 - a))
    assert expected_tokens(1.0, 3) == 4


def test_a_reply_goes_on_where_it_stopped_as_if_it_never_had(demo_process: EngineProcess) -> None:
    question = Message("user", "What does os.path.join do?")
    whole = "".join(chunk.text for chunk in demo_process.reply([question], Sampling(temperature=0)))
    begun = whole[: whole.index(" ", len(whole) // 3)]
    rest = demo_process.reply(chat_prompt_of([question, Message("assistant", begun)]), Sampling(temperature=0))
    assert begun + "".join(chunk.text for chunk in rest) == whole


PASSES = [
    Pass(0.01, "model", 2, 2, 3),
    Pass(0.01, "model", 2, 0, 1),
    Pass(0.01, "none", 0, 0, 1),
    Pass(0.01, "model", 1, 1, 2),
]


def test_depths_count_only_what_was_reached() -> None:
    rows = [row.split()[:3] for row in depths(PASSES).table.splitlines()[1:]]
    assert rows == [["1", "3", "-"], ["2", "1", "-"]]  # too few for a share
    rows = [row.split()[:3] for row in depths(PASSES * 20).table.splitlines()[1:]]
    assert rows == [["1", "60", "67%"], ["2", "20", "100%"]]


def test_observed_tokens_stand_beside_the_expected() -> None:
    told = heard(controller((10e-3, 11e-3, 12e-3, 13e-3), 1e-4), 3, 3)
    rows = [row.split() for row in observed(told, PASSES).table.splitlines()[1:]]
    assert [(row[0], row[1], row[3], row[4]) for row in rows] == [("1", "1", "2.00", "-"), ("2", "2", "2.00", "-")]
    many = [row.split()[-1] for row in observed(told, PASSES * 20).table.splitlines()[1:]]
    assert many == ["100%", "50%"]
    assert float(rows[1][2]) == pytest.approx(told.drafters[0].tokens[1], abs=0.01)


def test_that_others_share_its_passes_is_said() -> None:
    told = heard(controller((10e-3, 11e-3, 12e-3, 13e-3), 1e-4), 3, 3)
    assert "share each pass" not in sections(told, [])[0].text
    assert "3 replies share each pass" in sections(replace(told, n_together=3), [])[0].text


def test_why_marks_the_chosen_drafter_at_its_best_length_or_plain_decode() -> None:
    good = "\n".join(
        section.table for section in sections(heard(controller((10e-3, 11e-3, 12e-3, 13e-3), 1e-4), 3, 3), [])
    )
    assert next(line for line in good.splitlines() if "◀" in line).split()[0] == "3"
    bad = sections(heard(controller((10e-3, 20e-3, 30e-3, 40e-3), 5e-3), 0, 1), [])
    assert "of a reason" in bad[0].text
    assert next(line for each in bad for line in each.table.splitlines() if "◀" in line).split()[0] == "0"


def test_the_status_line_leaves_out_what_has_no_room() -> None:
    assert fitted(["100 tok/s", "a very long word", "K 3"], 18) == "100 tok/s · K 3"
    assert fitted(["100 tok/s"], 3) == ""


def long_reply(own: float = 10e-3) -> Stats:
    """Of 40 tokens in 0.2 s, so much of each pass its own; plain decode would have taken twice as long."""
    steps = [Pass(10e-3, "model", 2, 1, 2, 1e-3, own_seconds=own)] * 20
    return Stats(prompt_n=5, decode_seconds=0.2, plain_per_second=100.0, steps=steps, memory_bytes=2**20)


def test_no_ratio_is_told_of_few_tokens_or_where_other_programs_were_in_the_way() -> None:
    assert times(long_reply()) == pytest.approx(2.0)
    assert line(long_reply()) == "200 tok/s · 2.0 times as fast"
    assert times(replace(long_reply(), steps=long_reply().steps[:19])) is None
    assert times(long_reply(own=8e-3)) is None
    assert line(long_reply(own=8e-3)) == "200 tok/s"


def test_of_another_server_no_ratio_is_told_while_its_machine_is_disturbed() -> None:
    def stats(seconds: float) -> Stats:
        return Stats(prompt_n=9, decode_seconds=1.0, plain_per_second=200.0, told=(RemoteCounts(100, 90, 80, seconds),))

    assert times(stats(1.0)) == 0.5
    assert times(stats(0.0)) == 0.5  # which a server that does not say so leaves open
    assert times(stats(0.5)) is None
    assert times(stats_of({"numbers": kept(stats(0.5))})) is None


def test_kept_numbers_are_told_as_those_that_grew() -> None:
    for stats in (long_reply(), long_reply(own=8e-3), replace(long_reply(), reason=Reason("cost", "it costs"))):
        again = stats_of(json.loads(json.dumps({"numbers": kept(stats)})))
        assert [*speed(again), *usage(again, 100)] == [*speed(stats), *usage(stats, 100)]
        assert again.reason == stats.reason
        assert again.draft_seconds == pytest.approx(stats.draft_seconds)
        assert again.drafters == stats.drafters
    assert stats_of({}) == Stats()


def plain_passes(n: int) -> list[Pass]:
    return [Pass(10e-3, "none", 0, 0, 1)] * n


def test_three_sentences_say_whether_it_is_faster_why_and_what_would_help() -> None:
    told = heard(controller((10e-3, 11e-3, 12e-3, 33e-3), 1e-4), 3, 3)

    def said(stats: Stats) -> str:
        return " ".join(answer for _, answer in three_sentences(stats, told, None))

    assert "2.00 times as fast, 200 instead of the 100 tokens a second" in said(long_reply())
    assert "50% of the guesses from a draft model were right" in said(long_reply())
    assert "brought 2.0 tokens instead of 1" in said(long_reply())
    seldom = replace(long_reply(), steps=[*plain_passes(99), *long_reply().steps[:1]])
    assert "Only 2 of the reply's 101 tokens were guessed: of a reason" in said(seldom)
    assert "of the reply's 2 tokens were guessed: too few" in said(replace(seldom, steps=seldom.steps[-1:]))
    wrong = replace(long_reply(), steps=[Pass(10e-3, "model", 2, 0, 1)] * 40)
    assert "brought hardly more than 1 token" in said(wrong)
    mixed = replace(long_reply(), steps=[*plain_passes(30), *long_reply().steps], reason=Reason("cost", "it costs"))
    assert "50% of the guesses from a draft model were right, but most passes had no guess: it costs." in said(mixed)
    assert "tokens instead of 1" not in said(mixed)  # which would sound like the opposite
    assert "easier to guess" in said(long_reply())
    assert "other programs took 20% of the time" in said(long_reply(own=8e-3))
    assert "Too early to say: the last reply was shorter" in said(
        replace(long_reply(), steps=long_reply().steps[:1], decode_seconds=0.01)
    )
    plain = Stats(steps=plain_passes(40), decode_seconds=0.4, plain_per_second=100.0)
    assert "There was little to guess from, so the last reply came as fast as the model writes alone" in said(plain)
    assert "wrote every token by itself: of a reason" in said(plain)
    assert "Checking 4 tokens takes 3.3 times" in said(plain)
    assert "no numbers here yet" in said(Stats())


def test_the_picture_has_both_speeds_or_who_wrote_or_nothing() -> None:
    assert [row.split()[-2:] for row in picture(long_reply()).plain.splitlines()] == [
        ["100", "tok/s"],
        ["200", "tok/s"],
    ]
    few = replace(long_reply(), steps=long_reply().steps[:3], decode_seconds=0.03)
    assert [row.split()[-2:] for row in picture(few).plain.splitlines()] == [["3", "tokens"], ["3", "tokens"]]
    assert picture(Stats()).plain == ""


def test_every_command_has_a_method_and_no_key_is_taken_twice() -> None:
    assert all(callable(HANDLERS.get(command.name)) for command in COMMANDS)
    keys = [command.key for command in COMMANDS if command.key]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("text", ["hello", "/etc/hosts is a file", "2 / 3", "/ "])
def test_what_is_no_command_is_said(text: str) -> None:
    assert parse(text) is None


def test_a_command_takes_the_rest_as_its_argument() -> None:
    found = parse("/system Be brief.\nAnd kind.")
    assert found is not None
    assert (found[0].name, found[1]) == ("system", "Be brief.\nAnd kind.")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("<think>\na\n</think>\n\nb", ("a", "b")),
        ("<think>still", ("still", "")),
        ("no <think>x</think>", ("", "no <think>x</think>")),
    ],
)
def test_thinking_is_told_from_the_answer(text: str, parts: tuple[str, str]) -> None:
    assert split_reasoning(text) == parts


def test_a_keymap_is_read_and_none_is_needed(tmp_path: Path) -> None:
    path = tmp_path / "keymap.toml"
    assert read_keymap(path, known_ids()) == {}
    path.write_text('[keys]\n"chat.why" = "f9"\n')
    assert read_keymap(path, known_ids()) == {"chat.why": "f9"}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('[keys]\n"chat.wyh" = "f9"', "Did you mean 'chat.why'"),
        ('[keys]\n"chat.why" = 9', "must be a key"),
        ("[kyes]", "Did you mean 'keys'"),
        ("keys = ", "not valid TOML"),
        ("keys = 3", "must be a table"),
    ],
)
def test_a_wrong_keymap_is_named_with_its_remedy(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "keymap.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=named) as caught:
        read_keymap(path, known_ids())
    assert str(path) in str(caught.value)


def slipstream(*words: str) -> subprocess.CompletedProcess[str]:
    code = "from app.cli.__main__ import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def test_without_a_terminal_there_is_help_instead_of_a_chat() -> None:
    assert "Usage:" in slipstream().stdout
    for words in (["chat"], ["some.gguf"], ["-c"], ["-m", "demo"], ["--model=demo"]):
        done = slipstream(*words)
        assert (done.returncode, done.stdout, "The chat needs a terminal" in done.stderr) == (1, "", True)


def test_drawing_waits_until_it_is_a_small_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    worked = iter((1.0, 1.001, 1.021, 9.0))  # seconds of this thread at each look
    monkeypatch.setattr("app.tui.pace.time.thread_time", lambda: next(worked))
    looks = Pace()
    assert looks.pause() == FIRST
    assert looks.pause() == PAUSE
    assert looks.pause() == pytest.approx(0.02 / SHARE)
    assert looks.pause() == MAX_INTERVAL
