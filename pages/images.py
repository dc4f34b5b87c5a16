"""Images: a model describes a picture; where in it each word attends, and what the mask of image tokens does."""

import streamlit as st

from ui import page

page.set_up("Images")  # first, so that the browser has something to fetch while torch is imported

from i18n import say
from ui import images, link
from ui.guard import guarded
from ui.images import ImagesLink

ImagesLink.restore()
with st.sidebar:
    sidebar = st.container()
title, switches = st.columns([0.32, 2.3], vertical_alignment="center")
title.markdown(page.heading(say("Images")))
with guarded(say("The model writes the caption …")):
    with sidebar:
        image = images.choose_image()
    if image and image.whole is not None and st.session_state.images_model.strip():
        images.show_another(image.whole)
    else:
        with sidebar:
            model = images.choose_model()
        with switches:
            images.choose_mask()
        if image is None:
            st.info(say("Upload an image to see its caption. The model knows only shapes on a plain background."))
        else:
            found = images.captioned(model, image)
            st.html(page.sentence(images.sentence(found)))
            left, right = st.columns([1.25, 1], gap="large")
            with left:
                images.show(found)
            with right:
                images.show_numbers(found)
                images.show_heatmap(found)
with st.sidebar:
    link.share(ImagesLink.of_choices())
