"""The controls of the page Head atlas, its link, and the scatter."""

from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
import streamlit as st
from pydantic import BeforeValidator, ConfigDict, StringConstraints

from i18n import N_, say, say_all
from model.atlas.result import EVERY_MEASURE, MEASURES, OF_WEIGHTS, Atlas
from model.base import Model
from model.circuits.composition import strongest_reads
from model.circuits.ov_qk import copying_scores
from model.masks import MaskSpec
from model.text import first_line
from serving.job import ModelRef
from ui import controls, page, results
from ui.heads.head import heard
from ui.link import TextLink, Whole, with_masks
from ui.widgets.choices import bound
from viz.head_atlas.scatter import distance_names, scatter
from viz.numbers import percent


def show(atlas: Atlas, x: str, y: str, chosen: tuple[int, int]) -> bool:
    """The scatter; a click on a point chooses its head. Gives whether there is one, or a measure counts nowhere."""
    nowhere = [name for name in dict.fromkeys((x, y)) if np.isnan(atlas.measure(name)).all()]
    if nowhere:
        none = N_("No query of these texts can be measured for {measures}: choose another measure, or other texts.")
        st.info(say(none, measures=say_all(list(map(title, nowhere)))))
        return False
    words = N_("Every head as a point: {across} on the x axis, {up} on the y axis.")
    alt = say(words, across=title(x), up=title(y))
    page.chart(scatter(atlas, x, y, chosen), "atlas_scatter", alt, heard=heard("atlas_scatter", on_pick=_take_head))
    return True


def distances_alt(atlas: Atlas, layer: int, head: int) -> str:
    names, shares = distance_names(atlas), atlas.spread[layer, head]
    most = int(shares[: len(names)].argmax())
    words = N_("Attention of {head} by distance in tokens. The largest share, {share}: {distance}.")
    return say(words, head=atlas.name((layer, head)), share=percent(shares[most]), distance=names[most])


def _take_head(layer: int, head: int | None) -> None:
    if head is not None:
        st.session_state.layer, st.session_state.head = layer, head


SOURCES = {"sample": N_("Sample"), "text": N_("Text on the left"), "file": N_("File"), "random": N_("Random")}
HELP = N_(
    "Sample: short texts included with the app. Random: rows of random tokens repeated twice, which reveal induction "
    "heads."
)
SECTIONS = {"examples": N_("Where it is strongest"), "find": N_("Find heads"), "all": N_("All heads")}
FIRST_X, FIRST_Y = "induction", "previous"
Measure = Literal[*MEASURES]  # type: ignore[valid-type]
Axis = Literal[*EVERY_MEASURE]  # type: ignore[valid-type]


Marks = Annotated[str | None, StringConstraints(pattern=r"^\d{1,3}(,\d{1,3}){0,47}$")]
_Masked: Any = with_masks(TextLink, but="padding")


class AtlasLink(_Masked):
    """This page's link. A file is in no link: whoever opens it is shown the sample."""

    model_config = ConfigDict(alias_generator=lambda name: name.removeprefix("atlas_"))
    layer: Whole | None = None
    head: Whole | None = None
    atlas_source: Literal[*SOURCES] = "sample"  # type: ignore[valid-type]
    atlas_x: Axis = FIRST_X
    atlas_y: Axis = FIRST_Y
    atlas_by: Measure | None = None  # None: what the head does most
    atlas_section: Literal[*SECTIONS] = "examples"  # type: ignore[valid-type]
    atlas_looks: Marks = None  # the positions that the finder's user marked; None: those marked until then
    atlas_at: Marks = None
    atlas_back: Annotated[int, BeforeValidator(lambda value: max(min(int(value), 512), -512))] = 2


def choose_axes() -> tuple[str, str]:
    with st.container(horizontal=True, wrap=False):
        across, up = (words(st.session_state[name]) for name in ("atlas_x", "atlas_y"))
        x = st.selectbox(say("X axis"), list(EVERY_MEASURE), format_func=title, key="atlas_x", help=across)
        return x, st.selectbox(say("Y axis"), list(EVERY_MEASURE), format_func=title, key="atlas_y", help=up)


def with_weights(model: Model, atlas: Atlas, *names: str) -> Atlas:
    """The atlas with those of these measures that come of the weights. Raises NotSupported where they are not known."""
    ways = {"copying_scores": copying_scores, "strongest_reads": strongest_reads}
    asked = {name: results.ask(ways[name], ModelRef.of(model)) for name in names if name in OF_WEIGHTS}
    return replace(atlas, of_weights=asked)


def choose_masks(model: Model) -> MaskSpec:
    """Of the masks that the model was trained with all but padding, which nobody looks at here."""
    return controls.switch_masks(model, [name for name in model.describe().masks if name != "padding"])


def choose_by(atlas: Atlas, layer: int, head: int) -> str:
    """The measure that the head's examples are ordered by; the one it is called after until another is chosen."""
    shown = st.session_state.atlas_by or next(iter(atlas.named(layer, head)), "peak")
    return st.selectbox(say("By"), list(MEASURES), **bound("atlas_by", shown), format_func=title, help=words(shown))


def share(model: Model, text: str) -> None:
    """Keep the URL true to the page, and offer links. What was marked in other tokens is no choice any more."""
    here = (model.key, first_line(text))
    if st.session_state.get("atlas_marked", (here,))[0] != here:
        st.session_state.atlas_looks = st.session_state.atlas_at = None
    source = st.session_state.atlas_source
    controls.share(AtlasLink, model, atlas_source="sample" if source == "file" else source)


def title(name: str) -> str:
    return say(EVERY_MEASURE[name].title)


def words(name: str) -> str:
    return say(EVERY_MEASURE[name].words)
