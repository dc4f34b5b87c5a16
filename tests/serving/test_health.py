"""Tests of the metrics of jobs and of whether a server is ready, and that the dashboard queries metrics that exist."""

import asyncio
import json
import re
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client import generate_latest

from model import catalog
from serving import backends, health
from serving.health import SchedulerMetrics
from serving.job import Job
from serving.result_cache import Engine, ResultCache
from serving.scheduler import Scheduler
from serving.settings import Settings
from tests.browser.running import free_port
from tests.serving import jobs
from tests.serving.test_loaded_models import Making

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana.json"
MARKED = "a text of a reader's"


@pytest.fixture
def engine() -> Engine:
    return Engine(2, 10**7)


@pytest.fixture
def home(engine: Engine) -> Iterator[Scheduler]:
    found = backends.start(Settings(), engine)
    yield found
    found.close()


def exported(observed: SchedulerMetrics) -> str:
    return generate_latest(observed.registry).decode()


def test_what_is_over_is_counted_by_name_and_outcome_and_no_text_is_told(home: Scheduler) -> None:
    observed = SchedulerMetrics(home, {})
    for _ in range(3):
        home.ask(Job(jobs.append, ("/dev/null", MARKED)), MARKED)
    with pytest.raises(ValueError, match="expected something else"):
        home.ask(Job(jobs.refuse, (MARKED,)), MARKED)
    for _ in range(100):  # observers are called after the answer
        text = exported(observed)
        if 'outcome="refused"' in text:
            break
        jobs.wait(0.02)
    assert 'unmask_jobs_total{job="tests.serving.jobs.append",outcome="done"} 3.0' in text
    assert 'unmask_jobs_total{job="tests.serving.jobs.refuse",outcome="refused"} 1.0' in text
    for step in ("queue", "worker"):
        assert f'unmask_job_seconds_count{{job="tests.serving.jobs.append",step="{step}"}} 3.0' in text
    assert "reader's" not in text


def test_hands_and_processes_are_told_by_what_they_do(home: Scheduler) -> None:
    text = exported(SchedulerMetrics(home, {}))
    states = [float(number) for number in re.findall(r'unmask_workers{state="\w+"} (\S+)', text)]
    assert len(states) == 3
    assert sum(states) == len(home._workers)
    assert 'unmask_processes{kind="server"} 1.0' in text


def test_what_is_kept_is_told_with_how_often_it_was_there(home: Scheduler) -> None:
    cache = ResultCache(1009)
    for key in ("a", "b", "a", "a"):
        cache.get(key, lambda: b"12345")
    text = exported(SchedulerMetrics(home, {"answers": cache}))
    assert 'unmask_kept_asked_total{found="kept",what="answers"} 2.0' in text
    assert 'unmask_kept_asked_total{found="made",what="answers"} 2.0' in text
    assert 'unmask_kept_bytes{what="answers"} 210.0' in text
    assert 'unmask_kept_bytes_limit{what="answers"} 1009.0' in text


class TestReady:
    def test_a_server_that_runs_its_first_model_is(self, engine: Engine, home: Scheduler) -> None:
        assert health.readiness_problem(engine, home, Settings(models=("story",)), 30.0) == ""

    def test_one_without_its_model_is_not_and_says_why(self, engine: Engine, home: Scheduler) -> None:
        assert "no-such" in health.readiness_problem(engine, home, Settings(models=("no-such",)), 30.0)

    def test_one_whose_hands_are_all_busy_is_not(self, engine: Engine) -> None:
        home = Scheduler([], backends.queue_for(Settings(), 1), seconds=30.0, affinity=False)
        engine.models.load("story")
        assert health.readiness_problem(engine, home, Settings(), 0.3) == "no answer within 0.3 seconds"
        assert home.waiting() == 0

    def test_a_load_that_takes_longer_than_a_check_goes_on(
        self, engine: Engine, home: Scheduler, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        story, making = catalog.load("story"), Making()
        monkeypatch.setattr(catalog, "load", lambda *_, report, **__: making(report) and story)
        for _ in range(2):
            assert (
                health.readiness_problem(engine, home, Settings(models=("story",)), 0.3)
                == "no answer within 0.3 seconds"
            )
            assert not making.stopped.wait(0.2)
        making.may_end.set()
        assert health.readiness_problem(engine, home, Settings(models=("story",)), 30.0) == ""
        assert making.made == 1

    def test_one_whose_users_read_other_models_loads_none_for_it(
        self, engine: Engine, home: Scheduler, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        offered = Settings(models=("story", "dates", "induction"))
        others = [engine.models.load(name, offered) for name in offered.models[1:]]
        with monkeypatch.context() as patch:
            patch.setattr(catalog, "load", lambda *_, **__: pytest.fail("a model was loaded"))
            assert health.readiness_problem(engine, home, offered, 30.0) == ""
        assert [engine.models.find(name) for name in offered.models] == [None, *others]

    def test_one_that_loads_another_model_meanwhile_is(
        self, engine: Engine, home: Scheduler, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        engine.models.load("story")
        making = Making()
        monkeypatch.setattr(catalog, "load", lambda *_, report, **__: making(report))
        with ThreadPoolExecutor(1) as readers:
            readers.submit(engine.models.load, "dates", Settings())
            while not making.made:
                jobs.wait(0.01)
            try:
                assert health.readiness_problem(engine, home, Settings(), 5.0) == ""
            finally:
                making.may_end.set()


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("address", "host"),
    [("127.0.0.1", "127.0.0.1"), ("localhost", "127.0.0.1"),
     pytest.param("::1", "[::1]", marks=pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here"))],
)  # fmt: skip
class TestAddress:
    def test_it_is_where_metrics_are_served(self, engine: Engine, home: Scheduler, address: str, host: str) -> None:
        given = Settings(metrics_address=address)
        with (
            closing(asyncio.new_event_loop()) as loop,
            health.served(given, loop, home, engine, ResultCache(7)) as port,
            urlopen(f"http://{host}:{port}/metrics", timeout=20) as answer,
        ):
            assert b"unmask_workers" in answer.read()

    def test_a_port_in_use_is_named_with_it(
        self, address: str, host: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr("os._exit", sys.exit)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.create_server((address, 0), family=family) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(SystemExit, match="2"):
                health.expect_free_port(Settings(metrics_address=address, metrics_port=port))
        words = "cannot be used (Address already in use)"
        shown = host if ":" in address else address
        assert capsys.readouterr().err == f"UNMASK_METRICS_PORT: {shown}:{port} {words}\n"
        health.expect_free_port(Settings(metrics_address=address, metrics_port=port))


@pytest.mark.parametrize(
    ("address", "reason"),
    [("nosuch.invalid", "Name or service not known|Temporary failure in name resolution"),
     ("[::1]", "Name or service not known|Temporary failure in name resolution"),
     ("a..b", "not a host name"), ("192.0.2.1", "Cannot assign requested address")],
)  # fmt: skip
def test_an_address_that_cannot_be_used_is_named_with_the_reason(
    address: str, reason: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os._exit", sys.exit)
    with pytest.raises(SystemExit, match="2"):
        health.expect_free_port(Settings(metrics_address=address, metrics_port=free_port()))
    words = rf"UNMASK_METRICS_ADDRESS: {re.escape(address)} cannot be used \(({reason})\)\n"
    assert re.fullmatch(words, capsys.readouterr().err)


def test_every_query_of_the_dashboard_names_metrics_that_exist(home: Scheduler) -> None:
    observed = SchedulerMetrics(home, {"answers": ResultCache(7)})
    home.ask(Job(jobs.process))
    there = set(re.findall(r"^(\w+)", exported(observed), re.MULTILINE))
    queries = [target["expr"] for panel in json.loads(DASHBOARD.read_text())["panels"] for target in panel["targets"]]
    names = {name for query in queries for name in re.findall(r"\b(?:unmask|process)_\w+", query)}
    assert len(names) >= 8
    assert names <= there, f"no such metrics: {names - there}"
    assert all(re.search(r"\b(?:unmask|process)_", query) for query in queries)
