"""Counts over all replies for Prometheus, under our names and, where they mean the same, under those of llama.cpp's
server and of vLLM.

Must not know HTTP.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from runtime.engine import Chunk

if TYPE_CHECKING:
    from app.server.served_models import ServedModels

counter, gauge = CounterMetricFamily, GaugeMetricFamily  # with one value
SUMMED = (
    "prompt_n", "cached_n", "prompt_seconds", "predicted_n", "decode_seconds", "draft_seconds", "verify_seconds",
)  # fmt: skip
RECENT = 0.3  # weight of the newest reply in the average of seconds


@dataclass(slots=True)
class Totals:
    """The sums over all finished replies."""

    replies: Counter[str] = field(default_factory=Counter)  # by finish reason
    prompt_n: int = 0
    cached_n: int = 0
    prompt_seconds: float = 0.0
    predicted_n: int = 0
    decode_seconds: float = 0.0
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    queue_seconds: float = 0.0
    passes: Counter[str] = field(default_factory=Counter)  # by drafter; "none" for plain decode
    k: Counter[str] = field(default_factory=Counter)  # passes by draft length
    drafted: Counter[str] = field(default_factory=Counter)  # tokens by drafter
    accepted: Counter[str] = field(default_factory=Counter)
    accepted_at: Counter[str] = field(default_factory=Counter)  # tokens by position in the draft, from 0
    fallbacks: Counter[str] = field(default_factory=Counter)  # replies decoded mostly without drafts, by reason
    memory_bytes: int = 0
    context_n: int = 0  # tokens of the longest context
    n_decodes: float = 0.0  # passes; one shared by several replies is divided among them
    n_embedded: int = 0  # embedded texts
    seconds_per_reply: float = 0.0  # moving average

    def count(self, last: Chunk, queue_seconds: float, seconds: float) -> None:
        """Add a reply by its last chunk, its seconds in the queue and its seconds after that."""
        stats = last.stats
        if stats is None:
            return
        if stats.steps or not stats.embedded_n:
            self.replies[last.finish_reason or "none"] += 1
        self.n_embedded += stats.embedded_n
        self.context_n = max(self.context_n, stats.prompt_n + stats.predicted_n)
        for name in SUMMED:
            setattr(self, name, getattr(self, name) + getattr(stats, name))
        self.queue_seconds += queue_seconds
        self.passes.update(stats.drafters)
        self.n_decodes += sum(1 / each.n_together for each in stats.steps)
        for each in stats.steps:
            self.k[str(each.n_drafted)] += 1
            self.drafted[each.drafter] += each.n_drafted
            self.accepted[each.drafter] += each.n_accepted
            self.accepted_at.update(str(place) for place in range(each.n_accepted))
        if stats.reason is not None:
            self.fallbacks[stats.reason.code] += 1
        self.memory_bytes = stats.memory_bytes
        self.seconds_per_reply += RECENT * (seconds - self.seconds_per_reply) if self.seconds_per_reply else seconds


def counter_by(label: str, name: str, text: str, values: Mapping[str, float]) -> Metric:
    """Return a counter with a value for each value of a label."""
    family = CounterMetricFamily(name, text, labels=[label])
    for key, value in sorted(values.items()):
        family.add_metric([key], value)
    return family


class Metrics(Collector):
    """Prometheus collector that reads a server's load at each scrape."""

    def __init__(self, load: ServedModels) -> None:
        self.load = load

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry) + longest_context(self.load.totals)

    def collect(self) -> Iterable[Metric]:
        """Yield every metric family."""
        totals, load, status = self.load.totals, self.load, self.load.status
        yield from slipstream_metrics(totals)
        yield gauge("slipstream_requests_running", "Replies being generated.", load.n_active)
        yield gauge("slipstream_requests_waiting", "Requests waiting.", load.n_waiting)
        yield gauge("slipstream_cache_sequences", "Conversations in the target's cache.", status.n_held)
        yield gauge("slipstream_memory_bytes", "Memory of the process after the last reply.", totals.memory_bytes)
        n_read, n_used = status.ahead
        yield counter("slipstream_tokens_read_ahead", "Tokens read before a request for them came.", n_read)
        yield counter("slipstream_tokens_read_ahead_used", "Those that a later prompt had in the cache.", n_used)
        level = GaugeMetricFamily(
            "slipstream_memory_level", "1 for the current memory level: OK, TIGHT or CRITICAL.", labels=["level"]
        )
        level.add_metric([status.memory_level], 1)
        yield level
        states = GaugeMetricFamily("slipstream_model", "1 for the state of each model.", labels=["model", "state"])
        for model in load.models:
            states.add_metric([model.name, "failed" if model.failure else model.state], 1)
        yield states
        yield from llamacpp_metrics(totals)
        yield gauge("llamacpp:requests_processing", "Replies being generated.", load.n_active)
        yield gauge("llamacpp:requests_deferred", "Requests waiting.", load.n_waiting)
        yield from vllm_metrics(totals)
        yield gauge("vllm:num_requests_running", "Replies being generated.", load.n_active)
        yield gauge("vllm:num_requests_waiting", "Requests waiting.", load.n_waiting)


def slipstream_metrics(totals: Totals) -> Iterator[Metric]:
    """Yield all counts under our own names. Some exist in no other server."""
    yield counter("slipstream_prompt_tokens", "Prompt tokens.", totals.prompt_n)
    yield counter("slipstream_cached_tokens", "Prompt tokens found in the cache.", totals.cached_n)
    yield counter("slipstream_predicted_tokens", "Generated tokens.", totals.predicted_n)
    yield counter("slipstream_prompt_seconds", "Time spent on prefill.", totals.prompt_seconds)
    yield counter("slipstream_decode_seconds", "Time spent on decoding.", totals.decode_seconds)
    yield counter("slipstream_draft_seconds", "Time spent on drafting, part of decoding.", totals.draft_seconds)
    yield counter(
        "slipstream_verify_seconds", "Time spent in passes of the target, part of decoding.", totals.verify_seconds
    )
    yield counter("slipstream_waited_seconds", "Time that requests spent waiting.", totals.queue_seconds)
    yield counter_by("finish_reason", "slipstream_replies", "Replies.", totals.replies)
    yield counter_by("drafter", "slipstream_target_passes", "Passes of the target.", totals.passes)
    yield counter_by("k", "slipstream_passes_by_draft_length", "Passes of the target by draft length.", totals.k)
    yield counter_by("drafter", "slipstream_drafted_tokens", "Draft tokens.", totals.drafted)
    yield counter_by("drafter", "slipstream_accepted_tokens", "Accepted draft tokens.", totals.accepted)
    yield counter_by(
        "position",
        "slipstream_accepted_tokens_by_depth",
        "Accepted draft tokens by position in the draft.",
        totals.accepted_at,
    )
    yield counter_by(
        "reason", "slipstream_fallbacks", "Replies that were mostly decoded without drafts.", totals.fallbacks
    )


def llamacpp_metrics(totals: Totals) -> Iterator[Metric]:
    """Yield counts under the names of llama.cpp's server."""
    yield counter("llamacpp:prompt_tokens", "Prompt tokens that were read.", totals.prompt_n - totals.cached_n)
    yield counter("llamacpp:prompt_tokens_cached", "Prompt tokens found in the cache.", totals.cached_n)
    yield counter("llamacpp:prompt_seconds", "Time spent on prefill.", totals.prompt_seconds)
    yield counter("llamacpp:tokens_predicted", "Generated tokens.", totals.predicted_n)
    yield counter("llamacpp:tokens_predicted_seconds", "Time spent on decoding.", totals.decode_seconds)
    n_decode = totals.n_decodes + totals.n_embedded
    yield counter("llamacpp:n_decode", "Passes of the target, and texts embedded.", round(n_decode))
    yield from draft_metrics("llamacpp", totals)
    shared = totals.passes.total() / totals.n_decodes if totals.n_decodes else 0.0
    n_read = totals.prompt_n - totals.cached_n
    read, made = per_second(n_read, totals.prompt_seconds), per_second(totals.predicted_n, totals.decode_seconds)
    yield gauge("llamacpp:prompt_tokens_seconds", "Prompt tokens read per second, on average.", read)
    yield gauge("llamacpp:predicted_tokens_seconds", "Generated tokens per second, on average.", made)
    yield gauge("llamacpp:n_busy_slots_per_decode", "Replies per pass, on average.", shared)


def draft_metrics(server: str, totals: Totals) -> Iterator[Metric]:
    """Yield the counts of drafts, which are named alike by both other servers."""
    drafted = sum(n for k, n in totals.k.items() if k != "0")
    yield counter(f"{server}:spec_decode_num_drafts", "Passes with a draft.", drafted)
    yield counter(f"{server}:spec_decode_num_draft_tokens", "Draft tokens.", totals.drafted.total())
    yield counter(f"{server}:spec_decode_num_accepted_tokens", "Accepted draft tokens.", totals.accepted.total())


def per_second(n: int, seconds: float) -> float:
    """Return a rate per second, 0 where nothing has been measured."""
    return n / seconds if seconds else 0.0


def longest_context(totals: Totals) -> bytes:
    """Return llama.cpp's counter `n_tokens_max` as text. Its name lacks the suffix that the library adds to all
    counters.
    """
    name = "llamacpp:n_tokens_max"
    text = f"# HELP {name} Tokens of the longest context.\n# TYPE {name} counter\n{name} {totals.context_n}\n"
    return text.encode()


def vllm_metrics(totals: Totals) -> Iterator[Metric]:
    """Yield counts under vLLM's names."""
    yield counter("vllm:prompt_tokens", "Prompt tokens.", totals.prompt_n)
    yield counter("vllm:generation_tokens", "Generated tokens.", totals.predicted_n)
    yield counter("vllm:prefix_cache_queries", "Prompt tokens looked up in the cache.", totals.prompt_n)
    yield counter("vllm:prefix_cache_hits", "Prompt tokens found in the cache.", totals.cached_n)
    yield counter_by("finished_reason", "vllm:request_success", "Replies.", totals.replies)
    yield from draft_metrics("vllm", totals)
    yield counter_by(
        "position",
        "vllm:spec_decode_num_accepted_tokens_per_pos",
        "Accepted draft tokens by position.",
        totals.accepted_at,
    )
