"""The Bug clinic's controls and words."""

import html

import numpy as np
import plotly.graph_objects as go
import streamlit as st
import torch
from torch import Tensor

from model.attention import AttentionStages
from model.base import Model
from model.bug_clinic import bugs
from model.bug_clinic.bugs import BUGS, BY_KEY, NUMBERS, Bug
from model.bug_clinic.clinic import (
    ADDED,
    MOST_ROWS,
    MOST_TOKENS,
    Examination,
    Text,
    examine,
    masks_for,
    prepared,
    targets_for,
)
from model.bug_clinic.laws import LAWS
from ui import explain, link, page, results, run_view
from ui.explain import title_of
from ui.markdown import escaped
from ui.run_view import RunView
from viz.bug_clinic import Finding, LawRow, law_table, say_nan
from viz.head import comparison_figure, head_figure, head_range
from viz.numbers import number
from viz.view import HeadView

MODES = {"all": "All bugs", "spot": "Spot the bug"}
TABLE = (
    "Measured on this row in layer {layer}, all heads: the largest violation of each law, in brackets of what. – is a "
    "law that this text cannot test."
)
HEIGHT = 520  # pixels, so that the numbers below are still in sight
TITLES = ("with the bug", "right version", "bug − right")


def seed() -> None:
    """Once a session, from the URL; later, put the choices where their widgets will find them.

    They are kept apart: streamlit forgets a widget's value while another page is shown, or remembers an older one.
    """
    if "clinic" not in st.session_state:
        bug = BY_KEY.get(st.query_params.get("bug", ""), BUGS[0])
        mode = st.query_params.get("mode", "all")
        st.session_state.clinic = {
            "bug": bug.key, "bug_number": bug.number, "bug_on": True, "mode": mode if mode in MODES else "all"
        }  # fmt: skip
    st.session_state.update(st.session_state.clinic)


def choose(**choices: str | int | bool) -> None:
    """Set some of this page's choices, before their widgets are drawn."""
    st.session_state.clinic |= choices
    st.session_state.update(choices)


def _keep(name: str) -> None:
    st.session_state.clinic[name] = st.session_state[name]


def write_url(wanted: str) -> None:
    """Keep the URL true to what is shown, the text only where it came from a link."""
    state = st.session_state
    chosen = {name: state[name] for name in ("layer", "head", "row", "pad")}
    chosen["text"] = state.text if state.text == state.linked_text else None
    link.write(link.View.model_validate(chosen | {"model": wanted or "story"}))
    st.query_params["bug"] = state.bug
    if state.mode == "spot":
        del st.query_params["bug"]
        st.query_params["mode"] = "spot"


def read(model: Model, text: str) -> tuple[Text, run_view.TokenizedText]:
    """The text's lines as this page takes them, and as the model reads them. Raises ValueError where it cannot."""
    lines = prepared(model, text)
    return lines, run_view.read(model, "\n".join(lines.lines), st.session_state.pad, targets_for(model, lines))


def notes(model: Model, text: Text) -> list[str]:
    """A sentence for everything that is not as the reader typed it."""
    found = []
    if text.added:
        row, others = len(text.lines), "yours gets" if len(text.lines) == 2 else "the others get"
        found.append(f"Row {row} was added: your first line and “{ADDED}” It is longer, so that {others} padding.")
    if text.left_out:
        found.append(f"The page reads {MOST_ROWS} lines; {text.left_out:,} more are left out.")
    if text.cut:
        lines = "line is" if text.cut == 1 else "lines are"
        found.append(f"{text.cut} {lines} cut: this page reads the first {MOST_TOKENS} tokens of each.")
    if not model.standard.causal and masks_for(model).causal:
        found.append(f"{title_of(model)} has no causal mask; here it is given one, for most bugs are about it.")
    if model.kind == "encoder-decoder":
        found.append("Shown is the decoder's attention to its own text: your lines, given to it as the target.")
    return found


def choose_mode() -> str:
    """All bugs, or the game."""
    with st.container(horizontal=True, horizontal_alignment="right"):
        st.segmented_control("Mode", list(MODES), format_func=MODES.__getitem__, key="mode", required=True,
                             label_visibility="collapsed", width="content",
                             on_change=_keep, args=("mode",))  # fmt: skip
    return st.session_state.mode


def choose_bug() -> Bug:
    """One of the twelve, and of those that have several forms, which."""
    st.radio("Bug", list(NUMBERS), format_func=lambda one: f"{one} · {NUMBERS[one]}", key="bug_number",
             on_change=_keep, args=("bug_number",))  # fmt: skip
    variants = {bug.key: bug.variant for bug in BUGS if bug.number == st.session_state.bug_number}
    if st.session_state.bug not in variants:
        choose(bug=next(iter(variants)))
    if len(variants) > 1:
        st.selectbox("Which way", list(variants), format_func=variants.__getitem__, key="bug",
                     on_change=_keep, args=("bug",))  # fmt: skip
    return BY_KEY[st.session_state.bug]


def choose_side(found: Examination) -> bool:
    """Whether to show the bug, or the right version alone."""
    if found.wrong is None:
        return False
    st.toggle("Bug on", key="bug_on", help="Off: the right version alone.", on_change=_keep, args=("bug_on",))
    return st.session_state.bug_on


def sentence(bug: Bug) -> str:
    """What the bug is and what gives it away, as HTML."""
    return f"<b>{html.escape(bug.name)}.</b> {html.escape(bug.signs)}"


def examined(now: RunView, bug: Bug, layer: int) -> Examination:
    """The bug on the row that is looked at; remembered."""
    key = ("clinic", now.key, now.trace.name, now.row, bug.key, layer)
    return results.shared().get(key, lambda: examine(now.model, now.trace, bug, layer, now.row))


def views(now: RunView, bug: Bug, found: Examination, layer: int, head: int) -> tuple[HeadView | None, HeadView]:
    """The head with the bug (None where PyTorch refused) and right."""
    wrong = None if found.wrong is None else view(now, bug, found.wrong, layer, head)
    return wrong, view(now, bug, found.right, layer, head)


def draw(wrong: HeadView | None, right: HeadView, *, compare: bool, nan: bool = False) -> None:
    """With the bug, beside the right version and the difference; or the right version alone.

    nan: the rows that may look nowhere hold no numbers with the bug.
    """
    dark = page.is_dark()
    if wrong is None or not compare:
        figure, alt = head_figure(right, dark=dark), f"Heatmap of the right version: {_size(right)}."
    else:
        figure = comparison_figure(wrong, right, dark=dark, titles=TITLES)
        most = float(np.abs(wrong.weights - right.weights).max())
        alt = f"Heatmaps with the bug, right, and their difference: {_size(right)}; a weight changes by {most:.2f}."
        if nan:
            say_nan(figure)
    _show(figure, alt)


def draw_alone(wrong: HeadView) -> None:
    """A heatmap whose bug is to be found."""
    alt = f"Heatmap with a bug: {_size(wrong)}. The largest weight is {wrong.weights.max():.2f}."
    _show(head_figure(wrong, dark=page.is_dark()), alt)


def effects(now: RunView, bug: Bug, found: Examination, layer: int) -> list[str]:
    """What the bug does here, in sentences."""
    said = [_on_the_output(now, bug, found, layer)]
    if bug.number == 1 and found.wrong is not None and now.trace.num_heads > 1:
        said.append(_stretch(now, st.session_state.head))
    if not found.exact:
        said.append(_STAND_INS[bug.key].format(model=title_of(now.model)))
    if bug.dtype == torch.float16:
        said.append("Both sides are computed in float16, so the right version shows its rounding.")
    return [*said, *_on_the_loss(now, bug, found)]


def key(shown: list[HeadView], *, nan: bool) -> str:
    """How to read the pictures, as HTML."""
    more = "With the bug, a row with nothing to attend to holds NaN." if nan else ""
    return explain.key(shown, head_range(*shown)) + (f'<p class="key">{more}</p>' if more else "")


def table(bug: Bug, found: Examination) -> str:
    """All laws, measured on this row and layer, as HTML."""
    rows = []
    for key, law in LAWS.items():
        wrong, right = (Finding(one.amount, one.broken, law.of, refused=bool(one.error)) for one in found.verdicts[key])
        rows.append(LawRow(law.words, wrong, right, law.needs, key == bug.law))
    return law_table(rows)


def code(bug: Bug) -> str:
    """The wrong line and the mend, as a diff."""
    return f"- {bug.wrong}\n+ {bug.right}"


_STAND_INS = {
    "unprojected": "What the layers of {model} read before their projections is not kept: here its queries stand in "
    "for that in all three places.",
    "first-layer": "{model} was trained without a causal mask: the queries and keys here are those of a run that has "
    "it in every layer.",
}


def view(now: RunView, bug: Bug, stages: AttentionStages, layer: int, head: int) -> HeadView:
    """What a computation really blocked is hatched, in the colour of the mask that blocks the cell or is to blame."""
    blocked = stages.masked[head] == -torch.inf
    native = now.trace.blocked_by(layer, now.row)
    by = {name: mask & blocked for name, mask in native.items()}
    unasked = blocked & ~torch.stack([torch.zeros_like(blocked), *native.values()]).any(0)
    if unasked.any():
        by[bug.blames] = by.get(bug.blames, torch.zeros_like(blocked)) | unasked
    return HeadView(
        stages.weights[head].nan_to_num(0.0).numpy(),
        stages.scaled[head].numpy(),
        {name: mask.numpy() for name, mask in by.items()},
        list(now.trace.queries.pieces[now.row]),
        list(now.trace.keys.pieces[now.row]),
    )


def _on_the_output(now: RunView, bug: Bug, found: Examination, layer: int) -> str:
    if found.wrong is None:
        return f"PyTorch refuses: “{escaped(found.error)}”. No weight is computed; shown is the right version."
    change = found.difference().amax(-1)  # [H,T]
    what = "What the next user of the scores computes" if bug.second_use else f"The output of layer {layer}"
    lost = ~change.isfinite().all(0)
    if lost.any():
        return f"{what} is NaN at {int(lost.sum())} of {len(lost)} positions, those that may look nowhere."
    if change.max() == 0:
        where = f"Layer {layer} has its mask. " if layer < bug.first_layer else ""
        return f"{where}Here the bug leaves no trace: it takes {bug.needs}."
    real = change[:, now.trace.queries.real(now.row)]
    if real.max() == 0:
        return f"{what} changes in padding's own rows only, by up to {_bold(change.max())}: no real token notices here."
    head, place = divmod(int(change.argmax()), change.shape[1])
    token = escaped(now.trace.queries.pieces[now.row][place])
    reach = number(float(found.right.output.abs().max()))
    return (
        f"{what} changes by up to {_bold(change.max())} (head {head}, position {place}, “{token}”); "
        f"its largest number is {reach} when right."
    )


def _on_the_loss(now: RunView, bug: Bug, found: Examination) -> list[str]:
    wrong, right = found.loss
    if np.isnan(right) or found.wrong is None:
        return []
    where = "every layer" if not bug.first_layer else "every layer after the first"
    if np.isnan(wrong):
        return [f"With the bug in {where}, NaN spreads to every token: the model predicts nothing."]
    if round(wrong, 2) == round(right, 2):
        return [f"With the bug in {where}, the mean loss of this row stays {right:.2f} nats."]
    why = ": better than it should be, for it reads what it is to predict" if wrong < right else ""
    return [f"With the bug in {where}, the mean loss of this row goes from {right:.2f} to **{wrong:.2f}** nats{why}."]


def _stretch(now: RunView, head: int) -> str:
    pieces = now.trace.queries.pieces[now.row]
    first, last = bugs.stretch(head, now.trace.num_heads, len(pieces))
    text = escaped("".join(pieces[first : last + 1]))
    return f"What it takes for head {head} is all heads' parts of positions {first} to {last} only: “{text}”."


def _show(figure: go.Figure, alt: str) -> None:
    st.plotly_chart(figure.update_layout(height=HEIGHT), key="head_figure", config=page.CHART, alt=alt)


def _size(view: HeadView) -> str:
    return f"{view.weights.shape[0]} queries by {view.weights.shape[1]} keys"


def _bold(value: Tensor) -> str:
    return f"**{number(float(value))}**"
