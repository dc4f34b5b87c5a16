"""Tests of the queue's order: users take turns, a trace's jobs stay with one worker, a queue is full, a user leaves."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, count, repeat
from multiprocessing import Pipe
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep
from unittest.mock import Mock

import pytest
import torch

from model.heads.view import head_view
from model.masks import MaskSpec
from model.text import TokenBatch
from serving import machine
from serving.job import Job, ModelRef, QueueFull, RunRef
from serving.result_cache import Engine
from serving.scheduler import FairQueue, InThisProcess, Scheduler, Ticket, TooSlow, Worker
from serving.worker_process import READY, WorkerProcess
from tests.serving import jobs as questions

JOB = Job(questions.process)


def new_queue(workers: int = 1, max_waiting: int = 100, max_waiting_per_user: int = 10) -> FairQueue:
    return FairQueue(workers, max_waiting=max_waiting, max_waiting_per_user=max_waiting_per_user)


def enter(queue: FairQueue, readers: Sequence[str], affinity_key: str = "") -> None:
    for reader in readers:
        queue.enter(JOB, reader, [affinity_key] if affinity_key else ())


def order(queue: FairQueue, count: int, worker: int = 0) -> str:
    """Return the users whose jobs a worker gets, in order."""
    found = [queue.next(worker) for _ in range(count)]
    return "".join(ticket.reader for ticket in found if ticket)


class TestTurns:
    @pytest.mark.parametrize(
        ("entered", "done"),
        [("AAABC", "ABCAA"), ("ABABAB", "ABABAB"), ("AABBB", "ABABB"), ("CBA", "CBA"), ("AAAA", "AAAA")],
    )
    def test_one_job_of_each_reader_then_the_next_of_each(self, entered: str, done: str) -> None:
        queue = new_queue()
        enter(queue, entered)
        assert order(queue, len(entered)) == done
        assert queue.waiting() == 0

    def test_who_comes_while_another_s_many_wait_is_next_but_one(self) -> None:
        queue = new_queue()
        enter(queue, "AAAA")
        assert order(queue, 1) == "A"
        enter(queue, "B")
        assert order(queue, 4) == "ABAA"

    def test_a_run_stays_with_the_hand_that_has_its_trace(self) -> None:
        queue = new_queue(workers=2)
        enter(queue, "A", affinity_key="one")
        assert order(queue, 1, worker=1) == "A"
        enter(queue, "A", affinity_key="one")
        enter(queue, "B", affinity_key="two")
        assert order(queue, 1, worker=0) == "B", "A's waits for worker 1, and B does not wait for A"
        assert order(queue, 1, worker=1) == "A"
        queue.lost(1)
        enter(queue, "A", affinity_key="one")
        assert order(queue, 1, worker=0) == "A", "the trace went with its worker"

    def test_who_leaves_gives_up_the_place(self) -> None:
        queue = new_queue()
        first = queue.enter(JOB, "A")
        enter(queue, "BC")
        queue.leave(first)
        assert queue.waiting() == 2
        assert order(queue, 2) == "BC"
        assert first.answer.cancelled()

    def test_a_job_whose_hand_was_lost_is_next(self) -> None:
        queue = new_queue()
        enter(queue, "AB")
        ticket = queue.next(0)
        enter(queue, "CA")
        queue.again(ticket)
        assert order(queue, 4) == "ABCA"

    @pytest.mark.parametrize("leaves_first", [True, False])
    def test_a_job_whose_hand_was_lost_is_not_done_again_for_nobody(self, leaves_first: bool) -> None:
        queue = new_queue()
        enter(queue, "A")
        ticket = queue.next(0)
        assert ticket
        for step in (queue.leave, queue.again) if leaves_first else (queue.again, queue.leave):
            step(ticket)
        assert queue.waiting() == 0
        enter(queue, "B")
        assert order(queue, 1) == "B"

    def test_a_full_queue_says_so_with_the_wait(self) -> None:
        queue = new_queue(workers=2, max_waiting=3)
        for _ in range(200):
            queue.done(Ticket(JOB, "Z"), 4.0)  # seconds per job
        enter(queue, "ABC")
        with pytest.raises(QueueFull, match=r"^The queue is full \(waiting: 3\).* in about 8 s$"):
            queue.enter(JOB, "D")  # 4 s × 4 jobs ÷ 2 workers
        assert order(queue, 1) == "A"
        enter(queue, "D")

    def test_one_reader_cannot_fill_it(self) -> None:
        queue = new_queue(max_waiting_per_user=2)
        enter(queue, "AA")
        with pytest.raises(QueueFull, match=r"^Too many requests: 2 of yours are still waiting\. Try again when"):
            queue.enter(JOB, "A")
        enter(queue, "B")

    def test_what_is_behind_is_done_when_nothing_else_waits(self) -> None:
        queue = new_queue()
        queue.enter(JOB, "X", low_priority=True)
        enter(queue, "AB")
        assert order(queue, 3) == "ABX"

    def test_what_is_behind_leaves_a_hand_free(self) -> None:
        queue = new_queue(workers=2)
        for reader in "XY":
            queue.enter(JOB, reader, low_priority=True)
        first = queue.next(0)
        assert first.reader == "X"
        got: list[str] = []
        other = Thread(target=lambda: got.append(order(queue, 2, worker=1)))
        other.start()
        enter(queue, "A")
        until(lambda: queue.waiting() == 1)
        assert not got, "Y waits although a worker is free"
        queue.done(first, 1.0)
        other.join(10)
        assert got == ["AY"]

    def test_nobody_waits_for_a_queue_that_is_closed(self) -> None:
        queue = new_queue()
        ticket = queue.enter(JOB, "A")
        queue.close()
        with pytest.raises(QueueFull, match="stopped"):
            enter(queue, "B")
        assert queue.next(0) is None
        with pytest.raises(QueueFull, match="being stopped"):
            ticket.answer.result(0)


class TestHome:
    """Tests of a scheduler with one worker in this process."""

    @pytest.fixture
    def home(self) -> Iterator[Scheduler]:
        found = Scheduler([InThisProcess(Engine(1, 1000))], new_queue(), seconds=0.5, affinity=False)
        yield found
        found.close()

    def test_readers_take_turns(self, home: Scheduler, tmp_path: Path) -> None:
        file, queue = str(tmp_path / "order"), "AAABC"
        holding = self.held(home, tmp_path)
        askers = []
        for number, reader in enumerate(queue):
            askers.append(Thread(target=home.ask, args=(Job(questions.append, (file, reader)), reader)))
            askers[-1].start()
            until(lambda number=number: home.waiting() == number + 1)
        for asker in [holding, *askers]:
            asker.join(10)
        assert Path(file).read_text().split() == list("ABCAA")

    def test_who_wants_something_else_gives_up_the_place(self, home: Scheduler, tmp_path: Path) -> None:
        class ElsewhereNow(BaseException):
            """Stand-in for the exception by which Streamlit ends a script when the user has clicked something else."""

        looked = []

        def raise_if_cancelled() -> None:
            looked.append(1)
            if len(looked) > 2:
                raise ElsewhereNow

        holding = self.held(home, tmp_path)
        with pytest.raises(ElsewhereNow):
            home.ask(Job(questions.append, (str(tmp_path / "order"), "A")), "A", raise_if_cancelled)
        assert home.waiting() == 0
        holding.join(10)
        assert home.ask(Job(questions.append, (str(tmp_path / "order"), "B")), "B") == "B"
        assert (tmp_path / "order").read_text() == "B\n"

    def test_who_waits_too_long_for_what_nothing_can_stop_is_told(self, home: Scheduler) -> None:
        with pytest.raises(TooSlow, match=r"limit of 0\.5 seconds"):
            home.ask(Job(questions.wait, (5.0,)), "A")

    def held(self, home: Scheduler, folder: Path) -> Thread:
        """Keep the worker busy for 0.8 s."""
        thread = Thread(target=home.ask, args=(Job(questions.wait, (0.8, str(folder / "begun"))), "holder"))
        thread.start()
        until((folder / "begun").exists)
        return thread


class JobOfRun(Job):
    affinity_key = ("a run",)  # type: ignore[assignment]


class Second(Worker):
    """A worker that becomes ready when its event `ready` is set."""

    def __init__(self) -> None:
        self.ready = Event()

    def wait_until_ready(self) -> None:
        self.ready.wait()

    def do(self, job: Job, seconds: float) -> str:
        return "done by the second"


def test_a_run_whose_worker_was_replaced_goes_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker's job exceeded the time limit, and no other process can be started."""
    ours, theirs = Pipe()
    theirs.send_bytes(READY)
    process = Mock(poll=lambda: None)
    monkeypatch.setattr(machine, "start_python", Mock(side_effect=chain([(process, ours)], repeat(OSError()))))
    second = Second()
    home = Scheduler([WorkerProcess(1, 1), second], new_queue(2), seconds=0.1, affinity=True)
    job, looks = JobOfRun(questions.process), count()

    def raise_if_cancelled() -> None:
        if process.kill.called:
            second.ready.set()
        if next(looks) > 40:
            raise TimeoutError

    try:
        with pytest.raises(TooSlow):
            home.ask(job, "A", raise_if_cancelled)
        assert home.ask(job, "A", raise_if_cancelled) == "done by the second"
    finally:
        second.ready.set()
        home.close()


def until(so: Callable[[], bool]) -> None:
    end = monotonic() + 10
    while not so():
        assert monotonic() < end
        sleep(0.005)


@pytest.mark.parametrize(
    "function", [lambda: 1, (lambda: lambda: 1)(), pytest.param(TestHome().held, id="bound method")]
)
def test_a_job_is_a_function_by_its_name(function) -> None:
    with pytest.raises(ValueError, match="expected a function that its module has under its name"):
        Job(function)


def test_texts_of_the_same_tokens_are_runs_of_their_own() -> None:
    """A documents mask, which may be shown on a run without it, reads the text; BERT's tokens omit line ends."""
    ids, keep = torch.tensor([[2, 3]]), torch.ones(1, 2, dtype=torch.bool)
    one, other = (
        TokenBatch(ids, keep, (("a", "b"),), "right", texts=(text,), ends=((1, 3),)) for text in ("a b", "a.b")
    )
    separate = MaskSpec(documents=".")
    jobs = [
        Job(head_view, (RunRef(ModelRef("m", "k"), batch, MaskSpec()), 0, separate, 0, 0)) for batch in (one, other)
    ]
    assert not torch.equal(one.split("."), other.split("."))
    assert jobs[0].key != jobs[1].key
    assert jobs[0].arguments[0].trace_key != jobs[1].arguments[0].trace_key


def test_the_key_is_the_same_for_the_same_question_alone() -> None:
    keys = [
        Job(questions.wait, (1.0,)).key,
        Job(questions.wait, (1.5,)).key,
        Job(questions.wait, (1.0, "x")).key,
        Job(questions.wait, (1.0,), {"marked": "x"}).key,
        Job(questions.refuse, ("x",)).key,
        Job(questions.fail, ("x",)).key,
    ]
    assert len(set(keys)) == len(keys)
    assert Job(questions.wait, (1.0, "x")).key == keys[2]
    with pytest.raises(TypeError):
        Job(questions.wait, ([1.0],)).key  # noqa: B018
