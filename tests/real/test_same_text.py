"""Public models say with every drafter what they say without: briefly, in a long context, in a form, when foreseen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.instruments.texts import follows_schema
from tests.real.asking import CASES, DEFAULT, FORM, LONG, LONG_CELLS, SHORT, Said, ask
from tests.real.conftest import Drafting

LOOK_ANYWHERE = "model", "layerskip", "lookahead"  # draft without a repeated text, a form or a prediction
WINDOW = 512  # tokens that most of Gemma's layers see


def drafted(said: Said, way: str) -> int:
    return said.drafted.get(way, {}).get("drafted", 0)


@pytest.mark.parametrize("case", SHORT)
def test_a_reply_is_plain_decodes(drafting: Drafting, case: str) -> None:
    said = ask(drafting.engine, CASES[case])
    assert said.tokens == drafting.plain(case).tokens
    assert drafted(said, drafting.way) > 0 or drafting.way not in (*LOOK_ANYWHERE, "suffix")


@pytest.mark.parametrize("case", LONG)
@pytest.mark.parametrize("drafting", LONG_CELLS, indirect=True, ids="-".join)
def test_a_reply_in_a_long_context_is_plain_decodes(drafting: Drafting, case: str) -> None:
    plain = drafting.plain(case)
    foreseen = plain.text if drafting.way == "prediction" else ""
    said = ask(drafting.engine, CASES[case], prediction=foreseen)
    assert said.tokens == plain.tokens
    assert said.prompt_n > 3 * WINDOW
    assert drafted(said, drafting.way) > 0 or drafting.way not in (*LOOK_ANYWHERE, "ngram", "prediction")


@pytest.mark.parametrize("case", FORM)
def test_a_reply_in_a_form_is_plain_decodes_and_follows_it(drafting: Drafting, case: str) -> None:
    said = ask(drafting.engine, CASES[case])
    assert said.tokens == drafting.plain(case).tokens
    assert follows_schema(said.text), said.text
    assert drafted(said, drafting.way) > 0 or drafting.way != "grammar"


@pytest.mark.parametrize("case", SHORT)
def test_a_reply_that_was_foreseen_is_plain_decodes(drafting: Drafting, case: str) -> None:
    plain = drafting.plain(case)
    said = ask(drafting.engine, CASES[case], prediction=plain.text)
    assert said.tokens == plain.tokens
    accepted = said.drafted.get("prediction", {}).get("accepted", 0)
    assert accepted > len(plain.tokens) / 2 or drafting.way != "prediction"


@pytest.mark.parametrize("case", SHORT)
@pytest.mark.parametrize("drafting", [("gemma3", DEFAULT)], indirect=True, ids="-".join)
def test_a_reply_does_not_depend_on_what_was_asked_before(drafting: Drafting, case: str) -> None:
    """Also where prompts round by the pieces in which they are read: the two begin alike."""
    ask(drafting.engine, replace(CASES[case], question="Name three rivers of Europe, please.", max_tokens=4))
    assert ask(drafting.engine, CASES[case]).tokens == drafting.plain(case).tokens
