"""The models in memory of one process, by name: a few at a time, read-only, shared by all its threads."""

import gc
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from time import monotonic

from i18n import say
from model import catalog
from model.base import Model, files_key
from serving.fair_queue import QueueFull
from serving.job import ModelRef
from serving.loads import LOOK_SECONDS, Loads, Report
from serving.settings import Settings

MOST_WAIT = 600.0  # seconds of one load for another


class LoadedModels:
    """The one longest unused leaves first; left(key) is called for each that does, with its files' key."""

    def __init__(self, most: int, left: Callable[[str], object] = lambda key: None) -> None:
        self._most, self._left = most, left
        self._models: OrderedDict[str, tuple[str, Model]] = OrderedDict()
        self._own: dict[str, Model] = {}
        self._lock, self._loading, self._making = Lock(), Lock(), Lock()
        self._loads = Loads()

    def find(self, name: str) -> Model | None:
        """The model, where it is loaded and its files are still those that it was loaded from."""
        with self._lock:
            if name not in self._models:
                return None
            stamp, model = self._models[name]
            if stamp != _stamp(name):
                return None
            self._models.move_to_end(name)
            return model

    def load(
        self, name: str, settings: Settings | None = None, show: Callable[[str], None] = lambda words: None
    ) -> Model:
        """One load at a time: who wants the same model waits for it. Raises what catalog.load raises.

        show is called with what is being done while it lasts; what it raises ends the waiting, and the load once
        nobody waits for it.
        """
        return self._loads.get(name, lambda report: self._load(name, settings, report), show)

    def own(self, name: str) -> Model:
        """One of OF_PAGES: small, and there for good; waits for no other model's load. Raises CheckpointError."""
        with self._making:
            if name not in self._own:
                self._own[name] = OF_PAGES[name]()
            return self._own[name]

    def of(self, ref: ModelRef) -> Model:
        """The model that a page was drawn with; of a folder raises ValueError where its files are others by now.

        Raises what load raises.
        """
        if ref.name in OF_PAGES:
            return self.own(ref.name)
        with self._lock:
            model = self._models[ref.name][1] if ref.name in self._models else None
        if model is not None and model.key == ref.key:
            return model  # whatever its folder holds by now
        model = self.load(ref.name)
        if model.key != ref.key and _stamp(ref.name):
            raise ValueError(
                say("The files of {model} have changed since this page was drawn. Load the page anew", model=ref.name)
            )
        return model

    def _load(self, name: str, settings: Settings | None, report: Report) -> Model:
        _wait_for(self._loading, report)
        try:
            model = self.find(name)
            if model is None:
                stamp = _stamp(name)
                model = catalog.load(name, settings=settings, report=report)
                self._keep(name, stamp, model)
            return model
        finally:
            self._loading.release()

    def _keep(self, name: str, stamp: str, model: Model) -> None:
        with self._lock:
            gone = [self._models.pop(name)[1]] if name in self._models else []
            self._models[name] = stamp, model
            while len(self._models) > self._most:
                gone.append(self._models.popitem(last=False)[1][1])
        for old in gone:
            self._left(old.key)
        if gone:
            del gone, old
        # what is loaded now stays for long: no collection need look at it again. All else that is there by now stays
        # until the next load at the most, such as the sessions of a page: hence unfrozen first
        gc.unfreeze()
        gc.collect()
        gc.freeze()


def _wait_for(lock: Lock, report: Report) -> None:
    """Until another model is loaded. Raises what report raises, Busy after MOST_WAIT seconds."""
    end = monotonic() + MOST_WAIT
    while not lock.acquire(timeout=LOOK_SECONDS):
        report("")
        if monotonic() > end:
            raise QueueFull(say("Another model has been loading for {minutes:.0f} minutes. Try again later",
                           minutes=MOST_WAIT / 60))  # fmt: skip


def _digits() -> Model:
    from model.pixels import digits

    return digits.load()


def _twin(trained: bool) -> Model:
    from model.why_causal import twins

    return twins.load().models[trained]


OF_PAGES: dict[str, Callable[[], Model]] = {  # models that a page has and no reader can choose
    "digits": _digits,
    "twin trained with the mask": lambda: _twin(True),  # not shown
    "twin trained without the mask": lambda: _twin(False),  # not shown
}


def _stamp(name: str) -> str:
    """Changes when a folder's files do, so that a model saved anew is loaded anew."""
    folder = Path(name).expanduser()
    try:
        is_folder = name not in catalog.ENTRIES and folder.is_dir()
    except (OSError, ValueError):
        return ""
    return files_key(name, folder) if is_folder else ""
