"""The training process: started, paused while a reply is generated, continued, ended.

It ends by itself when this process does: through a closed pipe and, where it may be paused, by the system. Knows
processes; the module that they run does the training.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from subprocess import DEVNULL, STDOUT

from runtime.core.children import Child, last_line

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
NO_GPU = dict.fromkeys(("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GGML_VK_VISIBLE_DEVICES"), "")
# On Linux the system ends a paused process together with this one; elsewhere it would outlive this one
CAN_HOLD = sys.platform == "linux"


class TrainerProcess:
    """One training process at a time, of the lowest priority. It must be started on a thread that outlives it."""

    def __init__(self, module: str, *args: object) -> None:
        """`module` is run with these arguments; it must call `end_with_parent`, as `adapting` does."""
        self._module, self._args = module, args
        self._process: Child | None = None
        self.is_held = False

    @property
    def is_running(self) -> bool:
        """Whether the process exists, paused or not."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process. Raises OSError."""
        self.stop()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the process)
        # Its own group, so that signals of a terminal do not reach it
        self._process = Child(
            self._module, *self._args, env=ONE_THREAD | NO_GPU,
            stdin=DEVNULL, stdout=self._output, stderr=STDOUT, start_new_session=True,
        )  # fmt: skip
        self.is_held = False

    def hold(self) -> None:
        """Pause the process; where that is impossible, end it, and the next one starts from the beginning."""
        if not self.is_running or self.is_held or self._process is None:
            return
        if CAN_HOLD:
            self._process.send_signal(signal.SIGSTOP)
            self.is_held = True
        else:
            self.stop()

    def resume(self) -> None:
        """Continue the process."""
        if self.is_held and self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self.is_held = False

    def ended(self) -> tuple[int, str] | None:
        """Return the exit code and the last line of a process that ended by itself, only once; else None."""
        if self._process is None or (code := self._process.poll()) is None:
            return None
        message = last_line(self._output)
        self._release()
        return code, message

    def stop(self) -> None:
        """End the process immediately; the next one starts from the beginning."""
        if self._process is not None:
            self._process.end()
            self._release()

    def _release(self) -> None:
        self._output.close()
        self._process, self.is_held = None, False
