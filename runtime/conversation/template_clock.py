"""Limits how long a chat template may run, as a file of unknown origin must not block the app forever."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import TypeVar

SECONDS = 3.0
REPEAT_SECONDS = 0.01  # until the error is raised again

Result = TypeVar("Result")


class TemplateTooSlowError(BaseException):
    """A template ran past its time limit. A BaseException, so that no `except Exception` in Jinja catches it."""


class Alarm:
    """Raises TemplateTooSlowError in the thread that created it after `seconds`, and again until `is_over`.

    Python drops an error raised in a destructor or a garbage collector's callback, and a template that creates much
    garbage spends nearly all its time there.
    """

    def __init__(self, seconds: float) -> None:
        self.is_over = False
        self._thread, self._lock, self._ended = threading.get_ident(), threading.Lock(), threading.Event()
        threading.Thread(target=self._ring, args=(seconds,), name="template clock", daemon=True).start()

    def stop(self) -> None:
        """Stop the alarm, and raise an error that is already pending."""
        with self._lock:
            self._ended.set()
        for _ in range(2):  # Python checks for asynchronous errors at backward jumps
            pass

    def _ring(self, delay: float) -> None:
        while not self._ended.wait(delay) and not self.is_over:
            with self._lock:
                if not self.is_over:
                    error = ctypes.py_object(TemplateTooSlowError)
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), error)
            delay = REPEAT_SECONDS


def run_limited(seconds: float, work: Callable[[], Result]) -> Result:
    """Return the result of `work`. Raises TemplateTooSlowError after `seconds`, whatever Python code it runs."""
    alarm = Alarm(seconds)
    try:
        return work()
    finally:
        alarm.is_over = True  # set before any call, so that no error can come between
        alarm.stop()
