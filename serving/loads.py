"""Models on their way: each is loaded by a thread of its own, for everybody who waits for it."""

from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from threading import Lock, Thread

from i18n import language, spoken
from model.base import Model
from model.errors import Stopped

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
