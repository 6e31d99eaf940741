"""A flag that ends a running pass of the library within one of its matrices, set from any thread."""

from __future__ import annotations

import ctypes
import sys

import llama_cpp.llama_cpp as lib

# The library calls this after each node of the graph. A Python function would wait for the interpreter's lock hundreds
# of times a pass, so it is C's strlen: the length of a one-letter text counts as true, that of an empty one as false.
strlen = (ctypes.cdll.msvcrt if sys.platform == "win32" else ctypes.CDLL(None)).strlen
has_text = ctypes.cast(strlen, lib.ggml_abort_callback)


class StopFlag:
    """The flag of one context: while it is up, every pass ends immediately with code STOPPED."""

    STOPPED = 2

    def __init__(self, context: object) -> None:
        self._text = ctypes.create_string_buffer(2)
        lib.llama_set_abort_callback(context, has_text, ctypes.cast(self._text, ctypes.c_void_p))

    def put(self, is_up: bool) -> None:
        """Raise or lower the flag."""
        self._text[0] = b"x" if is_up else b"\0"
