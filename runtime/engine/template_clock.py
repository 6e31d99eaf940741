"""The time that a chat template may take. Knows threads; knows no templates."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

SECONDS = 3.0
REPEAT_SECONDS = 0.5  # until the error is raised again when the first one was lost


class TemplateTooSlowError(BaseException):
    """A template did not come to an end. No `except Exception` of Jinja's keeps it from ending the template."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TemplateTooSlowError in the block when it takes longer than `seconds`, whatever Python it runs.

    It is raised again until the block has ended: Python drops an error that reaches it in a destructor or in a callback
    of the garbage collector.
    """
    thread, lock, is_over, has_fired = threading.get_ident(), threading.Lock(), threading.Event(), False

    def fire_until_over() -> None:
        nonlocal has_fired
        patience = seconds
        while not is_over.wait(patience):
            with lock:
                if not is_over.is_set():
                    has_fired, patience = True, REPEAT_SECONDS
                    error = ctypes.py_object(TemplateTooSlowError)
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), error)

    threading.Thread(target=fire_until_over, name="template clock", daemon=True).start()
    try:
        yield
        with lock:
            is_over.set()
        if has_fired:  # it may be on its way yet
            time.sleep(0.01)
    except TemplateTooSlowError:
        is_over.set()
        raise
    finally:
        is_over.set()
