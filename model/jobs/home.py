"""Where jobs are done: a queue in which readers take turns, and hands that do one job at a time each.

A hand is all that differs between this process, worker processes (pool.py) and other machines (cluster.py).
"""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from threading import Thread
from time import monotonic, sleep
from typing import Any, Literal, Protocol

from model.jobs.engine import Engine
from model.jobs.job import Job
from model.jobs.turns import Ticket, Turns
from model.language import N_, say, spoken

LOOK = 0.05  # seconds between two looks of a reader who waits
PAUSE = 1.0  # seconds from one try to start a hand to the next
SPARE = 2.0  # seconds that a hand has to stop a job which is over its time

TOLD = (ValueError, OSError, MemoryError)  # errors that are sentences for the reader
Outcome = Literal["done", "refused", "failed", "too slow", "lost"]
HandState = Literal["starting", "idle", "busy"]


class TooSlow(ValueError):
    """A job was stopped at its time limit."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            say(
                "This took longer than {seconds:g} seconds, the most that one question may take here, and was stopped. "
                "Try a shorter text, fewer lines or a smaller model",
                seconds=seconds,
            )
        )
        self.seconds = seconds

    def __reduce__(self) -> tuple[type, tuple[float]]:
        return TooSlow, (self.seconds,)


class LostTwice(ValueError):
    """Two hands were lost over a job."""


class HandLost(Exception):
    """Whoever did the job is gone, or answers no more; another may try it."""


class Hand(Protocol):
    """Does one job at a time."""

    def wait_until_ready(self) -> None:
        """Before the first job, and after HandLost. Raises HandLost where it takes another try."""

    def do(self, job: Job, seconds: float) -> Any:
        """The answer. Raises what the job raises; TooSlow; HandLost, after which it is ready for the next job."""

    def close(self) -> None:
        """No job will come any more."""


@dataclass(frozen=True)
class Done:
    """What is to be known of a job that is over; nothing of its reader or his text.

    job: its function's name. waited, took: seconds in the queue and in hand. waiting: jobs in the queue by then.
    """

    job: str
    waited: float
    took: float
    waiting: int
    outcome: Outcome


class Home:
    """One for all readers of a server.

    seconds: the most that a job may take. observers: told of every job that is over. sticky: whether a run's trace is
    with the hand that made it; where all share their traces any of them will do.
    """

    def __init__(self, hands: Sequence[Hand], turns: Turns, *, seconds: float, sticky: bool) -> None:
        self.observers: list[Callable[[Done], object]] = []
        self._hands, self._turns, self._seconds, self._sticky = hands, turns, seconds, sticky
        self._closed, self._states = False, ["starting"] * len(hands)
        self._threads = [
            Thread(target=self._work, args=(number, hand), name=f"hand {number}", daemon=True)
            for number, hand in enumerate(hands)
        ]
        for thread in self._threads:
            thread.start()

    def ask(
        self, job: Job, reader: str = "", still_wanted: Callable[[], object] = lambda: None, *, behind: bool = False
    ) -> Any:
        """The job's answer, when it is its turn. still_wanted: called now and then while it waits, may raise: then the
        job leaves the queue. behind: whether all others go first, for the parts of what takes minutes.

        Raises Busy, TooSlow, and what the job raises.
        """
        ticket = self._turns.enter(job, reader, job.near if self._sticky else (), behind=behind)
        try:
            while not ticket.answer.done():
                still_wanted()
                if ticket.started and monotonic() - ticket.started > self._seconds + SPARE:
                    raise TooSlow(self._seconds)  # its hand cannot stop it
                wait([ticket.answer], LOOK)
        except BaseException:
            self._turns.leave(ticket)
            raise
        return ticket.answer.result()

    def waiting(self) -> int:
        """How many jobs wait for their turn."""
        return self._turns.waiting()

    def hands(self, state: HandState) -> int:
        """How many are in this state; an idle one that is gone is found out with its next job."""
        return self._states.count(state)

    def close(self) -> None:
        """Ends every hand. Who still waits gets Busy."""
        self._closed = True
        self._turns.close()
        for hand in self._hands:
            hand.close()

    def _work(self, number: int, hand: Hand) -> None:
        while not self._closed:
            try:
                self._states[number] = "starting"
                hand.wait_until_ready()
            except HandLost:
                sleep(PAUSE)
            else:
                self._states[number] = "idle"
                ticket = self._turns.next(number)
                if ticket is not None:
                    self._states[number] = "busy"
                    with spoken(ticket.job.language):  # this thread has no page that knows the reader
                        self._do(ticket, number, hand)

    def _do(self, ticket: Ticket, number: int, hand: Hand) -> None:
        began = ticket.started
        outcome: Outcome = "done"
        try:
            ticket.answer.set_result(hand.do(ticket.job, self._seconds))
        except HandLost:
            outcome = "lost"
            self._turns.lost(number)
            if not ticket.losses:
                self._turns.again(ticket)
            else:
                ticket.answer.set_exception(LostTwice(say(LOST_TWICE)))
        except BaseException as error:  # noqa: BLE001 - it is the asker's
            outcome = "refused" if isinstance(error, TOLD) else "failed"
            outcome = "too slow" if isinstance(error, TooSlow) else outcome  # not shown
            ticket.answer.set_exception(error)
        took = monotonic() - began
        self._turns.done(ticket, took)
        self._tell(Done(ticket.job.name, began - ticket.entered, took, self._turns.waiting(), outcome))

    def _tell(self, done: Done) -> None:
        for observer in self.observers:
            try:
                observer(done)
            except Exception:  # whoever counts jobs must not stop them
                logging.getLogger(__name__).exception("an observer of jobs failed")  # not shown


LOST_TWICE = N_(
    "What computes this ended twice while it did, perhaps for want of memory. "
    "Try a shorter text, fewer lines or a smaller model"
)


class InThisProcess:
    """A hand among others that share one engine. Nothing can stop a job here: it is done for nobody."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def wait_until_ready(self) -> None:
        """It is."""

    def do(self, job: Job, seconds: float) -> Any:
        return self._engine.do(job)

    def close(self) -> None:
        """There is nothing to end."""
