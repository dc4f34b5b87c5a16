"""What a server's jobs come to, as Prometheus metrics: functions' names and numbers, nothing of a reader or a text."""

import os
from collections.abc import Iterator
from typing import get_args

import psutil
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from serving.result_cache import ResultCache
from serving.scheduler import Done, Scheduler, WorkerState

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0, 120.0)  # ends of the buckets


class Observed(Collector):
    """Of one home. kept: what is remembered in this process, by name. registry: all of it, for prometheus_client."""

    def __init__(self, home: Scheduler, kept: dict[str, ResultCache]) -> None:
        self._home, self._kept = home, kept
        self.registry = CollectorRegistry()
        self._jobs = Counter(
            "unmask_jobs", "Jobs that are over; one that was lost is tried again.", ["job", "outcome"],
            registry=self.registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "unmask_job_seconds", "How long jobs waited in the queue, and took in a worker.", ["job", "step"],
            buckets=SECONDS, registry=self.registry,
        )  # fmt: skip
        ProcessCollector(registry=self.registry)
        self.registry.register(self)
        home.observers.append(self._count)

    def _count(self, done: Done) -> None:
        self._jobs.labels(done.job, done.outcome).inc()
        self._seconds.labels(done.job, "queue").observe(done.waited)
        self._seconds.labels(done.job, "worker").observe(done.took)

    def collect(self) -> Iterator[Metric]:
        """What holds at the moment."""
        yield GaugeMetricFamily("unmask_jobs_waiting", "Jobs in the queue.", value=self._home.waiting())
        workers = GaugeMetricFamily("unmask_workers", "Workers, which do one job at a time each.", labels=["state"])
        for state in get_args(WorkerState):
            workers.add_metric([state], self._home.workers(state))
        yield workers
        taken = GaugeMetricFamily("unmask_kept_bytes", "What is remembered in the server's process.", labels=["what"])
        most = GaugeMetricFamily("unmask_kept_bytes_limit", "What may be remembered there.", labels=["what"])
        asked = CounterMetricFamily("unmask_kept_asked", "How often it was there, or made.", labels=["what", "found"])
        for name, kept in self._kept.items():
            taken.add_metric([name], kept.nbytes())
            most.add_metric([name], kept.most_bytes())
            asked.add_metric([name, "kept"], kept.found)
            asked.add_metric([name, "made"], kept.made)
        yield from (taken, most, asked)
        yield from _processes()


def _processes() -> Iterator[Metric]:
    """Workers and long jobs are processes that the server started; weights that they share count once, in shares."""
    number = GaugeMetricFamily("unmask_processes", "The server, and what it has started.", labels=["kind"])
    memory = GaugeMetricFamily("unmask_memory_bytes", "What they take of the machine's memory.", labels=["kind"])
    server = psutil.Process(os.getpid())
    for kind, processes in (("server", [server]), ("started", server.children(recursive=True))):
        taken = [size for size in map(_memory, processes) if size]
        number.add_metric([kind], len(taken))
        memory.add_metric([kind], sum(taken))
    yield from (number, memory)


def _memory(process: psutil.Process) -> int:
    """Bytes, pages shared with others by halves, thirds …, where the system tells; 0 for one that is gone."""
    try:
        found = process.memory_full_info()
    except psutil.Error:
        return 0
    return getattr(found, "pss", found.rss)
