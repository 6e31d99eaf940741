"""The comparison with peers: ways in processes of their own, and the arithmetic over them.

No peer's library is loaded.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path

import pytest

from bench.instruments import processes
from bench.instruments.heads import HeadShape, block_head_for, head_for, write_head
from bench.instruments.processes import Peer
from bench.instruments.ways import Answer, Job, Prompt, Server, Way, WayError, draft_settings
from bench.peers import compare, measure, ways
from runtime.models.registry import Pair, load_registry

pytestmark = pytest.mark.slow

PROMPTS = [Prompt("one", [1]), Prompt("two", [2])]
JOB = Job(Pair("toy", Path("toy.gguf"), Path("draft.gguf")), 10)
SERVER = Server({"NONE": 0, "DRAFT_SIMPLE": 1, "NGRAM_SIMPLE": 6, "NGRAM_MOD": 9}, ("NGRAM_SIMPLE",), 3, 0.0, "")


def process_id(job: Job, way: Way) -> Callable[[Prompt], Answer]:
    return lambda prompt: Answer(str(os.getpid()), tokens=10, seconds=2)


def aborts(job: Job, way: Way) -> Callable[[Prompt], Answer]:
    return lambda prompt: os._exit(7)


def refuses(job: Job, way: Way) -> Callable[[Prompt], Answer]:
    raise WayError("there is no such model")


def ask(
    opens: Sequence[Callable[[Job, Way], Callable[[Prompt], Answer]]], is_kept: bool = True
) -> tuple[list[Peer], dict[str, list[float]]]:
    peers = [Peer(JOB, Way(opener.__name__, opener, ""), is_kept) for opener in opens]
    try:
        return peers, measure(peers, PROMPTS, runs=2)
    finally:
        for peer in peers:
            peer.close()


def test_a_way_that_aborts_or_refuses_costs_its_own_row_only() -> None:
    peers, results = ask([aborts, process_id, refuses])
    assert results == {"process_id": [5, 5]}
    assert "code 7" in peers[0].failure
    assert "no such model" in peers[2].failure


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_process_lives_through_all_rounds_only_when_it_is_kept(is_kept: bool) -> None:
    (peer,), _ = ask([process_id], is_kept)
    assert len(peer.texts["one"]) == (1 if is_kept else 3)
    assert str(os.getpid()) not in peer.texts["one"]


def test_a_slow_way_leaves_the_rest_of_the_prompts_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "ROUND_SECONDS", 0)
    (peer,), results = ask([process_id])
    assert list(peer.texts) == ["one"]
    assert results == {"process_id": [5, 5]}


def test_a_way_that_says_nothing_in_time_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "TIMEOUT", 0)
    (peer,), results = ask([process_id])
    assert results == {}
    assert "nothing came" in peer.failure
    assert active_children() == []


def test_ratios_are_of_the_same_rounds_and_leave_out_what_failed() -> None:
    results = {
        "ours, plain": [1.0, 2.0],
        "ours, adaptive": [2.0, 6.0],
        "server, plain": [1.0, 2.0],
        "ours, plain, own threads": [9.0, 9.0],
    }
    assert compare(results, "server, plain") == {
        "adaptive / server's best": [2.5, 2, 3],
        "adaptive / server's plain": [2.5, 2, 3],
        "plain / server's plain": [1, 1, 1],
    }


def test_the_servers_every_setting_is_a_way_once_and_is_compared_with_a_way_that_is_there() -> None:
    basics, more = ways(JOB.pair, SERVER, 2, is_busy=False)
    names = [way.name for way in basics + more]
    assert len(set(names)) == len(names)
    assert {way.plain for way in basics + more} <= set(names)
    drafts = [way.settings for way in basics + more if "speculative.draft.mparams.path" in way.settings and way.threads]
    found = {
        (s.get("speculative.draft.n_max", SERVER.n_max), s.get("speculative.draft.p_min", SERVER.p_min)) for s in drafts
    }
    assert found == {(n, p) for n in range(1, 9) for p in (0.0, 0.75)}
    assert len(drafts) == len(found)
    assert {"server, ngram_simple", "server, ngram_simple, short", "server, ngram_mod"} <= set(names)
    assert "server, ngram_mod, short" not in names


def test_the_comparison_itself_loads_no_model_library_so_a_way_meets_only_its_own() -> None:
    code = "import sys, bench.peers; sys.exit(bool({'llama_cpp', 'xllamacpp'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("make", "kind"), [(head_for, "DRAFT_EAGLE3"), (block_head_for, "DRAFT_DFLASH"), (None, "DRAFT_SIMPLE")]
)
def test_the_server_is_told_what_kind_of_draft_a_file_is(
    make: Callable[[Path], HeadShape] | None, kind: str, tmp_path: Path
) -> None:
    pair = load_registry()["demo"]
    draft = write_head(tmp_path / "head.gguf", make(pair.target)) if make else pair.draft
    server = replace(SERVER, types={"DRAFT_SIMPLE": 1, "DRAFT_EAGLE3": 2, "DRAFT_DFLASH": 4})
    found = draft_settings(replace(pair, draft=draft), server)
    assert found == {"speculative.draft.mparams.path": str(draft), "speculative.types": [server.types[kind]]}
