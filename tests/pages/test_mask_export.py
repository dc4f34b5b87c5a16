"""The mask to take away, on a page of its own: the code on screen, the files, and what a loaded file does."""

import io

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

from model.base import Model
from model.mask_lab import mask_code, mask_files
from model.masks import MaskSpec, Stroke

LAYER, HEAD = 4, 0
TEXTS = ["Once upon a time there was a cat.", "The end."]


def page() -> None:
    """As the Mask Lab shows it, on what is in the session."""
    import streamlit as st

    from model import catalog
    from model.mask_lab import mask_code
    from model.masks import MaskSpec
    from serving.job import ModelRef, RunRef
    from tests.pages.test_mask_export import HEAD, LAYER
    from ui.mask_lab import mask_export
    from ui.run_view import RunView

    def load(spec: MaskSpec) -> None:
        st.session_state.loaded = [*st.session_state.get("loaded", []), spec]
        st.session_state.widget = True  # what only a callback may do

    st.toggle("a widget drawn before", key="widget")
    st.session_state.setdefault("code_kind", mask_code.KINDS[0])
    model = catalog.load("story")
    texts, masks, row = st.session_state.texts, st.session_state.masks, st.session_state.row
    run = RunRef(ModelRef.of(model), model.encode(texts, "left"), masks)
    mask_export.show(RunView(model, run, masks, row), LAYER, HEAD, load)


def opened(masks: MaskSpec | None = None, row: int = 1, texts: list[str] = TEXTS) -> AppTest:
    app = AppTest.from_function(page, default_timeout=60)
    app.session_state.texts, app.session_state.masks, app.session_state.row = texts, masks or MaskSpec(), row
    return healthy(app.run())


def healthy(app: AppTest) -> AppTest:
    assert not app.exception, app.exception[0].stack_trace
    return app


def upload(app: AppTest, name: str, data: bytes) -> AppTest:
    app.file_uploader(key="take_file").set_value((name, data, "application/octet-stream"))
    return healthy(app.run())


def loaded(app: AppTest) -> list[MaskSpec]:
    return app.session_state.loaded if "loaded" in app.session_state else []


def saved(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def allowed_by(model: Model, spec: MaskSpec, row: int) -> torch.Tensor:
    return model.run(model.encode(TEXTS, "left"), spec).allowed(LAYER, row, head=HEAD)


@pytest.mark.parametrize("kind", mask_code.KINDS)
def test_the_code_on_screen_gives_the_mask_on_screen(kind: str, story: Model) -> None:
    spec = MaskSpec(sliding=3, sinks=1, documents=" upon", drawn=(Stroke("block", 1, 0, 1, 1),), heads=(HEAD,))
    app = opened(spec)
    app.button_group(key="code_kind").set_value(kind)
    names: dict = {}
    exec(healthy(app.run()).code[0].value, names)
    assert torch.equal(names["allowed"], allowed_by(story, spec, 1))
    if kind != "nn.MultiheadAttention":
        assert names["q"].shape == (1, story.num_heads, len(names["allowed"]), 32)


def test_a_drawing_of_thousands_of_pieces_comes_as_a_file() -> None:
    chess = tuple(Stroke("block", q, k, q, k) for q in range(120) for k in range(q % 2, 120, 2))
    assert opened(MaskSpec(drawn=chess)).code  # on a short text there is little of it
    app = opened(MaskSpec(drawn=chess), 0, ["the cat " * 90])
    assert not app.code
    assert app.download_button(key="take_code").label == "Python"
    assert "save it as a file" in app.info[0].value


def test_json_is_loaded_once(story: Model) -> None:
    spec = MaskSpec(sliding=3, drawn=(Stroke("open", 0, 1, 0, 2),), layers=(1, 4))
    app = upload(opened(), "mask.json", spec.to_json().encode())
    for _ in range(3):
        healthy(app.run())
    assert loaded(app) == [spec]
    assert app.toggle(key="widget").value
    assert "Loaded mask.json" in app.success[0].value
    upload(app, "mask.json", spec.to_json().encode())  # chosen anew, it is loaded anew
    assert loaded(app) == [spec, spec]
    app.file_uploader(key="take_file").set_value(None)
    healthy(app.run())
    assert not app.success
    assert len(loaded(app)) == 2


@pytest.mark.parametrize("row", [0, 1], ids=["no padding", "left padding"])
def test_npy_comes_back(row: int, story: Model) -> None:
    allowed = allowed_by(story, MaskSpec(sliding=2, padding_queries=True), row)
    app = upload(opened(row=row), "mask.npy", mask_files.to_npy(allowed))
    (spec,) = loaded(app)
    assert torch.equal(allowed_by(story, spec, row), allowed)
    assert "rectangles block its False cells" in app.success[0].value
    assert ("They are kept as they were" in app.success[0].value) == bool(row)


@pytest.mark.parametrize(
    ("name", "data", "sentence"),
    [
        ("mask.npy", saved(np.ones((3, 3), dtype=bool)), "got 3 × 3: load it on the text that it was made for"),
        ("mask.npy", b"PK\3\4", "got a zip archive"),
        ("mask.json", b"\xff\xfe", "expected a mask as JSON, got invalid JSON"),
        ("mask.json", b'{"heads": [99]}', "heads: expected numbers from 0 to 5, got"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_mask_is_refused_in_a_sentence(name: str, data: bytes, sentence: str) -> None:
    app = upload(opened(), name, data)
    assert loaded(app) == []
    assert not app.success
    assert sentence in app.error[0].value.replace("\\", "")
    healthy(app.run())
    assert len(app.error) == 1


def test_a_name_is_shown_as_it_is() -> None:
    app = upload(opened(), "[x](javascript:1) <b>$a$.json", b"{}")
    assert r"\[x\](javascript\:1) \<b\>\$a\$.json" in app.success[0].value
