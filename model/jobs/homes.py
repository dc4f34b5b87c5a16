"""Which of the homes the operator's settings ask for."""

from collections.abc import Sequence

from model import machine
from model.jobs.engine import Engine
from model.jobs.home import Hand, Home, InThisProcess
from model.jobs.pool import WorkerProcess
from model.jobs.turns import Turns
from model.settings import Settings

INSPECTION_SECONDS = 60.0
LEAST_INSPECTED, MOST_INSPECTED = 10**9, 3 * 10**9  # bytes of memory; the imports alone take a third of the first


def start(settings: Settings, engine: Engine) -> Home:
    """engine: the one of this process, which does the jobs where no worker does."""
    hands: Sequence[Hand]
    if settings.ray:
        if settings.ray == "local":
            machine.keep_ray_on_loopback()
        from model.jobs import cluster  # which imports ray: in requirements-ray.txt

        hands = cluster.hands(settings.ray, settings.workers, settings.models_in_memory, settings.traces_bytes)
    elif settings.workers:
        share = settings.traces_bytes // settings.workers
        hands = [WorkerProcess(settings.models_in_memory, share) for _ in range(settings.workers)]
    else:
        hands = [InThisProcess(engine) for _ in range(machine.cores())]
    sticky = bool(settings.workers and not settings.ray)  # Ray finds the replica that has a trace by itself
    return Home(hands, turns_of(settings, len(hands)), seconds=settings.job_seconds, sticky=sticky)


def inspector(settings: Settings) -> Home:
    """Where what a stranger wrote is read before this process reads it: one worker with limits of time and memory."""
    most = max(machine.memory_bytes() // 4, LEAST_INSPECTED)
    hand = WorkerProcess(1, 1, memory_bytes=min(most, MOST_INSPECTED))
    return Home([hand], turns_of(settings, 1), seconds=INSPECTION_SECONDS, sticky=False)


def turns_of(settings: Settings, hands: int) -> Turns:
    """A queue for so many hands."""
    return Turns(hands, most_waiting=settings.waiting_jobs, most_a_reader=settings.waiting_jobs_a_reader)
