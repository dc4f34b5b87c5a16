"""Does jobs where it stands: it has the models, and keeps the traces that were made here."""

from typing import Any

from i18n import say, spoken
from model import kv_cache
from model.base import Model
from model.errors import panics_caught
from model.trace import Trace
from serving.job import GrownRunRef, Job, ModelRef, RunRef
from serving.loaded_models import LoadedModels
from serving.result_cache import ResultCache


class Engine:
    """Many threads may share one. A trace (q, k, v) stays here: another head of the same run costs no second forward.

    trace_bytes: what all traces together may take; one that takes more is made anew for every job.
    """

    def __init__(self, models_in_memory: int, trace_bytes: int) -> None:
        self.traces = ResultCache(trace_bytes)
        self.models = LoadedModels(models_in_memory, self._forget)

    def do(self, job: Job) -> Any:
        """The job's answer. Raises what its function raises, and what loading and running its model raise."""
        with spoken(job.language), panics_caught():
            return job.function(*map(self._found, job.arguments), **job.options)

    def _found(self, argument: Any) -> Any:
        """What an argument stands for."""
        if isinstance(argument, RunRef):
            return self.trace(argument)
        return self.models.of(argument) if isinstance(argument, ModelRef) else argument

    def trace(self, run: RunRef) -> Trace:
        """Of a run, made once. Raises what running raises."""
        return self.traces.get(run.trace_key, lambda: self._made(run)).select(run.attention)

    def _made(self, run: RunRef) -> Trace:
        model = self.models.of(run.model)
        if not isinstance(run, GrownRunRef):
            return _checked(model, model.run(run.batch, run.spec))
        trace = kv_cache.grown(model, run.ids, self.traces.find(run.before), run.prompt)
        self.traces.forget(lambda key: key == run.before)
        return trace

    def _forget(self, files: str) -> None:
        """A trace keeps its model in memory: with a model go its traces."""
        self.traces.forget(lambda key: isinstance(key, tuple) and key[0].key == files)


def _checked(model: Model, trace: Trace) -> Trace:
    """Raises ValueError for a run whose numbers grew beyond what their type holds."""
    if trace.states[trace.batch.keep].isnan().any():
        raise ValueError(
            say("{model} gives NaN on this text: its numbers grow beyond what their type holds. Try another text or "
                "another model", model=model.name)
        )  # fmt: skip
    return trace
