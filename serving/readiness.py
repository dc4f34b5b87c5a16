"""Whether a server can do what its readers will ask: load a model, and run it wherever its jobs are done."""

from time import monotonic

from model import catalog
from model.base import Model
from serving.job import Job, ModelRef
from serving.result_cache import Engine
from serving.scheduler import Scheduler
from serving.settings import Settings

READER = "health"  # takes turns with all others


def one_token(model: Model) -> int:
    """The smallest run: how many tokens it had."""
    batch = model.encode(["a"], "right")
    return model.run(batch, model.standard).batch.ids.numel()


def trouble(engine: Engine, home: Scheduler, settings: Settings, seconds: float) -> str:
    """Why no reader should be sent here; "" when the first model that is offered ran within `seconds`."""
    end = monotonic() + seconds

    def in_time(words: str = "") -> None:
        if monotonic() > end:
            raise TimeoutError(f"no answer within {seconds:g} seconds")  # not shown

    try:
        model = engine.models.load(catalog.offered(settings)[0], settings, in_time)
        home.ask(Job(one_token, (ModelRef.of(model),)), READER, in_time)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is why
        return str(error) or type(error).__name__
    return ""
