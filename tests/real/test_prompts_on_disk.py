"""What one process has read of a public model's prompt, the next one takes, with the same text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.instruments.weights import MODELS
from tests.real.asking import LIBRARY, TIDES
from tests.real.conftest import FindPair

# In processes of their own, with the fast layout of weights, in which most models' kernels round by width
ASK = """
import sys
from runtime.engine import Options, Sampling, stored_states
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import Pair
from pathlib import Path

stored_states.THRESHOLDS = stored_states.Worth(seconds=0.0, gain=0.0)
engine = LoadedEngine(Pair("real", Path(sys.argv[1])), Options(n_ctx=2048, prompt_bytes=int(sys.argv[2])))
*chunks, last = engine.reply(sys.argv[3], Sampling(temperature=0, seed=1), 24)
print(last.stats.cached_n, repr("".join(chunk.text for chunk in (*chunks, last))))
engine.close()
"""


def said(path: Path, n_bytes: int, prompt: str) -> tuple[int, str]:
    command = [sys.executable, "-c", ASK, str(path), str(n_bytes), prompt]
    n_cached, _, text = subprocess.run(command, check=True, capture_output=True, text=True).stdout.partition(" ")
    return int(n_cached), text


@pytest.mark.parametrize("name", MODELS)
def test_a_prompt_that_was_read_by_another_process_is_not_read_again(name: str, real_pair: FindPair) -> None:
    path = real_pair(name).target
    first, second = f"{TIDES}\n\n{LIBRARY}\n\nIn short:", f"{TIDES}\n\n{LIBRARY}\n\nIn one word:"
    expected = [said(path, 0, prompt)[1] for prompt in (first, second)]
    assert said(path, 10**9, first) == (0, expected[0])
    n_cached, text = said(path, 10**9, first)
    assert text == expected[0]
    assert n_cached > 100
    assert said(path, 10**9, second)[1] == expected[1]
