"""The Head atlas's controls, link and scatter plot; and its atlas, which is cached or measured text after text while
the page shows the results so far."""

import hashlib
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import streamlit as st
from pydantic import BeforeValidator, StringConstraints

from i18n import N_, msg, say, say_all, say_count
from model.atlas import progress
from model.atlas import unit as texts
from model.atlas.progress import AtlasProgress, Measure
from model.atlas.result import EVERY_MEASURE, MEASURES, Atlas
from model.atlas.tally import Tally
from model.atlas.unit import check, measure_unit, row_length
from model.base import Model
from model.masks import MaskSpec
from model.text import first_line
from serving.job import ModelRef, digest
from ui import controls, page, results
from ui.guard import guarded, waiting
from ui.heads.head import callbacks
from ui.link import NO_FILES, TextLink, Whole, shortened, with_masks
from ui.widgets import uploader
from viz.heads.atlas import scatter
from viz.numbers import whole_percent


def show(atlas: Atlas, x: str, y: str, chosen: tuple[int, int]) -> bool:
    """Draw the scatter plot; a clicked point chooses its head. Returns False if no head has a value for a measure."""
    nowhere = [name for name in dict.fromkeys((x, y)) if np.isnan(atlas.measure(name)).all()]
    if nowhere:
        none = N_("No head has a value for {measures} on these texts: choose another measure, or other texts.")
        st.info(say(none, measures=say_all(list(map(title, nowhere)))))
        return False
    alt = say("Every head as a point: {across} on the x axis, {up} on the y axis.", across=title(x), up=title(y))
    clicks = callbacks("atlas_scatter", on_pick=controls.take_head)
    page.chart(scatter(atlas, x, y, chosen), "atlas_scatter", alt, callbacks=clicks)
    return True


SOURCES = {"sample": N_("Sample"), "text": N_("Text on the left"), "file": N_("File"), "random": N_("Random")}
HELP = N_(
    "Sample: short texts included with the app. Random: rows of random tokens repeated twice, which reveal induction "
    "heads."
)
SECTIONS = {"examples": N_("Where it is strongest"), "find": N_("Find heads"), "all": N_("All heads")}
FIRST_X, FIRST_Y = "induction", "previous"
MeasureName = Literal[*MEASURES]  # type: ignore[valid-type]
AxisName = Literal[*EVERY_MEASURE]  # type: ignore[valid-type]


Marks = Annotated[str | None, StringConstraints(pattern=r"^(-|\d{1,3}(,\d{1,3}){0,47})$")]  # "-": none
_Masked: Any = with_masks(TextLink, but="padding")


class AtlasLink(_Masked):
    """The link of the Head atlas. It contains no file: whoever opens it gets the sample texts."""

    NOT_INCLUDED = NO_FILES
    model_config = shortened("atlas_")
    layer: Whole | None = None
    head: Whole | None = None
    atlas_source: Literal[*SOURCES] = "sample"  # type: ignore[valid-type]
    atlas_x: AxisName = FIRST_X
    atlas_y: AxisName = FIRST_Y
    atlas_by: MeasureName | None = None  # None: the measure that the head is named after
    atlas_section: Literal[*SECTIONS] = "examples"  # type: ignore[valid-type]
    atlas_looks: Marks = None  # query positions marked by the user; None: the default marks
    atlas_at: Marks = None
    atlas_back: Annotated[int, BeforeValidator(lambda value: max(min(int(value), 512), -512))] = 2


def share(model: Model, text: str) -> None:
    """Write the page's choices to the URL, and offer links. Marks made in other tokens are dropped."""
    here = (model.key, first_line(text))
    if st.session_state.get("atlas_marked", (here,))[0] != here:
        st.session_state.atlas_looks = st.session_state.atlas_at = None
    source = st.session_state.atlas_source
    controls.share(AtlasLink, model, atlas_source="sample" if source == "file" else source)


def title(name: str) -> str:
    return say(EVERY_MEASURE[name].title)


def words(name: str) -> str:
    return say(EVERY_MEASURE[name].words)


MAX_GROWING = 2  # unfinished atlases of a session: one that was stopped, and another to look at meanwhile
MAX_SECONDS = 600.0  # seconds of one measurement before the user must continue it
SHOW_EVERY = 1.5  # seconds of measuring between two updates of the page


@dataclass(eq=False)
class GrowingAtlas:
    """An atlas that a session is measuring. done: number of units in `progress`. seconds: measured since it was begun
    or continued. stopped: the reason, "" while it is measured."""

    key: Hashable
    units: list[texts.Unit]
    progress: AtlasProgress
    done: int = 0
    seconds: float = 0.0
    stopped: str = ""

    def grow(self, measure: Measure) -> None:
        """Measure units for SHOW_EVERY seconds, at least one. Raises what measure raises."""
        began = time.monotonic()
        for _ in progress.measured(self.units, self.progress, measure):
            self.done += 1
            if time.monotonic() - began > SHOW_EVERY:
                break
        self.seconds += time.monotonic() - began
        if self.seconds > MAX_SECONDS:
            self.stopped = msg("Stopped after {minutes:.0f} minutes.", minutes=MAX_SECONDS / 60)

    def stop(self) -> None:
        self.stopped = msg("Stopped.")

    def resume(self) -> None:
        self.stopped, self.seconds = "", 0.0


def source(model: Model, chosen: str, text: str) -> tuple[str, Callable[[], list[texts.Unit]]]:
    """Return the texts' part of a cache key, and a function that reads them. Ends the page if there are none yet."""
    if chosen == "sample":
        return chosen, texts.units_of_sample
    if chosen == "random":
        return chosen, lambda: texts.units_of_random(model)
    if chosen == "text":
        if not text.strip():
            st.info(say("Type a text on the left, one per line, or choose other texts above."))
            st.stop()
        return f"text:{digest(text).hex()}", lambda: texts.units_of_text(text)
    template = N_(
        "Your own texts, at most {size:.0f} MB: each line of a .txt file, or each cell of the column “text” of a .csv "
        "file, is a text"
    )
    label, kinds = say(template, size=texts.MAX_UPLOAD / 1e6), [kind[1:] for kind in texts.SUFFIXES]
    sent = uploader(label, kinds, key="atlas_file", max_upload_size=texts.MAX_UPLOAD // 10**6)
    if sent is None:
        st.info(say("Choose a file: its texts are processed in memory and not stored."))
        st.stop()
    data = sent.getvalue()
    return f"{sent.name}:{hashlib.sha256(data).hexdigest()}", lambda: texts.units_of_upload(sent.name, data)


def find(
    model: Model, source_key: str, read: Callable[[], list[texts.Unit]], masks: MaskSpec
) -> tuple[Atlas, Callable[[], object]]:
    """Return the atlas, or its results so far, drawing a progress bar; and a function to call at the end of the page,
    which measures more and reruns the page.

    Raises ValueError for texts that cannot be read, and for a model that has no atlas.
    """
    check(model, masks)
    length, state = row_length(model), st.session_state
    key = ("atlas", model.key, source_key, digest(masks.to_json()), length)
    found = results.result_cache().find(key)  # numbers only, which are valid in every language
    if found is not None:
        return found, lambda: None
    unfinished: list[GrowingAtlas] = state.get("atlas_unfinished", [])
    growing = next((one for one in unfinished if one.key == key), None)
    if growing is None:
        growing = GrowingAtlas(key, read(), progress.new_progress(model, length))
    others = [one for one in unfinished if one is not growing]
    state.atlas_unfinished = [*others, growing][-MAX_GROWING:]

    def measure(unit: texts.Unit, bar: int) -> Tally:
        return results.ask_anew(measure_unit, ModelRef.of(model), unit, masks, length, bar, low_priority=True)

    if not growing.done:
        with waiting():
            growing.grow(measure)
    atlas = progress.atlas_from_progress(growing.progress, model)
    if growing.done == len(growing.units):
        if not atlas.rows:
            raise ValueError(say("expected texts of at least two tokens, found none"))
        state.atlas_unfinished = others
        return results.result_cache().get(key, lambda: atlas), lambda: None
    slot = st.container()
    _show_progress(growing, atlas)

    def resume() -> None:
        if not growing.stopped:
            with slot, guarded():
                growing.grow(measure)
            st.rerun()

    return atlas, resume


def _show_progress(growing: GrowingAtlas, atlas: Atlas) -> None:
    share = growing.done / len(growing.units)
    read = say_count("{count} text", "{count} texts", atlas.texts)
    so_far: dict[str, Any] = {"share": whole_percent(share), "read": read, "tokens": atlas.read}
    with st.container(horizontal=True, vertical_alignment="center"):
        if growing.stopped:
            template = N_("{why} The result covers {share} of the texts: {read} and {tokens:,} tokens.")
            st.progress(share, say(template, why=growing.stopped, **so_far))
            st.button(say("Continue"), icon=":material/resume:", key="atlas_go_on", on_click=growing.resume)
        else:
            st.progress(share, say("Measuring: {share}, {read} and {tokens:,} tokens so far", **so_far))
            st.button(say("Stop"), icon=":material/stop:", key="atlas_stop", on_click=growing.stop)
