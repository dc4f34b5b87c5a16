"""An atlas that grows in the background while its reader looks on. It belongs to this session alone.

A thread asks for unit after unit and adds them up; the page looks at what it has come to. It ends when nobody has
looked for a while, and goes on from there when asked.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Lock, Thread
from typing import Literal

from i18n import language, say, spoken
from model.atlas import progress
from model.atlas.result import Atlas
from model.atlas.tally import Tally
from model.atlas.texts import Unit
from model.base import Model
from ui.guard import problem_in

MOST_AT_ONCE = 4  # in this process
LEFT_SECONDS = 60.0  # longer than a page waits for its first look
MOST_SECONDS = 600.0  # of one measuring
SHOW_EVERY = 1.0  # seconds between two pictures of what there is so far

State = Literal["running", "done", "stopped", "failed"]
Ask = Callable[[Unit, int, Callable[[], object]], Tally]  # as atlas_progress.Measure, and what Home.ask calls meanwhile


class TooManyAtlases(ValueError):
    """As many atlases are being made as may be at once."""


class NotWanted(Exception):
    """Nobody waits any longer for the unit that is next."""


@dataclass(frozen=True)
class AtlasStatus:
    """How far it is: units done, of all; what there is so far, None before the first unit; why it ended early."""

    state: State
    done: int
    total: int
    atlas: Atlas | None
    why: str = ""


class Measuring:
    """One of them. Raises Busy when there is no room. What it says is in the language of who began it."""

    def __init__(self, model: Model, units: list[Unit], length: int, ask: Ask) -> None:
        """ask: for a unit wherever units are measured; waits for it as long as the function that it is given raises
        nothing."""
        self._model, self._units, self._ask = model, units, ask
        self._progress = progress.begun(model, length)
        self._done = 0
        self._atlas: Atlas | None = None
        self._state: State = "stopped"
        self._why = ""
        self._over = Event()
        self.go_on()

    def go_on(self) -> None:
        """Begin, or begin again where it stopped. Raises Busy."""
        with _counting:
            if self in _running:
                return
            if len(_running) >= MOST_AT_ONCE:
                raise TooManyAtlases(
                    say(
                        "{most} atlases are being measured here already, as many as this server does at once. "
                        "Try again in a minute",
                        most=MOST_AT_ONCE,
                    )
                )
            _running.append(self)
        self._state, self._why, self._seen = "running", "", time.monotonic()
        self._over.clear()
        self._language = language()
        Thread(target=self._run, daemon=True).start()

    def stop(self, why: str = "") -> None:
        """After the texts in hand; what it has come to stays."""
        self._why = self._why or why or say("Stopped.")
        self._over.set()

    def watch(self) -> AtlasStatus:
        """How far it is; also tells it that somebody is there."""
        self._seen = time.monotonic()
        return AtlasStatus(self._state, self._done, len(self._units), self._atlas, self._why)

    def wait(self, seconds: float) -> None:
        """Until it is over, so many seconds at most."""
        end = time.monotonic() + seconds
        while self._state == "running" and time.monotonic() < end:
            time.sleep(0.02)

    def _run(self) -> None:
        with spoken(self._language):  # and so are the jobs that it asks for
            self._measure()

    def _measure(self) -> None:
        began = shown = time.monotonic()

        def still_wanted() -> None:
            """Between two units, and while the next one waits in the queue, which may be long."""
            now = time.monotonic()
            if now - self._seen > LEFT_SECONDS:
                self.stop(say("Stopped, because nobody was looking."))
            if now - began > MOST_SECONDS:
                self.stop(say("Stopped after {minutes:.0f} minutes.", minutes=MOST_SECONDS / 60))
            if self._over.is_set():
                raise NotWanted

        def measure(unit: Unit, bar: int) -> Tally:
            return self._ask(unit, bar, still_wanted)

        try:
            for _ in progress.measured(self._units, self._progress, measure):
                self._done += 1
                if self._done == len(self._units) or time.monotonic() - shown > SHOW_EVERY:
                    self._atlas, shown = progress.made_of(self._progress, self._model), time.monotonic()
                if self._done < len(self._units):
                    still_wanted()
            self._state = "done"
        except NotWanted:
            self._atlas = progress.made_of(self._progress, self._model) if self._done else None
            self._state = "stopped"
        except Exception as error:
            problem = problem_in(error)
            self._why = say("{problem}.", problem=problem or say("It ended with an error of this program"))
            self._state = "failed"
            if problem is None:
                raise
        finally:
            with _counting:
                _running.remove(self)


_running: list[Measuring] = []  # counted, never shown: whose they are is no business of other readers
_counting = Lock()
