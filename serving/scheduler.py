"""A bounded queue in which users, not jobs, take turns, and workers that do one job at a time: in this process, in
worker processes (worker_process.py) or on other machines (ray_cluster.py).

A job goes to the worker that has its trace, if one has, else to the first that is free. A job of low priority runs when
no other waits, and never on all of several workers at once, so that a new request finds a free worker.
"""

import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from threading import Condition, Thread
from time import monotonic, sleep
from typing import Any, Literal

from cachetools import LRUCache

from i18n import N_, msg
from serving.job import Job, QueueFull
from serving.result_cache import Engine

POLL_SECONDS = 0.05  # seconds between two calls of raise_if_cancelled
PAUSE, LONGEST_PAUSE = 1.0, 10.0  # seconds after the first failed start of a worker, and after the tenth
FAILED_STARTS = 3  # failed starts of every worker, one after another, after which jobs are refused
FIRST_GUESS = 0.5  # assumed seconds of a job, until some are done
STOP_GRACE_SECONDS = 2.0  # seconds after a job's time limit within which its worker must stop it

USER_ERRORS = (ValueError, OSError, MemoryError)  # errors whose messages are for the user
MAX_REMEMBERED = 10_000  # runs for which the worker that has the trace is remembered
Outcome = Literal["done", "refused", "failed", "too slow", "lost"]
WorkerState = Literal["starting", "idle", "busy"]
STOPPED = msg("This server is being stopped. Try again in a minute")
QUEUE_FULL = N_("The queue is full (waiting: {waiting}). Try again in about {seconds:.0f} s")
TIME_LIMIT = N_(
    "This took longer than the limit of {seconds:g} seconds and was stopped. Try a shorter text, fewer lines or a "
    "smaller model"
)
CANNOT_START = msg("No worker process can be started, perhaps because memory ran out. Try again in a minute")
LOST_TWICE = msg(
    "The worker process ended twice while computing this, perhaps because memory ran out. Try a shorter text, fewer "
    "lines or a smaller model"
)


class TooSlow(ValueError):
    """A job was stopped at its time limit."""

    @classmethod
    def after(cls, seconds: float) -> "TooSlow":
        return cls(msg(TIME_LIMIT, seconds=seconds))


class LostTwice(ValueError):
    """Two workers ended while they ran the job."""


class WorkerLost(Exception):
    """The worker has ended or does not respond; another may retry its job."""


class NotStarted(WorkerLost):
    """The worker ended before it began a job, or could not be started: the job was not the cause."""


@dataclass(eq=False)
class Ticket:
    """A job in the queue. started: time.monotonic() when a worker took it; 0 while it waits."""

    job: Job
    reader: str
    affinity_key: Sequence[Hashable] = ()
    answer: Future = field(default_factory=Future)
    entered: float = field(default_factory=monotonic)
    started: float = 0.0
    losses: int = 0  # workers that ended while they ran it
    low_priority: bool = False
    left: bool = False  # whether no user waits for it any longer


class FairQueue:
    """A queue in which users take turns. workers: how many jobs run at a time. max_waiting: limit of waiting jobs of
    all users; max_waiting_per_user: of one user."""

    def __init__(self, workers: int, *, max_waiting: int, max_waiting_per_user: int) -> None:
        self._workers, self._max_waiting, self._max_waiting_per_user = workers, max_waiting, max_waiting_per_user
        self._tickets_by_user: OrderedDict[str, deque[Ticket]] = OrderedDict()  # by user, in the order of their turns
        self._worker_of_run: LRUCache = LRUCache(MAX_REMEMBERED)  # run -> the worker that has its trace
        self._changed, self._closed, self._mean = Condition(), False, FIRST_GUESS
        self._low_priority = 0  # how many of the running jobs have low priority

    def enter(
        self, job: Job, reader: str, affinity_key: Sequence[Hashable] = (), *, low_priority: bool = False
    ) -> Ticket:
        """Add a job. affinity_key: see Job.affinity_key; () if any worker will do. Raises QueueFull."""
        with self._changed:
            if self._closed:
                raise QueueFull(STOPPED)
            mine, waiting = self._tickets_by_user.get(reader, ()), self.waiting()
            if waiting >= self._max_waiting:
                seconds = max(self._mean * (waiting + 1) / self._workers, 1.0)
                raise QueueFull(msg(QUEUE_FULL, waiting=waiting, seconds=seconds))
            if len(mine) >= self._max_waiting_per_user:
                words = N_("Too many requests: {count} of yours are still waiting. Try again when they are done")
                raise QueueFull(msg(words, count=len(mine)))
            ticket = Ticket(job, reader, affinity_key, low_priority=low_priority)
            self._tickets_by_user.setdefault(reader, deque()).append(ticket)
            self._changed.notify_all()
            return ticket

    def leave(self, ticket: Ticket) -> None:
        with self._changed:
            ticket.left = True
            ticket.answer.cancel()
            self._remove(ticket)

    def next(self, worker: int) -> Ticket | None:
        """Wait for this worker's next job and return it; None once the queue is closed."""
        with self._changed:
            while not self._closed:
                ticket = self._pick(worker)
                if ticket is not None:
                    return ticket
                self._changed.wait()
            return None

    def done(self, ticket: Ticket, seconds: float) -> None:
        with self._changed:
            if ticket.low_priority:
                self._low_priority -= 1
                self._changed.notify_all()
            else:
                self._mean += 0.1 * (seconds - self._mean)

    def again(self, ticket: Ticket) -> None:
        """Put a job whose worker was lost first in the queue, for any worker, if a user still waits for it."""
        with self._changed:
            if ticket.left:
                return
            ticket.started, ticket.affinity_key = 0.0, ()
            if self._closed:
                ticket.answer.set_exception(QueueFull(STOPPED))
                return
            self._tickets_by_user.setdefault(ticket.reader, deque()).appendleft(ticket)
            self._tickets_by_user.move_to_end(ticket.reader, last=False)
            self._changed.notify_all()

    def lost(self, worker: int) -> None:
        with self._changed:
            for run in [run for run, has in self._worker_of_run.items() if has == worker]:
                del self._worker_of_run[run]
            self._changed.notify_all()

    def close(self) -> None:
        """Close the queue: waiting jobs raise QueueFull, and `next` returns None."""
        with self._changed:
            self._closed = True
            for ticket in [ticket for some in self._tickets_by_user.values() for ticket in some]:
                if not ticket.answer.done():
                    ticket.answer.set_exception(QueueFull(STOPPED))
            self._tickets_by_user.clear()
            self._changed.notify_all()

    def waiting(self) -> int:
        return sum(map(len, self._tickets_by_user.values()))

    def _pick(self, worker: int) -> Ticket | None:
        mine = [
            ticket
            for tickets in self._tickets_by_user.values()
            for ticket in tickets
            if worker
            == next((self._worker_of_run[run] for run in ticket.affinity_key if run in self._worker_of_run), worker)
        ]
        ticket = next((ticket for ticket in mine if not ticket.low_priority), None)
        if ticket is None and self._low_priority < max(self._workers - 1, 1):
            ticket = next(iter(mine), None)
        if ticket is None:
            return None
        self._remove(ticket)
        if ticket.reader in self._tickets_by_user:
            self._tickets_by_user.move_to_end(ticket.reader)
        self._low_priority += ticket.low_priority
        if not ticket.answer.running():  # it is if its worker was lost
            ticket.answer.set_running_or_notify_cancel()
        ticket.started = monotonic()
        self._worker_of_run.update(dict.fromkeys(ticket.affinity_key, worker))
        return ticket

    def _remove(self, ticket: Ticket) -> None:
        mine = self._tickets_by_user.get(ticket.reader)
        if mine and ticket in mine:
            mine.remove(ticket)
            if not mine:
                del self._tickets_by_user[ticket.reader]


class Worker:
    """The base class of workers, which do one job at a time. replaced: called by a worker that has lost its traces."""

    replaced: Callable[[], object] = staticmethod(lambda: None)

    def wait_until_ready(self) -> None:
        """Wait until `do` may be called. Called before every job; raises NotStarted if it must be called again."""

    def do(self, job: Job, seconds: float) -> Any:
        """Return the job's answer. seconds: its time limit. Raises what the job raises, TooSlow or WorkerLost."""
        raise NotImplementedError

    def close(self) -> None:
        """End the worker."""


@dataclass(frozen=True)
class FinishedJob:
    """A finished job, as reported to observers; nothing of its user or text.

    job: its function's name. waited, took: seconds in the queue and in a worker.
    """

    job: str
    waited: float
    took: float
    outcome: Outcome


class Scheduler:
    """The scheduler of all users' jobs on a server: takes them from the queue and runs them on the workers.

    seconds: a job's time limit. observers: called with every finished job. affinity: whether a run's jobs go to the
    worker that has its trace; False if all workers share their traces.
    """

    def __init__(self, workers: Sequence[Worker], queue: FairQueue, *, seconds: float, affinity: bool) -> None:
        self.observers: list[Callable[[FinishedJob], object]] = []
        self._workers, self._queue, self._seconds, self._affinity = workers, queue, seconds, affinity
        self._closed, self._states = False, ["starting"] * len(workers)
        self._failed_starts = [0] * len(workers)  # since each was last ready
        self._failing_since = [0.0] * len(workers)  # time.monotonic() when the first of these starts began
        for number, worker in enumerate(workers):
            worker.replaced = partial(queue.lost, number)
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
        raise_if_cancelled: Callable[[], object] = lambda: None,
        *,
        low_priority: bool = False,
    ) -> Any:
        """Queue a job and return its answer. raise_if_cancelled: called repeatedly; if it raises, the job leaves the
        queue. low_priority: whether all other jobs run first, for parts of a computation that takes minutes.

        Raises QueueFull, also if no worker can be started; TooSlow; and what the job raises.
        """
        ticket = self._queue.enter(job, reader, job.affinity_key if self._affinity else (), low_priority=low_priority)
        try:
            while not ticket.answer.done():
                raise_if_cancelled()
                if self._cannot_start(ticket):
                    raise QueueFull(CANNOT_START)
                if ticket.started and monotonic() - ticket.started > self._seconds + STOP_GRACE_SECONDS:
                    raise TooSlow.after(self._seconds)  # its worker cannot stop it
                wait([ticket.answer], POLL_SECONDS)
        except BaseException:
            self._queue.leave(ticket)
            raise
        return ticket.answer.result()

    def waiting(self) -> int:
        return self._queue.waiting()

    def workers(self, state: WorkerState) -> int:
        """Return how many workers are in this state. That an idle one has ended is noticed only at its next job."""
        return self._states.count(state)

    def close(self) -> None:
        """End every worker. Jobs in the queue raise QueueFull."""
        self._closed = True
        self._queue.close()
        for worker in self._workers:
            worker.close()

    def _cannot_start(self, ticket: Ticket) -> bool:
        """Return whether no worker can be started: each has failed FAILED_STARTS times, or at least once, and the job
        has waited for them as long as it may take. A first start, however slow, has not failed."""
        failed = min(self._failed_starts, default=0)
        waited = monotonic() - max([ticket.entered, *self._failing_since])
        return failed >= FAILED_STARTS or (failed > 0 and waited > self._seconds)

    def _work(self, number: int, worker: Worker) -> None:
        while not self._closed:
            self._states[number], began = "starting", monotonic()
            try:
                worker.wait_until_ready()
            except NotStarted:
                self._start_failed(number, began)
            else:
                self._states[number], self._failed_starts[number] = "idle", 0
                ticket = self._queue.next(number)
                if ticket is not None:
                    self._states[number] = "busy"
                    self._do(ticket, worker)

    def _start_failed(self, number: int, began: float) -> None:
        if not self._failed_starts[number]:
            self._failing_since[number] = began
        self._failed_starts[number] += 1
        if self._failed_starts[number] == FAILED_STARTS:  # not at each: attempts go on
            logging.getLogger(__name__).exception("a worker cannot be started")  # not shown
        sleep(min(PAUSE * self._failed_starts[number], LONGEST_PAUSE))

    def _do(self, ticket: Ticket, worker: Worker) -> None:
        began = ticket.started
        outcome: Outcome = "done"
        try:
            ticket.answer.set_result(worker.do(ticket.job, self._seconds))
        except WorkerLost as error:
            outcome = "lost"
            ticket.losses += not isinstance(error, NotStarted)
            if ticket.losses < 2:
                self._queue.again(ticket)
            else:
                ticket.answer.set_exception(LostTwice(LOST_TWICE))
        except BaseException as error:  # noqa: BLE001 - re-raised where the answer is awaited
            outcome = "refused" if isinstance(error, USER_ERRORS) else "failed"
            outcome = "too slow" if isinstance(error, TooSlow) else outcome  # not shown
            ticket.answer.set_exception(error)
        took = monotonic() - began
        self._queue.done(ticket, took)
        done = FinishedJob(ticket.job.name, began - ticket.entered, took, outcome)
        for observer in self.observers:
            try:
                observer(done)
            except Exception:  # observers must not stop jobs
                logging.getLogger(__name__).exception("an observer of jobs failed")  # not shown


class InThisProcess(Worker):
    """A worker in this process. All such workers share one engine. Their jobs cannot be stopped."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def do(self, job: Job, seconds: float) -> Any:
        return self._engine.do(job)
