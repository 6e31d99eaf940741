"""The process with the models as a thread of this one, with pipes that are lists: host and client take turns, so what
happens to them happens in the same order every time.

The host goes on where the client waits for it, for `n_ahead` passes at most; then the client looks again.
"""

from __future__ import annotations

import io
import math
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import Any

from runtime.core.spawning import Spawned
from runtime.engine.process.host import Host
from runtime.engine.process.messages import Opened, UsesGpu, receive, send, unpack
from tests.support.toy_engine import Setup, ToyEngine

PATIENCE = 60.0  # seconds that one side may keep the turn
KILLED = -9
MOST_WAITS = 1000


class LostError(BaseException):
    """The process ends here: nothing may catch it."""


class Pipe:
    """One end; the other one is the host's. `wait` lets the host go on, and says whether it still runs."""

    def __init__(self, wait: Callable[[], bool], deliver: Callable[[bytes], object]) -> None:
        self._wait, self._deliver = wait, deliver
        self.came = deque[bytes]()
        self.is_closed = False

    def poll(self, timeout: float) -> bool:
        return bool(self.came) or not self._wait() or bool(self.came)

    def recv_bytes(self) -> bytes:
        while not self.came and self._wait():
            pass
        if not self.came:
            raise EOFError
        return self.came.popleft()

    def send_bytes(self, message: bytes) -> None:
        self._deliver(message)

    def close(self) -> None:
        self.is_closed = True

    def __enter__(self) -> Pipe:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Outgoing:
    """Sends at once."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def put(self, message: bytes) -> None:
        with suppress(OSError):
            self._pipe.send_bytes(message)

    def end(self) -> None:
        pass


class NoTexts:
    """Prompts are ids here, so nothing is asked about text."""

    def __init__(self, *given: object) -> None:
        pass

    def end(self, loss: Exception) -> None:
        pass


class AtOnce(Executor):
    """Does all work when it is given, so that the order in which things happen does not depend on threads."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done = Future[Any]()
        done.set_result(work(*args, **kwargs))
        return done


class HostEnd:
    """The host's ends of its pipes, and the calls that have come through one."""

    def __init__(self, wait: Callable[[], object], tell: Callable[[bytes], object]) -> None:
        self._wait, self._tell = wait, tell
        self.came = deque[bytes]()

    def recv_bytes(self) -> bytes:
        while not self.came:
            self._wait()
        return self.came.popleft()

    def send_bytes(self, message: bytes) -> None:
        self._tell(message)

    def poll(self, timeout: float = 0.0) -> bool:
        while timeout and not self.came:
            self._wait()
        return bool(self.came)


class ToyProcess:
    """A host with a toy engine. Takes the place of what `spawn` returns."""

    def __init__(self, setup: Setup, n_ahead: float) -> None:
        self._setup, self.n_ahead, self._n_left = setup, n_ahead, 0.0
        self._client, self._host = threading.Semaphore(0), threading.Semaphore(0)
        self.code: int | None = None
        self._dies = self.is_idle = False
        self.n_waits = 0  # since the client began to wait
        self.steps = Pipe(self.go_on, self._deliver)
        self.end = HostEnd(self._rest, self.steps.came.append)
        self.stops = Pipe(self.go_on, self._stop)
        self.texts = Pipe(self.go_on, lambda message: None)
        self.host = Host(self.end, self.end, self.end)  # type: ignore[arg-type]
        self.host._pool = AtOnce()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def spawned(self) -> Spawned:
        return Spawned(self, [self.steps, self.texts, self.stops], io.BytesIO())  # type: ignore[arg-type, list-item]

    def _run(self) -> None:
        self._take_turn(self._host)
        try:
            if not self._dies:
                self._serve()
            self.code = 0
        except LostError:
            self.code = KILLED
        except BaseException as error:
            self._error, self.code = error, 1
        self._client.release()

    def _serve(self) -> None:
        _pair, options = receive(self.end)  # type: ignore[arg-type]
        send(self.end, UsesGpu(False))  # type: ignore[arg-type]
        engine = self.host.engine = ToyEngine(self._setup, options.drafters != ())
        send(self.end, Opened(engine.facts, engine.status))  # type: ignore[arg-type]
        self.host.loop()

    @staticmethod
    def _take_turn(turn: threading.Semaphore) -> None:
        assert turn.acquire(timeout=PATIENCE), "the other side keeps the turn"

    def go_on(self) -> bool:
        """The client waits: the host has its turn. Returns whether it runs."""
        self.n_waits += 1
        assert self.n_waits < MOST_WAITS, "what is waited for does not come"
        if self.code is None:
            was_idle, self._n_left = self.is_idle and not self.end.came, self.n_ahead
            assert not was_idle or self._dies, "both wait for each other"
            self._host.release()
            self._take_turn(self._client)
        if self._error is not None:
            raise self._error
        return self.code is None

    def _rest(self) -> None:
        """The host has nothing to do: the client has its turn."""
        self.is_idle = True
        self._pause()
        self.is_idle = False

    def before_pass(self) -> None:
        """Lets the client look, now and then; called on the host's thread."""
        self._n_left -= 1
        if self._n_left < 0:
            self._pause()

    def _pause(self) -> None:
        self._client.release()
        self._take_turn(self._host)
        if self._dies:
            raise LostError

    def look(self) -> None:
        """Lets the client look now: something has happened that it should see during this pass."""
        self._n_left = 0

    def _deliver(self, message: bytes) -> None:
        if self.code is not None:
            raise BrokenPipeError
        self.end.came.append(message)

    def _stop(self, message: bytes) -> None:
        if self.code is not None:
            raise BrokenPipeError
        self.host.engine.cancel(unpack(message)[0].reply)

    def poll(self) -> int | None:
        return self.code

    def wait(self, timeout: float = math.inf) -> int:
        while self.code is None:
            self.go_on()
        return self.code

    def kill(self) -> None:
        if self.code is None:
            self._dies = True
            self.go_on()
