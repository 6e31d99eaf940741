"""Types of pointers into arrays, as llama.cpp takes them."""

from __future__ import annotations

import ctypes

INT8_P = ctypes.POINTER(ctypes.c_int8)
UINT8_P = ctypes.POINTER(ctypes.c_uint8)
INT32_P = ctypes.POINTER(ctypes.c_int32)
FLOAT_P = ctypes.POINTER(ctypes.c_float)
