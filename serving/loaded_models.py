"""A bounded cache of the models loaded in one process, by name; they are read-only and shared by all its threads."""

import gc
from collections import OrderedDict
from collections.abc import Callable, Collection
from concurrent.futures import Future, wait
from functools import partial
from pathlib import Path
from threading import Lock, Thread
from time import monotonic

from i18n import N_, msg
from model import catalog
from model.base import Model, files_key
from model.errors import Stopped
from serving.job import ModelRef, QueueFull
from serving.machine import return_freed_memory
from serving.settings import Settings

Report = Callable[[str], None]
MAX_WAIT = 600.0  # seconds that one load waits for another
LOOK_SECONDS = 0.2  # between two calls of a waiting user's `show`, which may raise
STILL_LOADING = N_("Another model has been loading for {minutes:.0f} minutes. Try again later")


class PendingLoad:
    """A model being loaded. waiting: number of callers; at 0, the next report stops the load. said: its progress."""

    def __init__(self) -> None:
        self.waiting, self.said = 1, ""
        self.model: Future[Model] = Future()

    def report(self, words: str) -> None:
        self.said = words
        if not self.waiting:
            raise Stopped


class Loads:
    """The unfinished loads of a process. Requests for the same model share one."""

    def __init__(self) -> None:
        self._loads: dict[str, PendingLoad] = {}
        self._lock = Lock()

    def get(self, name: str, make: Callable[[Report], Model], show: Callable[[str], None], keep: bool = False) -> Model:
        """Return the model that make returns. show: called with the progress; if it raises, the caller stops waiting.
        keep: whether the load continues even then. Raises what make raises, and what show raises."""
        while True:
            with self._lock:
                load = self._loads.get(name)
                if load is not None and not load.model.done():
                    load.waiting += 1
                else:
                    load = self._loads[name] = PendingLoad()
                    Thread(target=self._run, args=(name, load, make), daemon=True).start()
            try:
                while wait([load.model], LOOK_SECONDS).not_done:
                    show(load.said)
                return load.model.result()
            except Stopped:  # all earlier callers had left; load again
                continue
            finally:
                with self._lock:
                    load.waiting -= not keep

    def _run(self, name: str, load: PendingLoad, make: Callable[[Report], Model]) -> None:
        try:
            load.model.set_result(make(load.report))
        except BaseException as error:  # noqa: BLE001 - re-raised where the load is awaited
            load.model.set_exception(error)
        finally:
            with self._lock:
                if self._loads.get(name) is load:
                    del self._loads[name]  # it would keep the model in memory


class LoadedModels:
    """A cache of up to `most` models, least recently used evicted first. evicted: called with the key of its files."""

    def __init__(self, most: int, evicted: Callable[[str], object] = lambda key: None) -> None:
        self._most, self._evicted = most, evicted
        self._models: OrderedDict[str, tuple[str, Model]] = OrderedDict()
        self._own: dict[str, Model] = {}
        self._lock, self._loading, self._own_lock = Lock(), Lock(), Lock()
        self._loads = Loads()

    def find(self, name: str) -> Model | None:
        """Return the model; None if it is not loaded or its files have changed since it was loaded."""
        with self._lock:
            if name not in self._models:
                return None
            loaded_stamp, model = self._models[name]
            if loaded_stamp != stamp(name):
                return None
            self._models.move_to_end(name)
            return model

    def last_used(self, names: Collection[str]) -> Model | None:
        """Return the most recently used of these models, if any. Does not itself count as a use."""
        with self._lock:
            return next((model for name, (_, model) in reversed(self._models.items()) if name in names), None)

    def load(
        self,
        name: str,
        settings: Settings | None = None,
        show: Callable[[str], None] = lambda words: None,
        *,
        keep: bool = False,
    ) -> Model:
        """Return a model, loaded if needed: one load at a time, shared by all requests for the same model.

        show: called with the progress; if it raises, this call stops waiting, and the load stops once no call waits for
        it, unless keep. Raises what catalog.load raises, and what show raises.
        """
        return self._loads.get(name, lambda report: self._load(name, settings, report), show, keep)

    def own(self, name: str) -> Model:
        """Return a model of PAGE_MODELS, never evicted; does not wait for other loads. Raises CheckpointError."""
        with self._own_lock:
            if name not in self._own:
                self._own[name] = PAGE_MODELS[name]()
            return self._own[name]

    def of(self, ref: ModelRef) -> Model:
        """Return the model of a reference. Raises ValueError if its files have changed since it was made."""
        if ref.name in PAGE_MODELS:
            return self.own(ref.name)
        model = self.find(ref.name)  # weights are memory-mapped: overwriting a file in place changes them
        if model is not None and model.key == ref.key:
            return model
        model = self.load(ref.name)
        if model.key != ref.key and stamp(ref.name):
            words = N_("The files of {model} have changed since this page was loaded. Reload the page")
            raise ValueError(msg(words, model=ref.name))
        return model

    def _load(self, name: str, settings: Settings | None, report: Report) -> Model:
        end = monotonic() + MAX_WAIT
        while not self._loading.acquire(timeout=LOOK_SECONDS):
            report(msg("waiting for another model's load"))
            if monotonic() > end:
                raise QueueFull(msg(STILL_LOADING, minutes=MAX_WAIT / 60))
        try:
            model = self.find(name)
            if model is None:
                at = stamp(name)
                model = catalog.load(name, settings=settings, report=report)
                self._keep(name, at, model)
            return model
        finally:
            self._loading.release()

    def _keep(self, name: str, at: str, model: Model) -> None:
        with self._lock:
            gone = [self._models.pop(name)[1].key] if name in self._models else []
            self._models[name] = at, model
            while len(self._models) > self._most:
                gone.append(self._models.popitem(last=False)[1][1].key)
        for key in gone:
            self._evicted(key)
        # exclude this model from garbage collection from now on; unfreeze first, so that other frozen objects, such as
        # a page's sessions, can be collected
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        return_freed_memory()


def _digits() -> Model:
    from model.pixels import digits

    return digits.load()


def _twin(trained: bool) -> Model:
    from model.why_causal import twins

    return twins.load().models[trained]


def _captioner(version: str) -> Model:
    from model.images import captioner

    return captioner.load(version)


PAGE_MODELS: dict[str, Callable[[], Model]] = {  # models of single pages, which users cannot choose
    "digits": _digits,
    **{f"captioner-{version}": partial(_captioner, version) for version in ("causal", "prefix", "window")},
    "twin trained with the mask": lambda: _twin(True),  # not shown
    "twin trained without the mask": lambda: _twin(False),  # not shown
    **{name: partial(catalog.load, name) for name in catalog.induction_steps()},
}


def stamp(name: str) -> str:
    """Return a key that changes with a model folder's files, so that a model saved again is loaded again; else ""."""
    folder = Path(name).expanduser()
    folder = folder.parent if name.endswith(".gguf") else folder
    try:
        is_folder = name not in catalog.ENTRIES and folder.is_dir()
    except (OSError, ValueError):
        return ""
    return files_key(name, folder) if is_folder else ""
