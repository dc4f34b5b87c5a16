"""A fair queue of jobs and workers that do one job at a time: in this process, in worker processes
(worker_process.py) or on other machines (ray_cluster.py).
"""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from threading import Thread
from time import monotonic, sleep
from typing import Any, Literal

from i18n import N_, msg
from serving.fair_queue import FairQueue, Ticket
from serving.job import Job
from serving.result_cache import Engine

LOOK = 0.05  # seconds between two calls of still_wanted
PAUSE = 1.0  # seconds between two tries to start a worker
SPARE = 2.0  # seconds in which a worker must stop a job that is over its time

TOLD = (ValueError, OSError, MemoryError)  # errors whose messages are for the user
Outcome = Literal["done", "refused", "failed", "too slow", "lost"]
WorkerState = Literal["starting", "idle", "busy"]
TIME_LIMIT = N_(
    "This took longer than the limit of {seconds:g} seconds and was stopped. Try a shorter text, fewer lines or a "
    "smaller model"
)


class TooSlow(ValueError):
    """A job was stopped at its time limit."""

    @classmethod
    def after(cls, seconds: float) -> "TooSlow":
        return cls(msg(TIME_LIMIT, seconds=seconds))


class LostTwice(ValueError):
    """Two workers ended while they did the job."""


class WorkerLost(Exception):
    """The worker has ended or does not answer; another may try its job."""


class Worker:
    """Does one job at a time."""

    def wait_until_ready(self) -> None:
        """Called before the first job, and after WorkerLost. Raises WorkerLost if it must be called again."""

    def do(self, job: Job, seconds: float) -> Any:
        """The answer. Raises what the job raises, TooSlow or WorkerLost."""
        raise NotImplementedError

    def close(self) -> None:
        """End it."""


@dataclass(frozen=True)
class Done:
    """What observers get of a job that has ended; nothing of its user or text.

    job: its function's name. waited, took: seconds in the queue and in a worker. waiting: jobs in the queue then.
    """

    job: str
    waited: float
    took: float
    waiting: int
    outcome: Outcome


class Scheduler:
    """One for all users of a server.

    seconds: the most that a job may take. observers: called with every job that has ended. affinity: whether a run's
    jobs go to the worker that has its trace; False where all workers share their traces.
    """

    def __init__(self, workers: Sequence[Worker], queue: FairQueue, *, seconds: float, affinity: bool) -> None:
        self.observers: list[Callable[[Done], object]] = []
        self._workers, self._queue, self._seconds, self._affinity = workers, queue, seconds, affinity
        self._closed, self._states = False, ["starting"] * len(workers)
        self._threads = [
            Thread(target=self._work, args=(number, worker), name=f"worker {number}", daemon=True)
            for number, worker in enumerate(workers)
        ]
        for thread in self._threads:
            thread.start()

    def ask(
        self,
        job: Job,
        reader: str = "",
        still_wanted: Callable[[], object] = lambda: None,
        *,
        low_priority: bool = False,
    ) -> Any:
        """The job's answer. still_wanted: called now and then; when it raises, the job leaves the queue. low_priority:
        whether all other jobs go first, for parts of a computation of minutes.

        Raises QueueFull, TooSlow, and what the job raises.
        """
        ticket = self._queue.enter(job, reader, job.affinity_key if self._affinity else (), low_priority=low_priority)
        try:
            while not ticket.answer.done():
                still_wanted()
                if ticket.started and monotonic() - ticket.started > self._seconds + SPARE:
                    raise TooSlow.after(self._seconds)  # its worker cannot stop it
                wait([ticket.answer], LOOK)
        except BaseException:
            self._queue.leave(ticket)
            raise
        return ticket.answer.result()

    def waiting(self) -> int:
        return self._queue.waiting()

    def workers(self, state: WorkerState) -> int:
        """How many are in this state; that an idle one has ended is noticed with its next job."""
        return self._states.count(state)

    def close(self) -> None:
        """End every worker. Jobs in the queue raise QueueFull."""
        self._closed = True
        self._queue.close()
        for worker in self._workers:
            worker.close()

    def _work(self, number: int, worker: Worker) -> None:
        while not self._closed:
            try:
                self._states[number] = "starting"
                worker.wait_until_ready()
            except WorkerLost:
                sleep(PAUSE)
            else:
                self._states[number] = "idle"
                ticket = self._queue.next(number)
                if ticket is not None:
                    self._states[number] = "busy"
                    self._do(ticket, number, worker)

    def _do(self, ticket: Ticket, number: int, worker: Worker) -> None:
        began = ticket.started
        outcome: Outcome = "done"
        try:
            ticket.answer.set_result(worker.do(ticket.job, self._seconds))
        except WorkerLost:
            outcome = "lost"
            self._queue.lost(number)
            if not ticket.losses:
                self._queue.again(ticket)
            else:
                ticket.answer.set_exception(LostTwice(LOST_TWICE))
        except BaseException as error:  # noqa: BLE001 - raised where the answer is waited for
            outcome = "refused" if isinstance(error, TOLD) else "failed"
            outcome = "too slow" if isinstance(error, TooSlow) else outcome  # not shown
            ticket.answer.set_exception(error)
        took = monotonic() - began
        self._queue.done(ticket, took)
        self._tell(Done(ticket.job.name, began - ticket.entered, took, self._queue.waiting(), outcome))

    def _tell(self, done: Done) -> None:
        for observer in self.observers:
            try:
                observer(done)
            except Exception:  # observers must not stop jobs
                logging.getLogger(__name__).exception("an observer of jobs failed")  # not shown


LOST_TWICE = msg(
    "The worker process ended twice while computing this, perhaps because memory ran out. Try a shorter text, fewer "
    "lines or a smaller model"
)


class InThisProcess(Worker):
    """One of several that share one engine. A job cannot be stopped here."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def do(self, job: Job, seconds: float) -> Any:
        return self._engine.do(job)
