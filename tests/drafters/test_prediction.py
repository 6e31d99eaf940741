"""A prediction is followed through the reply: in step, lost after a difference, found again; and it never changes what
is said.
"""

from __future__ import annotations

import pytest

from runtime.conversation.chat_template import Message
from runtime.drafters.prediction import PredictionDrafter
from runtime.engine import Sampling
from tests.conftest import OpenEngine
from tests.drafters.test_drafters import budget, ids, said

PROMPT = "?>"
FILE = "def area(w, h):\n    return w * h\n\ndef edge(w, h):\n    return 2 * (w + h)\n\nprint(area(2, 3))\n"
ASKED = [Message("user", "What does os.path.join do?")]


def following(*replies: str, expected: str = FILE, k: int = 4) -> list[str]:
    """What is drafted after each state of a reply, one after the other."""
    drafter = PredictionDrafter()
    drafter.begin(ids(PROMPT), list(map(ord, expected)))
    return [said(drafter.propose(ids(PROMPT + reply), budget(k))) for reply in replies]


def test_it_says_the_expected_text_from_the_start_to_the_end() -> None:
    assert following("", "def ", FILE[:-2], FILE) == ["def ", "area", ")\n", ""]


@pytest.mark.parametrize(
    ("before", "after", "goes_on"),
    [
        ("def a", "def size(w, h)", ":\n  "),  # replaced by as much
        ("def a", "def a_b(w, h)", ":\n  "),  # put in
        ("def area(w, h):\n", "def area(w, h):\n    # the product\n    return", " w *"),  # a line put in
        (
            "def area(w, h):\n    return w * h\n",
            "def area(w, h):\n    return w * h\nprint(area",
            "(2, ",
        ),  # lines left out
        ("", "Here is the file:\ndef area", "(w, "),  # said before it
    ],
)
def test_it_finds_its_place_again_after_a_difference(before: str, after: str, goes_on: str) -> None:
    steps = [after[:n] for n in range(len(before), len(after) + 1)]
    assert following(*steps)[-1] == goes_on


def test_of_equal_matches_the_nearest_is_taken() -> None:
    text = "aa--=1;....bb--=2;....cc--=3;...."
    assert following("aa--=1;....b", "aa--=1;....bX--=", expected=text)[-1] == "2;.."


def test_nothing_is_said_while_the_place_is_lost() -> None:
    assert following("def", "defZQ", "defZQJ") == [" are", "", ""]


def test_it_keeps_its_place_when_turns_are_left_out_of_the_context() -> None:
    drafter = PredictionDrafter()
    drafter.begin(ids("a long talk" + PROMPT), list(map(ord, FILE)))
    drafter.propose(ids("a long talk" + PROMPT + "def a"), budget(4))
    assert said(drafter.propose(ids(PROMPT + "def area"), budget(4))) == "(w, "


def asked_after(*replies: str) -> list[float]:
    """The confidences of the last proposal."""
    drafter, asked = PredictionDrafter(), list[float]()
    drafter.begin(ids(PROMPT), list(map(ord, FILE)))
    for reply in replies:
        asked.clear()
        drafter.propose(ids(PROMPT + reply), budget(3, lambda c: asked.append(c) or True))
    return asked


def test_it_is_sure_in_step_and_less_so_right_after_a_difference() -> None:
    in_step, found_again = asked_after("", "def area(w, h)"), asked_after("", "def a", "def ar", "def arXX(")
    assert 0 < found_again[0] < found_again[1] < found_again[2] < in_step[0] < 1
    assert found_again[0] < asked_after("")[0] < in_step[0]


def test_it_stops_where_the_budget_says_so() -> None:
    drafter, answers = PredictionDrafter(), iter([True, False])
    drafter.begin(ids(PROMPT), list(map(ord, FILE)))
    assert said(drafter.propose(ids(PROMPT), budget(8, lambda c: next(answers)))) == "d"


def test_without_a_prediction_nothing_is_said_and_the_last_one_is_forgotten() -> None:
    drafter = PredictionDrafter()
    assert said(drafter.propose(ids(PROMPT), budget(4))) == ""
    drafter.begin(ids(PROMPT), [1, 2, 3])
    drafter.begin(ids(PROMPT), ())
    assert said(drafter.propose(ids(PROMPT), budget(4))) == ""


def test_a_prediction_speeds_up_what_it_foresees_and_changes_nothing(open_demo: OpenEngine) -> None:
    engine, sampling = open_demo(drafters=("prediction",), fixed_k=8), Sampling(temperature=0)
    plain = "".join(chunk.text for chunk in open_demo(drafters=()).reply(ASKED, sampling, max_tokens=60))
    for prediction in (plain, plain.replace("path", "road"), plain * 200, "Something else."):
        chunks = list(engine.reply(ASKED, sampling, max_tokens=60, prediction=prediction))
        assert "".join(chunk.text for chunk in chunks) == plain
        stats = chunks[-1].stats
        assert stats is not None
        accepted = stats.by_drafter.get("prediction", {}).get("accepted", 0)
        assert (accepted > 20) == (prediction != "Something else.")
