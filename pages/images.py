"""Images: a model describes a picture; where in it each word attends, and what the mask of image tokens does."""

from typing import Any

import streamlit as st

from ui import page

page.set_up("Images")  # first, so that the browser has something to fetch while torch is imported

from i18n import say
from model.images.captioner import VERSIONS
from ui import images, link
from ui.guard import guarded
from ui.images import ImagesLink
from ui.widgets import one_of, select
from viz import images as pictures

ImagesLink.restore()
with st.sidebar:
    sidebar = st.container()
title, switches = st.columns([0.32, 2.3], vertical_alignment="center")
title.markdown(page.heading(say("Images")))
with guarded(say("The model writes the caption …")):
    with sidebar:
        image = images.choose_image()
    if image and image.whole is not None and (other := images.other_model()):
        images.show_another(other, image.whole)
    else:
        with sidebar:
            names = {version: pictures.MASKS[version] for version in VERSIONS}
            follow = lambda: st.session_state.update(images_mask=st.session_state.images_version)  # noqa: E731
            about = say("Three models that differ only in the mask of the image tokens in training.")
            look: Any = {"on_change": follow, "help": about}
            model = images.model_of(select(say("Trained with image mask"), names, "images_version", **look))
            select(say("Prompt"), images.PROMPTS, "images_prompt", help=say("The order of the shapes in the caption."))
        with switches:
            about = say(
                "What image tokens see of each other. Causal: the ones before. Prefix: all, and the prompt (PaliGemma)."
                " Block: all. Block within a window: all nearby ones, as in Gemma 3's local layers. Prefix and block "
                "are kinds of prefix-LM."
            )
            one_of(say("Image mask"), pictures.MASKS, "images_mask", help=about, width="content")
        if image is None:
            st.info(say("Upload an image to see its caption. The model knows only shapes on a plain background."))
        else:
            found = images.captioned(model, image)
            best = images.best_head(found.located[0], model.num_heads) if found.located else None
            captions = found.now.words, found.true, found.standard.words
            st.html(page.sentence(pictures.sentence(*captions, best)))
            left, right = st.columns([1.25, 1], gap="large")
            with left:
                images.show(found)
            with right:
                images.show_numbers(found)
                images.show_heatmap(found)
with st.sidebar:
    link.share(ImagesLink.of_choices())
