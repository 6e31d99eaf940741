"""Skips, reads and writes nodes of a context's compute graph, through the callback of llama.cpp's scheduler.

Knows the fields of ggml's tensors and their meaning; knows no tokens and no cache. Node addresses are the same in all
passes, because every graph of a context is built into the same memory in the same order; each pass checks that before
it relies on it.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.backends.heads.narrowing import NarrowHead
from runtime.backends.private_llama import ASK, COMPUTE, F32, HEADS, Tensor, ggml, knows_tensors, layer_output, symbol
from runtime.core.errors import ModelError


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


Rows = NDArray[np.float32]  # [n, width] a layer's output
Cells = NDArray[np.int64]  # [n_cells, n] cache cells with the keys and values of those rows
Run = Callable[[], object]  # runs one pass
Step = tuple[
    int, Callable[[], bool]
]  # (node address, action); the result answers the scheduler: compute up to here first, or continue


class Nodes:
    """The graph of one context: recorded in one pass, then controlled in others.

    `callback` belongs in the context's parameters.
    """

    def __init__(self) -> None:
        self._watch = NodeAnswers(self._visit)
        self.callback = ASK(self._watch.__getitem__)
        self._addresses: list[int] = []  # in order
        self._nodes: dict[int, Tensor] = {}  # as they were in the recorded pass
        self._script = deque[Step]()
        self._skipped: NDArray[np.int64] | None = None
        self._error: BaseException | None = None
        self._scheduler: int | None = None
        self.head: NarrowHead | None = None  # narrow head of early passes; None: all words

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
        self.width, self.n_cells = int(outputs[0].ne[0]), len(self._indices)

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

    def rest(self) -> None:
        """Make the next pass an ordinary one, without the scheduler's callback where it can be removed."""
        if self._scheduler:
            ggml.ggml_backend_sched_set_eval_callback(self._scheduler, None, None)

    def early(self, run: Run, rows: Rows, cells: Cells, skips: bool = True) -> None:
        """Run a pass from the first layers directly to the logits, and store the first layers' output and cells.

        Without `skips`, the other layers are computed, but not used.
        """
        end, last, upper = self._exit.end, self._exit.last, self._exit.upper
        first: list[Step] = [(end, yes), (end, lambda: self._read(rows, cells) and (not skips or self._skip(upper)))]
        steps: list[Step] = [(last, yes), (last, lambda: self._write(last, rows))]
        if self.head:
            steps += [(self.head.address, self.head.narrow), (self.head.address, self.head.widen)]
        self._steer(run, len(rows), first + steps)

    def lower(self, run: Run, rows: Rows, cells: Cells) -> None:
        """Run a pass over the first layers only, and store their output and cells; its logits are meaningless."""
        self._steer(run, len(rows), [(self._exit.end, yes), (self._exit.end, lambda: not self._read(rows, cells))])

    def upper(self, run: Run, rows: Rows, cells: Cells) -> bool:
        """Run a pass that begins with the first layers' output; return True.

        Where it would fill other cells than the first layers did, run a full pass and return False.
        """
        end, lower = self._exit.end, self._exit.lower
        return self._steer(
            run, len(rows), [(end, lambda: self._skip(lower)), (end, lambda: self._write(end, rows))], cells
        )

    def _steer(self, run: Run, n_rows: int, steps: list[Step], cells: Cells | None = None) -> bool:
        """Run a pass in which the steps are done in order; return False if the pass was left unchanged.

        Raises ModelError where the steps could not be done.
        """
        self._error, self._was_left = None, False
        self._script = deque([(self._addresses[0], lambda: self._check(n_rows, cells)), *steps])
        for address, _ in self._script:
            self._watch.pop(address, None)
        if self._scheduler:
            ggml.ggml_backend_sched_set_eval_callback(self._scheduler, self.callback, None)
        try:
            run()
        finally:
            self._restore()
            left, self._script = self._script, deque()
        if self._error or left:
            raise self._error or ModelError("A pass did not run as requested. Leave 'layerskip' out of the drafters.")
        return not self._was_left

    def _visit(self, address: int) -> bool:
        """Answer the scheduler's callback for a node that is watched or was never seen. Must not raise."""
        if not self._script or self._script[0][0] != address:
            self._watch[address] = False
            return False
        try:
            return self._script.popleft()[1]()
        except BaseException as error:
            self._error = error
            self._script.clear()
            return False

    def _check(self, n_rows: int, cells: Cells | None) -> bool:
        """Check that this is the recorded graph with `n_rows` rows; return False, the scheduler's answer.

        Where its cells are not `cells`, nothing else is done in this pass. Raises ModelError for another graph.
        """
        addresses = self._exit.end, self._exit.last
        ends = [(self._named.get(tensor.name), *tensor.ne) for tensor in map(Tensor.from_address, addresses)]
        if not np.array_equal(self._memory[self._facts], self._usual) or ends != [
            (address, self.width, n_rows, 1, 1) for address in addresses
        ]:
            raise ModelError(
                "llama.cpp's graph is not the one recorded at load. Leave 'layerskip' out of the drafters."
            )
        if cells is not None and not np.array_equal(self._filled(n_rows), cells):
            self._script.clear()
            self._was_left = True
        return False

    def _filled(self, n_rows: int) -> Cells:
        """Return the cache cells that this pass fills."""
        cells = np.empty((self.n_cells, n_rows), dtype=np.int64)
        for index, row in zip(self._indices, cells, strict=True):
            ggml.ggml_backend_tensor_get(index, row.ctypes.data, 0, row.nbytes)
        return cells

    def _skip(self, places: NDArray[np.int64]) -> bool:
        """Clear the compute flag of nodes."""
        self._skipped = places
        self._memory[places] &= ~COMPUTE
        return True

    def _restore(self) -> None:
        """Set all compute flags again: the library may reuse the graph for its next pass."""
        if self._skipped is not None:
            self._memory[self._skipped] |= COMPUTE
            self._skipped = None
        if self.head:
            self.head.widen()

    def _read(self, rows: Rows, cells: Cells) -> bool:
        ggml.ggml_backend_tensor_get(self._exit.end, rows.ctypes.data, 0, rows.nbytes)
        cells[:] = self._filled(len(rows))
        return True

    def _write(self, address: int, rows: Rows) -> bool:
        ggml.ggml_backend_tensor_set(address, rows.ctypes.data, 0, rows.nbytes)
        return True


def yes() -> bool:
    """Return True: the scheduler computes up to this node and calls again."""
    return True


def scheduler_of(context: Any) -> int | None:
    """Return the scheduler of a context; None where the library does not expose it, which calls back in every pass."""
    get = symbol("scheduler")
    return int(get(context)) if get else None
