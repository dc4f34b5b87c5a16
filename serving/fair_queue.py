"""A bounded queue in which users, not jobs, take turns.

A job goes to the worker that has its trace, if one has, else to the first that is free. A job of low priority is done
when no other waits, and never by all of several workers at once, so that a new request finds one free.
"""

from collections import OrderedDict, deque
from collections.abc import Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition
from time import monotonic

from cachetools import LRUCache

from i18n import N_, msg
from serving.job import Job

MOST_REMEMBERED = 10_000  # runs of which it is known which worker has their traces
STOPPED = msg("This server is being stopped. Try again in a minute")
FIRST_GUESS = 0.5  # seconds of a job, until some were done
QUEUE_FULL = N_("The queue is full (waiting: {waiting}). Try again in about {seconds:.0f} s")


class QueueFull(ValueError):
    """There is no room in the queue."""


@dataclass(eq=False)
class Ticket:
    """A job in the queue. started: time.monotonic() when a worker took it; 0 while it waits."""

    job: Job
    reader: str
    affinity_key: Sequence[Hashable] = ()
    answer: Future = field(default_factory=Future)
    entered: float = field(default_factory=monotonic)
    started: float = 0.0
    losses: int = 0  # workers that ended while they did it
    low_priority: bool = False
    left: bool = False  # no user waits for it any longer


class FairQueue:
    """workers: how many jobs are done at a time. most_waiting: jobs of all users; most_a_reader: of one."""

    def __init__(self, workers: int, *, most_waiting: int, most_a_reader: int) -> None:
        self._workers, self._most_waiting, self._most_a_reader = workers, most_waiting, most_a_reader
        self._readers: OrderedDict[str, deque[Ticket]] = OrderedDict()  # the next one first
        self._has: LRUCache = LRUCache(MOST_REMEMBERED)  # run -> the worker that has its trace
        self._changed, self._closed, self._mean = Condition(), False, FIRST_GUESS
        self._low_priority = 0  # such jobs that are being done

    def enter(
        self, job: Job, reader: str, affinity_key: Sequence[Hashable] = (), *, low_priority: bool = False
    ) -> Ticket:
        """Add a job. affinity_key: see Job.affinity_key; () if any worker will do. Raises QueueFull."""
        with self._changed:
            if self._closed:
                raise QueueFull(STOPPED)
            mine, waiting = self._readers.get(reader, ()), self.waiting()
            if waiting >= self._most_waiting:
                seconds = max(self._mean * (waiting + 1) / self._workers, 1.0)
                raise QueueFull(msg(QUEUE_FULL, waiting=waiting, seconds=seconds))
            if len(mine) >= self._most_a_reader:
                words = N_("Too many requests: {count} of yours are still waiting. Try again when they are done")
                raise QueueFull(msg(words, count=len(mine)))
            ticket = Ticket(job, reader, affinity_key, low_priority=low_priority)
            self._readers.setdefault(reader, deque()).append(ticket)
            self._changed.notify_all()
            return ticket

    def leave(self, ticket: Ticket) -> None:
        with self._changed:
            ticket.left = True
            ticket.answer.cancel()
            self._remove(ticket)

    def next(self, worker: int) -> Ticket | None:
        """Wait for the next job of this worker. None once the queue is closed."""
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
        """Its worker was lost: it is next, at any worker, if a user still waits for it."""
        with self._changed:
            if ticket.left:
                return
            ticket.started, ticket.affinity_key, ticket.losses = 0.0, (), ticket.losses + 1
            if self._closed:
                ticket.answer.set_exception(QueueFull(STOPPED))
                return
            self._readers.setdefault(ticket.reader, deque()).appendleft(ticket)
            self._readers.move_to_end(ticket.reader, last=False)
            self._changed.notify_all()

    def lost(self, worker: int) -> None:
        with self._changed:
            for run in [run for run, has in self._has.items() if has == worker]:
                del self._has[run]
            self._changed.notify_all()

    def close(self) -> None:
        """All jobs raise QueueFull; workers get None."""
        with self._changed:
            self._closed = True
            for ticket in [ticket for some in self._readers.values() for ticket in some]:
                if not ticket.answer.done():
                    ticket.answer.set_exception(QueueFull(STOPPED))
            self._readers.clear()
            self._changed.notify_all()

    def waiting(self) -> int:
        return sum(map(len, self._readers.values()))

    def _pick(self, worker: int) -> Ticket | None:
        mine = [
            ticket
            for tickets in self._readers.values()
            for ticket in tickets
            if worker == next((self._has[run] for run in ticket.affinity_key if run in self._has), worker)
        ]
        ticket = next((ticket for ticket in mine if not ticket.low_priority), None)
        if ticket is None and self._low_priority < max(self._workers - 1, 1):
            ticket = next(iter(mine), None)
        if ticket is None:
            return None
        self._remove(ticket)
        if ticket.reader in self._readers:
            self._readers.move_to_end(ticket.reader)
        self._low_priority += ticket.low_priority
        if not ticket.losses:
            ticket.answer.set_running_or_notify_cancel()
        ticket.started = monotonic()
        self._has.update(dict.fromkeys(ticket.affinity_key, worker))
        return ticket

    def _remove(self, ticket: Ticket) -> None:
        mine = self._readers.get(ticket.reader)
        if mine and ticket in mine:
            mine.remove(ticket)
            if not mine:
                del self._readers[ticket.reader]
