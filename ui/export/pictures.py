"""Pictures for print of one head or of all heads."""

from collections.abc import Callable, Sequence

import streamlit as st

from i18n import N_, say
from model.attribution.score_split import carried, score_split
from model.base import ranges
from model.heads.view import HeadView, cropped
from ui import results
from ui.export.export_files import ExportSubject
from ui.export.printed import PrintedPicture, note_missing_fonts, offer
from ui.guard import guarded
from ui.heads import query
from ui.heads.views import OF_TOKENS, choose_heads, colours
from ui.widgets import one_of
from viz.export import picture as drawn
from viz.export import words
from viz.export.paper import Sheet, all_heads_picture
from viz.heads.attribution import sum_words
from viz.heads.bars import BarRow
from viz.heads.cells import weight_text
from viz.heads.tokens import arcs_part, colour_scale_sentence, least_line, left_out, tokens_part

FILES = {"every": "all-heads", "tokens": "text", "why": "score"}  # a picture's name in file names, if it is not its key
Part = tuple[int, int]
How = Callable[[], list[str]]  # returns sentences, in the language set when it is called


def show(subject: ExportSubject, part: Part) -> None:
    """Draw the picture that the user chooses. part: the positions that are shown large, [begin, end)."""
    of_tokens = subject.now.by == "tokens"
    kinds = {kind: name for kind, (name, _) in PICTURES.items() if of_tokens or kind not in OF_TOKENS}
    if st.session_state.picture not in kinds:
        st.session_state.picture = "head"
    kind = one_of(say("Picture of"), kinds, "picture", label_visibility="collapsed")
    with guarded(say("Drawing …")):
        picture = PICTURES[kind][1](subject, part)
        if picture is None:
            template = N_("A picture can label at most {most} tokens per side. Choose a part of the text on the left.")
            if len(subject.now.tokens) != len(subject.now.key_tokens):  # two texts, of which no part can be chosen
                template = N_("A picture can label at most {most} tokens per side. Shorten the texts on the left.")
            st.info(say(template, most=drawn.MAX_SIDE))
            return
        files = st.container()
        note_missing_fonts(picture)
        with st.container(key="paper"):
            svg, wide = picture.preview()
            st.image(svg, width=wide, alt=f"{picture.title()}. {picture.caption()}")
    with files:
        offer(picture, subject.file_name(FILES.get(kind, kind)))


def _head(subject: ExportSubject, part: Part) -> PrintedPicture | None:
    whole = subject.views()
    square = whole[0].weights.shape[0] == whole[0].weights.shape[1]
    views = [cropped(view, part, part) if square else view for view in whole]
    if max(views[0].weights.shape) > drawn.MAX_SIDE:
        return None
    meant, how = colours(), lambda: words.of_heads(views, meant, meant.top(*views))
    standard = views[1] if len(views) > 1 else None
    return _picture(subject, drawn.head_picture, (views[0], standard, meant), views[0], how)


def _every(subject: ExportSubject, part: Part) -> PrintedPicture:
    found = subject.now.survey()
    layers, heads = found.thumbnails.shape[:2]

    def caption() -> str:
        sentence = N_("Attention of all {layers} × {heads} heads of {model}.")
        what = say(sentence, layers=layers, heads=heads, model=subject.model_and_attention)
        size = len(subject.now.tokens), len(subject.now.key_tokens)
        return subject.caption(what, words.all_heads_caption(size, found.blocked))

    of = found.thumbnails, found.blocked, subject.now.layer_numbers
    title = lambda: say("{model} · all heads", model=subject.model_and_attention)  # noqa: E731
    return PrintedPicture(all_heads_picture, of, title, caption, [])


def _arcs(subject: ExportSubject, part: Part) -> PrintedPicture:
    others = choose_heads(subject.now, subject.layer, subject.head)
    at = query.choose(subject.now)
    names = [subject.name, *(subject.now.name(subject.layer, head) for head in others)]
    whole = [subject.now.head(subject.layer, head) for head in (subject.head, *others)]
    views = [arcs_part(view, part, at) for view in whole]

    def how() -> list[str]:
        return [*words.lines_caption(least_line(views[0])), left_out(whole[0], views[0], at)]

    return _picture(subject, drawn.lines_picture, (views, names), views[0], how, others)


def _tokens(subject: ExportSubject, part: Part) -> PrintedPicture:
    (row, *_), how = _rows(subject, part)
    own = subject.now.run.queries is subject.now.run.keys
    return _picture(
        subject,
        drawn.coloured_text_picture,
        (row, own),
        row,
        lambda: [*how(), *words.coloured_text_caption(row), colour_scale_sentence(row)],
    )


def _bars(subject: ExportSubject, part: Part) -> PrintedPicture:
    rows, how = _rows(subject, part)
    row = BarRow(rows[0], rows[1] if len(rows) > 1 else None)
    return _picture(subject, drawn.bars_picture, (row,), rows[0], how)


def _span(subject: ExportSubject, part: Part) -> PrintedPicture:
    queries, how = query.choose_span(subject.now, part), st.session_state.pooled
    row = query.span_row(subject.now, subject.views(), subject.chosen, queries, how)
    template, span = N_("The {how} of the weights of these queries: {queries}."), ranges(queries).replace("-", "–")
    sentence = lambda: say(template, how=say(query.POOLED[how]), queries=span)  # noqa: E731
    return _picture(subject, drawn.bars_picture, (row,), row.view, lambda: [sentence()])


def _carried(subject: ExportSubject, part: Part) -> PrintedPicture:
    (row, *_), how = _rows(subject, part)
    now = subject.now
    found = results.ask(carried, now.run.model, now.run, now.row, now.masks, *subject.chosen, row.first)
    both = lambda: [*how(), *words.contributions_caption(added=found.added is not None)]  # noqa: E731
    return _picture(subject, drawn.contributions_picture, (row, found), row, both)


def _why(subject: ExportSubject, part: Part) -> PrintedPicture:
    view, now = subject.views()[0], subject.now
    with st.container(horizontal=True):
        at = query.choose(now)
        to = query.choose_key(view, at)
    found = results.ask(score_split, now.run.model, now.run, now.row, *subject.chosen, at, to)
    score, weight = float(view.scaled[at, to]), weight_text(view.weights[at, to])
    names = f"{at}: “{view.queries[at]}”", f"{to}: “{view.keys[to]}”"
    blocked = [name for name, mask in view.blocked.items() if mask[at, to]]

    def how() -> list[str]:
        return [sum_words(found, *names, score=score, weight=weight, blocked=blocked), *words.score_caption(found)]

    return _picture(subject, drawn.score_picture, (found,), cropped(view, (at, at + 1), (to, to + 1)), how)


def _rows(subject: ExportSubject, part: Part) -> tuple[list[HeadView], How]:
    """Return the row of the chosen query, now and under the standard masks, and a function that describes it."""
    at = query.choose(subject.now)
    whole = subject.views()
    near = tokens_part(whole[0], part, at)
    keys = near.first_key, near.first_key + len(near.keys)
    rows = [cropped(view, (at, at + 1), keys) for view in whole]

    def how() -> list[str]:
        beyond = left_out(whole[0], rows[0], at) if len(near.keys) < len(whole[0].keys) else ""
        return [*words.of_query(rows[0]), beyond]

    return rows, how


def _picture(
    subject: ExportSubject, draw: Callable[..., Sheet], of: tuple, view: HeadView, how: How, others: Sequence[int] = ()
) -> PrintedPicture:
    """Return a picture of the chosen head, and of others of its layer. how: returns sentences on how to read it."""

    def caption() -> str:
        heads = say(", ").join(subject.now.name(subject.layer, head) for head in (subject.head, *others))
        what = say("Attention of {heads} of {model}.", heads=heads, model=subject.model_and_attention)
        return subject.caption(what, how())

    title = lambda: f"{subject.model_and_attention} · {subject.name}"  # noqa: E731
    rows = [] if view.merged and len(view.queries) == 1 else view.queries  # of several queries, no name is drawn
    return PrintedPicture(draw, of, title, caption, [*rows, *view.keys])


PICTURES: dict[str, tuple[str, Callable[[ExportSubject, Part], PrintedPicture | None]]] = {
    "head": (N_("Head"), _head),
    "every": (N_("All heads"), _every),
    "arcs": (N_("Arcs"), _arcs),
    "tokens": (N_("Tokens"), _tokens),
    "bars": (N_("Bars"), _bars),
    "carried": (N_("Value × weight"), _carried),
    "why": (N_("Why this cell"), _why),
    "span": (N_("Several queries"), _span),
}
