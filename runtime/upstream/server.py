"""Facts about another server: its program, its model, its context, the settings that it accepts, and its statistics
about drafts, which are of all replies to all clients.

Queries it when it is opened, and waits while it is loading its model. Measures nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote

from runtime.core.errors import SlipstreamError, listed
from runtime.engine.facts import EngineFacts
from runtime.loading.exactness import Exactness
from runtime.loading.options import Options
from runtime.upstream.connection import Connection, UpstreamError, first_line
from runtime.upstream.reply import table
from runtime.upstream.words import N_BYTES, TEMPLATE

# Programs by their names in their lists of models. Others only get requests of OpenAI's interface.
PROGRAMS = {"slipstream": "Slipstream", "llamacpp": "llama.cpp's server", "vllm": "vLLM", "sglang": "SGLang"}
OURS, LLAMA_CPP, VLLM, SGLANG = PROGRAMS
PAUSE, POLL_SECONDS = 1.0, 0.1  # seconds between two queries of a server that loads its model; between looks at a stop
# Names of counters of draft tokens and of those accepted, by program
COUNTERS = ("vllm:spec_decode_num_{}_tokens", "llamacpp:spec_decode_num_{}_tokens")


@dataclass(frozen=True, slots=True)
class Server:
    """A server that responds, and the model to use."""

    program: str  # out of PROGRAMS; "" for any other
    model: str
    n_ctx: int  # tokens of context; 0: not reported
    has_metrics: bool

    @property
    def takes_more(self) -> bool:
        """Whether it accepts settings that OpenAI's interface lacks."""
        return bool(self.program)

    @property
    def is_llama_cpp_like(self) -> bool:
        """Whether it accepts the settings of llama.cpp's server."""
        return self.program in (OURS, LLAMA_CPP)


def look_when_loaded(connection: Connection, model: str, should_continue: Callable[[], bool]) -> Server:
    """Return the result of `look_at` once the server's model is loaded.

    Raises UpstreamError, and KeyboardInterrupt if `should_continue` returns False.
    """
    while True:
        try:
            return look_at(connection, model)
        except UpstreamError as error:
            if not error.is_loading:
                raise
        for _ in range(round(PAUSE / POLL_SECONDS)):
            if not should_continue():
                raise KeyboardInterrupt
            time.sleep(POLL_SECONDS)


def look_at(connection: Connection, model: str) -> Server:
    """Return the program at that address, and its model. Raises UpstreamError."""
    cards = model_cards(connection, model)
    name = model or only_model(connection, cards)
    card = next((card for card in cards if card["id"] == name), cards[0] if len(cards) == 1 else {})
    owner = str(card.get("owned_by", ""))
    program = owner if owner in PROGRAMS else ""
    n_ctx = context_of(card) or (slot_context(connection, name) if program in (OURS, LLAMA_CPP) else 0)
    return Server(program, first_line(name), n_ctx, bool(program) and answers(connection, "/metrics"))


def model_cards(connection: Connection, model: str) -> list[dict[str, Any]]:
    """Return the models that it lists; none where it has no list and a model was named. Raises UpstreamError."""
    try:
        found = connection.get_json(f"{connection.base}/models").get("data")
    except UpstreamError as error:
        if model and error.status in (404, 405, 501):
            return []
        raise
    cards = (
        [card for card in found if isinstance(card, dict) and isinstance(card.get("id"), str)]
        if isinstance(found, list)
        else []
    )
    if not cards and not model:
        raise connection.nonsense()
    return cards


def only_model(connection: Connection, cards: list[dict[str, Any]]) -> str:
    """Return the name of the only model, or of the only one that is loaded. Raises UpstreamError where there are
    several.
    """
    names = [str(card["id"]) for card in cards]
    for found in (names, [str(card["id"]) for card in cards if is_loaded(card)]):
        if len(found) == 1:
            return found[0]
    shown = listed([first_line(name) for name in names])
    raise UpstreamError(
        f"The server at {connection.base} has {len(names)} models: {shown}. Name one, as `upstream_model` of the pair "
        "or after a # at the end of the address."
    )


def is_loaded(card: dict[str, Any]) -> bool:
    """Return whether an entry of the list says that its model is loaded."""
    return table(card.get("status")).get("value") == "loaded"


def context_of(card: dict[str, Any]) -> int:
    """Return the tokens of context in an entry of the list, as vLLM and SGLang name it, or as we do; 0 if missing."""
    found = [card.get("max_model_len"), table(card.get("meta")).get("n_ctx")]
    return next((n for n in found if isinstance(n, int) and n > 0), 0)


def slot_context(connection: Connection, model: str) -> int:
    """Return the tokens of context of a conversation with a model, which is loaded for that; 0 if they are not
    reported.
    """
    try:
        props = connection.get_json(f"{connection.root}/props?model={quote(model, safe='')}")
    except SlipstreamError:
        return 0
    n_ctx = table(props.get("default_generation_settings")).get("n_ctx")
    return n_ctx if isinstance(n_ctx, int) and n_ctx > 0 else 0


def answers(connection: Connection, path: str) -> bool:
    """Return whether the server responds at that path, which is outside the interface."""
    try:
        connection.get(connection.root + path)
    except SlipstreamError:
        return False
    return True


def where(server: Server, connection: Connection) -> str:
    """Return the program and its address."""
    return f"{PROGRAMS.get(server.program, 'the server')} at {connection.base}"


def facts_of(server: Server, connection: Connection, options: Options) -> EngineFacts:
    """Return the facts about a model on another server, with notes on unknown ones and ignored options."""
    place, n_ctx = where(server, connection), server.n_ctx or 131_072  # as usual, where it does not report its context
    ignored = [name for name, is_asked in (
        ("drafters", options.drafters is not None), ("exact kernels", options.exact), ("threads", options.threads),
        ("a context", options.n_ctx),
    ) if is_asked]  # fmt: skip
    left_out = remark = f"{server.model} is run by {place}, which decides about drafts and reproducibility"
    if ignored:
        left_out += f"; these options have no effect: {', '.join(ignored)}"
    unsaid = "" if server.n_ctx else "; it does not report the size of its context"
    plainly = "; the key goes there unencrypted" if connection.has_key and connection.base.startswith("http:") else ""
    return EngineFacts(
        n_ctx=n_ctx,
        n_ctx_train=n_ctx,
        n_vocab=N_BYTES,
        n_embd=0,
        n_bytes=0,
        template=TEMPLATE,
        fit=f"{server.model} at {connection.base}{unsaid}{plainly}",
        left_out=left_out,
        exactness=Exactness(1, 1),
        is_reproducible=False,
        can_draft=False,
        could_be_exact=False,
        has_gpu=False,
        can_infill=False,
        shares_passes=True,
        upstream=place,
        remark=remark,
    )


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
    return Drafted(per_pass=found.get("sglang:spec_accept_length", 0.0))
