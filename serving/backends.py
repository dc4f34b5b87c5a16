"""Schedulers as the operator's settings select them, on threads of this process, worker processes or Ray replicas."""

from collections.abc import Sequence

from model.errors import first_line
from serving import machine
from serving.result_cache import Engine
from serving.scheduler import FairQueue, InThisProcess, Scheduler, Worker
from serving.settings import Settings
from serving.worker_process import WorkerProcess

INSPECTION_SECONDS = 60.0
MIN_INSPECTED, MAX_INSPECTED = 10**9, 3 * 10**9  # bytes of memory; imports alone take a third of the minimum


def start(settings: Settings, engine: Engine) -> Scheduler:
    """Start the workers and return their scheduler. engine: runs the jobs if there are no workers besides this process.
    Raises ValueError, which names UNMASK_RAY, if Ray is not installed or cannot be reached."""
    workers: Sequence[Worker]
    if settings.ray:
        if settings.ray == "local":
            machine.keep_ray_on_loopback()
        given = settings.ray, settings.workers, settings.models_in_memory, settings.traces_share
        try:
            from serving import ray_cluster

            workers = ray_cluster.workers(*given)
        except Exception as error:
            missing = "Ray is not installed here: pip install -r requirements-ray.txt"  # not shown
            why = missing if isinstance(error, ImportError) else first_line(error)
            raise ValueError(f"UNMASK_RAY: {why}") from error
    elif settings.workers:
        share = settings.traces_bytes // settings.workers
        workers = [WorkerProcess(settings.models_in_memory, share) for _ in range(settings.workers)]
    else:
        workers = [InThisProcess(engine) for _ in range(machine.cores())]
    affinity = bool(settings.workers and not settings.ray)  # Ray selects the replica that has a trace itself
    return Scheduler(workers, queue_for(settings, len(workers)), seconds=settings.job_seconds, affinity=affinity)


def inspector(settings: Settings, seconds: float = INSPECTION_SECONDS) -> Scheduler:
    """Return a scheduler of one worker with time and memory limits, which reads untrusted files before this process."""
    most = max(machine.memory_bytes() // 4, MIN_INSPECTED)
    worker = WorkerProcess(1, 1, memory_bytes=min(most, MAX_INSPECTED))
    return Scheduler([worker], queue_for(settings, 1), seconds=seconds, affinity=False)


def queue_for(settings: Settings, workers: int) -> FairQueue:
    return FairQueue(workers, max_waiting=settings.waiting_jobs, max_waiting_per_user=settings.waiting_jobs_a_reader)
