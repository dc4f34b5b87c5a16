"""A worker process (worker_process.py): one engine, one thread of torch, one job at a time.

It sends READY once, then the answer to each job, and BEAT while it computes one, so that a stuck worker is noticed.
"""

import gc
import os
import pickle
import sys
from multiprocessing.connection import Connection
from threading import Event, Lock, Thread
from time import sleep
from traceback import format_tb
from typing import Any

import torch

from serving import logs
from serving.job import Job
from serving.result_cache import Engine
from serving.scheduler import TOLD

READY, BEAT = b"ready", b"beat"
BEATS = 1.0  # seconds from one to the next


class WorkerConnection:
    """A connection that two threads write to. busy: set while a job is computed."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._lock, self.busy = connection, Lock(), Event()

    def send(self, message: bytes) -> None:
        with self._lock:
            self._connection.send_bytes(message)

    def receive(self) -> Job:
        """The next job. Raises EOFError when the server has ended."""
        return pickle.loads(self._connection.recv_bytes())  # noqa: S301 - of the process that started this one


def main(descriptor: int, models_in_memory: int, trace_bytes: int) -> None:
    logs.redact()
    torch.set_num_threads(1)
    engine, line = Engine(models_in_memory, trace_bytes), WorkerConnection(Connection(descriptor))
    gc.collect()
    gc.freeze()
    try:
        line.send(READY)
        Thread(target=_beat, args=(line,), daemon=True).start()
        while True:
            job = line.receive()
            line.busy.set()
            answer = answered(engine, job)
            line.busy.clear()
            line.send(answer)
    except (EOFError, OSError):  # the server has ended
        return


def answered(engine: Engine, job: Job) -> bytes:
    """The answer to a job, as `told` reads it."""
    try:
        return pickle.dumps(("answer", engine.do(job)), pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001 - it is the asker's
        if not isinstance(error, TOLD):
            error.add_note("".join(format_tb(error.__traceback__)))  # lines of code, no values: it may be logged
        try:
            message = pickle.dumps(("error", error))
            pickle.loads(message)  # noqa: S301 - what was pickled in the line before
        except Exception:  # noqa: BLE001 - an exception that cannot travel
            return pickle.dumps(("error", RuntimeError(f"{type(error).__name__} in {job.name}")))
        return message


def told(message: bytes) -> Any:
    """The answer in a message. Raises the error in it."""
    kind, what = pickle.loads(message)  # noqa: S301 - of a worker that we started
    if kind == "error":
        raise what
    return what


def _beat(line: WorkerConnection) -> None:
    try:
        while line.busy.wait():
            line.send(BEAT)
            sleep(BEATS)
    except OSError:
        os._exit(0)  # the server has ended


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
