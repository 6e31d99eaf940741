"""Another server's statistics about drafts, from its metrics of all replies to all clients.

Reads its reports; measures nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from runtime.core.errors import SlipstreamError
from runtime.upstream.connection import Connection

# Names of counters of draft tokens and of those accepted, and of the number of tokens in a pass, by program
COUNTERS = ("vllm:spec_decode_num_{}_tokens", "llamacpp:spec_decode_num_{}_tokens")
LENGTHS = ("sglang:spec_accept_length",)


class Drafted(NamedTuple):
    """Draft tokens since the server started, and those accepted; or tokens per pass, if it reports only that."""

    n_drafted: int = 0
    n_accepted: int = 0
    per_pass: float = 0.0

    def __str__(self) -> str:
        if self.n_drafted:
            return (
                f"by its metrics {self.n_accepted:,} of {self.n_drafted:,} draft tokens were accepted "
                f"({self.n_accepted / self.n_drafted:.0%}), in the replies to all clients"
            )
        if self.per_pass:
            return f"by its metrics a pass yields {self.per_pass:.2f} tokens, in the replies to all clients"
        return "its metrics do not report drafts"


def read_metrics(connection: Connection) -> Drafted | None:
    """Return the statistics in its metrics now; None where they cannot be read."""
    try:
        return drafted_in(connection.get(f"{connection.root}/metrics").decode("utf8", "replace"))
    except (SlipstreamError, ValueError):
        return None


def drafted_in(metrics: str) -> Drafted:
    """Return the statistics in a text in Prometheus' format. Raises ValueError for another format."""
    from prometheus_client.parser import text_string_to_metric_families  # seldom needed

    found: dict[str, float] = {}
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            name = sample.name.removesuffix("_total")
            found[name] = found.get(name, 0.0) + sample.value
    for form in COUNTERS:
        if n_drafted := found.get(form.format("draft")):
            return Drafted(round(n_drafted), round(found.get(form.format("accepted"), 0.0)))
    return Drafted(per_pass=next((found[name] for name in LENGTHS if name in found), 0.0))
