"""A mask from elsewhere: pasted or loaded, named, and run on the text."""

import json
from collections.abc import Callable

import streamlit as st

from i18n import N_, say, together
from model.mask_lab.recognize import NamedMask, name_mask
from model.masks import MaskSpec
from ui import page, results
from ui.markdown import escaped
from ui.results import cached_figure
from ui.run_view import RunView
from ui.widgets.uploads import uploader
from viz.inference import mask_figure

EXAMPLE = "tensor([[ True, False],\n        [ True,  True]])"  # not shown: the same in every language
ABOUT = N_(
    "Paste a mask as PyTorch or NumPy prints it, or load it as NPY: True or 1 = may attend, or 0 and −∞ as added to "
    "scores. Each row is a query, each column a key."
)


def show(now: RunView, load: Callable[[MaskSpec], None]) -> None:
    """What the mask is made of, or what is wrong with it; a button gives it to load, which runs it."""
    left, right = st.columns([1, 1], gap="medium")
    with left:
        st.caption(say(ABOUT))
        text = st.text_area(say("Mask"), key="named_mask", height=200, placeholder=EXAMPLE)
        file = uploader(say("Load a mask, NPY"), ["npy"], key="named_file", max_upload_size=8)
        given = text if text.strip() else file.getvalue() if file else None
    if given is None:
        return
    try:
        found: NamedMask = results.ask(name_mask, given)
    except ValueError as error:
        left.error(escaped(say("{problem}.", problem=error)))
        return
    with right:
        st.markdown(escaped(found.sentence))
        labels = [str(query) for query in range(found.allowed.shape[1])]
        page.chart(cached_figure(mask_figure, found.allowed, labels), "named", found.sentence)
    with left:
        _offer(found, now, load)


def _offer(found: NamedMask, now: RunView, load: Callable[[MaskSpec], None]) -> None:
    """A button that runs the mask; why it differs from the text's, where it does."""
    tokens, size = int(now.run.keys.keep[now.row].sum()), found.allowed.shape[1]
    if found.masks is None:
        st.caption(say("This mask is of some of the queries only: it cannot be run on a whole text."))
        return
    spec = MaskSpec.from_json(json.dumps(found.masks))
    st.button(say("Run this mask on the text"), on_click=load, args=(spec,), type="primary")
    if tokens != size:
        words = [say("The mask has {size:,} tokens, the text {tokens:,}.", size=size, tokens=tokens)]
        if spec.drawn:
            words.append(say("Drawn cells keep their positions."))
        st.caption(together(words))
