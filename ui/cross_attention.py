"""The Cross-attention page: its link, controls, texts and runs; alignment, heatmaps, and accuracy under each mask."""

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import streamlit as st

from i18n import N_, say
from model.base import Model, TokenizedText
from model.cross_attention.dates import UNKNOWN, DatesModel, Written, answer_chances, measure
from model.cross_attention.reading import no_date_reason, read
from model.cross_attention.written_dates import HELD_OUT_DAYS, NO_DATE, SHAPES
from model.heads.view import HeadView, head_name
from model.masks import MaskSpec
from model.sampling import logits_at, predictions
from model.text import TokenBatch, rows_of
from serving.job import ModelRef
from ui import explain, page, results, run_view
from ui.heads import head as head_picture
from ui.link import TextLink, Whole, at_most, shortened
from ui.markdown import escaped
from ui.results import cached_figure
from ui.run_view import RunView
from ui.widgets import bound
from viz import cross_attention as pictures
from viz.head import difference_figure, head_figure, head_range
from viz.numbers import TOP, loss_figure, next_token_table

FIRST = "3 Mar 2021"
ADDED_LINES = (  # lines to add below the user's, each about five characters longer than the one before
    "17 May 2014",
    "Wed, 7 May 2014",
    "Wednesday 7 May 2014",
    "Thursday, 17 January 2008",
    "the twenty-first of June, 1987",  # not shown in other languages
    "Saturday, the 14th of September, 1963",  # not shown in other languages
    "Wednesday, the fourteenth of August, 1963",  # not shown in other languages
    "Wednesday, the twenty-third of September, 1998",  # not shown in other languages
    "Wednesday, the twenty-third day of September, 1998",  # not shown in other languages
    "Wednesday, the twenty-third day of September, in the year 1998",  # not shown in other languages
)
MORE = 5  # default number of padding characters, or of added words: few enough to inspect one by one
EXAMPLES = {
    N_("A short date"): FIRST,
    N_("In a sentence, with the time"): "I was born on 14 February 1968, at 5:40 pm.",  # not shown in other languages
    N_("Two readings: day or month first?"): "3/4/97",
    N_("Month first, because the day cannot come first"): "12/25/2020",
    N_("In capitals, with spaces and a typo"): "  29   FEBUARY   2024 ",
    N_("A day that does not exist"): "31 February 2021",
    N_("Not a date"): "a dozen red apples",  # not shown in other languages
}
MEAN: Literal["mean"] = "mean"
PARTS = ("cross", "encoder", "decoder")
SHOWN = {"now": N_("these masks"), "standard": N_("standard masks"), "change": N_("change")}
Head = Whole | Literal["mean"]


class CrossLink(TextLink):
    model_config = shortened("cross_")
    cross_causal: bool = True
    cross_padding: bool = True
    cross_step: Whole = 6
    cross_shown: Literal[*SHOWN] = "now"  # type: ignore[valid-type]
    cross_row: Whole = 1
    cross_layer: Whole = 0
    encoder_layer: Whole = 0
    decoder_layer: Whole = 1
    cross_head: Head = MEAN
    encoder_head: Head = MEAN
    decoder_head: Head = MEAN


class DatesLink(CrossLink):
    """The link of this page with the built-in dates model, whose text, a date, is apart from that of other pages."""

    TEXT: ClassVar[str] = "date_text"
    FIRST_TEXT: ClassVar[str] = FIRST
    date_text: Annotated[str | None, at_most(100_000)] = None
    cross_beside: Literal[*ADDED_LINES] | None = None  # type: ignore[valid-type]


NO_SOURCE = N_("{model} has no source to attend to, so this page shows the built-in dates model.")
FROM_THE_HUB = N_(
    "Choose an encoder-decoder from the Hub (T5, BART, Marian) under *Another model…* to get the same views."
)


@dataclass(frozen=True)
class SourceTexts:
    """The texts of the batch, of which the last `ours` rows were added by the page, and what was left out."""

    reading: TokenizedText
    ours: int

    @property
    def own_rows(self) -> list[str]:
        return self.reading.rows[: len(self.reading.rows) - self.ours]


def choose_added_line(model: Model, text: str) -> str | None:
    """Return the line that the page adds to a single line so that there is padding; None if the user has several."""
    rows, left_out = rows_of(text, 1)
    if left_out:
        return None
    if not isinstance(model, DatesModel):
        return f"{rows[0]} {' '.join(rows[0].split()[:MORE])}"
    about = say("The shorter of the two lines is padded to the length of the longer one.")
    look: Any = {"format_func": lambda line: say("{line} (length: {count})", line=line, count=len(line)), "help": about}
    look |= bound("cross_beside", st.session_state.cross_beside or default_added_line(text))
    return st.selectbox(say("Second line of the batch (added)"), ADDED_LINES, **look)


def choose_head(model: Model, part: str) -> tuple[int, int | None]:
    """Let the user choose a layer and a head of an attention. Returns both; a head of None is the mean of all heads."""
    layers, heads = run_view.shape(model, part)
    layer_key, head_key = f"{part}_layer", f"{part}_head"
    _at_most(layer_key, layers - 1)
    offered = [MEAN, *range(heads)]
    if st.session_state[head_key] not in offered:
        st.session_state[head_key] = MEAN
    name = lambda head: say("mean of heads") if head == MEAN else str(head)  # noqa: E731
    with st.container(horizontal=True, wrap=False):
        st.selectbox(say("Layer"), range(layers), key=layer_key)
        st.selectbox(say("Head"), offered, key=head_key, format_func=name)
    return chosen_head(part)


def chosen_head(part: str) -> tuple[int, int | None]:
    head = st.session_state[f"{part}_head"]
    return st.session_state[f"{part}_layer"], None if head == MEAN else head


def choose_step(outputs: list[str]) -> int:
    _at_most("cross_step", len(outputs) - 1)
    if len(outputs) > 1:
        look = bound("cross_step", st.session_state.cross_step)
        look["help"] = say("Each step writes one token and attends to the source to do so.")
        written = lambda step: f"{step + 1}: {outputs[step]}"  # noqa: E731
        st.select_slider(say("Decoding step"), range(len(outputs)), format_func=written, **look)
    return st.session_state.cross_step


def default_added_line(text: str) -> str:
    """Return the first of ADDED_LINES that gives the user's first line enough padding, or else the longest."""
    rows, _ = rows_of(text, 1)
    return next((line for line in ADDED_LINES if rows and len(line) >= len(rows[0]) + MORE), ADDED_LINES[-1])


def _at_most(key: str, maximum: int) -> None:
    st.session_state[key] = min(max(st.session_state[key], 0), maximum)


TITLES = {
    "cross": N_("Cross: the output attends to the source"),
    "encoder": N_("Encoder: the source attends to itself"),
    "decoder": N_("Decoder: the output attends to what is written so far"),
}
NAMES = {"cross": N_("cross"), "encoder": N_("encoder"), "decoder": N_("decoder")}  # the attention in a head's name
READING = {
    "cross": N_("Each row is the token just read and predicts the next one: the start token's row predicts the first."),
    "encoder": N_("Every row may attend to the whole source, including later tokens."),
    "decoder": N_(
        "A row may attend to itself and to the tokens before it; without the causal mask, also to tokens that are "
        "not written yet."
    ),
}
MASKS = {  # the masks in the table, in order
    N_("standard masks"): MaskSpec(),
    N_("without the padding mask"): MaskSpec(padding=False),
    N_("without the causal mask"): MaskSpec(causal=False),
    N_("without both masks"): MaskSpec(causal=False, padding=False),
}


SAMPLE = 100  # how many held-out strings are measured
CANDIDATES = 6
Pair = tuple[RunView, RunView]  # the views under the chosen and under the standard masks


def head_view(found: RunView, layer: int, head: int | None) -> HeadView:
    """Return a head's view, cached; for a head of None, the mean of all. Padding is labelled by a short sign."""

    def make() -> HeadView:
        heads = range(run_view.shape_of(found)[1]) if head is None else [head]
        views = [found.head(layer, number) for number in heads]
        weights, scaled = (np.mean([getattr(view, name) for view in views], axis=0) for name in ("weights", "scaled"))
        queries, keys = (_signed(batch, found.row) for batch in (found.run.queries, found.run.keys))
        return replace(views[0], weights=weights, scaled=scaled, queries=queries, keys=keys)

    return found.cached(("signed head", layer, head), make)  # not shown


def _signed(batch: TokenBatch, row: int) -> list[str]:
    pairs = zip(batch.pieces[row], batch.keep[row].tolist(), strict=True)
    return [piece if real else pictures.PADDING_SIGN for piece, real in pairs]


@dataclass(frozen=True, eq=False)
class Steps:
    """The decoding steps of a row's target. outputs [N]: the token that each step writes; the last would come next.

    queries: the positions of the steps' rows in the target. probabilities [N], 0 to 1: of each output.
    """

    outputs: list[str]
    queries: slice
    probabilities: np.ndarray


def steps(found: RunView, standard: RunView) -> Steps:
    """Return the decoding steps of a run: each target token but those given is the output of the row before it.

    The last output is the token that would come next under the standard masks.
    """

    def make() -> Steps:
        here, model = _reading_rows(found), found.model
        written, after = slice(here.start + 1, here.stop), (found.row, here.stop - 1)
        last = int(results.ask(logits_at, standard.run, *after).argmax())
        chance = float(results.ask(logits_at, found.run, *after).softmax(-1)[last])
        losses = results.ask(predictions, found.run, found.row, None, TOP).losses
        outputs = [*found.run.batch.pieces[found.row][written], model.label(last)]
        return Steps(outputs, here, np.append(np.exp(-losses[written]), chance))

    return found.cached("steps", make)


def _reading_rows(found: RunView) -> slice:
    """Return the target's rows that predict an output: its last given token, and all that follow."""
    here = found.run.batch.real(found.row)
    return slice(here.start + found.model.given - 1, here.stop)


def written(model: DatesModel, lines: SourceTexts, spec: MaskSpec) -> Written:
    """Return what the model generates by itself under these masks, for every row."""
    source = lines.reading.batch.source
    assert source is not None
    return results.ask(DatesModel.write, ModelRef.of(model), source, spec)


def notes(model: Model, lines: SourceTexts, row: int) -> list[str]:
    """Return a note on everything that the user should know about the batch."""
    batch, source, count = lines.reading.batch, lines.reading.batch.source, len(lines.own_rows)
    assert source is not None
    # no notes on what is cut of the page's own lines
    own = [replace(one, cut=one.cut[:count], would_continue=one.would_continue[:count]) for one in (batch, source)]
    found = explain.limits(model, replace(lines.reading, batch=replace(own[0], source=own[1])))
    if lines.ours:
        added = escaped(lines.reading.rows[-1][:80])
        padded = N_("Added to the batch so that there is padding ({sign}): “{beside}”.")
        template = N_("Added to the batch: “{beside}”.") if source.keep[row].all() else padded
        found.append(say(template, sign=pictures.PADDING_SIGN, beside=added))
    if bool(source.keep[row].all()):
        found.append(say("This row is the longest in its batch: it has no padding, so the padding mask has no effect."))
    if isinstance(model, DatesModel) and bool((source.ids[row] == UNKNOWN).any()):
        found.append(say("Some of these characters are not in the model's vocabulary: it reads \\<unknown\\> instead."))
    return found


def verdict(model: DatesModel, lines: SourceTexts, spec: MaskSpec, now: RunView) -> str:
    row = now.row

    def make() -> pictures.WrittenAnswer:
        meant = read(_line(model, lines, row))
        answers = tuple(day.isoformat() for day in meant)
        standard = written(model, lines, model.standard)
        wrote = standard.texts[row]
        chances = standard.probabilities[row][: len(wrote)] or standard.probabilities[row]
        index = int(np.argmin(chances))
        end = wrote[index : index + 1] or say("the end")
        return pictures.WrittenAnswer(
            meant=meant,
            chances=results.ask(answer_chances, ModelRef.of(model), lines.reading.rows[row], answers) if meant else (),
            wrote=wrote,
            chance=math.prod(standard.probabilities[row]),
            least=chances[index],
            at=say("{character} (character {number})", character=end, number=index + 1),
            lifted="" if spec == model.standard else _name_of(spec),
            now=written(model, lines, spec).texts[row],
            no_date_reason=no_date_reason(_line(model, lines, row)),
        )

    return pictures.verdict(now.cached("verdict", make))


def alignment(model: Model, part: Pair, *, changed: bool) -> None:
    if not model.predicts:
        st.info(explain.no_predictions(model))
        return
    now, standard = (steps(view, part[1]) for view in part)
    strip = st.container()
    slider, layer_head = st.columns([1.7, 1], vertical_alignment="bottom", gap="medium")
    with slider:
        step = choose_step(standard.outputs)
    with layer_head, st.container(key="select_pair"):
        layer, head = choose_head(model, "cross")
    others = standard.probabilities if changed else None
    strip.html(cached_figure(pictures.outputs_table, standard.outputs, now.probabilities, others, step))
    if changed:
        strip.caption(say("Probabilities are those of the output shown, with all of it as the decoder's input."))

    def make() -> pictures.Alignment:
        one, keep = part[0], part[0].run.keys.keep[part[0].row].numpy()
        shown, rows = head_view(one, layer, head), now.queries
        blocked, keys = shown.any_blocked()[rows], list(shown.keys)
        return pictures.Alignment(keys, now.outputs, shown.weights[rows], ~keep, blocked, now.probabilities, step)

    found = part[0].cached(("alignment", layer, head, step), make)
    st.html(cached_figure(pictures.step_words, found))
    picture, table = st.columns([2.2 if changed else 3.3, 1], gap="medium")
    with picture:
        figure = cached_figure(pictures.alignment_figure, found)
        page.chart(figure, "alignment", cached_figure(pictures.alignment_alt, found))
        about = N_(
            "Top: the chosen step's row over the source. Bottom: the {count} largest weights of each step as lines; "
            "larger weights are more opaque, and the chosen step is red."
        )
        st.caption(say(about, count=pictures.MAX_LINES_PER_STEP))
    position = standard.queries.start + step
    found_next = [view.predictions(position) for view in part]
    some = [predicted.candidates[:CANDIDATES] for predicted in found_next if predicted is not None]
    table.html(cached_figure(next_token_table, *some, changed=changed))


def show_accuracy_by_mask(model: DatesModel, lines: SourceTexts, spec: MaskSpec, standard: RunView) -> None:
    st.markdown("#### " + say("What breaks when a mask is off"))

    def make() -> list[pictures.MaskChoiceRow]:
        meant, rows = read(_line(model, lines, standard.row)), []
        for name, masks in MASKS.items():
            found = results.ask(measure, ModelRef.of(model), masks, SAMPLE)
            wrote = written(model, lines, masks).texts[standard.row]
            judged = pictures.judgement(meant, wrote)
            rows.append(pictures.MaskChoiceRow(name, wrote, judged, found.exact, found.characters, found.probability))
        return rows

    rows = standard.cached("breaks", make)
    table = cached_figure(pictures.mask_choices_table, rows, _name_of(spec), SAMPLE)
    st.html("".join([table, cached_figure(pictures.lifted_words, *rows[:3])]))
    with st.expander(say("What the model reads, and how ambiguous dates are read")):
        st.markdown(say(pictures.RULES, shapes=SHAPES, held_out=HELD_OUT_DAYS, none=NO_DATE))


def losses(part: Pair, *, changed: bool) -> None:
    now, standard = (view.predictions() for view in part)
    if now is None or standard is None:
        return
    curves = (now.losses, standard.losses)
    figure = cached_figure(loss_figure, *curves, part[0].run.batch.pieces[part[0].row], changed=changed)
    explain.show_losses(figure, curves, changed=changed)


def _line(model: DatesModel, lines: SourceTexts, row: int) -> str:
    return lines.reading.rows[row][: model.context]


def _name_of(spec: MaskSpec) -> str:
    return next(name for name, masks in MASKS.items() if masks == spec)


def heatmap(model: Model, part: str, pair: Pair, shown: str) -> None:
    st.markdown("#### " + say(TITLES[part]))  # the cross-attention's head is chosen above, at the alignment
    layer, head = chosen_head(part) if part == "cross" else choose_head(model, part)
    name = f"{say(NAMES[part])} {head_name(layer, head)}" + ("" if head is not None else " " + say("mean of heads"))
    now, standard = (head_view(view, layer, head) for view in pair)
    shown_view = standard if shown == "standard" else now
    rows, columns = shown_view.weights.shape
    tall = min(rows / columns, 1)
    dark = page.is_dark()
    if shown == "change":
        figure = cached_figure(difference_figure, now, standard, dark=dark, tall=tall)
        alt, key = cached_figure(explain.change_alt, name, now, standard), explain.change_key(now, standard)
    else:
        figure = cached_figure(head_figure, shown_view, dark=dark, tall=tall)
        alt = cached_figure(explain.head_alt, name, shown_view, False)
        key = cached_figure(explain.key, [shown_view], head_range(shown_view))
    begin = _reading_rows(pair[0]).start
    go_to_step = lambda position, _: st.session_state.update(cross_step=max(position - begin, 0))  # noqa: E731
    on_pick = go_to_step if part == "cross" else None
    head_picture.show(figure, alt, room="one", key=f"{part}_figure", tall=tall, on_pick=on_pick)
    st.html("".join([page.note(say(READING[part])), key]))
