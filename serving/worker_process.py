"""Worker processes, both ends: each has one engine and one torch thread and runs one job at a time. All share the
models' weights, which are memory-mapped from their files.

A worker sends READY once, then the answer to each job, and HEARTBEAT while it computes one. A worker that has ended, is
silent or exceeds a job's time limit is killed and replaced.
"""

import gc
import os
import pickle
import subprocess
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from threading import Event, Lock, Thread, Timer
from time import monotonic, sleep
from traceback import format_tb
from typing import Any

import torch

from model.errors import sendable
from serving import logs, machine
from serving.job import Job
from serving.result_cache import Engine
from serving.scheduler import STOP_GRACE_SECONDS, USER_ERRORS, NotStarted, TooSlow, Worker, WorkerLost

READY, HEARTBEAT = b"ready", b"beat"
HEARTBEAT_SECONDS = 1.0  # seconds between two beats
SILENCE = 15.0  # seconds without a beat after which a worker counts as stuck
START = 120.0  # seconds that importing torch may take on a busy machine


class WorkerProcess(Worker):
    """A worker in a separate process. models_in_memory, trace_bytes: of its engine. memory_bytes: limit of the
    process's own memory, if the system supports one; the process ends when it exceeds it."""

    def __init__(self, models_in_memory: int, trace_bytes: int, *, memory_bytes: int | None = None) -> None:
        self._arguments, self._memory_bytes = (str(models_in_memory), str(trace_bytes)), memory_bytes
        self._closed = self._ready = False
        self._ending = Lock()  # the server closes workers while their threads may be replacing them
        self._process, self._connection = self._started()

    def wait_until_ready(self) -> None:
        if self._ready:
            return
        try:
            self._ready = self._next_answer(START) == READY
        except (EOFError, OSError, TooSlow):
            self._replace()
            raise NotStarted from None

    def do(self, job: Job, seconds: float) -> Any:
        if self._process.poll() is not None:  # it ended while idle, so that no job was lost
            self._replace()
            raise NotStarted
        message = pickle.dumps(job, pickle.HIGHEST_PROTOCOL)
        try:
            # if the worker stops in the middle of a message, only this timer ends the wait for the rest
            timer = Timer(seconds + STOP_GRACE_SECONDS, self._process.kill)
            timer.start()
            try:
                self._connection.send_bytes(message)
                answer = self._next_answer(seconds)
            finally:
                timer.cancel()
        except TooSlow:
            self._replace()
            raise
        except (EOFError, OSError):
            self._replace()
            raise WorkerLost from None
        return unpack_answer(answer)

    def close(self) -> None:
        self._closed = True
        self._end()

    def _next_answer(self, seconds: float) -> bytes:
        """Return the next message that is not a beat. Raises TooSlow after `seconds`, EOFError if the worker has ended
        or is silent."""
        end, patience = monotonic() + seconds, SILENCE if self._ready else START
        while True:
            left = end - monotonic()
            if left <= 0:
                raise TooSlow.after(seconds)
            if not self._connection.poll(min(left, patience)):
                if left > patience:
                    raise EOFError
                continue
            message = self._connection.recv_bytes()
            if message != HEARTBEAT:
                return message

    def _replace(self) -> None:
        self._end()
        self.replaced()
        if not self._closed:
            self._ready = False
            with suppress(OSError):  # the system cannot start a process now: the scheduler tries again
                self._process, self._connection = self._started()

    def _end(self) -> None:
        with self._ending:
            self._process.kill()
            self._process.wait()
            self._connection.close()

    def _started(self) -> tuple[subprocess.Popen[bytes], Connection]:
        process, connection = machine.start_python(f"{__package__}.worker_process", *self._arguments)
        if self._memory_bytes:
            machine.limit_memory(process.pid, self._memory_bytes)
        return process, connection


def main(descriptor: int, models_in_memory: int, trace_bytes: int) -> None:
    logs.redact()
    torch.set_num_threads(1)
    engine, connection = Engine(models_in_memory, trace_bytes), Connection(descriptor)
    writing, busy = Lock(), Event()  # busy: while a job is computed

    def send(message: bytes) -> None:
        with writing:
            connection.send_bytes(message)

    def beat() -> None:
        try:
            while busy.wait():
                send(HEARTBEAT)
                sleep(HEARTBEAT_SECONDS)
        except OSError:
            os._exit(0)  # the server has ended

    gc.collect()
    gc.freeze()
    try:
        send(READY)
        Thread(target=beat, daemon=True).start()
        while True:
            job: Job = pickle.loads(connection.recv_bytes())  # noqa: S301 - of the process that started this one
            busy.set()
            answer = answer_message(engine, job)
            busy.clear()
            send(answer)
    except (EOFError, OSError):  # the server has ended
        return


def answer_message(engine: Engine, job: Job) -> bytes:
    """Run the job and return its answer or its error as a message for `unpack_answer`."""
    try:
        return pickle.dumps(("answer", engine.do(job)), pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001 - sent to the caller
        if not isinstance(error, USER_ERRORS):
            error.add_note("".join(format_tb(error.__traceback__)))  # lines of code, no values: it may be logged
        return pickle.dumps(("error", sendable(error, job.name)))


def unpack_answer(message: bytes) -> Any:
    """Return the answer in a message made by `answer_message`, or raise the error in it."""
    kind, what = pickle.loads(message)  # noqa: S301 - of a worker that we started
    if kind == "error":
        raise what
    return what


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
