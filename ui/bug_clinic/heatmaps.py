"""A head with a bug and without: heatmaps, and beside them the violated properties, the fix and the effect."""

import numpy as np
import streamlit as st
import torch

from i18n import N_, say, say_count
from model.attention import AttentionStages
from model.bug_clinic.case import Bug
from model.bug_clinic.comparison import BugComparison
from model.bug_clinic.examination import Examination
from model.bug_clinic.laws import LAWS
from model.bug_clinic.modules import part_at
from model.heads.view import HeadView
from ui import explain, page
from ui.bug_clinic import explanations
from ui.heads.head import show as show_figure
from ui.markdown import escaped
from ui.results import cached_figure
from ui.run_view import RunView, shape_of
from viz.bug_clinic import LawFinding, LawRow, bug_figure, law_table, law_told
from viz.head import head_figure, head_range
from viz.palette import WIDE

ABOVE = 275  # pixels of what stands over the picture


def view(now: RunView, bug: Bug | None, stages: AttentionStages, layer: int, head: int) -> HeadView:
    """What a computation really blocked is hatched, in the colour of the mask that blocks the cell or is to blame.

    bug None: the right version.
    """
    blocked = stages.masked[head] == -torch.inf
    native = {name: torch.from_numpy(mask) for name, mask in now.head(layer, head).blocked.items()}
    by = {name: mask & blocked for name, mask in native.items()}
    unasked = blocked & ~torch.stack([torch.zeros_like(blocked), *native.values()]).any(0)
    if bug is not None and unasked.any():
        by[bug.blames] = by.get(bug.blames, torch.zeros_like(blocked)) | unasked
    return HeadView(
        stages.weights[head].nan_to_num(0.0).numpy(),
        stages.scaled[head].numpy(),
        {name: mask.numpy() for name, mask in by.items()},
        names(now, bug, head, now.tokens),
        names(now, bug, head, now.run.keys.pieces[now.row]),
    )


def show(now: RunView, bug: Bug, pair: BugComparison, layer: int, head: int, *, on: bool) -> None:
    right = now.kept(("right", bug.key, layer, head), lambda: view(now, None, pair.right, layer, head))
    if not pair.is_seen() or pair.wrong is None:
        draw_alone(right, _alt(CORRECT, right, right.weights.max()))
        say_key([right])
        return
    if not on:
        draw(None, right)
        say_key([right])
        return
    stages, nan = pair.wrong, pair.has_nan()
    wrong = now.kept(("wrong", bug.key, layer, head), lambda: view(now, bug, stages, layer, head))
    parts = shape_of(now)[1] if bug.key == "view" else 0
    draw(wrong, right, nan=nan)
    say_key([wrong] if parts else [wrong, right], nan=nan, parts=parts)


def names(now: RunView, bug: Bug | None, head: int, pieces: tuple[str, ...]) -> list[str]:
    """What stands in each row or column: a token, or, of a head cut by view alone, "token:part"."""
    if bug is None or bug.key != "view":
        return list(pieces)
    heads = shape_of(now)[1]
    found = (part_at(head, place, heads, len(pieces)) for place in range(len(pieces)))
    return [f"{pieces[token][:9]}:{part}" for token, part in found]


def draw(wrong: HeadView | None, right: HeadView, *, nan: bool = False) -> None:
    """With the bug, beside the right version and the difference; or, without wrong, the right version alone.

    nan: the rows with nothing to look at hold no numbers with the bug.
    """
    dark = page.is_dark()
    if wrong is None:
        figure = cached_figure(head_figure, right, dark=dark, wide=WIDE)
        alt = _alt(CORRECT, right, right.weights.max())
    elif wrong.queries != right.queries:  # rows that mean something else cannot be compared cell by cell
        draw_alone(wrong, alt_with_a_bug(wrong))
        return
    else:
        figure = cached_figure(bug_figure, wrong, right, dark=dark, nan=nan)
        alt = _alt(BOTH, right, float(np.abs(wrong.weights - right.weights).max()))
    show_figure(figure, alt, room="pair", above=ABOVE, on_pick=None)


def draw_alone(shown: HeadView, alt: str) -> None:
    """A heatmap beside which no other will stand."""
    show_figure(cached_figure(head_figure, shown, dark=page.is_dark()), alt, room="one", above=ABOVE, on_pick=None)


def say_key(shown: list[HeadView], *, nan: bool = False, parts: int = 0) -> None:
    """How to read the pictures. parts: of how many parts a token is, where rows and columns are parts of tokens."""
    said = [cached_figure(explain.key, shown, head_range(*shown))]
    if nan:
        said.append(page.note(say("With the bug, a row with no allowed key is NaN.")))
    if parts:
        of_parts = N_("“token:2” is part 2 of a token, counted from 0; every token has {parts} parts, one per head.")
        said.append(page.note(say(of_parts, parts=parts)))
    st.html("".join(said))


WITH_A_BUG = N_("Heatmap with a bug: {queries} queries by {keys} keys. The largest weight is {most:.2f}.")
CORRECT = N_("Heatmap of the correct version: {queries} queries by {keys} keys. The largest weight is {most:.2f}.")
BOTH = N_(
    "Heatmaps with the bug, without it, and their difference: {queries} queries by {keys} keys; the largest change of "
    "a weight is {most:.2f}."
)


def alt_with_a_bug(shown: HeadView) -> str:
    return _alt(WITH_A_BUG, shown, shown.weights.max())


def _alt(words: str, shown: HeadView, most: float) -> str:
    return say(words, queries=shown.weights.shape[0], keys=shown.weights.shape[1], most=most)


STYLE = """
<style>
  .st-key-told { gap: .5rem; }
  .st-key-told :is(p, li) { font-size: .875rem; line-height: 1.4; margin-bottom: .2rem; }
  .st-key-told pre { padding: .45rem .7rem; }
  .st-key-told code { font-size: .78rem; line-height: 1.35; }
</style>
"""  # so that law, mend and effect are in sight without scrolling


def show_beside(now: RunView, bug: Bug, pair: BugComparison, found: Examination, layer: int, head: int) -> None:
    st.html(STYLE)
    with st.container(key="told"):
        st.html(cached_figure(law_told, _row(bug.law, found), title=_law_title(bug, found)))
        _title(say("The fix"))
        st.code(explanations.code(bug), language="diff", wrap_lines=True)
        _title(say("Effect here"))
        if pair.error:
            crash = say("Crashes: “{error}”. The heatmap shows the correct version.", error=escaped(pair.error))
            st.error(crash, icon=":material/error:")
        elif not pair.is_seen():
            st.caption(say("The heatmap is the same with and without the bug."))
        st.markdown("\n".join(f"- {effect}" for effect in explanations.effects(now, bug, pair, found, layer, head)))


def show_laws(now: RunView, bug: Bug, found: Examination, layer: int) -> None:
    """The other laws that are broken; folded, those that hold and those that could not be measured."""
    others = [(key, found.verdicts[key][0]) for key in LAWS if key != bug.law]
    broken = [_row(key, found) for key, verdict in others if verdict.broken]
    whole = [_row(key, found) for key, verdict in others if not verdict.broken]
    if broken:
        _title(say_count("{count} more property is violated", "{count} more properties are violated", len(broken)))
        st.html(cached_figure(law_table, broken))
    if whole:
        with st.expander(_folded(bug, found), key="laws_that_hold"):
            st.html(cached_figure(law_table, whole))
    about = N_(
        "The largest violation of each property on this row, over all heads of layer {layer}. The word in brackets "
        "names the quantity; – means that the property could not be measured here."
    )
    st.caption(say(about, layer=now.number(layer)))


def _title(title: str) -> None:
    st.html(page.note(f"<b>{title}</b>"))


def _row(key: str, found: Examination) -> LawRow:
    law = LAWS[key]
    wrong, right = (LawFinding(one.amount, one.broken, say(law.of), one.error) for one in found.verdicts[key])
    return LawRow(say(law.words), wrong, right, say(law.needs))


def _law_title(bug: Bug, found: Examination) -> str:
    if found.broken(bug.law):
        return say("The violated property")
    if np.isnan(found.verdicts[bug.law][0].amount):
        return say("A property that it violates")
    return say("A property that it violates elsewhere, not here")


def _folded(bug: Bug, found: Examination) -> str:
    """How many laws are in the fold, by what was found of them: the law that is told above is not."""
    amounts = [verdict.amount for key, (verdict, _) in found.verdicts.items() if key != bug.law and not verdict.broken]
    unknown = sum(amount != amount for amount in amounts)
    held = say_count("{count} property holds", "{count} properties hold", len(amounts) - unknown)
    if not unknown:
        return held
    unmeasured = say("{count} not measured here", count=unknown)
    return unmeasured if unknown == len(amounts) else f"{held} · {unmeasured}"
