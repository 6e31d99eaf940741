"""What one client asks for stops nobody else: a stream beside costly requests goes on with the same text."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench import bounds
from bench.instruments.costly import REQUESTS
from bench.instruments.servers import serving

SLOW = 10.0  # seconds without a piece: far beyond the half second that bench.bounds shows, as tests share their cores
REFUSED = {
    name
    for name in REQUESTS
    if any(word in name for word in ("seven", "5^6", "doubled", "5,000", "logit_bias", "for one text"))
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving("demo", ["--parallel", "4"]) as found:
        bounds.measured(found, "nothing")
        yield found


@pytest.mark.parametrize("name", REQUESTS)
def test_a_costly_request_stops_no_other(url: str, name: str) -> None:
    cost = bounds.measured(url, name)
    assert cost.gap < SLOW
    assert cost.health < SLOW
    assert len(cost.texts) == 1
    assert "no answer" not in cost.outcome
    assert not cost.outcome.startswith(("500", "503"))
    if name in REFUSED:
        assert cost.outcome.startswith("4"), cost.outcome
