"""A limit on how long a chat template may run: a file of unknown origin must not hold the app forever."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import TypeVar

SECONDS = 3.0
REPEAT_SECONDS = 0.01  # until the error is raised again

Result = TypeVar("Result")


class TemplateTooSlowError(BaseException):
    """A template did not come to an end. No `except Exception` of Jinja's keeps it from ending the template."""


class Alarm:
    """Raises TemplateTooSlowError in the thread that made it after some seconds, and again until it `is_over`: Python
    drops an error that reaches it in a destructor or in a callback of the garbage collector, and a template that makes
    much garbage is hardly ever elsewhere.
    """

    def __init__(self, seconds: float) -> None:
        self.is_over = False
        self._thread, self._lock, self._ended = threading.get_ident(), threading.Lock(), threading.Event()
        threading.Thread(target=self._ring, args=(seconds,), name="template clock", daemon=True).start()

    def stop(self) -> None:
        """Wait until no error comes any more; raise the one that is on its way."""
        with self._lock:
            self._ended.set()
        for _ in range(2):  # Python looks for such errors when it jumps back
            pass

    def _ring(self, patience: float) -> None:
        while not self._ended.wait(patience) and not self.is_over:
            with self._lock:
                if not self.is_over:
                    error = ctypes.py_object(TemplateTooSlowError)
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), error)
            patience = REPEAT_SECONDS


def run_limited(seconds: float, work: Callable[[], Result]) -> Result:
    """Return what `work` returns. Raises TemplateTooSlowError when it takes longer, whatever Python it runs."""
    alarm = Alarm(seconds)
    try:
        return work()
    finally:
        alarm.is_over = True  # stored before any call, so that no error can come between
        alarm.stop()
