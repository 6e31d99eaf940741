"""The time that a chat template may take. Knows threads; knows no templates."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

SECONDS = 3.0


class TemplateTooSlowError(BaseException):
    """A template did not come to an end. No `except Exception` of Jinja's keeps it from ending the template."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises TemplateTooSlowError in the block when it takes longer, whatever Python it runs."""
    thread, lock, is_over, has_fired = threading.get_ident(), threading.Lock(), False, False

    def fire() -> None:
        nonlocal has_fired
        with lock:
            if not is_over:
                has_fired = True
                error = ctypes.py_object(TemplateTooSlowError)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), error)

    timer = threading.Timer(seconds, fire)
    timer.daemon = True
    timer.start()
    try:
        yield
        with lock:
            is_over = True
        if has_fired:  # it may be on its way yet
            time.sleep(0.01)
    finally:
        is_over = True
        timer.cancel()
