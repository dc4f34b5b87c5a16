"""The models in memory of one process, by name: a few at a time, read-only, shared by all its threads."""

import gc
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from pathlib import Path
from threading import Lock, Thread
from time import monotonic

from i18n import language, say, spoken
from model import catalog
from model.base import Model, files_key
from model.errors import Stopped
from serving.fair_queue import QueueFull
from serving.job import ModelRef
from serving.settings import Settings

Report = Callable[[str], None]
LOOK_SECONDS = 0.2  # how often who waits is shown how far it is, and may leave


class Load:
    """One load. It is stopped, at its next report, once everybody who waited for it has left.

    What it says, while it goes on or as an error, is in the language of who began it.
    """

    def __init__(self, make: Callable[[Report], Model]) -> None:
        self.waiting = 0
        self.model: Future[Model] = Future()
        self._said, self._language = "", language()
        self._thread = Thread(target=self._run, args=(make,), daemon=True)

    def join(self) -> None:
        """One more waits for it; the first starts it."""
        self.waiting += 1
        if self._thread.ident is None:
            self._thread.start()

    def wait(self, show: Callable[[str], None]) -> Model:
        """Calls show with what is being done until it is done. Raises what the load raises, and what show raises."""
        while not self.model.done():
            try:
                return self.model.result(LOOK_SECONDS)
            except NotYet:
                show(self._said)
        return self.model.result()

    def _run(self, make: Callable[[Report], Model]) -> None:
        try:
            with spoken(self._language):
                self.model.set_result(make(self._report))
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is for who waits
            self.model.set_exception(error)

    def _report(self, words: str) -> None:
        self._said = words
        if not self.waiting:
            raise Stopped


class Loads:
    """Those of a process, by name: who asks for what is on its way waits for the same load, if it speaks his language;
    a second one for the same model finds it once the first is over (models.py), or fails in its own words.
    """

    def __init__(self) -> None:
        self._loads: dict[tuple[str, str], Load] = {}
        self._lock = Lock()

    def get(self, name: str, make: Callable[[Report], Model], show: Callable[[str], None]) -> Model:
        """The model that make gives. show: see Load.wait; when it raises, its caller has left."""
        key = (language(), name)
        while True:
            load = self._join(key, make)
            try:
                return load.wait(show)
            except Stopped:  # before we came
                continue
            finally:
                with self._lock:
                    load.waiting -= 1

    def _join(self, key: tuple[str, str], make: Callable[[Report], Model]) -> Load:
        with self._lock:
            load = self._loads.get(key)
            if load is None or load.model.done():
                load = self._loads[key] = Load(make)
            load.join()
        load.model.add_done_callback(lambda _: self._forget(key))
        return load

    def _forget(self, key: tuple[str, str]) -> None:
        """A load that is over is its waiters' alone: held here, its model would never leave the memory."""
        with self._lock:
            if key in self._loads and self._loads[key].model.done():
                del self._loads[key]


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
                say("The files of {model} have changed since this page was loaded. Reload the page", model=ref.name)
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
