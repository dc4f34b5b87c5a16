"""Masks from and for other programs: a mask exported as code and files, a file loaded, and a pasted mask named."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import streamlit as st

from i18n import N_, say, say_count, together
from model.mask_lab import mask_code, mask_files
from model.mask_lab.recognize import NamedMask, name_mask
from model.masks import MaskSpec
from model.spec import MAX_BYTES
from ui import inference, page, results, run_view
from ui.markdown import escaped
from ui.results import cached_figure
from ui.run_view import RunView
from ui.widgets import download, uploaded, uploader
from viz.charts import mask_figure

LONGEST_SHOWN = 60_000  # characters of code: highlighting more takes a browser seconds
ABOUT = N_(
    "The mask of the layer and head shown, as Python code that needs only torch. True means “may attend”, except "
    "where PyTorch uses the opposite convention."
)
NPY_HELP = N_("The mask of this head as numpy.load reads it: bool, queries by keys, True = may attend.")
JSON_HELP = N_("All masks as composed, with the layers and heads that they apply to, for any text.")


def show(now: RunView, layer: int, head: int, load: Callable[[MaskSpec], None]) -> None:
    """Offer the mask of one head as PyTorch code, NPY and JSON; a file that the user uploads is passed to load, once.

    load is called in a widget's callback, so that it can set the state of widgets.
    """
    code, files = st.columns([2.7, 1], gap="medium")
    with code:
        st.segmented_control(say("As PyTorch code"), mask_code.KINDS, key="code_kind", required=True)
        written = now.ask(mask_code.code_of, layer, head, st.session_state.code_kind)
        st.caption(say(ABOUT))
        if len(written) <= LONGEST_SHOWN:
            st.code(written, "python")
        else:
            template = N_("The drawing has so many pieces that the code has {count:,} characters: save it as a file.")
            st.info(say(template, count=len(written)))
            download("Python", written, "mask.py", "text/x-python", key="take_code")
    npy = lambda: now.ask(mask_files.npy_of, layer, head)  # noqa: E731
    composed = lambda: now.masks.to_json().encode("utf-8", "backslashreplace")  # noqa: E731
    with files:
        with st.container(horizontal=True):
            download("NPY", npy, "mask.npy", "application/octet-stream", key="take_npy", help=say(NPY_HELP))
            download("JSON", composed, "mask.json", "application/json", key="take_json", help=say(JSON_HELP))
        if st.button(say("What this mask costs a kernel"), icon=":material/dns:", key="cost_of_mask"):
            inference.open_cost(now.masks)
        if now.run.keys.keep.shape[1] ** 2 > MAX_BYTES:
            template = N_("The NPY file of a text this long exceeds the {most:,} bytes that can be loaded.")
            st.caption(say(template, most=MAX_BYTES))
        _take_file(now, load)


def _take_file(now: RunView, load: Callable[[MaskSpec], None]) -> None:
    """Draw an uploader. It keeps its file between runs; its callback, and the file's id, tell of a new one."""

    def taken() -> None:
        file = uploaded("take_file")
        if file is None or file.file_id == st.session_state.get("taken_file"):
            return
        st.session_state.taken_file = file.file_id
        try:
            spec, sentence = _read(Path(file.name).name, file.getvalue(), now)
            load(spec)
        except ValueError as error:
            st.session_state.taken = False, escaped(say("{file}: {problem}.", file=file.name, problem=error))
        else:
            st.session_state.taken = True, sentence

    file = uploader(
        say("Load a mask, NPY or JSON"), ["npy", "json"], key="take_file", on_change=taken, max_upload_size=1
    )
    if file is not None and file.file_id == st.session_state.get("taken_file"):
        well, sentence = st.session_state.taken
        (st.success if well else st.error)(sentence)


def _read(name: str, data: bytes, now: RunView) -> tuple[MaskSpec, str]:
    """Return the masks in a file, and a sentence that describes them.

    Raises ValueError, whose message states what was expected and what to do.
    """
    if name.lower().endswith(".npy") or data.startswith(np.lib.format.MAGIC_PREFIX):
        cells, keep = mask_files.read_npy(data), now.run.keys.keep[now.row].cpu()
        spec, real = mask_files.spec_from_matrix(cells, keep), int(keep.sum())
        found = say_count(
            "Loaded {file} as a drawing: {count} rectangle blocks its False cells between real tokens.",
            "Loaded {file} as a drawing: {count} rectangles block its False cells between real tokens.",
            len(spec.drawn),
            file=escaped(name),
        )
        if len(keep) == real:
            return spec, together([found, say("Every other mask is off.")])
        if len(cells) == real:
            return spec, together([found, say("Padding stays masked.")])
        follow = say("The cells of padding, which cannot be drawn on, follow the padding mask.")
        note = say("They are kept as they were.")
        if lost := mask_files.differing(spec, cells, keep):
            note = say_count("{count} cell there could not be kept.", "{count} cells there could not be kept.", lost)
        return spec, together([found, follow, note])
    try:
        spec = MaskSpec.from_json(data)
        spec.check_scope(*run_view.shape_of(now), now.layer_numbers)
    except ValueError as error:
        raise ValueError(say("{problem}; the JSON button saves a mask that can be loaded", problem=error)) from None
    return spec, say("Loaded {file}: the masks in it that this model has are now on.", file=escaped(name))


EXAMPLE = "tensor([[ True, False],\n        [ True,  True]])"  # not shown: the same in every language
NAME_ABOUT = N_(
    "Paste a mask as PyTorch or NumPy prints it, or load it as NPY: True or 1 = may attend, or 0 and −∞ as added to "
    "scores. Rows are queries, columns are keys."
)


def show_named(now: RunView, load: Callable[[MaskSpec], None]) -> None:
    """Draw what the pasted mask is made of, or its error; a button passes it to load, which runs it."""
    left, right = st.columns([1, 1], gap="medium")
    with left:
        st.caption(say(NAME_ABOUT))
        text = st.text_area(say("Mask"), key="named_mask", height=200, placeholder=EXAMPLE)
        file = uploader(say("Load a mask, NPY"), ["npy"], key="named_file", max_upload_size=5)
        given = text if text.strip() else file.getvalue() if file else None
    if given is None:
        return
    try:
        found: NamedMask = results.ask(name_mask, given)
    except ValueError as error:
        left.error(escaped(say("{problem}.", problem=error)))
        return
    with right:
        st.markdown(escaped(say(found.sentence)))
        labels = [str(query) for query in range(found.allowed.shape[1])]
        page.chart(cached_figure(mask_figure, found.allowed, labels), "named", say(found.sentence))
    with left:
        if found.masks is None:
            st.caption(say("This mask covers only some of the queries: it cannot be run on a whole text."))
            return
        spec = MaskSpec.from_json(json.dumps(found.masks))
        st.button(say("Run this mask on the text"), on_click=load, args=(spec,), type="primary")
        tokens, size = int(now.run.keys.keep[now.row].sum()), len(labels)
        if tokens != size:
            notes = [say("The mask has {size:,} tokens, the text {tokens:,}.", size=size, tokens=tokens)]
            if spec.drawn:
                notes.append(say("Drawn cells keep their positions."))
            st.caption(together(notes))
