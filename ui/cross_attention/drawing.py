"""The pieces of the Cross-attention page, each drawn from what was run."""

import numpy as np
import streamlit as st

from model.base import Model
from model.cross_attention import written_dates
from model.cross_attention.dates import UNKNOWN, DatesModel
from model.masks import MaskSpec
from ui import explain, page
from ui.cross_attention import lines as ours
from ui.cross_attention.lines import Lines, Part
from ui.markdown import escaped
from viz.cross_attention.alignment import LINES_A_STEP, PADDING_SIGN, alignment_alt, alignment_figure, written_strip
from viz.cross_attention.words import RULES, Answer, Breaks, breaks_table, breaks_words, step_words
from viz.cross_attention.words import verdict as verdict_html
from viz.head import difference_figure, head_figure, head_range
from viz.numbers import loss_figure, next_token_table
from viz.view import HeadView

HEIGHT, CROSS_WIDTH, LABELS = (
    430,
    820,
    160,
)  # pixels: of a square picture; the cross picture's cells; what is around them


def notes(model: Model, lines: Lines, spec: MaskSpec, row: int) -> list[str]:
    """A sentence for everything that the reader should know of the batch."""
    found = [note for note in explain.limits(model, lines.reading) if not lines.ours or "row 2" not in note]
    source = lines.reading.batch.source
    assert source is not None
    if lines.ours:
        beside = escaped(lines.reading.rows[-1][:80])
        found.append(f"In the batch beside your line, so that there is padding ({PADDING_SIGN}): “{beside}” (ours).")
    if bool(source.keep[row].all()):
        found.append("This row is the longest of its batch: it has no padding, and the padding mask changes nothing.")
    if isinstance(model, DatesModel) and bool((source.ids[row] == UNKNOWN).any()):
        found.append("The model has no token for some of these characters: it reads \\<unknown\\> in their place.")
    return found


def verdict(model: DatesModel, lines: Lines, spec: MaskSpec, row: int) -> str:
    """What is written for the row, whether it is right, and how sure the model is."""
    standard = ours.written(model, lines, model.standard)
    text, wrote = lines.reading.rows[row], standard.texts[row]
    chances = standard.probabilities[row][: len(wrote)] or standard.probabilities[row]
    least = int(np.argmin(chances))
    lifted = "" if spec == model.standard else _name_of(spec)
    now = ours.written(model, lines, spec).texts[row]
    return verdict_html(
        Answer(
            text=text,
            meant=written_dates.read(text),
            wrote=wrote,
            day=written_dates.read_iso(wrote),
            least=chances[least],
            at=f"{wrote[least : least + 1] or 'the end'} (character {least + 1})",
            lifted=lifted,
            now=now,
            now_day=written_dates.read_iso(now),
        )
    )


def alignment(model: Model, part: Part, *, changed: bool) -> None:
    """The written tokens with their probabilities, the lines from the source, and one step's source row."""
    if not model.predicts:
        st.info(explain.NO_PREDICTIONS["decoder"])
        return
    now, standard = ours.steps(part.now, part.standard), ours.steps(part.standard, part.standard)
    strip = st.empty()
    slider, layer_head = st.columns([1.7, 1], vertical_alignment="bottom", gap="medium")
    with slider:
        step = ours.choose_step(standard.outputs)
    with layer_head:
        layer, head = ours.choose_head(model, "cross")
    strip.html(written_strip(standard.outputs, now.probabilities, standard.probabilities if changed else None, step))
    found = ours.alignment(part.now, ours.view(part.now, layer, head), now, step)
    st.html(step_words(found))
    picture, table = st.columns([2.2 if changed else 3.3, 1], gap="medium")
    with picture:
        st.plotly_chart(alignment_figure(found), key="alignment", config=page.CHART, alt=alignment_alt(found))
        st.caption(
            f"Above, the chosen step's row over the source. Below, lines as opaque as the weight is large, the "
            f"{LINES_A_STEP} heaviest of each step, the chosen step's in red."
        )
    position = standard.queries.start + step
    some = (ours.candidates(part.now, position), ours.candidates(part.standard, position))
    table.html(next_token_table(*some, changed=changed))


def heatmaps(model: Model, parts: dict[str, Part], shown: str) -> None:
    """Cross, encoder and decoder, each with its own layer and head."""
    _heatmap(model, parts, "cross", shown, chosen=(st.session_state.cross_layer, st.session_state.cross_head))
    left, right = st.columns(2, gap="medium")
    for place, part in ((left, "encoder"), (right, "decoder")):
        with place:
            _heatmap(model, parts, part, shown)


def what_breaks(model: DatesModel, lines: Lines, spec: MaskSpec, row: int) -> None:
    """Every choice of masks, measured."""
    st.markdown("##### What breaks when a mask is lifted")
    place = st.container()
    rows = {}
    with place:
        for name, masks in ours.MASKS.items():
            found, wrote = ours.measured(model, masks), ours.written(model, lines, masks).texts[row]
            rows[name] = Breaks(
                name, wrote, written_dates.read_iso(wrote), found.exact, found.characters, found.probability
            )
        st.html(breaks_table(list(rows.values()), _name_of(spec), ours.SAMPLE))
        names = list(ours.MASKS)
        st.html(breaks_words(*(rows[name] for name in names[:3])))
    with st.expander("What the model reads, and the rules where people disagree"):
        shapes = len(written_dates.TEMPLATES) + len(written_dates.NUMERIC)
        st.markdown(RULES.format(shapes=shapes, held_out=written_dates.HELD_OUT_DAYS))


def losses(part: Part, *, changed: bool) -> None:
    """The loss of every target token, of models that are not ours."""
    now, standard = part.now.predictions(), part.standard.predictions()
    if now is None or standard is None:
        return
    curves = (now.losses, standard.losses)
    st.caption(explain.loss_caption(*curves, changed=changed))
    figure = loss_figure(*curves, part.now.trace.batch.pieces[part.now.row], changed=changed)
    st.plotly_chart(figure, key="loss_figure", config=page.CHART, alt=explain.loss_alt(*curves))


def _name_of(spec: MaskSpec) -> str:
    """The masks by their name in the table."""
    return next(name for name, masks in ours.MASKS.items() if masks == spec)


def _heatmap(model: Model, parts: dict[str, Part], part: str, shown: str, chosen: tuple | None = None) -> None:
    st.markdown(f"##### {ours.TITLES[part]}")
    if chosen is None:
        layer, head = ours.choose_head(model, part)
    else:
        layer, head = chosen[0], None if chosen[1] == ours.MEAN else chosen[1]
    name = f"{part} L{layer} " + ("mean of heads" if head is None else f"H{head}")
    now, standard = ours.view(parts[part].now, layer, head), ours.view(parts[part].standard, layer, head)
    dark = page.is_dark()
    if shown == "change":
        figure = difference_figure(now, standard, dark=dark)
    else:
        figure = head_figure(now if shown == "now" else standard, dark=dark)
    figure.update_layout(height=_height(now) if part == "cross" else HEIGHT, margin_t=30)
    drawn = standard if shown == "standard" else now
    st.plotly_chart(figure, key=f"{part}_figure", config=page.CHART, alt=explain.head_alt(name, drawn, False))
    st.caption(ours.READING[part])
    st.html(explain.key([drawn], head_range(drawn)))


def _height(view: HeadView) -> int:
    """Of a wide picture with square cells, so that it is no taller than they are."""
    rows, columns = view.weights.shape
    return min(round(rows * CROSS_WIDTH / columns), HEIGHT) + LABELS
