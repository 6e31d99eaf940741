"""The compute graph of a context, recorded in one pass: its nodes, its layers' outputs and its output head.

Knows the fields of ggml's tensors and their meaning; knows no tokens and no cache. Node addresses are the same in all
passes, because every graph of a context is built into the same memory in the same order; nodes.py checks that in each
pass before it relies on it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.backends.private_llama import F32, HEADS, Tensor, ggml, knows_tensors, layer_output, scheduler_of
from runtime.core.errors import ModelError

Rows = NDArray[np.float32]  # [n, width] a layer's output
Cells = NDArray[np.int64]  # [n_cells, n] cache cells with the keys and values of those rows
Run = Callable[[], object]  # runs one pass


class EarlyExitError(ModelError):
    """A model cannot exit early here."""


class NodeAnswers(dict[int, bool]):
    """The answers to the scheduler's callback for each node; Python code runs only for nodes that are not in it."""

    def __init__(self, visit: Callable[[int], bool]) -> None:
        super().__init__()
        self._visit = visit

    def __missing__(self, address: int) -> bool:
        return self._visit(address)


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of the kept layers, and the nodes that can be skipped on either side."""

    end: int  # address of the last kept layer's output
    last: int  # address of the last layer's output
    lower: NDArray[np.int64]  # places of the flags of the nodes that only lead to `end`
    upper: NDArray[np.int64]  # places of the flags of the nodes that only lead from `end` to `last`


class NarrowHead:
    """An output head that computes only the first words, in one pass: a node that multiplies by the output matrix.

    The matrix has a row for each word, and its first rows are themselves a matrix in the same place, so nothing is
    copied. Between `narrow` and `widen`, the node at `address` uses `few`, which describes those rows.
    """

    def __init__(self, address: int, node: Tensor, few: Tensor, n_words: int) -> None:
        self.address, self._node, self._few = address, node, few
        self._whole, self._n_vocab, self.n_words = node.src[0], node.ne[0], n_words
        self._is_narrow = False
        few.ne[1] = n_words
        few.nb[2] = few.nb[3] = few.nb[1] * n_words

    def narrow(self) -> bool:
        """Narrow the head before it is computed; return True. Raises RuntimeError if the node has changed."""
        if (self._node.src[0], self._node.ne[0]) != (self._whole, self._n_vocab):
            raise RuntimeError("the head of llama.cpp's graph has changed")
        self._node.src[0], self._node.ne[0] = ctypes.addressof(self._few), self.n_words
        self._is_narrow = True
        return True

    def widen(self) -> bool:
        """Restore a narrow head before the library reads the logits of all words; return True."""
        if self._is_narrow:
            self._node.src[0], self._node.ne[0] = self._whole, self._n_vocab
            self._is_narrow = False
        return True


class Graph:
    """The graph of one context as it was recorded in one pass. `watch` answers the scheduler's callback."""

    def __init__(self, watch: NodeAnswers) -> None:
        self._watch = watch
        self._addresses: list[int] = []  # in order
        self._nodes: dict[int, Tensor] = {}  # as they were in the recorded pass
        self._scheduler: int | None = None

    def learn(self, context: Any, run: Run) -> None:
        """Record the graph during a pass over several rows, all of them outputs. Raises EarlyExitError."""
        if not knows_tensors():
            raise EarlyExitError("this version of llama.cpp lays out its tensors differently")
        self._watch.clear()
        run()
        self._addresses, self._scheduler = list(self._watch), scheduler_of(context)
        tensors = [Tensor.from_buffer_copy(Tensor.from_address(address)) for address in self._addresses]
        buffers = {tensor.buffer for tensor in tensors if not tensor.view_src}
        if len(buffers) > 1 or not all(ggml.ggml_backend_buffer_is_host(buffer) for buffer in buffers):
            raise EarlyExitError("its graph does not run on the CPU only, and other devices are not supported")
        self._base, end = min(self._addresses), max(self._addresses) + ctypes.sizeof(Tensor)
        self._memory = np.ctypeslib.as_array((ctypes.c_int32 * ((end - self._base) // 4)).from_address(self._base))
        self._facts = np.concatenate(
            [self._places(self._addresses, field.offset) for field in (Tensor.op, Tensor.flags, Tensor.type)]
        )
        self._usual = self._memory[self._facts]
        self._nodes = dict(zip(self._addresses, tensors, strict=True))
        self._named = {tensor.name: address for address, tensor in self._nodes.items()}
        stored = {
            tensor.src[1]: 0 for tensor in tensors if ggml.ggml_op_name(tensor.op) == b"SET_ROWS"
        }  # in order, each once
        self._indices = [
            at for at in stored if Tensor.from_address(at).ne[0] == tensors[0].ne[1]
        ]  # values' may be finer than rows
        if not self._indices:
            raise EarlyExitError("llama.cpp does not report which cells of the cache it fills")

    def _places(self, addresses: list[int], offset: int) -> NDArray[np.int64]:
        """Return the places of a field of these nodes in `_memory`."""
        return (np.array(addresses, dtype=np.int64) - self._base + offset) // 4

    def exit_after(self, layers: int, n_layers: int) -> None:
        """Let passes end or begin after the first `layers` layers from now on.

        Raises EarlyExitError where the graph does not name their outputs, or they are not rows of 32-bit floats.
        """
        try:
            end, last = (self._addresses.index(self._named[layer_output(layer - 1)]) for layer in (layers, n_layers))
        except KeyError:
            raise EarlyExitError("llama.cpp does not name the outputs of its layers") from None
        lower, upper = (
            [self._addresses[i] for i in self._leading_to(*between)] for between in ((-1, end), (end, last))
        )
        offset = Tensor.flags.offset
        outputs = [self._nodes[self._addresses[i]] for i in (end, last)]
        if any((output.type, *output.ne) != (F32, *outputs[0].ne[:2], 1, 1) for output in outputs):
            raise EarlyExitError("its layers do not output one row of 32-bit floats per token")
        self._exit = Exit(
            self._addresses[end], self._addresses[last], self._places(lower, offset), self._places(upper, offset)
        )
        self.width = int(outputs[0].ne[0])

    @property
    def n_cells(self) -> int:
        """Number of cells that a row fills."""
        return len(self._indices)

    def head_of(self, n_words: int) -> NarrowHead:
        """Return the head for the first `n_words`. Raises EarlyExitError where the graph has no recognizable head."""
        for address, tensor in reversed(self._nodes.items()):
            if ggml.ggml_op_name(tensor.op) == b"MUL_MAT" and Tensor.from_address(tensor.src[0]).name in HEADS:
                few = Tensor.from_buffer_copy(Tensor.from_address(tensor.src[0]))
                return NarrowHead(address, Tensor.from_address(address), few, n_words)
        raise EarlyExitError("its head cannot be found in llama.cpp's graph")

    def _leading_to(self, start: int, end: int) -> list[int]:
        """Return the numbers of the nodes after node `start`, up to `end`, that are needed only through `end`."""
        numbers = {address: i for i, address in enumerate(self._addresses)}
        needed, waiting = set[int](), list(range(end + 1, len(self._addresses)))
        while waiting:
            sources = (numbers.get(source, -1) for source in self._nodes[self._addresses[waiting.pop()]].src if source)
            new = {source for source in sources if start < source < end} - needed
            needed |= new
            waiting += new
        return [i for i in range(start + 1, end + 1) if i not in needed]

    def _filled(self, n_rows: int) -> Cells:
        """Return the cache cells that this pass fills."""
        cells = np.empty((self.n_cells, n_rows), dtype=np.int64)
        for index, row in zip(self._indices, cells, strict=True):
            ggml.ggml_backend_tensor_get(index, row.ctypes.data, 0, row.nbytes)
        return cells
