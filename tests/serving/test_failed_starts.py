"""Tests of workers that cannot be started: jobs are refused in time, the log and /ready say so, and starts go on."""

import logging
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from multiprocessing import Pipe
from threading import Event, Thread
from time import monotonic, sleep
from unittest.mock import Mock

import pytest

from serving import backends, health, machine, scheduler
from serving.job import Job, QueueFull
from serving.result_cache import Engine
from serving.scheduler import FairQueue, InThisProcess, NotStarted, Scheduler, Worker
from serving.settings import Settings
from serving.worker_process import READY, WorkerProcess
from tests.serving import jobs

JOB = Job(jobs.wait, (0.0,))
WAIT = 60.0  # seconds


class Startable(InThisProcess):
    """A worker whose starts are what a test's function does; it may raise NotStarted."""

    def __init__(self, start: Callable[[], object]) -> None:
        super().__init__(Engine(2, 10**7))
        self._start = start

    def wait_until_ready(self) -> None:
        self._start()


def fail() -> None:
    raise NotStarted


def home_of(workers: list[Worker], seconds: float = WAIT) -> Scheduler:
    queue = FairQueue(len(workers), max_waiting=9, max_waiting_per_user=9)
    return Scheduler(workers, queue, seconds=seconds, affinity=False)


def give_up() -> Callable[[], None]:
    """Return a function that fails the test after a while, for jobs that would wait without end."""
    end = monotonic() + WAIT / 2
    return lambda: pytest.fail("still waiting") if monotonic() > end else None


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for pause in ("PAUSE", "LONGEST_PAUSE"):
        monkeypatch.setattr(scheduler, pause, 0.01)


@pytest.fixture
def workable() -> Iterator[Event]:
    """Yield the event that lets starts succeed, set at the end so that all threads end."""
    found = Event()
    yield found
    found.set()


def test_jobs_are_refused_until_a_start_succeeds(workable: Event, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[logging.LogRecord] = []
    monkeypatch.setattr(logging.getLogger(scheduler.__name__), "handle", logged.append)
    engine = Engine(2, 10**7)
    engine.models.load("story")
    home = home_of([Startable(lambda: workable.is_set() or fail()) for _ in range(2)])
    with pytest.raises(QueueFull, match=r"^No worker process can be started.* Try again in a minute$"):
        home.ask(JOB, "A", give_up())
    assert home.waiting() == 0
    assert "No worker process" in health.readiness_problem(engine, home, Settings(models=("story",)), 5.0)
    workable.set()
    end = monotonic() + WAIT
    while not home.workers("idle"):
        assert monotonic() < end
    assert home.ask(JOB, "A", give_up()) == "done"
    home.close()
    assert [one.levelno for one in logged] == [logging.ERROR] * 2, "one line for each worker, not for each attempt"
    assert all("NotStarted" in logging.Formatter().format(one) for one in logged), "also once another test has redacted"


def test_a_job_waits_no_longer_than_its_limit_for_starts_that_hang(workable: Event) -> None:
    starts: list[int] = []

    def start() -> None:
        starts.append(1)
        if len(starts) == 1:
            raise NotStarted
        workable.wait(WAIT)

    home = home_of([Startable(start)], seconds=0.3)
    began = monotonic()
    with pytest.raises(QueueFull, match="No worker process"):
        home.ask(JOB, "A", give_up())
    assert 0.3 <= monotonic() - began < 10
    assert len(starts) == 2
    workable.set()
    home.close()


def test_a_slow_first_start_is_waited_for(workable: Event) -> None:
    home, answers = home_of([Startable(lambda: workable.wait(WAIT))], seconds=0.1), []
    asker = Thread(target=lambda: answers.append(home.ask(JOB, "A", give_up())))
    asker.start()
    asker.join(0.6)
    assert asker.is_alive()
    workable.set()
    asker.join(WAIT)
    assert answers == ["done"]
    home.close()


def test_a_job_waits_for_a_busy_worker_while_another_cannot_be_started() -> None:
    home = home_of([Startable(fail), InThisProcess(Engine(1, 10**6))], seconds=0.5)
    busy = [Thread(target=home.ask, args=(Job(jobs.wait, (0.4,)), "A", give_up())) for _ in range(3)]
    for one in busy:
        one.start()
    assert home.ask(JOB, "A", give_up()) == "done"
    for one in busy:
        one.join(WAIT)
    home.close()


def test_a_job_is_not_blamed_for_workers_that_ended_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two idle processes have ended, as when the system ends all of them, and none can be started in their place."""
    connections = []
    for _ in range(2):
        ours, theirs = Pipe()
        theirs.send_bytes(READY)
        connections.append(ours)
    ended = [(Mock(poll=lambda: -9), ours) for ours in connections]
    monkeypatch.setattr(machine, "start_python", Mock(side_effect=chain(ended, repeat(OSError()))))
    home = home_of([WorkerProcess(1, 1) for _ in range(2)])
    with pytest.raises(QueueFull, match="No worker process"):
        home.ask(JOB, "A", give_up())
    home.close()


def test_one_thread_at_a_time_ends_a_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closings: list[int] = []  # 1 begins one, -1 ends it

    def close() -> None:
        closings.append(1)
        sleep(0.2)
        closings.append(-1)

    monkeypatch.setattr(machine, "start_python", Mock(return_value=(Mock(), Mock(close=close))))
    worker = WorkerProcess(1, 1)
    closing = [Thread(target=worker.close) for _ in range(2)]
    for one in closing:
        one.start()
    for one in closing:
        one.join(WAIT)
    assert closings == [1, -1, 1, -1]


@pytest.mark.slow  # starts processes
def test_a_process_with_too_little_memory_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "MAX_INSPECTED", 60_000_000)  # bytes; imports need more
    home = backends.inspector(Settings())
    with pytest.raises(QueueFull, match="No worker process"):
        home.ask(JOB, "A", give_up())
    home.close()
