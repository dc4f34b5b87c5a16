"""Long jobs: trainings and checks, each in a separate low-priority process with one thread.

A job is a function of model/ whose first argument is `report`. It calls report(what) with plain data at intervals; a
paused job blocks in this call. A job ends when it is stopped, at its time limit, or when `poll` has not been called
for a while. Jobs that cannot run yet wait in a queue, first come first served.
"""

import pickle
import subprocess
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from heapq import heapify, heapreplace
from threading import Lock, RLock, Thread
from time import monotonic, sleep
from typing import Any, Literal

from i18n import N_, Message, msg, msg_count
from serving import machine
from serving.settings import Settings

WORKER = f"{__package__}.background_worker"
MAX_SECONDS = 300.0  # default time limit of a job, pauses included
MAX_WAITING = 50  # jobs in the queue
USUAL_SECONDS = 30.0  # assumed duration of a job until the first has finished
UNWATCHED_SECONDS = 10.0  # without a call of `poll`: many times the interval at which a page polls
POLL_SECONDS = 0.2  # seconds between two polls
RESUME, PAUSE = b"go on", b"pause"
STOPPED = msg("Stopped.")
ENDED = msg("It stopped before it was finished. Start it again.")
TOO_LONG = N_("Stopped after {minutes:.0f} minutes, the time limit.")
UNSEEN = msg("Stopped because no one was watching.")

State = Literal["waiting", "starting", "running", "paused", "done", "stopped", "failed"]
QUEUE_FULL = N_("The queue is full: {count} trainings and checks are waiting. Expected wait: {wait}.")
IN_QUEUE = N_("In the queue: position {position}, expected wait {wait}.")
AT_MOST = N_("at most {duration}")


class TooManyBackgroundJobs(ValueError):
    """The queue of long jobs is full."""


@dataclass(frozen=True)
class JobProgress:
    """The state of a job. reports: all so far. answer: its result. error: the exception that it raised. why: the reason
    in one sentence, if the job is queued, was stopped or failed."""

    state: State = "starting"
    reports: tuple[Any, ...] = ()
    answer: Any = None
    error: Exception | None = None
    why: str = ""

    @property
    def over(self) -> bool:
        return self.state in ("done", "stopped", "failed")


class Background:
    """A long job, which computes function(report, *arguments, **options) in a separate process.

    unwatched_seconds: the job ends after this time without a call of `poll`. max_seconds: its time limit.
    Raises TooManyBackgroundJobs when the queue is full.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        unwatched_seconds: float = UNWATCHED_SECONDS,
        max_seconds: float = MAX_SECONDS,
        **options: Any,
    ) -> None:
        self._progress, self._lock = JobProgress(), RLock()
        self._unwatched_seconds, self._max_seconds = unwatched_seconds, max_seconds
        self._began = self._seen = monotonic()
        self._job = pickle.dumps((function, arguments, options), pickle.HIGHEST_PROTOCOL)
        self._process: subprocess.Popen | None = None
        with _queue_lock:
            if len(_waiting) >= MAX_WAITING:
                raise TooManyBackgroundJobs(msg(QUEUE_FULL, count=len(_waiting), wait=_expected_wait(1)))
            _waiting.append(self)
        self._start_in_turn()
        Thread(target=self._listen, daemon=True).start()

    def poll(self) -> JobProgress:
        """Return the job's state, and restart the `unwatched_seconds` after which it ends."""
        with self._lock:
            self._seen = monotonic()
            now = self._progress
        if now.state != "waiting":
            return now
        with _queue_lock:
            position = _waiting.index(self) + 1 if self in _waiting else 1
            wait = _expected_wait(position)
        return replace(now, why=msg(IN_QUEUE, position=position, wait=wait))

    def finish(self, look: Callable[[JobProgress], object]) -> Any:
        """Wait for the answer. look: called repeatedly with the job's state; if it raises, the job ends. Raises what
        the job raised, and ValueError if the job was stopped or its process ended."""
        try:
            while not (now := self.poll()).over:
                look(now)
                sleep(POLL_SECONDS / 2)
        finally:
            self.stop()
        if now.error is not None:
            raise now.error
        if now.state != "done":
            raise ValueError(now.why)
        return now.answer

    def pause(self) -> None:
        self._send_order(PAUSE)
        self._change(state="paused")

    def resume(self) -> None:
        self._send_order(RESUME)
        self._change(state="running")

    def stop(self, why: str = "") -> None:
        """End the job immediately; its reports are kept."""
        self._change(state="stopped", why=why or STOPPED)
        with _queue_lock:
            if self in _waiting:
                _waiting.remove(self)
        if self._process is None:
            return
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(2)  # so that the next job in the queue can start

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _start_in_turn(self) -> None:
        """Start the job's process if it is first in the queue and another job may run."""
        with _queue_lock:
            for other in [other for other in _running if not other.is_alive()]:
                _running.remove(other)
            if self not in _waiting:
                return  # stopped meanwhile
            if _waiting[0] is not self or len(_running) >= max_running():
                self._change(state="waiting")
                return
            _waiting.remove(self)
            self._began = monotonic()
            self._change(state="starting")
            try:
                self._process, self._connection = machine.start_python(WORKER, stderr=subprocess.DEVNULL)
            except OSError:  # the system cannot start another process now
                self._change(state="failed", why=ENDED)
                return
            _running.append(self)
        with suppress(OSError):  # the process has ended; _listen sets the state
            self._connection.send_bytes(self._job)

    def _send_order(self, order: bytes) -> None:
        with self._lock, suppress(OSError):  # the process has ended; _listen sets the state
            self._connection.send_bytes(order)

    def _listen(self) -> None:
        while self._process is None:
            if self._progress.over:
                return
            sleep(POLL_SECONDS)
            self._stop_if_due()
            self._start_in_turn()
        try:
            while True:
                if self._connection.poll(POLL_SECONDS):
                    self._handle_message(*pickle.loads(self._connection.recv_bytes()))  # noqa: S301 - of our own process
                self._stop_if_due()
        except Exception:  # noqa: BLE001 - the process ended, or its message is damaged
            self._process.kill()
            self._process.wait()
            if self._progress.state == "done":
                with _queue_lock:
                    _durations.append(monotonic() - self._began)
            self._change(state="failed", why=ENDED)
            self._connection.close()

    def _handle_message(self, kind: str, what: Any) -> None:
        if kind == "report":
            with self._lock:
                if self._progress.state == "starting":
                    self._change(state="running")
                self._change(reports=(*self._progress.reports, what))
        elif kind == "answer":
            self._change(state="done", answer=what)
        else:
            self._change(state="failed", error=what, why=str(what) or ENDED)

    def _stop_if_due(self) -> None:
        now = monotonic()
        if self._process is not None and now - self._began > self._max_seconds:
            self.stop(msg(TOO_LONG, minutes=self._max_seconds / 60))
        elif now - self._seen > self._unwatched_seconds:
            self.stop(UNSEEN)

    def _ends_in(self, usual: float, now: float) -> tuple[float, bool]:
        """Return the expected seconds until the job ends, and whether they are the time left until its limit."""
        took = now - self._began
        if self._progress.state == "paused" or took > usual:
            return max(self._max_seconds - took, POLL_SECONDS), True
        return usual - took, False

    def _change(self, **fields: Any) -> None:
        """Update fields of the state; once the job is over, only `reports`."""
        with self._lock:
            if self._progress.over:
                fields = {name: value for name, value in fields.items() if name == "reports"}
            self._progress = replace(self._progress, **fields)


_running: list[Background] = []
_waiting: list[Background] = []  # the next one first
_durations: deque[float] = deque(maxlen=16)  # durations of the last completed jobs, in seconds
_queue_lock = Lock()  # guards these three


def max_running() -> int:
    return Settings.from_environment().background_jobs


def _expected_wait(position: int) -> Message:
    """Return the expected wait until the job at this position of the queue, from 1, starts: each job is assumed to take
    the mean of the last ones, and one that is paused or has already taken longer, all the time up to its limit."""
    usual, now = sum(_durations) / len(_durations) if _durations else USUAL_SECONDS, monotonic()
    ends = [job._ends_in(usual, now) for job in _running]
    ends += [(POLL_SECONDS, False)] * max(max_running() - len(ends), not ends)
    heapify(ends)
    for _ in range(position - 1):
        seconds, at_most = ends[0]
        heapreplace(ends, (seconds + usual, at_most))
    seconds, at_most = ends[0]
    return msg(AT_MOST, duration=_duration(seconds)) if at_most else _duration(seconds)


def _duration(seconds: float) -> Message:
    if seconds >= 90:
        return msg_count("{count} minute", "{count} minutes", round(seconds / 60))
    return msg_count("{count} second", "{count} seconds", max(round(seconds), 1))
