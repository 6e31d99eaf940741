"""Asks the hub: limits the wait, and turns errors of its client into HubError, one sentence with the remedy.

A hub that sends its response drop by drop is never noticed by the client's own timeouts. Must not know the request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager
from threading import Thread
from typing import TypeVar

import httpx2
from huggingface_hub import constants
from huggingface_hub import errors as hf

from runtime.core.errors import SlipstreamError
from runtime.models.hub.names import HubError, UnreachableError
from runtime.models.proxies import FAULTS, PASSWORD, proxy_of

TIMEOUT = 60.0  # seconds for a response, and for MIN_BYTES bytes of a file:
MIN_BYTES = 2**15
POLL_SECONDS = 0.5  # seconds; a signal that arrives right before a thread sleeps is handled when it wakes
NAME = "asks the hub"  # name of the threads that do
# Errors from parsing a response that is not a hub's; the client validates little of it
NONSENSE = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, AssertionError,
    httpx2.InvalidURL, httpx2.StreamError, httpx2.DecodingError, httpx2.TooManyRedirects, httpx2.UnsupportedProtocol,
)  # fmt: skip

T = TypeVar("T")


def within(what: str, ask: Callable[[], T]) -> T:
    """Return or raise the result of `ask`. Raises UnreachableError if it takes too long, and abandons the call then."""
    answer: Future[T] = Future()

    def work() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:
            answer.set_exception(error)

    Thread(target=work, name=NAME, daemon=True).start()
    ends = time.monotonic() + TIMEOUT
    while not answer.done() and time.monotonic() < ends:
        wait([answer], POLL_SECONDS)
    if not answer.done():
        raise UnreachableError(
            f"The hub has not answered for {what} within {TIMEOUT:g} seconds. Check the network, and HF_ENDPOINT if "
            "it is set."
        )
    return answer.result()


@contextmanager
def opened(what: str, response: AbstractContextManager[T]) -> Iterator[T]:
    """Yield the response once its headers are there. Raises UnreachableError if that takes too long."""
    with ExitStack() as stack:
        yield within(what, lambda: stack.enter_context(response))


class DownloadPace:
    """Checks that the bytes of a file arrive fast enough to ever finish."""

    def __init__(self, what: str) -> None:
        self._what, self._since, self._n_bytes = what, time.monotonic(), 0

    def add(self, n_bytes: int) -> None:
        """Count received bytes. Raises HubError if they arrive too slowly."""
        self._n_bytes += n_bytes
        if time.monotonic() - self._since < TIMEOUT:
            return
        if self._n_bytes < MIN_BYTES:
            raise HubError(
                f"The hub sends {self._what} too slowly: {self._n_bytes:,} bytes in {TIMEOUT:g} seconds. Pull it "
                "again later: it resumes where it stopped."
            )
        self._since, self._n_bytes = time.monotonic(), 0


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn the client's errors into HubError, in one sentence with the remedy."""
    try:
        yield
    except SlipstreamError:
        raise
    except (
        hf.HfHubHTTPError,
        hf.OfflineModeIsEnabled,
        hf.LocalEntryNotFoundError,
        hf.HFValidationError,
        *FAULTS,
    ) as error:
        answered = isinstance(error, (hf.HfHubHTTPError, hf.HFValidationError, *NONSENSE))
        raise (HubError if answered else UnreachableError)(explain(what, error)) from error
    except NONSENSE as error:
        raise nonsense(what) from error


def nonsense(what: str) -> HubError:
    """Return the error for an invalid response about `what`."""
    return HubError(
        f"What the hub answers for {what} makes no sense. Check HF_ENDPOINT if it is set, and whether something in the "
        "network answers in the hub's place; or try again later."
    )


def explain(what: str, error: Exception) -> str:
    """Return the sentence about an error of the hub's client for `what`, with the remedy."""
    if isinstance(error, hf.HfHubHTTPError):
        return explain_answer(what, error)
    if isinstance(error, hf.OfflineModeIsEnabled):
        return f"{what} cannot be requested, because HF_HUB_OFFLINE is set. Unset it to use the network."
    if isinstance(error, hf.HFValidationError):
        return f"'{what}' is not the name of a repository. Write owner/repo, or owner/repo:file.gguf."
    if isinstance(error, NONSENSE):
        return str(nonsense(what))
    proxy = proxy_of(constants.ENDPOINT)
    through, check = (f" through the proxy {proxy} ({reason(error)})", "the proxy") if proxy else ("", "the network")
    return (
        f"The hub could not be reached for {what}{through}. Check {check}, and HF_ENDPOINT if it is set; a pull "
        "resumes where it stopped."
    )


def reason(error: Exception) -> str:
    """Return the first line of an error's message, or its name."""
    return next(filter(str.isprintable, str(error).splitlines()), "") or type(error).__name__


def explain_answer(what: str, error: hf.HfHubHTTPError) -> str:
    """Return the sentence about a refusal by the hub for `what`, by the client's error class."""
    if isinstance(error, hf.GatedRepoError):
        return (
            f"{what} is gated: accept its terms on its page, then set HF_TOKEN to a token of yours, or run `hf auth "
            "login`."
        )
    if isinstance(error, hf.RepositoryNotFoundError):
        return (
            f"{what} is not on the hub, or is private. Check the name with `slipstream models search`; for a private "
            "one, set HF_TOKEN."
        )
    if isinstance(error, hf.EntryNotFoundError | hf.RevisionNotFoundError):
        return f"{what} is not on the hub. See its files with `slipstream models pull {what.partition(':')[0]}`."
    return explain_status(what, error.response.status_code, error.response.headers.get("retry-after", ""))


def explain_status(what: str, status: int, wait: str) -> str:
    """Return the sentence about the status of the hub's response for `what`; `wait` is its Retry-After header."""
    if status == 401:
        return f"The hub refuses the token for {what}. Set HF_TOKEN to a valid one, or run `hf auth login`."
    if status == 403:
        return f"The hub forbids {what}. Accept its terms on its page, or use a token that may read it (HF_TOKEN)."
    if status == 429:
        when = f"in {wait} seconds" if wait.isdigit() and len(wait) < 6 else "later"
        return f"The hub has had too many requests. Try again {when}; with HF_TOKEN set it allows more."
    proxy = proxy_of(constants.ENDPOINT)
    if proxy and status == 407:
        return f"The hub could not be reached for {what} through {proxy}: {PASSWORD}"
    return f"The hub answers {status} for {what}{f' through the proxy {proxy}' if proxy else ''}. Try again later."
