"""The atlas as a picture for print."""

import streamlit as st

from i18n import N_, say, say_count, together
from model.atlas.result import Atlas
from model.base import Model
from model.masks import MaskSpec
from ui import controls, explain
from ui.guard import guarded
from viz.export.versions import version

TEXTS = {
    "sample": N_("the sample that ships with Unmask"), "text": N_("those in the page's text box"), "file": N_("a file"),
    "random": N_("random tokens that come twice"),
}  # fmt: skip


def offer(atlas: Atlas, model: Model, masks: MaskSpec, texts: str, x: str, y: str, chosen: tuple[int, int]) -> None:
    """What the scatter shows, in a popover: its files are made when they are asked for. texts: a key of TEXTS."""
    place = st.popover(say("Picture for print"), icon=":material/image:", key="atlas_picture", on_change="rerun")
    if not place.open:
        return
    from ui import printed  # matplotlib takes a second, and nothing else here needs it
    from viz.export import words
    from viz.export.atlas import atlas_picture

    name = explain.plain_title(model)
    on, lifted = controls.held_and_lifted(model, masks)

    def caption() -> str:
        what = say_count(
            "The {heads} attention heads of {model}, measured over {count} text of {tokens:,} tokens.",
            "The {heads} attention heads of {model}, measured over {count} texts, {tokens:,} tokens in all.",
            atlas.texts, heads=atlas.layers * atlas.heads, model=name, tokens=atlas.read,
        )  # fmt: skip
        which = say("Texts: {which}.", which=say(TEXTS[texts]))
        held = say("Masks: {masks}.", masks=words.masks_said(on, lifted, only_layer=False))
        return together([what, which, held, *words.of_atlas(atlas, x, y), f"Unmask {version()}."])

    of = atlas, x, y, chosen
    found = printed.PrintedPicture(atlas_picture, of, lambda: say("{model} · all heads", model=name), caption, [])
    with place, guarded(say("Drawing …")):
        printed.say_what_has_no_font(found)
        printed.offer(found, "head_atlas")
