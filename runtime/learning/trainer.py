"""The process that trains: begun, held while a reply is made, gone on with, ended.

It ends by itself when this one does: a pipe that nobody holds any more tells it, and where it may be held, the system.
Knows processes; what is done there is `runtime.training.adapting`.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from runtime.core.packages import own_environment

MODULE = "runtime.training.adapting"
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
NO_GPU = dict.fromkeys(("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GGML_VK_VISIBLE_DEVICES"), "")
# Held by the system, it ends with us there; elsewhere it would outlive us
CAN_HOLD = sys.platform == "linux"
TAIL = 2000  # bytes of what it says
PATIENCE = 5.0  # seconds that the system may take to end it


def command(place: Path, target: Path, head: Path, n_bytes: int) -> list[str]:
    """What trains the head of a place further, in so much memory."""
    return [sys.executable, "-P", "-m", MODULE, str(place), str(target), str(head), str(n_bytes)]


class TrainerProcess:
    """One process at a time, of the lowest priority. On the thread that outlives it."""

    def __init__(self, what: Sequence[str]) -> None:
        self._what = what
        self._process: subprocess.Popen[bytes] | None = None
        self.is_held = False

    @property
    def is_running(self) -> bool:
        """Is it there, held or not?"""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Begins. Raises OSError."""
        self.stop()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the process)
        # Its own group: what a terminal says to us is not for it
        self._process = subprocess.Popen(
            self._what, stdin=subprocess.PIPE, stdout=self._said, stderr=self._said,
            env=own_environment() | ONE_THREAD | NO_GPU, start_new_session=True,
        )  # fmt: skip
        self.is_held = False

    def hold(self) -> None:
        """It computes nothing from now on; where it cannot be held, it is ended, and the next begins anew."""
        if not self.is_running or self.is_held or self._process is None:
            return
        if CAN_HOLD:
            self._process.send_signal(signal.SIGSTOP)
            self.is_held = True
        else:
            self.stop()

    def go_on(self) -> None:
        """It computes again."""
        if self.is_held and self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self.is_held = False

    def ended(self) -> tuple[int, str] | None:
        """The exit code and the last line of one that has come to an end by itself, told once."""
        if self._process is None or (code := self._process.poll()) is None:
            return None
        self._said.seek(0, 2)
        self._said.seek(max(0, self._said.tell() - TAIL))
        lines = [line.strip() for line in self._said.read().decode("utf8", "replace").splitlines() if line.strip()]
        self._release()
        return code, lines[-1] if lines else ""

    def stop(self) -> None:
        """Ends it at once; the next one begins anew."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait(PATIENCE)
        self._release()

    def _release(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        self._said.close()
        self._process, self.is_held = None, False
