"""Private interfaces of llama.cpp that are used here: functions without a header, and memory that is read in place.

Written for WRITTEN_FOR, which pyproject.toml pins; what no longer holds is reported by
tests/repository/test_private_interfaces.py.

- `ggml`: the shared library, of which llama-cpp-python declares llama.h alone. DECLARED are functions of ggml's public
  headers. Without one of them nothing runs, and a ModelError names the version to install.
- SYMBOLS: C++ functions without a public header. Without "scheduler", the scheduler calls back for every node in every
  pass, which takes longer, and keys are never kept in F16 on a processor. Without "repacked", weights keep the file's
  layout where the library has AMX. Without the others, which expose hidden states, heads are left out.
- Tensor: nodes of a graph, for LayerSkip. It is left out where `knows_tensors` is false or the graph is not as
  expected; its own check at load compares logits.
- TypeTraits: conversion of values to floats, for drafts with fewer words. They are left out where the block's size is
  not as expected.
- Override: a structure of llama.h that llama-cpp-python does not declare, for weights in repacked buffers.
- ASK: called with more arguments than it declares, so that Python creates no objects for those it does not need.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import llama_cpp.llama_cpp as lib

from runtime.core.errors import ModelError

WRITTEN_FOR = "llama-cpp-python 0.3.36"

ADDRESS, SIZE, TEXT, INT, BOOL = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_int, ctypes.c_bool
SIZE_P = ctypes.POINTER(SIZE)
DECLARED: dict[str, tuple[Any, ...]] = {  # result type, then argument types
    "ggml_tensor_overhead": (SIZE,),
    "ggml_op_name": (TEXT, INT),
    "ggml_get_type_traits": (ADDRESS, INT),
    "ggml_backend_buffer_is_host": (BOOL, ADDRESS),
    "ggml_backend_tensor_get": (None, ADDRESS, ADDRESS, SIZE, SIZE),
    "ggml_backend_tensor_set": (None, ADDRESS, ADDRESS, SIZE, SIZE),
    "ggml_backend_sched_set_eval_callback": (None, ADDRESS, ADDRESS, ADDRESS),
    "ggml_backend_sched_get_n_backends": (INT, ADDRESS),
    "ggml_backend_sched_get_backend": (ADDRESS, ADDRESS, INT),
    "ggml_backend_get_device": (ADDRESS, ADDRESS),
    "ggml_backend_dev_count": (SIZE,),
    "ggml_backend_dev_get": (ADDRESS, SIZE),
    "ggml_backend_dev_type": (INT, ADDRESS),
    "ggml_backend_dev_description": (TEXT, ADDRESS),
    "ggml_backend_dev_memory": (None, ADDRESS, SIZE_P, SIZE_P),
    "ggml_backend_dev_backend_reg": (ADDRESS, ADDRESS),
    "ggml_backend_reg_count": (SIZE,),
    "ggml_backend_reg_get": (ADDRESS, SIZE),
    "ggml_backend_reg_name": (TEXT, ADDRESS),
    "ggml_backend_reg_by_name": (ADDRESS, TEXT),
    "ggml_backend_reg_get_proc_address": (ADDRESS, ADDRESS, TEXT),
    "ggml_backend_register": (None, ADDRESS),
    "ggml_backend_unload": (None, ADDRESS),
}


def declared(binding: Any) -> ctypes.CDLL:
    """Return the shared library of llama-cpp-python's `binding`, with the types in DECLARED. Raises ModelError."""
    try:
        library: ctypes.CDLL = binding._lib
        for name, (result, *takes) in DECLARED.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, takes
    except AttributeError as error:
        raise ModelError(
            f"This llama.cpp is not the one that Slipstream was written for ({error}). Install {WRITTEN_FOR}."
        ) from error
    return library


ggml = declared(lib)


class Symbol(NamedTuple):
    """A function's names by compiler: in C++ as mangled by GCC and Clang, as mangled by Microsoft's, and in plain C."""

    itanium: str
    msvc: str
    plain: str
    result: Any
    takes: tuple[Any, ...] = ()


CONTEXT, LAYER = ADDRESS, ctypes.c_uint32
SYMBOLS = {
    "scheduler": Symbol("_ZNK13llama_context9get_schedEv", "", "", ADDRESS, (CONTEXT,)),
    "repacked": Symbol(
        "_Z35ggml_backend_cpu_repack_buffer_typev",
        "?ggml_backend_cpu_repack_buffer_type@@YAPEAUggml_backend_buffer_type@@XZ",
        "",
        ADDRESS,
    ),
    "show_layer": Symbol(
        "_Z30llama_set_embeddings_layer_inpP13llama_contextjb",
        "?llama_set_embeddings_layer_inp@@YAXPEAUllama_context@@I_N@Z",
        "llama_set_embeddings_layer_inp",
        None,
        (CONTEXT, LAYER, BOOL),
    ),
    "layer": Symbol(
        "_Z30llama_get_embeddings_layer_inpP13llama_contextj",
        "?llama_get_embeddings_layer_inp@@YAPEAMPEAUllama_context@@I@Z",
        "llama_get_embeddings_layer_inp",
        ADDRESS,
        (CONTEXT, LAYER),
    ),
    "show_hidden": Symbol(
        "_Z26llama_set_embeddings_nextnP13llama_contextbb",
        "?llama_set_embeddings_nextn@@YAXPEAUllama_context@@_N1@Z",
        "llama_set_embeddings_nextn",
        None,
        (CONTEXT, BOOL, BOOL),
    ),
    "hidden": Symbol(
        "_Z26llama_get_embeddings_nextnP13llama_context",
        "?llama_get_embeddings_nextn@@YAPEAMPEAUllama_context@@@Z",
        "llama_get_embeddings_nextn",
        ADDRESS,
        (CONTEXT,),
    ),
}


@cache
def symbol(name: str) -> Callable[..., Any] | None:
    """Return that function of SYMBOLS; None where this build does not export it."""
    wanted = SYMBOLS[name]
    for each in filter(None, (wanted.plain, wanted.itanium, wanted.msvc)):
        if function := getattr(ggml, each, None):
            function.restype, function.argtypes = wanted.result, wanted.takes
            return function  # type: ignore[no-any-return]
    return None


def scheduler_of(context: Any) -> int | None:
    """Return the scheduler of a context; None where the library does not expose it, which calls back in every pass."""
    get = symbol("scheduler")
    return int(get(context)) if get else None


# Callback for a node of the graph. The scheduler passes more arguments, which the calling conventions of 64-bit systems
# allow to ignore
ASK = ctypes.CFUNCTYPE(BOOL, ADDRESS)
F32 = 0  # ggml.h: GGML_TYPE_F32
COMPUTE = 16  # ggml.h: GGML_TENSOR_FLAG_COMPUTE; every backend skips a node without it
OBJECT_SIZE = 32  # bytes that ggml keeps in front of each tensor
HEADS = b"output.weight", b"token_embd.weight"  # names of the output matrix


class Tensor(ctypes.Structure):
    """ggml's `struct ggml_tensor`, as ggml.h lays it out."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("buffer", ctypes.c_void_p),
        ("ne", ctypes.c_int64 * 4),
        ("nb", ctypes.c_size_t * 4),
        ("op", ctypes.c_int),
        ("op_params", ctypes.c_int32 * 16),
        ("flags", ctypes.c_int32),
        ("src", ctypes.c_void_p * 10),
        ("view_src", ctypes.c_void_p),
        ("view_offs", ctypes.c_size_t),
        ("data", ctypes.c_void_p),
        ("name", ctypes.c_char * 64),
        ("extra", ctypes.c_void_p),
        ("padding", ctypes.c_char * 8),
    )


def layer_output(layer: int) -> bytes:
    """Return the graph's name for the output of that layer, counted from 0."""
    return f"l_out-{layer}".encode()


def knows_tensors() -> bool:
    """Return whether the library's tensors are as large as Tensor."""
    return bool(ctypes.sizeof(Tensor) == ggml.ggml_tensor_overhead() - OBJECT_SIZE)


class TypeTraits(ctypes.Structure):
    """The beginning of ggml's `struct ggml_type_traits`, as ggml.h lays it out."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("block", ctypes.c_int64),
        ("interleave", ctypes.c_int64),
        ("size", ctypes.c_size_t),
        ("is_quantized", ctypes.c_bool),
        ("to_float", ctypes.c_void_p),
    )


def type_traits(number: int) -> TypeTraits:
    """Return the library's traits of that type of values."""
    return TypeTraits.from_address(ggml.ggml_get_type_traits(number))


class Override(ctypes.Structure):
    """llama.h's `struct llama_model_tensor_buft_override`."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p))
