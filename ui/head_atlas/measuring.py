"""The atlas that is asked for: found, or measured in the background while the page shows what there is so far."""

import hashlib
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from threading import Event, Lock, Thread
from typing import Literal

import streamlit as st

from i18n import N_, msg, say
from model.atlas import progress
from model.atlas.result import Atlas
from model.atlas.tally import Tally
from model.atlas.texts import (
    MOST_UPLOAD,
    SUFFIXES,
    Unit,
    units_of_random,
    units_of_sample,
    units_of_text,
    units_of_upload,
)
from model.atlas.unit import check, measure_unit, row_length
from model.base import Model
from model.masks import MaskSpec
from serving.job import Job, ModelRef, digest
from ui import results
from ui.guard import problem_in, waiting
from ui.markdown import escaped
from ui.widgets.uploads import uploader
from viz.numbers import whole_percent

MOST_AT_ONCE = 4  # in this process; further ones wait in a queue
MOST_WAITING = 20  # their texts are in memory
LEFT_SECONDS = 60.0  # longer than a page waits for its first look
MOST_SECONDS = 600.0  # of one measuring
SHOW_EVERY = 1.0  # seconds between two pictures of what there is so far

State = Literal["waiting", "running", "done", "stopped", "failed"]
Ask = Callable[[Unit, int, Callable[[], object]], Tally]  # as atlas_progress.Measure, and what Home.ask calls meanwhile


class TooManyAtlases(ValueError):
    """The queue of measurements is full."""


class NotWanted(Exception):
    """Nobody waits any longer for the unit that is next."""


@dataclass(frozen=True)
class AtlasStatus:
    """How far it is: units done, of all; what there is so far, None before the first unit; why it waits or ended
    early."""

    state: State
    done: int
    total: int
    atlas: Atlas | None
    why: str = ""


class Measuring:
    """One of them. Raises TooManyAtlases when the queue is full."""

    def __init__(self, model: Model, units: list[Unit], length: int, ask: Ask) -> None:
        """ask: for a unit wherever units are measured; waits for it as long as the function that it is given raises
        nothing."""
        self._model, self._units, self._ask = model, units, ask
        self._progress = progress.begun(model, length)
        self._done = 0
        self._atlas: Atlas | None = None
        self._state: State = "stopped"
        self._why: str = ""
        self._over = Event()
        self.go_on()

    def go_on(self) -> None:
        """Begin, or begin again where it stopped, in its turn. Raises TooManyAtlases."""
        with _counting:
            if self in _queue:
                return
            if len(_queue) >= MOST_AT_ONCE + MOST_WAITING:
                full = N_("{count} atlases wait in the queue, the most that it holds. Try again in a minute")
                raise TooManyAtlases(msg(full, count=MOST_WAITING))
            _queue.append(self)
        self._state = "waiting" if self._position() else "running"
        self._why, self._seen = "", time.monotonic()
        self._over.clear()
        Thread(target=self._run, daemon=True).start()

    def stop(self, why: str = "") -> None:
        """After the texts in hand; what it has come to stays."""
        self._why = self._why or why or msg("Stopped.")
        self._over.set()

    def watch(self) -> AtlasStatus:
        """How far it is; also tells it that somebody is there."""
        self._seen = time.monotonic()
        state, position = self._state, self._position()
        why = msg("In the queue: position {position}.", position=position) if state == "waiting" else self._why
        return AtlasStatus(state, self._done, len(self._units), self._atlas, why)

    def wait(self, seconds: float) -> None:
        """Until it is over, so many seconds at most."""
        end = time.monotonic() + seconds
        while self._state == "running" and time.monotonic() < end:
            time.sleep(0.02)

    def _position(self) -> int:
        """Its place among those that wait, from 1; 0 where it may run."""
        with _counting:
            return max(_queue.index(self) + 1 - MOST_AT_ONCE, 0) if self in _queue else 0

    def _run(self) -> None:
        began = shown = time.monotonic()

        def still_wanted() -> None:
            """While it waits for its turn, between two units, and while the next one waits for a worker."""
            now = time.monotonic()
            if now - self._seen > LEFT_SECONDS:
                self.stop(msg("Stopped because no one was watching."))
            if now - began > MOST_SECONDS:
                self.stop(msg("Stopped after {minutes:.0f} minutes.", minutes=MOST_SECONDS / 60))
            if self._over.is_set():
                raise NotWanted

        def measure(unit: Unit, bar: int) -> Tally:
            return self._ask(unit, bar, still_wanted)

        try:
            while self._position():
                still_wanted()
                time.sleep(LOOK)
                began = shown = time.monotonic()
            self._state = "running"
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
            self._why = msg("{problem}.", problem=problem or msg("It ended with an internal error"))
            self._state = "failed"
            if problem is None:
                raise
        finally:
            with _counting:
                _queue.remove(self)


_queue: list[Measuring] = []  # the first MOST_AT_ONCE run; counted, never shown to other readers
_counting = Lock()


AT_ONCE = 1.5  # seconds that a page waits before it shows what there is so far
ONE_UNIT = 30.0  # the same where there is nothing to show before it is over
LOOK_EVERY = 1.0  # seconds between two looks of a page
LOOK = 0.2  # and of one that waits for its turn


def source(model: Model, chosen: str, text: str) -> tuple[str, Callable[[], list[Unit]]]:
    """What stands for the texts in a key, and how they are read. Ends the page where there are none yet."""
    if chosen == "sample":
        return chosen, units_of_sample
    if chosen == "random":
        return chosen, lambda: units_of_random(model)
    if chosen == "text":
        if not text.strip():
            st.info(say("Type a text on the left, one per line, or choose other texts above."))
            st.stop()
        return f"text:{digest(text).hex()}", lambda: units_of_text(text)
    words = N_(
        "Your own texts, at most {size:.0f} MB: each line of a .txt file, or each cell of the column “text” of a .csv "
        "file, is a text"
    )
    label, kinds, most = say(words, size=MOST_UPLOAD / 1e6), [kind[1:] for kind in SUFFIXES], MOST_UPLOAD // 10**6
    sent = uploader(label, kinds, key="atlas_file", max_upload_size=most)
    if sent is None:
        st.info(say("Choose a file: its texts are processed in memory and not stored."))
        st.stop()
    data = sent.getvalue()
    return f"{sent.name}:{hashlib.sha256(data).hexdigest()}", lambda: units_of_upload(sent.name, data)


def find(model: Model, texts: str, read: Callable[[], list[Unit]], masks: MaskSpec) -> Atlas:
    """The atlas, or what there is of it so far under a bar with its progress.

    Raises ValueError for texts that cannot be read, and for a model that has no atlas. Ends the page while there is
    nothing to show.
    """
    check(model, masks)
    length = row_length(model)
    key = ("atlas", model.key, texts, digest(masks.to_json()), length)
    found = results.result_cache().find(key)  # numbers alone: what was measured in one language is shown in every other
    if found is not None:
        return found
    measuring = _measuring(key, lambda: Measuring(model, read(), length, _asking(model, masks, length)))
    if measuring is None:
        st.stop()
    look = measuring.watch()
    if look.state == "done" and look.atlas is not None:
        return _keep(key, look.atlas)
    st.fragment(_progress, run_every=LOOK_EVERY if look.state in ("waiting", "running") else None)(measuring, look)
    if look.atlas is None:
        st.stop()
    return look.atlas


def _asking(model: Model, masks: MaskSpec, length: int) -> Ask:
    """Ask for a unit as a job, in turn with all other readers' jobs; this reader's own do not wait for it."""
    scheduler, reader = results.scheduler(), f"atlas {results.reader()}"

    def ask(unit: Unit, bar: int, still_wanted: Callable[[], object]) -> Tally:
        job = Job(measure_unit, (ModelRef.of(model), unit, masks, length, bar))
        return scheduler.ask(job, reader, still_wanted, low_priority=True)

    return ask


def _measuring(key: Hashable, begin: Callable[[], Measuring]) -> Measuring | None:
    """This session's, of this key; another one is stopped for it. None where the queue is full."""
    state = st.session_state
    old = state.get("atlas_measuring")
    if old is not None and old[0] == key:
        return old[1]
    if old is not None:
        old[1].stop()
        state.atlas_measuring = None
    try:
        new = begin()
    except TooManyAtlases as error:
        st.warning(say("{problem}.", problem=error))
        st.button(say("Try again"), icon=":material/refresh:")
        return None
    state.atlas_measuring = key, new
    with waiting():
        new.wait(AT_ONCE if new.watch().total > 1 else ONE_UNIT)
    return new


def _keep(key: Hashable, atlas: Atlas) -> Atlas:
    st.session_state.atlas_measuring = None
    if not atlas.rows:
        raise ValueError(say("expected texts of at least two tokens, found none"))
    return results.result_cache().get(key, lambda: atlas)


def _progress(measuring: Measuring, drawn: AtlasStatus) -> None:
    now = measuring.watch()
    if now.atlas is not drawn.atlas or now.state != drawn.state:
        st.rerun()
    share = now.done / max(now.total, 1)
    with st.container(horizontal=True, vertical_alignment="center"):
        if now.state == "failed":
            st.error(escaped(now.why), icon=":material/error:")
        elif now.state in ("waiting", "running"):
            st.progress(share, escaped(now.why) if now.state == "waiting" else _so_far(share, now.atlas))
            st.button(say("Stop"), icon=":material/stop:", key="atlas_stop", on_click=measuring.stop)
        else:
            st.progress(share, _shown(escaped(now.why), share, now.atlas))
            st.button(say("Continue"), icon=":material/resume:", key="atlas_go_on", on_click=_go_on, args=(measuring,))


def _so_far(share: float, atlas: Atlas | None) -> str:
    if atlas is None:
        return say("Measuring: {share} so far", share=whole_percent(share))
    words = N_("Measuring: {share}, {texts:,} texts and {tokens:,} tokens so far")
    return say(words, share=whole_percent(share), texts=atlas.texts, tokens=atlas.read)


def _shown(why: str, share: float, atlas: Atlas | None) -> str:
    if atlas is None:
        return say("{why} The result covers {share} of the texts.", why=why, share=whole_percent(share))
    words = N_("{why} The result covers {share} of the texts: {texts:,} texts and {tokens:,} tokens.")
    return say(words, why=why, share=whole_percent(share), texts=atlas.texts, tokens=atlas.read)


def _go_on(measuring: Measuring) -> None:
    try:
        measuring.go_on()
    except TooManyAtlases as error:
        st.toast(say("{problem}.", problem=error))
