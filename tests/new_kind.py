"""Tests of a kind of mask that is not in the source, everywhere kinds appear; run by tests/test_mask_kinds.py.

Loaded as a pytest plugin, so that the kind is in the tables before other modules read them. It blocks every n-th key.
"""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from model.mask_kinds import KINDS, Kind
from viz.mask_styles import STYLES, Style

GAPS, TEXT = "gaps", "Once upon a time, the cat sat on a mat, and the dog ran"
KINDS.setdefault(
    GAPS,
    Kind(
        cells=lambda cells, step: (cells.key + 1) % step != 0,
        code=lambda names, step: f"(k_idx + 1) % {step} != 0",
        comment="gaps: nobody sees every so-many-th key",
        phrase="a gap every {size}",
        first=3,
        least=2,
    ),
)
STYLES.setdefault(
    GAPS, Style("gaps", "Gaps", "With 3, no token may attend to every third.", "#123456", np.zeros((6, 6), int), "**")
)

import unmask  # noqa: E402
from lessons.questions import QuestionSubject, answer  # noqa: E402
from model import catalog  # noqa: E402
from model.attribution.parts import ScoreSplit  # noqa: E402
from model.mask_lab import mask_code  # noqa: E402
from model.spec import OFF, MaskSpec  # noqa: E402
from tests.pages.test_mask_lab import Lab  # noqa: E402
from tests.viz.mask_lab.test_canvas import cells_of, hatched  # noqa: E402
from tests.viz.packet import unpacked  # noqa: E402
from ui import explain, page  # noqa: E402
from unmask.report_request import masks_of  # noqa: E402
from viz.export import data  # noqa: E402
from viz.export.paper import Paper  # noqa: E402
from viz.export.picture import bars_picture, head_picture  # noqa: E402
from viz.head import head_figure  # noqa: E402
from viz.heads.attribution import sum_words  # noqa: E402
from viz.heads.bars import bars_figure, row_of  # noqa: E402
from viz.heads.colours import numbers_table  # noqa: E402
from viz.saved.live import kinds_script  # noqa: E402

SPEC = MaskSpec(**{GAPS: 3})
FREE = replace(OFF, **{GAPS: 3})


@pytest.fixture(scope="module")
def run() -> unmask.notebook.Run:
    return unmask.load("story").run(TEXT, masks={"causal": False, GAPS: 3})


def blocked(tokens: int, step: int = 3) -> np.ndarray:
    """Return the cells that the kind blocks, bool [T,T]."""
    return np.broadcast_to((np.arange(tokens) + 1) % step == 0, (tokens, tokens))


def test_it_blocks_and_is_a_field_of_a_spec() -> None:
    model = catalog.load("story")
    trace = model.run(model.encode([TEXT]), FREE)
    tokens = len(trace.keys.pieces[0])
    np.testing.assert_array_equal(trace.blocked_by(2)[GAPS].numpy(), blocked(tokens))
    assert (trace.weights(2, 1).numpy()[blocked(tokens)] == 0).all()
    assert MaskSpec.from_json(SPEC.to_json()) == SPEC != MaskSpec()
    assert (getattr(OFF, GAPS), SPEC.on()[GAPS]) == (0, 3)
    with pytest.raises(ValueError, match=f"{GAPS}: expected a whole number"):
        MaskSpec(**{GAPS: "3"})


def test_a_page_that_holds_the_model_has_its_rule() -> None:
    assert '"name": "gaps"' in kinds_script()
    assert "=> (k_idx + 1) % size != 0 }" in kinds_script()


def test_the_mask_lab_has_a_control_a_link_an_explanation_and_its_colour() -> None:
    lab = Lab().turn_on(GAPS, 4)
    toggle = lab.app.toggle(key=f"mask_{GAPS}_on")
    assert (toggle.label, toggle.proto.help) == ("Gaps", STYLES[GAPS].help)
    assert MaskSpec.from_json(lab.url["masks"]) == MaskSpec(**{GAPS: 4})
    again = Lab(masks=lab.url["masks"])
    assert (again.value(f"mask_{GAPS}"), again.value(f"mask_{GAPS}_on")) == (4, True)
    hidden = np.isnan(again.weights())
    np.testing.assert_array_equal(hidden, np.isnan(lab.weights()))
    np.testing.assert_array_equal(hidden, blocked(len(hidden), 4) | ~np.tri(len(hidden), dtype=bool))
    assert "causal ∧ gaps" in again.words("formula")
    assert "gaps" in again.words("counts")
    (trace,) = [one for one in again.figures()["head_figure"]["data"] if one["name"] == "blocked"]
    assert {"blocked by gaps", "blocked by causal and gaps"} <= set(np.ravel(trace["text"]))
    header, cells = cells_of(again.packets()["unmask_mask"])
    assert hatched(header, cells[5, 3][0]) == [GAPS]
    assert cells[5, 3][0]["words"] == "blocked by gaps"
    assert cells[5, 3][2]["words"] == "drawn open, gaps would block it"
    assert {one["colour"] for one in header["masks"] if one["name"] == GAPS} == {"#123456"}
    assert f'st-key-mask_{GAPS}_on"] label::before {{ background: #123456' in page._style("en")


def test_every_view_of_a_head_says_it(run: unmask.notebook.Run) -> None:
    view = run.view(4, 0)
    whole = "".join(explain.key([view], 1.0))
    assert re.search(r"#123456[^<]*<?[^>]*>.{0,10}gaps", whole)
    assert "blocked by gaps" in head_figure(view, dark=True).to_json()
    for shown in (run.head(4, 0), run.tokens(4, 0), run.arcs(4, [0])):
        header, _ = unpacked(shown.canvas().packet)
        assert [one["words"] for one in header["reasons"]] == ["blocked by gaps"]
    assert "blocked by gaps" in bars_figure(row_of(view, None, 5), largest_first=False).to_json()
    assert (numbers_table(view).to_numpy() == "gaps").sum() == blocked(len(view.keys)).sum()
    nothing = np.zeros(1, np.float32)
    split = ScoreSplit(nothing, nothing, 1.0, nothing, 0.0)
    assert "Blocked by gaps" in sum_words(split, "a", "b", score=0.0, weight="0", blocked=[GAPS])


def test_the_notebook_the_report_and_the_command_have_it(run: unmask.notebook.Run) -> None:
    assert "gaps" in run.masks_by_scope[""]
    header, cells = cells_of(run.mask(4, 0).canvas().packet)
    assert hatched(header, cells[0, 2][0]) == [GAPS]
    np.testing.assert_array_equal(run.head(4, 0).blocked[GAPS], blocked(len(run.labels)))
    assert '"gaps": 3' in unmask.report(run).page().replace("&#34;", '"').replace("\\u0022", '"').replace("&quot;", '"')
    assert unmask.runs.spec_of(MaskSpec(), masks_of(json.dumps({GAPS: 3}))) == SPEC


@pytest.mark.parametrize("kind", mask_code.KINDS)
def test_the_pytorch_code_makes_it(kind: str) -> None:
    model = catalog.load("story")
    trace = model.run(model.encode(["the cat sat on a mat", "a cat sat"], "left"), SPEC)
    for row in range(2):
        source = mask_code.code(kind, trace.layers[1].context, SPEC, row=row, width=7)
        made: dict = {}
        exec(source, made)
        assert (made["allowed"] == trace.allowed(1, row)).all()
        assert KINDS[GAPS].comment in source


def test_files_and_pictures_of_them_have_it(run: unmask.notebook.Run) -> None:
    view = run.view(4, 0)
    picture = head_picture(Paper("a head", "a caption"), view).file().decode()
    assert "blocked: gaps" in picture
    assert "#123456" in picture
    assert "blocked: gaps" in bars_picture(Paper("bars", "a caption"), row_of(view, None, 5)).file().decode()
    labels = tuple(view.keys)
    about = data.About(unmask="0", model="story", layer=4, head=0, text_sha256=data.hash_of(TEXT),
                       masks=json.loads(run.masks.to_json()), queries=labels, keys=labels)  # fmt: skip
    export = data.Export(about, {(4, 0): view})
    np.testing.assert_array_equal(data.read(data.as_npz(export)).chosen.blocked[GAPS], view.blocked[GAPS])
    assert "gaps" in data.as_csv(export)


def test_a_lesson_may_ask_for_it() -> None:
    model = catalog.load("story")
    trace = model.run(model.encode([TEXT]), SPEC)
    found = answer(model, trace, trace, "story", QuestionSubject("picture", 0, 4, 0, among=(MaskSpec(), SPEC)))
    assert found.right == {1}
    (masks,) = found.choices[1].values.values()
    assert masks[-1].sentence.format(**masks[-1].values) == "a gap every 3"


def test_more_than_eight_kinds_block_one_cell() -> None:
    """The browser can still distinguish them, although one byte does not have a bit for each kind."""
    from model.heads.view import HeadView
    from viz.hatch import LINES
    from viz.heads.cells import described

    names, size = list(LINES), 9
    masks = {name: np.indices((size, size))[at % 2] % (at + 2) == 0 for at, name in enumerate(names)}
    assert len(masks) > 8
    assert np.all([mask[0, 0] for mask in masks.values()])
    zeros, labels = np.zeros((size, size), np.float32), list("abcdefghi")
    about, (plane,) = described([HeadView(zeros, zeros, masks, labels, labels)])
    for q, k in np.ndindex(size, size):
        here = [name for name in names if masks[name][q, k]]
        reason = about["reasons"][plane[q, k] - 1]["hatch"] if plane[q, k] else []
        assert [one["name"] for one in reason] == here
