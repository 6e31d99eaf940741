"""The status page for people at `/`: the model, the addresses, the settings for clients, and the numbers so far.

It has no script and loads nothing from elsewhere. Its content security policy forbids both.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from app.server.errors import ApiError
from app.server.middleware import is_tcp
from app.server.openai.models import model_card
from app.server.served_models import ServedModels
from app.server.wire import Event

NONE_LOADED = "No model is loaded: a request that names one loads it."
HERE = Path(__file__).parent
STYLE = (HERE / "page.css").read_text(encoding="utf8")
POLICY = "; ".join([
    "default-src 'none'",
    f"style-src 'sha256-{b64encode(sha256(STYLE.encode()).digest()).decode()}'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
])  # fmt: skip
HEADERS = {
    "content-security-policy": POLICY,
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
TEMPLATE = Environment(
    loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True
).get_template("page.html")


def page(models: ServedModels, request: Request) -> HTMLResponse:
    """Return the page with the current state. Its HTTP status is that of /health."""
    card, absence = card_or_reason(models)
    text = TEMPLATE.render(
        style=STYLE,
        card=card,
        absence=absence,
        places=request.app.state.places,
        base=base_of(request),
        has_key=request.app.state.has_key,
        key="KEY" if request.app.state.has_key else "none",
        numbers=list(numbers(models)),
        models=[] if models.only else [model_card(models, each) for each in models.models],
    )
    return HTMLResponse(text, 200 if card or not models.only else 503, HEADERS)


def card_or_reason(models: ServedModels) -> tuple[Event | None, str]:
    """Return the card of the model used last, or None and the reason why there is none."""
    try:
        model = models.current if models.listed else None
    except ApiError as error:
        return None, str(error)
    return (model_card(models, model), "") if model else (None, NONE_LOADED)


def base_of(request: Request) -> str:
    """Return the address that the page was requested at, since this client can reach it."""
    return str(request.base_url).rstrip("/") if is_tcp(request.scope) else "http://localhost"


def numbers(load: ServedModels) -> Iterator[tuple[str, str]]:
    """Yield the main numbers of /metrics as labels and values."""
    totals = load.totals
    yield "Replies", f"{totals.replies.total():,}"
    yield "Running, waiting", f"{load.n_active}, {load.n_waiting}"
    yield "Tokens read", f"{totals.prompt_n - totals.cached_n:,}"
    yield "Tokens cached", f"{totals.cached_n:,}"
    yield "Tokens written", f"{totals.predicted_n:,}"
    yield "Tokens per second", ratio(totals.predicted_n, totals.decode_seconds, ".1f")
    yield "Tokens per pass", ratio(totals.predicted_n, totals.passes.total(), ".2f")
    yield "Drafts accepted", ratio(totals.accepted.total(), totals.drafted.total(), ".0%")
    yield "Conversations cached", f"{load.status.n_held}"
    yield "Memory", f"{totals.memory_bytes / 2**20:,.0f} MiB" if totals.memory_bytes else "none yet"
    yield "Memory level", load.status.memory_level or "none yet"


def ratio(n: float, of: float, form: str) -> str:
    """Return a quotient as text, or "none yet" while the divisor is 0."""
    return format(n / of, form) if of else "none yet"
