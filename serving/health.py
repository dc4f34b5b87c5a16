"""Health checks and metrics of a server, on a separate port: /live, /ready, and /metrics for Prometheus."""

import asyncio
import errno
import os
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Thread
from time import monotonic
from typing import get_args
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import psutil
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    make_wsgi_app,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import Collector

from model import catalog
from model.base import Model
from serving.job import Job, ModelRef
from serving.result_cache import Engine, ResultCache
from serving.scheduler import FinishedJob, Scheduler, WorkerState
from serving.settings import Settings

PATIENCE = 5.0  # time limit of a check, in seconds
READER = "health"  # the user to whom the fair queue counts the checks' jobs
Check = Callable[[], str]  # returns the problem in a sentence, "" if there is none
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0, 120.0)  # upper bounds of buckets


class SchedulerMetrics(Collector):
    """Prometheus collector of one scheduler's metrics, with its registry. caches: this process's, by name."""

    def __init__(self, scheduler: Scheduler, caches: dict[str, ResultCache]) -> None:
        self._scheduler, self._caches = scheduler, caches
        self.registry = CollectorRegistry()
        self._jobs = Counter(
            "unmask_jobs", "Finished jobs; a lost job is tried again.", ["job", "outcome"],
            registry=self.registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "unmask_job_seconds", "Seconds that jobs waited in the queue and took in a worker.", ["job", "step"],
            buckets=SECONDS, registry=self.registry,
        )  # fmt: skip
        ProcessCollector(registry=self.registry)
        self.registry.register(self)
        scheduler.observers.append(self._count)

    def _count(self, done: FinishedJob) -> None:
        self._jobs.labels(done.job, done.outcome).inc()
        self._seconds.labels(done.job, "queue").observe(done.waited)
        self._seconds.labels(done.job, "worker").observe(done.took)

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("unmask_jobs_waiting", "Jobs in the queue.", value=self._scheduler.waiting())
        states = {state: self._scheduler.workers(state) for state in get_args(WorkerState)}
        yield _gauges("unmask_workers", "Workers by state; each runs one job at a time.", "state", states)
        taken = {name: cache.nbytes() for name, cache in self._caches.items()}
        yield _gauges("unmask_kept_bytes", "Bytes cached in the server's process.", "what", taken)
        limits = {name: cache.most_bytes() for name, cache in self._caches.items()}
        yield _gauges("unmask_kept_bytes_limit", "Limit of the cached bytes.", "what", limits)
        hits = CounterMetricFamily("unmask_kept_asked", "Cache hits (kept), misses (made).", labels=["what", "found"])
        for name, cache in self._caches.items():
            hits.add_metric([name, "kept"], cache.found)
            hits.add_metric([name, "made"], cache.made)
        yield hits
        server = psutil.Process()
        processes = {"server": [server], "started": server.children(recursive=True)}
        sizes = {kind: [size for size in map(_memory, some) if size] for kind, some in processes.items()}
        counts = {kind: len(some) for kind, some in sizes.items()}
        yield _gauges("unmask_processes", "The server process and those it started.", "kind", counts)
        totals = {kind: sum(some) for kind, some in sizes.items()}
        yield _gauges("unmask_memory_bytes", "Memory of these processes.", "kind", totals)


def _gauges(name: str, meaning: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, meaning, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _memory(process: psutil.Process) -> int:
    """Return the bytes that a process uses: PSS, in which processes share the cost of shared pages, where the system
    reports it, else RSS; 0 if the process has ended."""
    try:
        found = process.memory_full_info()
    except psutil.Error:
        return 0
    return getattr(found, "pss", found.rss)


def expect_free_port(settings: Settings) -> None:
    """Exit with a message and status 2 if a metrics port is set that cannot be opened."""
    try:
        if settings.metrics_port:
            _opened(settings, make_wsgi_app()).server_close()
    except (OSError, UnicodeError) as error:  # UnicodeError: of a name that cannot be looked up
        name, where = "UNMASK_METRICS_ADDRESS", settings.metrics_address
        if isinstance(error, OSError) and error.errno in (errno.EADDRINUSE, errno.EACCES):
            host = f"[{where}]" if ":" in where else where
            name, where = "UNMASK_METRICS_PORT", f"{host}:{settings.metrics_port}"
        reason = error.strerror if isinstance(error, OSError) else "not a host name"
        print(f"{name}: {where} cannot be used ({reason})", file=sys.stderr, flush=True)
        os._exit(2)


def _opened(settings: Settings, app: WSGIApplication) -> WSGIServer:
    """Return a server of the app that listens at the settings' address and port. Raises OSError and UnicodeError."""
    where = settings.metrics_address, settings.metrics_port

    class MetricsServer(ThreadingWSGIServer):  # a thread for each request: a check may wait
        # IPv4 where a name has both: the smallest number
        address_family = min(found[0] for found in socket.getaddrinfo(*where, type=socket.SOCK_STREAM))

    return make_server(*where, app, MetricsServer, _QuietHandler)


@contextmanager
def served(
    settings: Settings, loop: asyncio.AbstractEventLoop, scheduler: Scheduler, engine: Engine, answers: ResultCache
) -> Iterator[int]:
    """Serve at the settings' address and port (0: any) within the context; yield the port. loop: the app server's."""
    disable_created_metrics()  # they would double the number of series
    observed = SchedulerMetrics(scheduler, {"answers": answers, "traces": engine.traces})

    def stuck() -> str:
        """Return "", or a message if the event loop does not run, so that the server must be restarted."""
        turn = asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop)
        try:
            turn.result(PATIENCE)
        except TimeoutError:
            turn.cancel()
            return f"the server's loop has not turned within {PATIENCE:g} seconds"
        return ""

    checks = {"/live": stuck, "/ready": lambda: readiness_problem(engine, scheduler, settings, PATIENCE)}
    app = health_app(checks, make_wsgi_app(observed.registry))
    with _opened(settings, app) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def health_app(checks: dict[str, Check], metrics: WSGIApplication) -> WSGIApplication:
    """Return a WSGI app: 200 for /metrics and for a check that passes, 503 with its problem if it fails, else 404."""

    def app(environment: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environment["PATH_INFO"]
        if path == "/metrics":
            return metrics(environment, start)
        if path not in checks:
            status, words = "404 Not Found", f"There are {', '.join(checks)} and /metrics"
        else:
            wrong = checks[path]()
            status, words = ("503 Service Unavailable", wrong) if wrong else ("200 OK", "ok")
        start(status, [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")])
        return [f"{words}\n".encode()]

    return app


class _QuietHandler(WSGIRequestHandler):
    timeout = PATIENCE  # for a client that sends nothing

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""


def one_token(model: Model) -> int:
    """Run the model on a minimal text and return the number of its tokens."""
    batch = model.encode(["a"], "right")
    return model.run(batch, model.standard).batch.ids.numel()


def readiness_problem(engine: Engine, scheduler: Scheduler, settings: Settings, seconds: float) -> str:
    """Return why this server is not ready, or "" if a model ran within `seconds`: of the models offered, the one used
    last or, if none is loaded, the first, which continues to load for the next check."""
    end = monotonic() + seconds

    def in_time(words: str = "") -> None:
        if monotonic() > end:
            raise TimeoutError(f"no answer within {seconds:g} seconds")  # not shown

    try:
        names = catalog.offered(settings)
        model = engine.models.last_used(names) or engine.models.load(names[0], settings, in_time, keep=True)
        scheduler.ask(Job(one_token, (ModelRef.of(model),)), READER, in_time)
    except Exception as error:  # noqa: BLE001 - any error is a reason
        return str(error) or type(error).__name__
    return ""
