"""Skips, reads and writes nodes of a context's compute graph, through the callback of llama.cpp's scheduler.

Decides when a pass has a narrow head. Knows no tokens and no cache.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from runtime.backends.heads.graph import Cells, Graph, NarrowHead, NodeAnswers, Rows, Run
from runtime.backends.private_llama import ASK, COMPUTE, Tensor, ggml
from runtime.core.errors import ModelError

# (node address, action); the result answers the scheduler: compute up to here first, or continue
Step = tuple[int, Callable[[], bool]]


class Nodes(Graph):
    """The graph of one context, recorded in one pass and controlled in others.

    `callback` belongs in the context's parameters.
    """

    def __init__(self) -> None:
        super().__init__(NodeAnswers(self._visit))
        self.callback = ASK(self._watch.__getitem__)
        self._script = deque[Step]()
        self._skipped: NDArray[np.int64] | None = None
        self._error: BaseException | None = None
        self.head: NarrowHead | None = None  # narrow head of early passes; None: all words

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
