"""Cost of jobs in other processes: the latency that workers, and Ray, add to a mask flip, and a worker's memory."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from statistics import median

import psutil

from model import catalog
from model.base import Model
from model.heads.survey import survey
from model.heads.view import head_view
from model.masks import MaskSpec
from model.sampling import predictions
from serving import backends
from serving.job import Job, ModelRef, RunRef
from serving.result_cache import Engine
from serving.scheduler import Scheduler
from serving.settings import Settings
from tests.benchmarks.report import Ratio

TEXT = "Once upon a time there was a little girl who lived in a house by the sea, and one day the king came"
WORDS = TEXT.split()
FLIPS, WARM = 40, 8
WORKERS = 2
ADDED_BAR, MEMORY_BAR = 30, 250  # ms per flip, MB per worker


def jobs_elsewhere() -> list[Ratio]:
    """Measure a flip's jobs (forward pass with one head, all heads, predictions) here and elsewhere, alternately."""
    model = catalog.load("story")
    with home() as here, home(workers=WORKERS) as workers:
        pids = psutil.Process().children()
        added, detail = _added(model, here, workers)
        memory = max(child.memory_full_info().uss for child in pids) / 1e6
        shared = max(child.memory_full_info().rss for child in pids) / 1e6 - memory
    ratios = [
        Ratio(f"{WORKERS} workers: a flip, ms added", added, ADDED_BAR, detail),
        Ratio("a worker's own memory, MB", memory, MEMORY_BAR, f"and {shared:.0f} MB shared: libraries and weights"),
    ]
    if find_spec("ray"):
        with home() as here, home(workers=WORKERS, ray="local") as ray:
            added, detail = _added(model, here, ray)
        ratios.append(Ratio(f"Ray, {WORKERS} replicas: a flip, ms added", added, ADDED_BAR, detail))
    return ratios


@contextmanager
def home(**settings: object) -> Iterator[Scheduler]:
    """Start a scheduler with these settings; close it at the end."""
    found = backends.start(Settings.model_validate(settings), Engine(2, 10**8))
    try:
        yield found
    finally:
        found.close()


def _added(model: Model, here: Scheduler, there: Scheduler) -> tuple[float, str]:
    """Return the milliseconds that `there` adds to a flip, and the two medians in words."""
    took: dict[Scheduler, list[float]] = {here: [], there: []}
    for number in range(WARM + FLIPS):
        for one, seconds in took.items():
            seconds.append(_flip(model, one, f"{number} " + " ".join(WORDS * 2)))
    both = [1000 * median(seconds[WARM:]) for seconds in took.values()]
    smallest = [1000 * min(seconds[WARM:]) for seconds in took.values()]
    quickest = f"the quickest {smallest[1]:.1f} − {smallest[0]:.1f}"
    return both[1] - both[0], f"{both[1]:.1f} ms − {both[0]:.1f} ms here, medians of {FLIPS}; {quickest}"


def _flip(model: Model, one: Scheduler, text: str) -> float:
    """Return the seconds of a flip to a run that is not cached."""
    spec = MaskSpec(causal=False)
    run = RunRef(ModelRef.of(model), model.encode([text]), spec)
    began = time.perf_counter()
    for function, arguments in ((head_view, (0, spec, 4, 0)), (survey, (0, spec)), (predictions, (0, None, 10))):
        one.ask(Job(function, (run, *arguments)), "reader")
    return time.perf_counter() - began
