"""The atlas as a picture for print."""

import streamlit as st

from model.base import Model
from model.heads.atlas_result import Atlas
from model.language import say, say_count, together
from model.masks import MaskSpec
from model.version import version
from ui import controls, explain
from ui.guard import guarded


def offer(atlas: Atlas, model: Model, masks: MaskSpec, x: str, y: str, chosen: tuple[int, int]) -> None:
    """What the scatter shows, in a popover: its files are made when they are asked for."""
    place = st.popover(say("Picture for print"), icon=":material/image:", key="atlas_picture", on_change="rerun")
    if not place.open:
        return
    from ui.export import picture  # matplotlib takes a second, and nothing else here needs it
    from viz.export import words
    from viz.export.atlas import atlas_picture

    name = explain.plain_title(model)
    names = controls.switches(model)
    on = [mask for mask in names if getattr(masks, mask)]
    lifted = [mask for mask in names if getattr(model.standard, mask) and not getattr(masks, mask)]

    def caption() -> str:
        what = say_count(
            "The {heads} attention heads of {model}, measured over {count} text of {tokens:,} tokens.",
            "The {heads} attention heads of {model}, measured over {count} texts, {tokens:,} tokens in all.",
            atlas.texts, heads=atlas.layers * atlas.heads, model=name, tokens=atlas.read,
        )  # fmt: skip
        held = say("Masks: {masks}.", masks=words.masks_said(on, lifted, only_layer=False))
        return together([what, held, *words.of_atlas(atlas, x, y), f"Unmask {version()}."])

    of = atlas, x, y, chosen
    found = picture.Picture(atlas_picture, of, lambda: say("{model} · all heads", model=name), caption, [])
    with place, guarded(say("Drawing …")):
        picture.say_what_has_no_font(found)
        picture.offer(found, "head_atlas")
