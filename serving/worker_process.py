"""Worker processes: one thread of torch each, weights mapped from their files and so shared by all.

A worker that is gone, or silent, or over its time is killed and another one started.
"""

import pickle
import subprocess
from contextlib import suppress
from multiprocessing.connection import Connection
from threading import Timer
from time import monotonic
from typing import Any

from serving import machine
from serving.job import Job
from serving.scheduler import SPARE, TooSlow, Worker, WorkerLost
from serving.worker import BEAT, READY, told

SILENCE = 15.0  # seconds without a beat, after which a worker counts as stuck
START = 120.0  # seconds that importing torch may take on a machine that is busy


class WorkerProcess(Worker):
    """A worker. busy: whether it does a job. models_in_memory, trace_bytes: of its engine. silence: see SILENCE.
    memory_bytes: that the process may take for itself, where the system can limit it; it ends when it takes more."""

    def __init__(
        self, models_in_memory: int, trace_bytes: int, *, silence: float = SILENCE, memory_bytes: int | None = None
    ) -> None:
        self._arguments, self._silence = (str(models_in_memory), str(trace_bytes)), silence
        self._memory_bytes = memory_bytes
        self._closed, self._ready, self.busy = False, False, False
        self._process, self._connection = self._started()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_ready(self) -> None:
        if self._ready:
            return
        try:
            self._ready = self._heard(START) == READY
        except (EOFError, OSError, TooSlow):
            self._replace()
            raise WorkerLost from None

    def do(self, job: Job, seconds: float) -> Any:
        message, self.busy = pickle.dumps(job, pickle.HIGHEST_PROTOCOL), True
        try:
            # should it stop in the middle of a word, nothing else would end the waiting for the rest
            timer = Timer(seconds + SPARE, self._process.kill)
            timer.start()
            try:
                self._connection.send_bytes(message)
                answer = self._heard(seconds)
            finally:
                timer.cancel()
        except TooSlow:
            self._replace()
            raise
        except (EOFError, OSError):
            self._replace()
            raise WorkerLost from None
        finally:
            self.busy = False
        return told(answer)

    def close(self) -> None:
        self._closed = True
        self._end()

    def _heard(self, seconds: float) -> bytes:
        """The next message that is no beat. Raises TooSlow after so many seconds, EOFError for a worker that is gone
        or silent.
        """
        end, patience = monotonic() + seconds, self._silence if self._ready else START
        while True:
            left = end - monotonic()
            if left <= 0:
                raise TooSlow.after(seconds)
            if not self._connection.poll(min(left, patience)):
                if left > patience:
                    raise EOFError
                continue
            message = self._connection.recv_bytes()
            if message != BEAT:
                return message

    def _replace(self) -> None:
        self._end()
        if not self._closed:
            self._ready = False
            with suppress(OSError):  # no room for a process at the moment: whoever waits for it tries again
                self._process, self._connection = self._started()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._connection.close()

    def _started(self) -> tuple[subprocess.Popen[bytes], Connection]:
        process, connection = machine.start_python(f"{__package__}.worker", *self._arguments)
        if self._memory_bytes:
            machine.limit_memory(process.pid, self._memory_bytes)
        return process, connection
