"""A bug explained: its fix, its measured effect on this row, heatmaps with it and without, and violated properties."""

from functools import partial

import numpy as np
import streamlit as st
import torch

from i18n import N_, say, say_all, say_count, together
from model.attention import AttentionStages
from model.bug_clinic.bugs import Bug, row_repeated, token_in_view_split
from model.bug_clinic.comparison import BugComparison, Examination, other_layer
from model.bug_clinic.laws import LAWS, Law, Verdict
from model.heads.view import HeadView
from ui import explain, page
from ui.explain import title_of
from ui.heads.head import show as show_figure
from ui.markdown import escaped
from ui.results import cached_figure
from ui.run_view import RunView, shape_of
from viz.bug_clinic import bug_figure, law_html, law_table
from viz.head import head_figure, head_range
from viz.heatmap import CachedFigure
from viz.numbers import number
from viz.palette import WIDE


def code(bug: Bug) -> str:
    """Return the wrong lines and their fix, as a diff."""
    pairs = zip(bug.wrong.splitlines(), bug.right.splitlines(), strict=True)
    return "\n".join(f"  {wrong}" if wrong == right else f"- {wrong}\n+ {right}" for wrong, right in pairs)


def effects(now: RunView, bug: Bug, pair: BugComparison, found: Examination, layer: int, head: int) -> list[str]:
    if pair.wrong is None:
        return []
    sentences = [_on_the_output(now, bug, pair, found, layer), *_on_this_head(now, bug, pair, layer, head)]
    if not pair.exact and pair.shows_in_heatmap():
        other = now.number(other_layer(layer, shape_of(now)[0]) or 0)
        template = STAND_INS.get(bug.key, UNTRAINED)
        sentences.append(say(template, model=title_of(now.model), other=other, layer=now.number(layer)))
    if bug.dtype == torch.float16:
        sentences.append(say("Both sides are computed in float16, so the correct version has rounding errors too."))
    return [*sentences, *_on_the_loss(now, bug, pair, found, layer)]


STAND_INS = {  # notes on bugs that can be shown in a trained model only with a stand-in
    "unprojected": N_(
        "The inputs of {model}'s projections are not recorded: here its queries are used instead of all three."
    ),
    "one-module": N_(
        "{model} was trained with a separate module for each attention. Here the module of layer {other} also serves "
        "layer {layer}, as a shared module would."
    ),
}
UNTRAINED = N_(
    "{model} was trained without a causal mask: the queries and keys here come from a run with the mask in every layer."
)


def _on_the_output(now: RunView, bug: Bug, pair: BugComparison, found: Examination, layer: int) -> str:
    change = pair.change().amax(-1)  # [H,T]
    lost = ~change.isfinite().all(0)
    about = {"layer": now.number(layer), "most": f"**{number(float(change.max()))}**"}
    if lost.any():
        template = N_("The output of layer {layer} is NaN at {lost} of {positions} positions.")
        if not pair.right.weights[:, lost].any():
            template = N_(
                "The output of layer {layer} is NaN at {lost} of {positions} positions, those with no allowed key."
            )
        return say(template, **about, lost=int(lost.sum()), positions=len(lost))
    if change.max() == 0:
        return _nothing_in_the_output(now, bug, found, layer)
    real = change[:, now.real]
    if real.max() == 0:
        return say(
            "The output of layer {layer} changes only in the rows of padding, by up to {most}: no real token is "
            "affected.",
            **about,
        )
    head, position = divmod(int(change.argmax()), change.shape[1])
    token = escaped(now.tokens[position])
    about |= {"head": head, "place": position, "token": token, "right": number(float(pair.right.output.abs().max()))}
    return say(
        "The output of layer {layer} changes by up to {most} (head {head}, position {place}, “{token}”); in the "
        "correct version its largest absolute value is {right}.",
        **about,
    )


def _nothing_in_the_output(now: RunView, bug: Bug, found: Examination, layer: int) -> str:
    lost = found.verdicts["kept"][0].amount
    if lost > 0:
        template = N_(
            "The weights and the output are correct, but **{lost:,.0f}** scores of layer {layer} (all heads together) "
            "are overwritten: any later use of them reads −inf."
        )
        return say(template, lost=lost, layer=now.number(layer))
    if found.broken(bug.law) and not bug.ahead:
        return say("The weights and the output are correct; the loss uses the wrong targets.")
    if layer < bug.first_layer < shape_of(now)[0]:
        template = N_("Layer {layer} is still masked: the bug begins in layer {first}. Choose a later layer.")
        return say(template, layer=now.number(layer), first=now.number(bug.first_layer))
    return say("The bug has no effect here: it needs {needs}.", needs=say(bug.needs))


def _on_this_head(now: RunView, bug: Bug, pair: BugComparison, layer: int, head: int) -> list[str]:
    heads, group = shape_of(now)[1], now.head(layer, head).group
    if bug.key == "view" and heads > group:
        pieces = now.tokens
        of = partial(token_in_view_split, head // group, heads=heads // group, length=len(pieces))
        (first, begins), (last, ends) = of(0), of(len(pieces) - 1)
        text = escaped("".join(pieces[first : last + 1]))
        template = N_(
            "The faulty head {head} sees only positions {first} to {last}, from part {begins} of the first to part "
            "{ends} of the last: “{text}”."
        )
        if first == last:
            template = N_("The faulty head {head} sees only position {first}, its parts {begins} to {ends}: “{text}”.")
        return [say(template, head=head, first=first, last=last, begins=begins, ends=ends, text=text)]
    rows = len(now.run.queries.keep)
    if bug.key == "repeat" and pair.shows_in_heatmap():
        whose = [row_repeated(now.row, one, rows, heads) for one in range(heads)]
        others = [str(one) for one in range(heads) if whose[one] != now.row]
        if whose[head] == now.row:
            here = say("Head {head} gets its own row's mask.", head=head)
        else:
            here = say("Head {head} gets row {row}'s mask.", head=head, row=whose[head] + 1)
        wrong = say_count(
            "Of {heads} heads, {listed} gets another row's mask.",
            "Of {heads} heads, {listed} get another row's mask.",
            len(others),
            heads=heads,
            listed=say_all(others),
        )
        return [together([here, wrong])]
    return []


def _on_the_loss(now: RunView, bug: Bug, pair: BugComparison, found: Examination, layer: int) -> list[str]:
    wrong, right = found.loss
    if np.isnan(right):
        return []
    if not bug.ahead:
        words = N_(
            "With the next token as target, {model} has a mean loss of {right:.2f} nats on this row; with the current "
            "token as target, **{wrong:.2f}** nats."
        )
        sentences = [say(words, model=title_of(now.model), right=right, wrong=wrong)]
        as_trained = round(right, 2) < round(wrong, 2)
        return [together([*sentences, say("It was trained to predict the next one.")] if as_trained else sentences)]
    where = say("every layer") if not bug.first_layer else say("every layer after the first")
    if np.isnan(wrong) and not pair.change().any():
        return []  # float16 cannot represent these scores, with the bug or without
    if np.isnan(wrong):
        return [say("With the bug in {where}, NaN spreads to every token: the model predicts nothing.", where=where)]
    words = N_("With the bug in {where}, the mean loss of this row is **{wrong:.2f}** nats; without it, {right:.2f}.")
    moved = say(words, where=where, right=right, wrong=wrong)
    differs = f"{wrong:.2f}" != f"{right:.2f}"
    why = _why(found, pair.sees_target(now.real), lower=wrong < right) if differs and layer >= bug.first_layer else ""
    return [together([moved, why]).rstrip()]


def _why(found: Examination, seen: torch.Tensor, *, lower: bool) -> str:
    """Return why the loss changed. seen: positions that attend to their target; a softmax may count blocked ones."""
    if found.broken("target") and lower and seen.any():
        return say("It is lower, and the model can read the token that it must predict.")
    if found.broken("target") and not lower and seen.all():
        return say("It is higher although every position sees its target: the model was trained without seeing it.")
    if lower and not found.broken("causal"):
        return say(
            "It is lower although no later token is read: on a single text, wrong attention may predict better "
            "by chance."
        )
    return ""


ABOVE = 275  # pixels above the picture


def view(now: RunView, bug: Bug | None, stages: AttentionStages, layer: int, head: int) -> HeadView:
    """Return the head's view: cells that are really blocked are hatched, in the colour of the responsible mask.

    bug None: the correct version.
    """
    blocked = stages.masked[head] == -torch.inf
    shown = now.head(layer, head)
    native, group = {name: torch.from_numpy(mask) for name, mask in shown.blocked.items()}, shown.group
    by = {name: mask & blocked for name, mask in native.items()}
    unasked = blocked & ~torch.stack([torch.zeros_like(blocked), *native.values()]).any(0)
    if bug is not None and unasked.any():
        by[bug.blames] = by.get(bug.blames, torch.zeros_like(blocked)) | unasked
    return HeadView(
        stages.weights[head].nan_to_num(0.0).numpy(),
        stages.scaled[head].numpy(),
        {name: mask.numpy() for name, mask in by.items()},
        names(bug, head, shape_of(now)[1], now.tokens),
        names(bug, head // group, shape_of(now)[1] // group, now.run.keys.pieces[now.row]),
        group=group,
    )


def show(now: RunView, bug: Bug, pair: BugComparison, layer: int, head: int, *, on: bool) -> None:
    right = now.cached(("right", bug.key, layer, head), lambda: view(now, None, pair.right, layer, head))
    stages = pair.wrong
    if not on or stages is None:
        draw_one(right, CORRECT, room="pair" if pair.shows_in_heatmap() else "one")
    else:
        wrong = now.cached(("wrong", bug.key, layer, head), lambda: view(now, bug, stages, layer, head))
        without_key = ~pair.right.weights.any(-1)
        draw_both(now, bug, wrong, right, nan=bool(stages.weights[without_key].isnan().any()))


def names(bug: Bug | None, head: int, heads: int, pieces: tuple[str, ...]) -> list[str]:
    """Return the labels of rows or columns: tokens or, if heads were cut by view alone, "token:part" for each part."""
    if bug is None or bug.key != "view":
        return list(pieces)
    found = (token_in_view_split(head, position, heads, len(pieces)) for position in range(len(pieces)))
    return [f"{pieces[token][:9]}:{part}" for token, part in found]


WITH_A_BUG = N_("Heatmap with a bug: {queries} × {keys} (queries × keys). The largest weight is {most:.2f}.")
CORRECT = N_("Heatmap of the correct version: {queries} × {keys} (queries × keys). The largest weight is {most:.2f}.")
BOTH = N_(
    "Heatmaps with the bug, without it, and their difference: {queries} × {keys} (queries × keys); the largest change "
    "of a weight is {most:.2f}."
)


def draw_both(now: RunView, bug: Bug, wrong: HeadView, right: HeadView, *, nan: bool = False) -> None:
    """Draw the head with the bug, the correct version and the difference; only the first if the bug makes rows of parts
    of tokens. nan: with the bug, rows without an allowed key are NaN."""
    if bug.key == "view":
        draw_one(wrong, WITH_A_BUG)
        of_parts = N_("“token:2” is part 2 of a token, counted from 0; every token has {parts} parts, one per head.")
        if wrong.group > 1:
            of_parts = N_(
                "“token:2” is part 2 of a token, counted from 0. A query is split into {parts} parts, one per head; a "
                "key into {key_parts}, one per key-value head."
            )
        heads = shape_of(now)[1]
        st.html(page.note(say(of_parts, parts=heads, key_parts=heads // wrong.group)))
        return
    figure = cached_figure(bug_figure, wrong, right, dark=page.is_dark(), nan=nan)
    _show(figure, [wrong, right], BOTH, float(np.abs(wrong.weights - right.weights).max()), "pair")
    if nan:
        st.html(page.note(say("With the bug, a row with no allowed key is NaN.")))


def draw_one(shown: HeadView, alt: str, *, room: str = "one") -> None:
    """Draw one version. alt: WITH_A_BUG or CORRECT. room: "pair" if a comparison may replace it."""
    figure = cached_figure(head_figure, shown, dark=page.is_dark(), wide=WIDE if room == "pair" else 1)
    _show(figure, [shown], alt, float(shown.weights.max()), room)


def _show(figure: CachedFigure, views: list[HeadView], alt: str, zmax: float, room: str) -> None:
    queries, keys = views[0].weights.shape
    show_figure(figure, say(alt, queries=queries, keys=keys, most=zmax), room=room, above=ABOVE, on_pick=None)
    st.html(cached_figure(explain.key, views, head_range(*views)))


STYLE = """
<style>
  .st-key-told { gap: .5rem; }
  .st-key-told :is(p, li) { font-size: .875rem; line-height: 1.4; margin-bottom: .2rem; }
  .st-key-told pre { padding: .45rem .7rem; }
  .st-key-told code { font-size: .78rem; line-height: 1.35; }
</style>
"""  # so that the property, the fix and the effect are visible without scrolling


def show_explanation(now: RunView, bug: Bug, pair: BugComparison, found: Examination, layer: int, head: int) -> None:
    st.html(STYLE)
    with st.container(key="told"):
        title = say("A property that it violates elsewhere, not here")
        if found.broken(bug.law):
            title = say("The violated property")
        elif np.isnan(found.verdicts[bug.law][0].amount):
            title = say("A property that it violates")
        st.html(cached_figure(law_html, *_row(bug.law, found), title=title))
        _title(say("The fix"))
        st.code(code(bug), language="diff", wrap_lines=True)
        _title(say("Effect here"))
        if pair.error:
            crash = say("Crashes: “{error}”. The heatmap shows the correct version.", error=escaped(pair.error))
            st.error(crash, icon=":material/error:")
        elif not pair.shows_in_heatmap():
            st.caption(say("The heatmap is the same with and without the bug."))
        make = partial(effects, now, bug, pair, found, layer, head)
        st.markdown("\n".join(f"- {effect}" for effect in now.cached(("effects", bug.key, layer, head), make)))


def show_laws(now: RunView, bug: Bug, found: Examination, layer: int) -> None:
    """List the other properties that are violated and, in an expander, those that hold or could not be measured."""
    others = [(key, found.verdicts[key][0]) for key in LAWS if key != bug.law]
    broken = [_row(key, found) for key, verdict in others if verdict.broken]
    whole = [_row(key, found) for key, verdict in others if not verdict.broken]
    if broken:
        _title(say_count("{count} more property is violated", "{count} more properties are violated", len(broken)))
        st.html(cached_figure(law_table, broken))
    if whole:
        unknown = sum(verdict.amount != verdict.amount for _, verdict, _ in whole)  # NaN
        held = say_count("{count} property holds", "{count} properties hold", len(whole) - unknown)
        unmeasured = say("{count} not measured here", count=unknown) if unknown else ""
        named = unmeasured if unknown == len(whole) else " · ".join(filter(None, [held, unmeasured]))
        with st.expander(named, key="laws_that_hold"):
            st.html(cached_figure(law_table, whole))
    about = N_(
        "The largest violation of each property on this row, over all heads of layer {layer}. The word in brackets "
        "names the quantity; – means that the property could not be measured here."
    )
    st.caption(say(about, layer=now.number(layer)))


def _title(title: str) -> None:
    st.html(page.note(f"<b>{title}</b>"))


def _row(key: str, found: Examination) -> tuple[Law, Verdict, Verdict]:
    return LAWS[key], *found.verdicts[key]
