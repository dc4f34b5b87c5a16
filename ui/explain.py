"""Texts around the pictures: notes on limits, the numbers in sentences, captions and alternative texts."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import streamlit as st
import torch
from markupsafe import Markup

from i18n import N_, say, say_count, together
from lessons.glossary import glossary
from model.base import Model, TokenizedText
from model.heads import measures
from model.heads.view import HeadView, coarser_words, mask_changes_cells
from model.text import TokenBatch, beginning
from serving.settings import Settings
from ui import page, run_view
from ui.markdown import escaped
from ui.results import cached_figure
from ui.run_view import RowPredictions, RunView
from viz.heads.colours import STANDARD_COLOURS, Colours
from viz.heatmap import CachedFigure
from viz.html import join, named, signed, tag
from viz.lessons.glossary import card
from viz.mask_styles import mask_names
from viz.numbers import LeakShares, percent, token_count
from viz.sentence import HeadScene, loss_words, prediction_words

NOT_COUNTED = N_("Only attention is counted, although other parts of the network may pass information on.")
FORMULA = N_("""
A query **q** and a key **k**, d numbers each, come from the two tokens' states.

1. **scaled score**: q · k / √d (some models cap it or add a bias for the distance)
2. **mask**: a blocked cell's score becomes −∞
3. **weight**: softmax along the row, e^score / Σ e^score: a row's weights sum to 1 (less where a model has sinks)
   and a blocked cell's is exactly 0. If every cell of a row is blocked, all its weights are 0.

The head's output for a token is the sum of all tokens' values, each times its weight.
(Vaswani et al. 2017, *Attention is all you need*, equation 1.)
""")
BYTE = re.compile("⟨[0-9A-F]{2}( [0-9A-F]{2})*⟩")  # model/text.py's label for bytes that are not a whole character
NOT_MEASURED = float("nan")
WHY_CAUSAL = N_("Why causal: a model trained without the mask")
ATTENTIONS = {"self": N_("self"), "encoder": N_("encoder"), "decoder": N_("decoder"), "cross": N_("cross")}
OFF_DISTRIBUTION_NOTE = N_(
    "This model was trained only under its standard masks: what it sees without one of them is new to it and can "
    "mislead it."
)
OVERVIEW = N_(
    "Every head, colours from 0 to 1; {name} is layer {layer}, head {head}, both counted from 0. Click a head to "
    "enlarge it, or use the arrow keys and Enter."
)
NATS = N_("A token's loss is −ln of its predicted probability, in nats: 0 means certain, 2.3 a probability of 10%.")


def no_predictions(model: Model) -> str:
    """Return the reason why this model predicts no next token."""
    if model.kind == "encoder":
        return say("An encoder reads the whole text at once and predicts no next token.")
    return say("This model was saved without its language-model head and predicts no tokens.")


def title_of(model: Model) -> str:
    """Return the model's name, escaped for Markdown."""
    return escaped(plain_title(model))


def plain_title(model: Model) -> str:
    """Return the model's name; for a folder, its last part."""
    return Path(model.name).name if model.name.startswith(("/", "~", ".")) else model.name


def size(batch: TokenBatch, row: int) -> str:
    real = int(batch.kept[row].sum())
    padding = batch.ids.shape[1] - real
    tokens = token_count(real)
    return say("{tokens} + {padding} padding", tokens=tokens, padding=padding) if padding else tokens


ROWS = {"text": N_("Row {row}"), "source": N_("Source row {row}"), "target": N_("Target row {row}")}


def limits(model: Model, reading: TokenizedText) -> list[str]:
    """Return sentences on the parts of the text that are not shown."""
    batch = reading.batch
    texts = {"text": batch} if batch.source is None else {"source": batch.source, "target": batch}
    about = {"model": title_of(model), "most": model.context}
    notes = [
        say_count(
            "{model} reads at most {most:,} tokens here. {where} shows the first {most:,}; its last character is cut: "
            "“{beginning}”.",
            "{model} reads at most {most:,} tokens here. {where} shows the first {most:,}; its last {count} characters "
            "are cut, from “{beginning}” on.",
            len(cut),
            **about,
            where=say(ROWS[name], row=row),
            beginning=escaped(beginning(cut)),
        )
        for name, one in texts.items()
        for row, cut in enumerate(one.cut, 1)
        if cut
    ]
    target = ROWS["target"]
    for row in np.flatnonzero(batch.would_continue):
        where, count = say(target, row=row + 1), int(batch.kept[row].sum()) - model.given
        template = N_("{where} shows the first {count} tokens that {model} writes; it would go on.")
        notes.append(say(template, where=where, count=count, model=title_of(model)))
    if reading.rows_left_out:
        template = N_(
            "Lines shown: the first {count:,} of {all:,}. The page takes at most {most}, fewer if they are long."
        )
        limit, count = Settings.from_environment().rows, len(reading.rows)
        notes.append(say(template, count=count, all=count + reading.rows_left_out, most=limit))
    return notes + _in_bytes(model, batch.source or batch)


def _in_bytes(model: Model, batch: TokenBatch) -> list[str]:
    """Return a list: a sentence on the first row that is mostly single bytes, for lack of tokens, or nothing."""
    for row, (pieces, keep) in enumerate(zip(batch.pieces, batch.keep.tolist(), strict=True), 1):
        real = [piece for piece, is_real in zip(pieces, keep, strict=True) if is_real]
        count = sum(BYTE.fullmatch(piece) is not None for piece in real)
        if 2 * count > len(real):
            example = next(piece for piece in real if BYTE.fullmatch(piece))
            template = N_(
                "{model} has no tokens for most of the characters of row {row}: {count:,} of its {tokens:,} tokens are "
                "single bytes, such as {example}."
            )
            return [say(template, model=title_of(model), row=row, count=count, tokens=len(real), example=example)]
    return []


def scene(now: RunView, scope: str, name: str, view: HeadView, layer: int, head: int) -> HeadScene:
    """Return the facts about the head on screen that its sentence is made of."""
    row, model = now.row, now.model
    queries, keys = now.run.queries, now.run.keys
    real, keep = queries.keep[row], keys.keep[row]
    weights = torch.from_numpy(view.weights)
    future, padding = measures.leak(weights, keep, real)
    across = now.run.attention == "cross"
    begin = queries.real(row).start
    later, much_later = real.clone(), real.clone()
    if not across:
        later[begin] = False  # the first token can attend only to itself
        much_later[begin : begin + 2] = False  # the second token's previous token is the first one
    repeats = (measures.followers(keys.distinct_ids(row)) >= 0) & later & (weights.sum(-1) > 0) if not across else real
    off = [name for name in model.describe().sizes if not getattr(now.masks, name)]
    missed = {name for name in off if now.ask(mask_changes_cells, layer, head, name)}
    return HeadScene(
        name=name,
        across=across,
        can_be_causal="causal" in view.available,
        causal=bool(now.masks.causal),
        padding=bool(now.masks.padding),
        lifted=tuple(name for name in off if name in missed),
        idle=tuple(name for name in off if name not in missed),
        standard_causal=bool(model.standard.causal),
        layer_only=scope == "layer",
        only_attention=model.attentions == ("self",),
        has_padding=not bool(keep.all()),
        padded_text=_other_padded(now),
        chat=bool(model.chats and st.session_state.get("chat")),
        pad_side=keys.pad_side,
        leak=LeakShares(float(future), float(padding)),
        previous=NOT_MEASURED if across else float(measures.previous_token(weights, much_later)),
        itself=NOT_MEASURED if across else float(measures.own_token(weights, later)),
        first=float(measures.key_share(weights, keys.real(row).start, later)),
        induction=NOT_MEASURED if across else float(measures.induction(weights, keys.distinct_ids(row), later)),
        repeats=int(repeats.sum()),
        tokens=int(real.sum()),
        spread=2 ** float(measures.entropy(weights, later)),
    )


def _other_padded(now: RunView) -> str:
    """Return which text of an encoder-decoder is padded and is not the keys here: "source", "target" or "" for none."""
    batch = now.run.batch
    name, other = ("source", batch.source) if now.run.attention == "decoder" else ("target", batch)
    return "" if other is None or batch.source is None or other.kept[now.row].all() else name


def describe_change(
    pieces: Sequence[str], position: int, now: RowPredictions, standard: RowPredictions, known: str = ""
) -> str:
    """Return HTML: a change's effect on the losses of a row and on the prediction after the token at `position`. known:
    a token whose probabilities are already stated."""
    losses = loss_words(now.losses, standard.losses, list(pieces))
    both = standard.candidates[0], now.candidates[0]
    after = "" if {one.label for one in both} == {known} else prediction_words(pieces[position], position, *both)
    return together(filter(None, [losses, after]))


def sharing(look: RunView, layer: int, head: int) -> str:
    """Return a sentence on the query heads that share this head's keys and values; empty if none does."""
    heads = run_view.shape(look.model, look.run.attention)[1]
    group = look.head(layer, head).group
    others = [str(other) for other in range(heads) if other // group == head // group and other != head]
    if not others:
        return ""
    return say_count(
        "Head {head} shares key-value head {group} with head {others}.",
        "Head {head} shares key-value head {group} with heads {others}.",
        len(others), head=head, group=head // group, others=say(", ").join(others),
    )  # fmt: skip


def head_alt(name: str, view: HeadView, changed: bool) -> str:
    """Return the alternative text of the heatmap: its size, its largest weight, and what is blocked."""
    blocked = view.any_blocked()
    query, key = np.unravel_index(int(view.weights.argmax()), view.weights.shape)
    queries, keys = view.weights.shape
    cell = {"query": view.first + query, "looker": view.queries[query]}
    cell |= {"key": view.first_key + key, "looked": view.keys[key], "weight": view.weights[query, key]}
    parts = [say("Attention of {head}, {queries} × {keys} (queries × keys).", head=name, queries=queries, keys=keys)]
    largest = N_("The largest weight, {weight:.2f}, is that of query {query} ({looker}) on key {key} ({looked}).")
    parts.append(say(largest, **cell) if cell["weight"] else say("Every weight is 0."))
    if blocked.any():
        masks = mask_names(name for name, mask in view.blocked.items() if mask.any())
        share = percent(float(blocked.mean()))
        parts.append(say("{share} of the cells are blocked, by {masks}.", share=share, masks=masks))
    else:
        parts.append(_none_blocked([view]))
    if changed:
        parts.append(say("Beside it: the same head under the standard masks, and the difference."))
    return together(parts)


def change_alt(name: str, now: HeadView, standard: HeadView) -> str:
    """Return the alternative text of the heatmap of a change from the standard masks."""
    change = now.weights - standard.weights
    query, key = np.unravel_index(int(np.abs(change).argmax()), change.shape)
    template = N_(
        "How the weights of {head} change from the standard masks to these. The largest change, {change}, is that of "
        "query {query} ({token}) on key {key} ({seen})."
    )
    cell = {"query": now.first + query, "token": now.queries[query], "key": now.first_key + key, "seen": now.keys[key]}
    return say(template, head=name, change=signed(change[query, key], 2), **cell)


def change_key(now: HeadView, standard: HeadView) -> str:
    """Return HTML: how to read the heatmap of a change. Cells that are blocked in both runs are hatched."""
    parts = [say("Blue: the weight fell; red: it rose.")]
    if (now.any_blocked() & standard.any_blocked()).any():
        parts.append(say("Hatched cells are blocked."))
    return f'<p class="key">{together(parts)}</p>'


def loss_alt(
    now: np.ndarray, standard: np.ndarray, *, changed: bool = True, names: tuple[str, str] | None = None
) -> str:
    """Return the alternative text of the loss curves. names: of the two runs; default: now and standard masks."""
    if not changed:
        return loss_caption(now, standard, changed=False)
    means = {"now": _mean(now), "standard": _mean(standard)}
    if names:
        template = N_("Mean loss in nats/token: {now} ({one}), {standard} ({other}).")
        return say(template, one=names[0], other=names[1], **means)
    return say("Loss per token. The mean is {now} nats now and {standard} under the standard masks.", **means)


def texts_alt(now: np.ndarray, other: np.ndarray, *, changed: bool, names: tuple[str, str]) -> str:
    """Return the alternative text of the chart of the texts' mean losses."""
    if not changed:
        return say("Mean loss of each text, in nats/token")
    template = N_("Mean loss of each text, in nats/token. Their mean is {now} ({one}), {other} ({compared}).")
    return say(template, now=_mean(now), one=names[0], other=_mean(other), compared=names[1])


def loss_caption(now: np.ndarray, standard: np.ndarray, *, changed: bool) -> str:
    if changed:
        return say("Loss per token, mean {now} nats now, {standard} standard", now=_mean(now), standard=_mean(standard))
    return say("Loss per token, mean {now} nats", now=_mean(now))


def show_losses(
    figure: CachedFigure,
    curves: tuple[np.ndarray, np.ndarray],
    *,
    changed: bool,
    names: tuple[str, str] | None = None,
    caption: str = "",
    about: str = "",
) -> None:
    """Draw the losses under the current and the standard masks, or of two runs with these names; a sentence if no token
    has a loss. caption: overrides the default one. about: its tooltip."""
    if all(np.isnan(losses).all() for losses in curves):
        st.caption(say("No token of this row is predicted from another, so there is no loss."))
        return
    st.caption(caption or cached_figure(loss_caption, *curves, changed=changed), help=about or None)
    page.chart(figure, "loss_figure", cached_figure(loss_alt, *curves, changed=changed, names=names))


def key(views: list[HeadView], zmax: float, *, colours: Colours = STANDARD_COLOURS, sharing: str = "") -> str:
    """Return HTML: how to read the colours and the hatching of the heatmaps, the first of which is the large one."""
    parts = [*([sharing] if sharing else []), colours.words(zmax)]
    names = dict.fromkeys(name for view in views for name, mask in view.blocked.items() if mask.any())
    if names:
        masks = say(", ").join(map(named, names))
        parts.append(say("Hatched cells are blocked by {masks}: their weight is exactly 0.", masks=masks))
    else:
        parts.append(_none_blocked(views))
    if any(view.empty_rows().any() for view in views):
        parts.append(say("A row whose keys are all blocked has weights of 0 and an output of 0."))
    if coarser_words(views[0]):
        parts.append(coarser_words(views[0]))
    return f'<p class="key">{together(parts)}</p>'


def _none_blocked(views: list[HeadView]) -> str:
    """Return the sentence for views without blocked cells; the whole head may have some outside the part shown."""
    if any(view.whole is not None and view.whole.any_blocked().any() for view in views):
        return say("No cell of this part is blocked.")
    return say("No cell is blocked.")


def _mean(losses: np.ndarray) -> str:
    return "–" if np.isnan(losses).all() else f"{np.nanmean(losses):.2f}"


STYLE = Markup("""<style>
  .glossary { display: grid; gap: .9rem; max-width: 26rem; font-size: .875rem; line-height: 1.4; }
  .glossary > div { display: grid; grid-template-columns: 104px 1fr; gap: .9rem; align-items: start; }
  .glossary p { margin: .15em 0 0; font-size: inherit; }
</style>""")


def show() -> None:
    slot = st.popover(say("Glossary"), icon=":material/dictionary:", type="tertiary", key="glossary", on_change="rerun")
    if slot.open:
        cards = join(tag("div", card(word, term)) for word, term in glossary().items())
        slot.html(STYLE + tag("div", cards, class_="glossary"))
