"""Where jobs are done: a queue in which users take turns, and workers that do one job at a time each.

A worker is all that differs between this process, worker processes (worker_process.py) and
other machines (ray_cluster.py).
"""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from threading import Thread
from time import monotonic, sleep
from typing import Any, Literal, Protocol

from i18n import N_, say, spoken
from serving.fair_queue import FairQueue, Ticket
from serving.job import Job
from serving.result_cache import Engine

LOOK = 0.05  # seconds between two looks of a reader who waits
PAUSE = 1.0  # seconds from one try to start a worker to the next
SPARE = 2.0  # seconds that a worker has to stop a job which is over its time

TOLD = (ValueError, OSError, MemoryError)  # errors that are sentences for the reader
Outcome = Literal["done", "refused", "failed", "too slow", "lost"]
WorkerState = Literal["starting", "idle", "busy"]


class TooSlow(ValueError):
    """A job was stopped at its time limit."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            say(
                "This took longer than the limit of {seconds:g} seconds and was stopped. Try a shorter text, fewer "
                "lines or a smaller model",
                seconds=seconds,
            )
        )
        self.seconds = seconds

    def __reduce__(self) -> tuple[type, tuple[float]]:
        return TooSlow, (self.seconds,)


class LostTwice(ValueError):
    """Two workers were lost over a job."""


class WorkerLost(Exception):
    """Whoever did the job is gone, or answers no more; another may try it."""


class Worker(Protocol):
    """Does one job at a time."""

    def wait_until_ready(self) -> None:
        """Before the first job, and after WorkerLost. Raises WorkerLost where it takes another try."""

    def do(self, job: Job, seconds: float) -> Any:
        """The answer. Raises what the job raises; TooSlow; WorkerLost, after which it is ready for the next job."""

    def close(self) -> None:
        """No job will come any more."""


@dataclass(frozen=True)
class Done:
    """What is to be known of a job that is over; nothing of its reader or his text.

    job: its function's name. waited, took: seconds in the queue and in a worker. waiting: jobs in the queue by then.
    """

    job: str
    waited: float
    took: float
    waiting: int
    outcome: Outcome


class Scheduler:
    """One for all readers of a server.

    seconds: the most that a job may take. observers: told of every job that is over. affinity: whether a run's trace is
    with the worker that made it; where all share their traces any of them will do.
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
        """The job's answer, when it is its turn. still_wanted: called now and then while it waits, may raise: then the
        job leaves the queue. low_priority: whether all others go first, for the parts of what takes minutes.

        Raises Busy, TooSlow, and what the job raises.
        """
        ticket = self._queue.enter(job, reader, job.affinity_key if self._affinity else (), low_priority=low_priority)
        try:
            while not ticket.answer.done():
                still_wanted()
                if ticket.started and monotonic() - ticket.started > self._seconds + SPARE:
                    raise TooSlow(self._seconds)  # its worker cannot stop it
                wait([ticket.answer], LOOK)
        except BaseException:
            self._queue.leave(ticket)
            raise
        return ticket.answer.result()

    def waiting(self) -> int:
        """How many jobs wait for their turn."""
        return self._queue.waiting()

    def workers(self, state: WorkerState) -> int:
        """How many are in this state; an idle one that is gone is found out with its next job."""
        return self._states.count(state)

    def close(self) -> None:
        """Ends every worker. Who still waits gets Busy."""
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
                    with spoken(ticket.job.language):  # this thread has no page that knows the reader
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
                ticket.answer.set_exception(LostTwice(say(LOST_TWICE)))
        except BaseException as error:  # noqa: BLE001 - it is the asker's
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
            except Exception:  # whoever counts jobs must not stop them
                logging.getLogger(__name__).exception("an observer of jobs failed")  # not shown


LOST_TWICE = N_(
    "The worker process ended twice while computing this, perhaps because memory ran out. Try a shorter text, fewer "
    "lines or a smaller model"
)


class InThisProcess:
    """A worker among others that share one engine. Nothing can stop a job here: it is done for nobody."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def wait_until_ready(self) -> None:
        """It is."""

    def do(self, job: Job, seconds: float) -> Any:
        return self._engine.do(job)

    def close(self) -> None:
        """There is nothing to end."""
