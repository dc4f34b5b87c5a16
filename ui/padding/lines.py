"""The sentences of the batch: the reader's lines, and two of the page's own where those need no padding."""

from dataclasses import dataclass

import streamlit as st

from i18n import say, say_all, together
from model import padding
from model.base import Model
from model.text import rows_of
from serving.job import digest
from ui import explain, results

# Of different lengths, so that one of them is always padded.
OURS = ("Once upon a time", "The king said to his")  # not shown in another language: models read it


@dataclass(frozen=True)
class PaddedTexts:
    """The texts of the batch: the reader's first, then `ours` of the page's own. notes: what is to be said of them.

    whole: all that the reader wrote, with ours among it.
    """

    texts: tuple[str, ...]
    ours: int
    notes: tuple[str, ...]
    whole: str


def lines(model: Model, text: str) -> PaddedTexts:
    """The reader's lines, and two of the page's own where those need no padding. Raises what encode raises."""
    key = ("padding lines", model.key, digest((text, model.name)))  # not shown
    return results.kept(key, lambda: _lines(model, text))


def _lines(model: Model, text: str) -> PaddedTexts:
    rows, _ = rows_of(text, len(text))
    texts = padding.fitting(model, rows)
    ours = () if _need_padding(model, texts) else OURS
    kept = texts[: padding.MOST_TEXTS - len(ours)]
    notes = [*_cuts(model, rows, kept), *_left_out(len(rows) - len(kept), len(kept))]
    whole = "\n".join([*rows[: len(kept)], *ours, *rows[len(kept) :]])
    return PaddedTexts((*kept, *ours), len(ours), tuple(notes), whole)


def offer_ours(found: PaddedTexts) -> None:
    """Say that lines are ours and why, and let the reader take them over."""
    shown = say_all([f"“{text}”" for text in OURS])
    words, button = st.columns([5, 1.2], vertical_alignment="center")
    match len(found.texts) - found.ours:
        case 0:
            because = say("No text yet, so this page adds two lines of its own: {lines}.", lines=shown)
        case 1:
            because = say(
                "One line alone needs no padding, so this page adds two lines of its own: {lines}.", lines=shown
            )
        case _:
            because = say(
                "These lines are all of the same length and need no padding, so this page adds two lines of its own: "
                "{lines}.",
                lines=shown,
            )
    words.caption(together([because, say("Type yours on the left, one a line.")]))
    button.button(say("Edit these lines"), on_click=lambda: st.session_state.update(text=found.whole))


def _need_padding(model: Model, texts: list[str]) -> bool:
    return bool(texts) and not bool(model.encode(texts).keep.all())


def _cuts(model: Model, rows: list[str], texts: list[str]) -> list[str]:
    """A sentence for every text that is not there as a whole."""
    if not texts:
        return []
    batch = model.encode(texts)
    return [
        say(
            "Sentence {number} is cut to its first {kept:,} tokens: this page compares at most {most} of a sentence, "
            "and {model} reads at most {context:,}.",
            number=number,
            kept=int(batch.keep[number - 1].sum()),
            most=padding.MOST_TOKENS,
            model=explain.title_of(model),
            context=model.context,
        )
        for number, (row, text) in enumerate(zip(rows, texts, strict=False), 1)
        if row != text or batch.cut[number - 1]
    ]


def _left_out(count: int, shown: int) -> list[str]:
    if not count:
        return []
    return [
        say(
            "Shown are the first {shown} lines, {count:,} more are left out: the page takes {most} lines at the most, "
            "its own included, fewer when they are long.",
            shown=shown, count=count, most=padding.MOST_TEXTS,
        )
    ]  # fmt: skip
