"""What the Cross-attention page needs of streamlit: its model, its texts, its choices, and what it measures once."""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import streamlit as st
import torch

from model.base import Model, TokenizedText
from model.cross_attention import dates
from model.cross_attention.date_measures import Measured, measure
from model.cross_attention.dates import DatesModel, Written
from model.masks import MaskSpec
from model.text import TokenBatch, rows_of
from ui import controls, explain, results, run_view
from ui.choices import restore
from ui.run_view import RunView
from viz.cross_attention.alignment import PADDING_SIGN, Alignment
from viz.numbers import Candidate
from viz.view import HeadView

FIRST = "the 3rd of March 2021"
LONGER = (  # the lines that can stand beside the reader's, each about ten characters longer
    "17 May 2014",
    "Wednesday 7 May 2014",
    "the twenty-first of June, 1987",
    "Saturday, the 14th of September, 1963",
    "Wednesday, the twenty-third of September, 1998",
    "Wednesday, the twenty-third day of September, in the year 1998",
)
MORE = 20  # characters of padding that the reader's line gets at first, where there is a line so long
EXAMPLES = {
    "Short, with a two-digit year": "3/4/97",
    "Words only, but for the year": "Wednesday, the twenty-first of October 2015",
    "In capitals, with spaces": "  29   FEBRUARY   2024 ",
    "A day that is not there": "31 February 2021",
    "No date at all": "a dozen red apples",
}
MEAN = "mean"
SAMPLE = 100  # held-out strings
CANDIDATES = 6
PARTS = ("cross", "encoder", "decoder")
TITLES = {
    "cross": "Cross: the output looks at the source",
    "encoder": "Encoder: the source looks at itself",
    "decoder": "Decoder: the output looks at what is written",
}
READING = {
    "cross": "A row is the token just read, and it writes the next one: the start token's row writes the first.",
    "encoder": "Every row may look at the whole source, later tokens too.",
    "decoder": "A row may look at itself and at what stands before; without the causal mask, at what it is to write.",
}
SHOWN = {"now": "these masks", "standard": "standard masks", "change": "change"}
MASKS = {  # of the table, in its order
    "standard masks": MaskSpec(),
    "without the padding mask": MaskSpec(padding=False),
    "without the causal mask": MaskSpec(causal=False),
    "without both masks": MaskSpec(causal=False, padding=False),
}
CHOICES: dict[str, Any] = {"date_text": FIRST, "cross_causal": True, "cross_padding": True, "cross_step": 6,
                           "cross_shown": "now", "cross_row": 1, "cross_beside": None}  # fmt: skip
CHOICES |= {"cross_layer": 0, "encoder_layer": 0, "decoder_layer": 1}
CHOICES |= {f"{part}_head": MEAN for part in PARTS}
IN_URL = {"causal": "cross_causal", "padding": "cross_padding", "step": "cross_step"}


def seed() -> None:
    """Put the page's own choices where their widgets find them: as they were when it was left, or from the URL."""
    restore("kept_cross", lambda: CHOICES | _from_url())


def keep(name: str) -> None:
    """Remember the choices for when the page is left, and keep the URL true to them, the text left out."""
    state = st.session_state
    state.kept_cross = {choice: state[choice] for choice in CHOICES}
    wanted = {"model": None if name in ("", "story") else name}
    wanted |= {
        field: None if state[choice] == CHOICES[choice] else str(state[choice]).lower()
        for field, choice in IN_URL.items()
    }
    for field, value in wanted.items():
        if value is None:
            st.query_params.pop(field, None)
        elif st.query_params.get(field) != value:
            st.query_params[field] = value


@st.cache_resource(max_entries=1, show_spinner=False)
def dates_model() -> DatesModel:
    """The one that ships, shared by everybody, read-only."""
    return dates.load()


def model_of(chosen: Model) -> Model:
    """The chosen model where it has a source to look at; else the dates model."""
    return chosen if chosen.kind == "encoder-decoder" else dates_model()


def instead_of(chosen: Model) -> str:
    """Why another model is shown than the chosen one."""
    return (
        f"{explain.title_of(chosen)} is {'an' if chosen.kind == 'encoder' else 'a'} {chosen.kind}: it has no source to "
        "look at, so this page shows the dates model, which ships with it. Under *Another model…* an encoder-decoder "
        "of the hub (T5, BART, Marian) gets the same views."
    )


@dataclass(frozen=True)
class Lines:
    """The rows of the batch, of which the last `ours` are the page's own, and what was left out."""

    reading: TokenizedText
    ours: int

    @property
    def readers(self) -> list[str]:
        return self.reading.rows[: len(self.reading.rows) - self.ours]


def choose_texts(model: Model) -> tuple[str, list[str] | None]:
    """The text, one row a line; and the targets, of models whose targets the reader may type."""
    if not isinstance(model, DatesModel):
        return controls.choose_text(), controls.choose_target(model)
    st.text_area("A date in English, one a line", key="date_text", height=100)
    st.selectbox("Examples", EXAMPLES, index=None, key="date_example", placeholder="Examples",
                 label_visibility="collapsed", on_change=_take_example)  # fmt: skip
    return st.session_state.date_text, None


def choose_beside(model: Model, text: str) -> str | None:
    """The line of ours beside the reader's only one, so that there is padding; None where there are several."""
    rows, left_out = rows_of(text, 1)
    if left_out:
        return None
    if not isinstance(model, DatesModel):
        return f"{rows[0]} {rows[0]}"
    if st.session_state.cross_beside not in LONGER:
        long_enough = (line for line in LONGER if len(line) >= len(rows[0]) + MORE)
        st.session_state.cross_beside = next(long_enough, LONGER[-1])
    st.selectbox("The line beside it in the batch (ours)", LONGER, key="cross_beside",
                 format_func=lambda line: f"{line} ({len(line)} characters)",
                 help="The shorter line of the two is padded to the length of the longer one.")  # fmt: skip
    return st.session_state.cross_beside


def read(model: Model, text: str, targets: list[str] | None, beside: str | None) -> Lines:
    """The rows as the model reads them, the last one ours where there is one. Raises what reading raises."""
    if beside is None:
        return Lines(run_view.read(model, text, "right", targets), 0)
    rows, _ = rows_of(text, 1)
    both = targets and [targets[0], targets[0]]
    return Lines(run_view.read(model, f"{rows[0]}\n{beside}", "right", both), 1)


def choose_row(lines: Lines) -> int:
    """Which of the reader's rows to look at, from 0."""
    count = len(lines.readers)
    st.session_state.cross_row = min(max(st.session_state.cross_row, 1), count)
    if count > 1:
        st.selectbox("Row", range(1, count + 1), key="cross_row",
                     format_func=lambda number: f"{number}: {lines.readers[number - 1][:40]}")  # fmt: skip
    return st.session_state.cross_row - 1


def choose_masks(model: Model) -> MaskSpec:
    """The two switches of this page."""
    with st.container(horizontal=True, horizontal_alignment="right", gap="medium"):
        st.toggle("Causal (decoder)", key="cross_causal", width="content",
                  help="On: no character of the output sees a later one.")  # fmt: skip
        st.toggle("Padding (source)", key="cross_padding", width="content",
                  help="On: nobody looks at the padding that evens out a short source.")  # fmt: skip
    return replace(model.standard, causal=st.session_state.cross_causal, padding=st.session_state.cross_padding)


def choose_head(model: Model, part: str) -> tuple[int, int | None]:
    """The layer, and the head or None for the mean of all, of one of the attentions."""
    layers, heads = run_view.shape(model, part)
    keys, offered = (f"{part}_layer", f"{part}_head"), [MEAN, *range(heads)]
    st.session_state[keys[0]] = min(max(st.session_state[keys[0]], 0), layers - 1)
    if st.session_state[keys[1]] not in offered:
        st.session_state[keys[1]] = MEAN
    left, right = st.columns(2)
    left.selectbox("Layer", range(layers), key=keys[0])
    right.selectbox(
        "Head", offered, key=keys[1], format_func=lambda head: "mean of heads" if head == MEAN else str(head)
    )
    head = st.session_state[keys[1]]
    return st.session_state[keys[0]], None if head == MEAN else head


def choose_step(outputs: list[str]) -> int:
    """Which of the written tokens to look at, from 0."""
    st.session_state.cross_step = min(max(int(st.session_state.cross_step), 0), len(outputs) - 1)
    if len(outputs) > 1:
        st.select_slider("The step to look at", range(len(outputs)), key="cross_step",
                         format_func=lambda step: f"{step + 1}: {outputs[step]}",
                         help="Each step writes one token, and looks at the source to do so.")  # fmt: skip
    return st.session_state.cross_step


def choose_shown(changed: bool) -> str:
    """Which weights the heatmaps show, where masks are lifted."""
    if not changed:
        return "now"
    st.segmented_control("The heatmaps under", list(SHOWN), format_func=SHOWN.__getitem__, key="cross_shown",
                         required=True)  # fmt: skip
    return st.session_state.cross_shown


@dataclass(frozen=True, eq=False)
class Part:
    """One of a run's attentions now and under the standard masks."""

    now: RunView
    standard: RunView


def run(model: Model, lines: Lines, spec: MaskSpec, row: int) -> dict[str, Part]:
    """One run under spec and one under the standard masks, as each of their attentions. Raises what running raises."""
    return {part: Part(*run_view.run_pair(model, lines.reading.batch, spec, "model", row, part)) for part in PARTS}


def view(found: RunView, layer: int, head: int | None) -> HeadView:
    """A head to draw, or the mean of the layer's heads; padding by its sign, which takes less room than its name."""
    heads = range(found.trace.num_heads) if head is None else [head]
    views = [found.head(layer, number) for number in heads]
    weights, scaled = (np.mean([getattr(one, name) for one in views], axis=0) for name in ("weights", "scaled"))
    queries, keys = (_signed(batch, found.row) for batch in (found.trace.queries, found.trace.keys))
    return replace(views[0], weights=weights, scaled=scaled, queries=queries, keys=keys)


@dataclass(frozen=True, eq=False)
class Steps:
    """The steps of writing a row's target. outputs [N]: what each writes, the last what would come next.

    queries: where the steps' rows are, among the target's positions. probabilities [N], 0 to 1: of each output.
    """

    outputs: list[str]
    queries: slice
    probabilities: np.ndarray


@torch.inference_mode()
def steps(found: RunView, standard: RunView) -> Steps:
    """What the run says of its target, of which every token but the first was written by the row before it.

    The last output is what would come next under the standard masks.
    """
    trace, row = found.trace, found.row
    here = trace.batch.real(row)
    last = int(standard.trace.next_token(row).argmax())
    outputs = [*trace.batch.pieces[row][here.start + 1 : here.stop], found.model.label(last)]
    chances = np.exp(-trace.losses(row).numpy()[here.start + 1 : here.stop])
    return Steps(outputs, here, np.append(chances, float(trace.next_token(row)[last])))


@torch.inference_mode()
def candidates(found: RunView, position: int) -> list[Candidate]:
    """The likeliest tokens after a position of the target."""
    top = found.trace.readout(found.trace.states[found.row, position]).float().softmax(-1).topk(CANDIDATES)
    pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    return [Candidate(found.model.label(token), chance) for token, chance in pairs]


def alignment(found: RunView, shown: HeadView, some: Steps, step: int) -> Alignment:
    """The cross-attention of each step."""
    keep_source = found.trace.keys.keep[found.row].numpy()
    rows = some.queries
    return Alignment(
        list(shown.keys), some.outputs, shown.weights[rows], ~keep_source, shown.any_blocked()[rows],
        some.probabilities, step,
    )  # fmt: skip


def written(model: DatesModel, lines: Lines, spec: MaskSpec) -> Written:
    """What the model writes by itself under masks, for every row; remembered."""
    source = lines.reading.batch.source
    assert source is not None
    key = ("written", model.key, tuple(lines.reading.rows), spec)
    return results.shared().get(key, lambda: model.write(source, spec))


def measured(model: DatesModel, spec: MaskSpec) -> Measured:
    """On the held-out sample; remembered, and shown while it is made."""
    key: Hashable = ("dates measured", model.key, spec, SAMPLE)
    bar = st.empty()
    words = f"Writing {SAMPLE} held-out dates …"
    found = results.shared().get(
        key, lambda: measure(model, spec, SAMPLE, lambda share: cast(None, bar.progress(share, words)))
    )
    bar.empty()
    return found


def _signed(batch: TokenBatch, row: int) -> list[str]:
    """The row's pieces, padding as a sign."""
    pairs = zip(batch.pieces[row], batch.keep[row].tolist(), strict=True)
    return [piece if real else PADDING_SIGN for piece, real in pairs]


def _from_url() -> dict[str, Any]:
    """The choices of a link; those that make no sense are left out."""
    query = st.query_params.to_dict()
    found: dict[str, Any] = {
        choice: query[field] == "true"
        for field, choice in IN_URL.items()
        if query.get(field) in ("true", "false") and field != "step"
    }
    if query.get("step", "").isdecimal() and len(query["step"]) < 5:
        found["cross_step"] = int(query["step"])
    return found


def _take_example() -> None:
    if st.session_state.date_example:
        st.session_state.date_text = EXAMPLES[st.session_state.date_example]
        st.session_state.date_example = None
