"""Whose turn it is: a bounded queue in which readers take turns, not jobs.

A reader with ten jobs waiting gets one done for each that another reader waits for. A job goes to the hand that has its
trace, where one has it: else to whichever is free first. A job that is `behind` the others is done when none of them
waits, and never by all hands at once where there are several: who asks for something meanwhile finds one free.
"""

from collections import OrderedDict, deque
from collections.abc import Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition
from time import monotonic

from model.jobs.job import Job
from model.language import N_, say, spoken

MOST_REMEMBERED = 10_000  # runs, and which hand has their traces
STOPPED = N_("This server is being stopped. Try again in a minute")
FIRST_GUESS = 0.5  # seconds a job, until some were done


class Busy(ValueError):
    """There is no room in the queue; says so to the reader, with the wait."""


@dataclass(eq=False)
class Ticket:
    """A job in the queue. started: when a hand took it, in seconds of time.monotonic; 0 while it waits."""

    job: Job
    reader: str
    near: Sequence[Hashable] = ()
    answer: Future = field(default_factory=Future)
    entered: float = field(default_factory=monotonic)
    started: float = 0.0
    losses: int = 0  # hands that were lost over it
    behind: bool = False
    left: bool = False  # nobody waits for it any longer


class Turns:
    """hands: how many jobs are done at a time. most_waiting: of all readers; most_a_reader: of one."""

    def __init__(self, hands: int, *, most_waiting: int, most_a_reader: int) -> None:
        self._hands, self._most_waiting, self._most_a_reader = hands, most_waiting, most_a_reader
        self._readers: OrderedDict[str, deque[Ticket]] = OrderedDict()  # whose turn is next stands first
        self._has: OrderedDict[Hashable, int] = OrderedDict()  # which hand has the trace of a run
        self._changed, self._closed, self._mean = Condition(), False, FIRST_GUESS
        self._behind = 0  # jobs of that kind that are being done

    def enter(self, job: Job, reader: str, near: Sequence[Hashable] = (), *, behind: bool = False) -> Ticket:
        """Queue up. near: what Job.near says, where a trace stays with its hand. Raises Busy."""
        with self._changed:
            if self._closed:
                raise Busy(say(STOPPED))
            mine, waiting = self._readers.get(reader, ()), self.waiting()
            if waiting >= self._most_waiting:
                raise Busy(
                    say(
                        "{waiting} questions wait here already, as many as this server lets wait. "
                        "They take about {seconds:.0f} seconds: try again then",
                        waiting=waiting, seconds=self.expected_wait(),
                    )
                )  # fmt: skip
            if len(mine) >= self._most_a_reader:
                raise Busy(
                    say("You have {count} questions waiting here, the most that one reader may have", count=len(mine))
                )
            ticket = Ticket(job, reader, near, behind=behind)
            self._readers.setdefault(reader, deque()).append(ticket)
            self._changed.notify_all()
            return ticket

    def leave(self, ticket: Ticket) -> None:
        """Give up its place. A job that is being done is done, for nobody."""
        with self._changed:
            ticket.left = True
            ticket.answer.cancel()
            self._remove(ticket)

    def next(self, hand: int) -> Ticket | None:
        """Wait for the next job of this hand. None when all is over."""
        with self._changed:
            while not self._closed:
                ticket = self._pick(hand)
                if ticket is not None:
                    return ticket
                self._changed.wait()
            return None

    def done(self, ticket: Ticket, seconds: float) -> None:
        """A hand is free again, after so long, by which the next one's wait is guessed."""
        with self._changed:
            if ticket.behind:
                self._behind -= 1
                self._changed.notify_all()
            else:
                self._mean += 0.1 * (seconds - self._mean)

    def again(self, ticket: Ticket) -> None:
        """Its hand was lost: it is next, at any hand, if somebody still waits for it."""
        with self._changed:
            if ticket.left:
                return
            ticket.started, ticket.near, ticket.losses = 0.0, (), ticket.losses + 1
            if self._closed:
                _refuse(ticket)
                return
            self._readers.setdefault(ticket.reader, deque()).appendleft(ticket)
            self._readers.move_to_end(ticket.reader, last=False)
            self._changed.notify_all()

    def lost(self, hand: int) -> None:
        """A hand has lost all its traces."""
        with self._changed:
            for run in [run for run, has in self._has.items() if has == hand]:
                del self._has[run]
            self._changed.notify_all()

    def close(self) -> None:
        """Nobody waits any longer: readers get Busy, hands None."""
        with self._changed:
            self._closed = True
            for ticket in [ticket for some in self._readers.values() for ticket in some]:
                if not ticket.answer.done():
                    _refuse(ticket)
            self._readers.clear()
            self._changed.notify_all()

    def waiting(self) -> int:
        """How many jobs wait."""
        return sum(map(len, self._readers.values()))

    def expected_wait(self) -> float:
        """Seconds that a job which queues up now would wait, at least 1."""
        return max(self._mean * (self.waiting() + 1) / self._hands, 1.0)

    def _pick(self, hand: int) -> Ticket | None:
        mine = [
            ticket
            for tickets in self._readers.values()
            for ticket in tickets
            if hand == next((self._has[run] for run in ticket.near if run in self._has), hand)
        ]
        ticket = next((ticket for ticket in mine if not ticket.behind), None)
        if ticket is None and self._behind < max(self._hands - 1, 1):
            ticket = next(iter(mine), None)
        if ticket is not None:
            self._remove(ticket)
            if ticket.reader in self._readers:
                self._readers.move_to_end(ticket.reader)
            self._begin(ticket, hand)
        return ticket

    def _begin(self, ticket: Ticket, hand: int) -> None:
        self._behind += ticket.behind
        if not ticket.losses:
            ticket.answer.set_running_or_notify_cancel()
        ticket.started = monotonic()
        for run in ticket.near:
            self._has[run] = hand
            self._has.move_to_end(run)
        while len(self._has) > MOST_REMEMBERED:
            self._has.popitem(last=False)

    def _remove(self, ticket: Ticket) -> None:
        mine = self._readers.get(ticket.reader)
        if mine and ticket in mine:
            mine.remove(ticket)
            if not mine:
                del self._readers[ticket.reader]


def _refuse(ticket: Ticket) -> None:
    """In the language of who asked: this thread has no page."""
    with spoken(ticket.job.language):
        ticket.answer.set_exception(Busy(say(STOPPED)))
