"""Activation patching on the Compare page: all heads, positions or paths in turn, and chosen ones together."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import streamlit as st

from i18n import N_, say, together
from model.circuits.patching import LENGTHS, MAX_PAIRS, Patch, PatchMetric, read_pairs, run_patch_pair
from model.heads.ablation import Head
from model.inference.calls import continuation_ids
from model.spec import Stroke
from serving.job import ModelRef, RunRef
from ui import page, results, run_view
from ui.guard import guarded
from ui.heads.head import callbacks
from ui.markdown import escaped
from ui.results import cached_figure
from ui.run_view import RunView
from ui.widgets import bound, by_layer, one_of, select, uploader
from viz.circuits import PatchView, patch_alt, patch_figure, patch_sentence, patch_table
from viz.numbers import Candidate, next_token_table

PATCHED = {
    "heads": N_("heads"),
    "positions": N_("residual stream by position"),
    "q": N_("paths into the head's q"),
    "k": N_("paths into the head's k"),
    "v": N_("paths into the head's v"),
    "pairs": N_("heads, over pairs of texts in a file"),
}
INTO = {"b": N_("A into B"), "a": N_("B into A")}
METRICS = {"difference": N_("logit difference"), "probability": N_("log-probability")}
MEASURED = {
    "difference": N_("Measured: the logit of “{answer}” minus that of “{instead}”."),
    "probability": N_("Measured: the log-probability of “{answer}”."),
}
FIRST_COUNTS = N_("Of an answer of several tokens, only the first is measured.")
NOT_ALL = N_("Only the last {some} of the {count:,} positions up to the query are compared: {first} to {last}.")
HELP = N_(
    "Each cell is one run of B with one activation taken from A: a head's output, a layer's attention output (“all”), "
    "or the residual stream that enters a layer at one position (Wang et al. 2022). A large effect says that, for "
    "these two texts and this measure, the activation carries what A and B differ in. It does not say that it is "
    "computed there, and a small one may mean that other heads compensate. A into B asks what suffices, B into A what "
    "is needed (Heimersheim and Nanda 2024)."
)
PATHS = N_(
    "Only what flows from each head through the residual stream and MLPs into {head}'s {part} is taken from the other "
    "run; all other heads stay as they are (path patching)."
)
KNOCKOUT = N_(
    "Attention knockout, which blocks one query from one key, is not a patch but a mask drawn for one head. This opens "
    "the Mask Lab with the key that {head} attends to most blocked, instead of the masks composed there."
)
ELSEWHERE = N_("A's other masks are kept in that head only: all other heads get the model's own.")
SAME = N_("A and B are the same run, so there is nothing to patch: choose other masks or another text for B.")
FILE = N_(
    "A CSV file with columns a, b, answer and instead_of: texts with equal token counts, at most {most} pairs; of each "
    "answer, the first token is measured"
)
PAIR = {  # texts for models, which are not translated
    "text": "The old man had a green bird and the old woman had a black horse. The green",  # not shown
    "b_text": "The old man had a black bird and the old woman had a green horse. The green",  # not shown
    "patch_answer": " bird",
    "patch_instead": " horse",
    "differs": "text",
}
INPUTS, MAX_POSITIONS = ("q", "k", "v"), 64
KINDS = {"h": "head", "a": "layer", "p": "position"}  # letters of patches in a link


@dataclass(frozen=True, eq=False)
class Direction:
    """The run that activations are taken from (given), the run that they are put into (taking), and their names."""

    given: RunView
    taking: RunView
    names: tuple[str, str]

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the PatchPair of the two runs."""
        runs = self.given.run, self.given.row, self.taking.run, self.taking.row
        return results.ask(run_patch_pair, ModelRef.of(self.taking.model), *runs, method, *arguments)

    def patches(self, of: str, layer: int, query: int) -> list[Patch]:
        """Return a layer's patches: positions up to the query; or heads and, unless paths are patched, the layer."""
        if of == "positions":
            first = max(self.taking.real.start, query + 1 - MAX_POSITIONS)
            return [Patch("position", layer, position) for position in range(first, query + 1)]
        heads = [Patch("head", layer, head) for head in range(run_view.shape_of(self.taking)[1])]
        return heads if of in INPUTS else [*heads, Patch("layer", layer)]

    def effects(self, metric: PatchMetric, patches: list[Patch]) -> np.ndarray:
        """Return the effect of each patch alone."""
        found: np.ndarray = self.ask("effects", metric, tuple((patch,) for patch in patches))
        return found

    @property
    def shift(self) -> int:
        """A token's position in the patched run minus that in B, which links contain: padding may differ."""
        return 0 if self.names[1] == "B" else self.taking.real.start - self.given.real.start

    def together(self) -> list[Patch]:
        """Return the chosen patches that this run has: the text, padding or model may have changed since."""
        layers, heads = run_view.shape_of(self.taking)
        real = range(self.taking.real.start, self.taking.real.stop)
        numbers = lambda patch: real if patch.kind == "position" else range(heads)  # noqa: E731
        return [patch for patch in _patches(self.shift) if patch.layer < layers and patch.number in numbers(patch)]

    def layer_names(self) -> list[str]:
        return run_view.layer_names(self.taking.model, "self")


def show(a: RunView, b: RunView, head: Head, position: int) -> None:
    """Draw a button and, once it is pressed, the controls, the picture and what is patched together. head: A's.
    position: A's position whose next token is asked about."""
    state = st.session_state
    st.markdown("#### " + say("Activation patching"), help=say(HELP))
    on = bool(state.patching)
    label = say("Close the patching") if on else say("Patch one run with the other's activations")
    icon = ":material/close:" if on else ":material/swap_horiz:"
    st.button(label, key="patch", icon=icon, on_click=lambda: state.update(patching=not on))
    if not on:
        return
    controls = st.container(horizontal=True, vertical_alignment="bottom")
    with controls:
        of = select(say("Patched"), PATCHED, "patch_of", width=260)
        one_of(say("Direction"), INTO, "patch_into", width="content")
        one_of(say("Measured"), METRICS, "patch_metric", width="content")
    if _cannot(a, b, of):
        return
    if of == "pairs":
        with guarded():
            _over_pairs(a, b)
        return
    with guarded(), controls:
        chosen, position = _directed(a, b), min(max(position, a.real.start), a.real.stop - 1)
        target = position - a.real.start + chosen.taking.real.start
        first, second = chosen.ask("likeliest", target)  # the defaults for empty fields
        typed = [_typed(chosen.taking, say("Answer"), "patch_answer", first)]
        if state.patch_metric != "probability":
            typed.append(_typed(chosen.taking, say("Instead of"), "patch_instead", second))
        metric = PatchMetric(target, *(ids[0] for ids in typed))
    with guarded():
        labels = [escaped(a.model.label(ids[0])) for ids in typed]
        notes = [say(MEASURED[state.patch_metric], answer=labels[0], instead=labels[-1])]
        st.caption(together(notes + [say(FIRST_COUNTS)] * any(len(ids) > 1 for ids in typed)))
        _show_map(chosen, head, metric, of)
        if of not in INPUTS:
            _show_together(chosen, metric)
    lifted = a.masks != a.model.standard
    st.caption(together([say(KNOCKOUT, head=a.name(*head)), *([say(ELSEWHERE)] if lifted else [])]))
    if st.button(say("Open in the Mask Lab"), key="patch_knockout", icon=":material/draw:"):
        row = a.head(*head).weights[position, a.real]  # nothing is drawn on padding
        cell = position - a.real.start, int(row.argmax())
        mask = replace(a.masks, drawn=(Stroke("block", *cell, *cell),), layers=(head[0],), heads=(head[1],))
        state.kept |= {"masks": mask.to_json()}
        state.pop("kept_LabLink", None)  # so that the Mask Lab reads its masks from `kept` again
        st.switch_page("pages/mask_lab.py")


def _directed(a: RunView, b: RunView) -> Direction:
    return Direction(a, b, ("A", "B")) if st.session_state.patch_into == "b" else Direction(b, a, ("B", "A"))


def _cannot(a: RunView, b: RunView, of: str) -> bool:
    """Whether nothing can be patched; shows the reason. The pairs of a file have their own texts."""
    lengths = {name: side.real.stop - side.real.start for name, side in (("a", a), ("b", b))}
    if a.model is not b.model:
        st.info(say("Patching needs one model: choose the same model for A and B."))
    elif of == "pairs":
        return False
    elif (a.run.key, a.row) == (b.run.key, b.row):
        st.info(say(SAME))
    elif lengths["a"] != lengths["b"]:
        st.info(say("{problem}.", problem=say(LENGTHS, **lengths)))
    else:
        return False
    st.button(say("Use two texts of equal length"), key="patch_pair", on_click=lambda: st.session_state.update(PAIR))
    return True


def _typed(side: RunView, label: str, key: str, likeliest: int) -> list[int]:
    """Return the tokens of the typed text; by default, the likeliest one."""
    text = st.text_input(label, key=key, placeholder=side.model.label(likeliest), max_chars=40, width=130)
    return continuation_ids(side.model, text)[0] if text.strip() else [likeliest]


def _show_map(chosen: Direction, head: Head, metric: PatchMetric, of: str) -> None:
    taking, rows = chosen.taking, chosen.layer_names()
    if of in INPUTS:
        name, rows = taking.name(*head), rows[: head[0]]
        st.caption(say(PATHS, head=name, part=of))
        if not rows:
            st.info(say("No layer comes before that of {head}: choose a head of a later layer.", head=name))
            return
    grid = [chosen.patches(of, layer, metric.query) for layer in range(len(rows))]

    def measure(layer: int) -> Any:
        if of in INPUTS:
            return chosen.ask("path_effects", metric, head, of, layer)
        return chosen.effects(metric, grid[layer])

    values, both = np.stack(by_layer(rows, measure)), chosen.ask("measured", metric)
    patches = [] if of in INPUTS else chosen.together()  # a path is not the patch of its head
    framed = {(row, column) for row, some in enumerate(grid) for column, patch in enumerate(some) if patch in patches}
    columns = [_column(taking, patch) for patch in grid[0]]
    left_out, first = "", grid[0][0].number
    if of == "positions" and first > taking.real.start:
        count = metric.query + 1 - taking.real.start
        left_out = say(NOT_ALL, some=len(columns), count=count, first=first, last=metric.query)
    look: Any = {"chosen": frozenset(framed), "left_out": left_out}
    view = PatchView(values, rows, columns, _unit(metric), both, chosen.names, **look)
    shift = chosen.shift  # only a number: the callback outlives this run and must not keep a view in memory

    def toggle(row: int, column: int | None) -> None:
        chosen, patch = _patches(shift), grid[row][column or 0]
        _write([one for one in chosen if one != patch] if patch in chosen else [*chosen, patch], shift)

    _show(view, None if of in INPUTS else toggle)


def _show(view: PatchView, pick: Callable[[int, int | None], None] | None = None) -> None:
    st.markdown(escaped(patch_sentence(view)))
    left, right = st.columns([1.6, 1], gap="large")
    with left:
        clicks = callbacks("patch_map", on_pick=pick)
        page.chart(patch_figure(view, dark=page.is_dark()), "patch_map", patch_alt(view), callbacks=clicks)
    right.html(patch_table(view))


def _show_together(chosen: Direction, metric: PatchMetric) -> None:
    """Draw one run with all chosen patches together."""
    shift, patches = chosen.shift, chosen.together()
    st.caption(say("Click cells to patch them together in one run."))
    if not patches:
        return
    look = bound("patches_chosen", patches, lambda some: _write(some, shift))
    name = lambda one: f"{run_view.name_of(chosen.taking.model, 'self', one.layer)} {_column(chosen.taking, one)}"  # noqa: E731
    st.multiselect(say("Patched together"), patches, format_func=name, **look)
    value, likeliest = chosen.ask("patched", metric, tuple(patches))
    there, here = chosen.ask("measured", metric)
    words = N_("With these from {given}, {taking} gives {value:.2f} instead of {here:.2f}; {given} gives {there:.2f}.")
    given, taking = chosen.names
    st.markdown(say(words, given=given, taking=taking, value=value, here=here, there=there))
    before = chosen.taking.predictions(metric.query)
    assert before is not None
    lists = [Candidate(*one) for one in likeliest], before.candidates
    st.html(cached_figure(next_token_table, *lists, changed=True, names=(say("patched"), say("not patched"))))


def _over_pairs(a: RunView, b: RunView) -> None:
    """Draw mean and spread over the pairs of a file, each measured after its last token, under the masks of A and B."""
    sent = uploader(say(FILE, most=MAX_PAIRS), ["csv"], key="patch_file", max_upload_size=1)
    if sent is None:
        return
    runs = []
    for number, pair in enumerate(read_pairs(sent.getvalue()), 1):
        try:
            runs.append(_runs_of(a, b, pair))
        except ValueError as error:
            raise ValueError(say("pair {number}: {problem}", number=number, problem=error)) from None
    both = [chosen.ask("measured", metric) for chosen, metric in runs]
    first, asked_first = runs[0]
    measure = lambda layer: np.stack([one.effects(metric, one.patches("pairs", layer, 0)) for one, metric in runs])  # noqa: E731
    found = np.stack(by_layer(first.layer_names(), measure), 1)  # [pairs,L,H+1]
    columns, means = [_column(a, patch) for patch in first.patches("pairs", 0, 0)], tuple(np.mean(both, 0).tolist())
    rows, unit = first.layer_names(), _unit(asked_first)
    _show(PatchView(found.mean(0), rows, columns, unit, means, first.names, found.std(0)))


def _runs_of(a: RunView, b: RunView, pair: dict[str, str]) -> tuple[Direction, PatchMetric]:
    """Return the runs of a pair of texts. Raises ValueError if they are cut, differ in length or have equal answers."""
    batches = [run_view.tokenize(a.model, text, "right", None).batch for text in (pair["a"], pair["b"])]
    lengths = dict(zip("ab", (batch.ids.shape[1] for batch in batches), strict=True))
    if any("".join(batch.cut) for batch in batches):
        raise ValueError(say("expected texts of at most {most} tokens", most=a.model.context))
    if lengths["a"] != lengths["b"]:
        raise ValueError(say(LENGTHS, **lengths))
    both = zip((a, b), batches, strict=True)
    chosen = _directed(*(replace(side, run=RunRef(side.run.model, batch, side.masks), row=0) for side, batch in both))
    ids = [continuation_ids(a.model, text)[0][0] for text in (pair["answer"], pair["instead_of"])]
    answer, other = ids if st.session_state.patch_into == "b" else ids[::-1]
    difference = st.session_state.patch_metric == "difference"
    return chosen, PatchMetric(chosen.taking.real.stop - 1, answer, other if difference else None)


def _unit(metric: PatchMetric) -> str:
    return say("nats") if metric.instead_of is None else say("logits")


def _patches(shift: int) -> list[Patch]:
    """Return the chosen patches; anything else in the choice is ignored. shift: of the Direction."""
    found = re.findall(r"([hap])(\d{1,3})\.(\d{1,5})", st.session_state.patches)
    numbered = ((KINDS[kind], int(layer), int(number) + shift * (kind == "p")) for kind, layer, number in found)
    return list(dict.fromkeys(Patch(*one) for one in numbered))  # type: ignore[arg-type]


def _write(patches: list[Patch], shift: int) -> None:
    letters = {kind: letter for letter, kind in KINDS.items()}
    numbered = ((patch, patch.number - shift * (patch.kind == "position")) for patch in patches)
    st.session_state.patches = ",".join(f"{letters[patch.kind]}{patch.layer}.{number}" for patch, number in numbered)


def _column(side: RunView, patch: Patch) -> str:
    """Return the label of a patch within its layer."""
    if patch.kind == "position":
        return f"{patch.number}: {side.tokens[patch.number]}" if patch.number < len(side.tokens) else str(patch.number)
    return f"H{patch.number}" if patch.kind == "head" else say("all")
