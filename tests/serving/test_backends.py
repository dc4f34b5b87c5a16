"""Tests that jobs give the same results in this process, in workers and on Ray, and of lost and stuck workers."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch

from model.base import Model
from model.heads.survey import survey
from model.heads.view import head_view
from model.masks import MaskSpec
from model.sampling import predictions
from model.trace import Trace
from serving import backends
from serving.job import GeneratedRunRef, Job, ModelRef, RunRef
from serving.result_cache import Engine
from serving.scheduler import FinishedJob, Scheduler, TooSlow, WorkerLost
from serving.settings import Settings
from serving.worker_process import WorkerProcess
from tests.serving import jobs

pytestmark = pytest.mark.slow  # starts Ray and workers

SECONDS = 60.0
HOMES = ("process", "workers", "ray")
LINES = ["the cat sat on the mat", "the cat"]


@pytest.fixture(scope="module", params=HOMES)
def home(request: pytest.FixtureRequest) -> Iterator[Scheduler]:
    """Yield a scheduler of each kind, with two workers where there are any."""
    if request.param == "workers":
        yield request.getfixturevalue("their_home")
        return
    settings = {"process": {}, "ray": {"workers": 2, "ray": "local"}}[request.param]
    if request.param == "ray" and find_spec("ray") is None:  # imported too early, Ray would listen at every address
        pytest.skip("needs ray: pip install -r requirements-ray.txt")
    found = backends.start(Settings(**settings, job_seconds=SECONDS), Engine(2, 10**7))
    yield found
    found.close()


@pytest.fixture(scope="module")
def their_home() -> Iterator[Scheduler]:
    """Yield a scheduler with two worker processes. Each imports torch when it starts, so all tests here share them."""
    found = backends.start(Settings(workers=2, job_seconds=SECONDS), Engine(2, 10**7))
    yield found
    found.close()


@pytest.fixture(scope="module")
def workers(their_home: Scheduler) -> Iterator[list[WorkerProcess]]:
    """Yield the two workers, with a shorter time limit for missing beats."""
    found = [worker for worker in their_home._workers if isinstance(worker, WorkerProcess)]
    assert len(found) == 2
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("serving.worker_process.SILENCE", 10.0)
        yield found


def test_nothing_that_it_starts_listens_at_other_addresses_than_this_machine_s(home: Scheduler) -> None:
    home.ask(Job(jobs.process))
    ours = [psutil.Process(), *psutil.Process().children(recursive=True)]
    listening = [one.laddr.ip for process in ours for one in process.net_connections("tcp") if one.status == "LISTEN"]
    assert {ip.removeprefix("::ffff:") for ip in listening} <= {"127.0.0.1", "::1"}


def run_of(model: Model, spec: MaskSpec | None = None) -> RunRef:
    return RunRef(ModelRef.of(model), model.encode(LINES, "left"), spec or model.standard)


def same(one: object, other: object) -> bool:
    """Whether two results are equal bit for bit."""
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.dtype == other.dtype and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if hasattr(one, "__dataclass_fields__"):
        return all(same(getattr(one, field.name), getattr(other, field.name)) for field in fields(one))
    return one == other


class TestEveryHome:
    @pytest.mark.parametrize("spec", [MaskSpec(), MaskSpec(causal=False), MaskSpec(padding=False, prefix=3)])
    @pytest.mark.parametrize(
        ("function", "arguments"), [(survey, ()), (head_view, (1, 2)), (predictions, (None, 7)), (predictions, (3, 2))]
    )
    def test_the_same_numbers_to_the_bit_as_without_a_home(
        self, home: Scheduler, tiny: Model, spec: MaskSpec, function: Callable, arguments: tuple
    ) -> None:
        trace = tiny.run(tiny.encode(LINES, "left"), spec)
        for row in (0, 1):
            given = (row, *arguments) if function is predictions else (row, spec, *arguments)
            assert same(home.ask(Job(function, (run_of(tiny, spec), *given))), function(trace, *given))

    def test_a_model_is_loaded_there_and_a_text_is_too(self, home: Scheduler, tiny: Model) -> None:
        assert home.ask(Job(jobs.name, (ModelRef.of(tiny),))) == tiny.name
        array = np.arange(5.0)
        assert same(home.ask(Job(jobs.double, (array.tobytes(),))), 2 * array)

    def test_an_error_is_the_asker_s_with_its_words(self, home: Scheduler) -> None:
        with pytest.raises(ValueError, match=r"^expected something else, got a cat$"):
            home.ask(Job(jobs.refuse, ("a cat",)))
        with pytest.raises(KeyError, match="a cat"):
            home.ask(Job(jobs.fail, ("a cat",)))
        assert home.ask(Job(jobs.wait, (0.0,))) == "done", "the next one is answered"

    def test_a_model_whose_files_have_changed_is_refused(self, home: Scheduler, tiny: Model) -> None:
        with pytest.raises(ValueError, match="have changed since this page was loaded"):
            home.ask(Job(jobs.name, (ModelRef(tiny.name, "other files"),)))

    def test_a_text_that_grows_is_a_step_on_from_the_one_before(self, home: Scheduler, tiny: Model) -> None:
        ids = tuple(tiny.encode(["the cat sat"]).ids[0].tolist())
        before = None
        for more in range(3):
            text = ids + (5, 7, 11)[:more]
            batch = tiny.encode(["the"])
            batch = type(batch)(torch.tensor([text]), torch.ones(1, len(text), dtype=torch.bool), (("x",) * len(text),))
            run = GeneratedRunRef(ModelRef.of(tiny), batch, tiny.standard, prompt=len(ids), before=before)
            grown = home.ask(Job(predictions, (run, 0, None, 5)))
            whole = home.ask(Job(predictions, (RunRef(run.model, batch, tiny.standard), 0, None, 5)))
            assert np.allclose(grown.probabilities, whole.probabilities, atol=1e-6)
            before = run.trace_key

    def test_what_is_told_of_jobs_holds_nothing_of_a_reader(self, home: Scheduler) -> None:
        finished: list[FinishedJob] = []
        home.observers.append(finished.append)
        with pytest.raises(ValueError, match="secret"):
            home.ask(Job(jobs.refuse, ("secret text",)), reader="reader one")
        end = monotonic() + 10
        while not finished and monotonic() < end:
            sleep(0.01)
        home.observers.remove(finished.append)
        assert [one.outcome for one in finished] == ["refused"]
        assert finished[0].job == "tests.serving.jobs.refuse"
        assert "secret" not in repr(finished)
        assert "reader one" not in repr(finished)


@pytest.mark.parametrize("home", ["ray"], indirect=True)
class TestRay:
    def test_another_server_with_the_same_settings_keeps_the_replicas_and_their_jobs(
        self, home: Scheduler, tmp_path: Path
    ) -> None:
        before = replicas()
        answers: list[str] = []
        asker = Thread(target=lambda: answers.append(home.ask(Job(jobs.hold, (str(tmp_path / "begun"),)))))
        asker.start()
        begun(tmp_path / "begun")
        other = backends.start(Settings(workers=2, ray="local"), Engine(2, 10**7))
        assert other.ask(Job(jobs.process)) in before
        (tmp_path / "over").touch()
        asker.join(SECONDS)
        assert answers == ["done"]
        assert replicas() == before
        other.close()

    def test_another_server_with_other_settings_replaces_them(self, home: Scheduler) -> None:
        before = replicas()
        other = backends.start(Settings(workers=2, ray="local", models_in_memory=1), Engine(2, 10**7))
        for scheduler in (other, home):
            assert scheduler.ask(Job(jobs.process)) not in before
        other.close()

    @pytest.mark.parametrize("way", [jobs.die, jobs.stop])
    def test_a_replica_that_is_lost_or_stuck_is_a_retry(self, home: Scheduler, tmp_path: Path, way: Callable) -> None:
        assert home.ask(Job(way, (str(tmp_path), 1))) == 2

    def test_jobs_of_a_run_go_where_its_trace_is(self, home: Scheduler, tiny: Model) -> None:
        """The first jobs are not compared: Ray needs a moment to select one replica."""
        job = Job(jobs.process_of, (run_of(tiny, MaskSpec(prefix=5)),))
        home.ask(job)
        sleep(3)
        assert len({home.ask(job) for _ in range(10)}) == 1


class TestWorkers:
    def test_jobs_go_where_the_trace_is(self, their_home: Scheduler, workers: list[WorkerProcess], tiny: Model) -> None:
        specs = [MaskSpec(prefix=number) for number in range(4)]
        firsts = [their_home.ask(Job(jobs.process_of, (run_of(tiny, spec),))) for spec in specs]
        for _ in range(3):
            assert [their_home.ask(Job(jobs.process_of, (run_of(tiny, spec),))) for spec in specs] == firsts
        assert set(firsts) <= {worker._process.pid for worker in workers}

    @pytest.mark.parametrize("way", [jobs.die, jobs.stop])
    def test_a_worker_that_is_lost_or_stuck_is_replaced_and_its_job_tried_once_more(
        self, their_home: Scheduler, workers: list[WorkerProcess], tmp_path: Path, way: Callable
    ) -> None:
        pids = {worker._process.pid for worker in workers}
        assert their_home.ask(Job(way, (str(tmp_path), 1))) == 2
        assert len({worker._process.pid for worker in workers} - pids) == 1

    def test_a_job_that_ends_two_workers_is_not_tried_again(self, their_home: Scheduler, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="ended twice"):
            their_home.ask(Job(jobs.die, (str(tmp_path), 5)))
        assert len(list(tmp_path.iterdir())) == 2
        assert their_home.ask(Job(jobs.wait, (0.0,))) == "done"

    def test_workers_that_ended_while_they_had_nothing_to_do_are_replaced(
        self, their_home: Scheduler, workers: list[WorkerProcess]
    ) -> None:
        for worker in workers:
            os.kill(worker._process.pid, signal.SIGKILL)
            worker._process.wait(SECONDS)
        assert [their_home.ask(Job(jobs.wait, (0.0,))) for _ in workers] == ["done"] * len(workers)

    def test_kill_9_is_not_noticed(self, their_home: Scheduler, workers: list[WorkerProcess], tmp_path: Path) -> None:
        answers: list[str] = []
        job = Job(jobs.wait, (1.0, str(tmp_path / "begun")))
        asker = Thread(target=lambda: answers.append(their_home.ask(job)))
        asker.start()
        begun(tmp_path / "begun")
        os.kill(workers[their_home._states.index("busy")]._process.pid, signal.SIGKILL)
        asker.join(SECONDS)
        assert answers == ["done"]

    def test_a_job_stops_at_its_limit(
        self, their_home: Scheduler, workers: list[WorkerProcess], tmp_path: Path
    ) -> None:
        worker = workers[0]
        at_rest(their_home)
        with pytest.raises(TooSlow, match=r"limit of 2 seconds.*Try a shorter text"):
            worker.do(Job(jobs.wait, (50.0, str(tmp_path / "begun"))), 2.0)
        assert (tmp_path / "begun").exists()
        worker.wait_until_ready()
        assert worker.do(Job(jobs.wait, (0.0,)), SECONDS) == "done"

    def test_a_worker_that_cannot_be_started_is_tried_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def no_room() -> None:
            raise BlockingIOError("Resource temporarily unavailable")

        worker = WorkerProcess(2, 10**7)
        monkeypatch.setattr(worker, "_started", no_room)
        os.kill(worker._process.pid, signal.SIGKILL)
        for _ in range(2):
            with pytest.raises(WorkerLost):
                worker.wait_until_ready()
        monkeypatch.undo()
        with pytest.raises(WorkerLost):
            worker.wait_until_ready()
        worker.wait_until_ready()
        worker.close()

    def test_a_worker_ends_with_its_server(self, their_home: Scheduler, workers: list[WorkerProcess]) -> None:
        at_rest(their_home)
        workers[0].wait_until_ready()
        process = workers[0]._process
        workers[0]._connection.close()  # as when the server is killed
        assert process.wait(SECONDS) == 0


def at_rest(home: Scheduler) -> None:
    """Wait until both workers are ready and the scheduler's threads wait for jobs. If two threads wait for a worker to
    be ready, only one of them receives its message.
    """
    end = monotonic() + 2 * SECONDS
    while home.workers("idle") < 2:
        assert monotonic() < end
        sleep(0.05)


def replicas() -> set[int]:
    """Return the process ids of this process's Ray Serve replicas."""
    ours = psutil.Process().children(recursive=True)
    return {process.pid for process in ours if "".join(process.cmdline()).startswith("ray::ServeReplica")}


def begun(mark: Path) -> None:
    end = monotonic() + SECONDS
    while not mark.exists():
        assert monotonic() < end
        sleep(0.01)


def test_traces_are_kept_where_the_model_is(tiny: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(1, 10**7)
    ran: list[int] = []
    run = type(tiny).run
    monkeypatch.setattr(type(tiny), "run", lambda *given: (ran.append(1), run(*given))[1])
    for head in range(3):
        engine.do(Job(head_view, (run_of(tiny), 0, tiny.standard, 1, head)))
    assert ran == [1]
    assert isinstance(engine.traces.find(run_of(tiny).trace_key), Trace)


def test_of_a_cluster_that_cannot_be_reached_ray_s_own_words_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def workers(*_: object) -> None:
        raise ConnectionError("Could not find any running Ray instance.")

    monkeypatch.setitem(sys.modules, "serving.ray_cluster", SimpleNamespace(workers=workers))
    monkeypatch.delattr("serving.ray_cluster", raising=False)
    with pytest.raises(ValueError, match=r"^UNMASK_RAY: Could not find any running Ray instance\.$"):
        backends.start(Settings(ray="auto"), Engine(1, 1))
