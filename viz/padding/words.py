"""What padding did, in words, every one of them from what was measured."""

from collections.abc import Sequence
from dataclasses import replace

from markupsafe import escape

from viz.formats import amount
from viz.numbers import chance
from viz.padding.grid import PaddedText
from viz.padding.tables import MASKS, Way, position_words, way_name


def sentence(texts: Sequence[PaddedText], shown: Way, what: str) -> str:
    """What to notice under the way shown, as HTML. what: "logits", or "last states" of a model without logits."""
    cells = len(texts[0].keep)
    if not any(text.padding for text in texts):
        return f"All sentences are {cells} tokens long: nothing is padded, and every choice is the same run."
    title = f"<b>{escape(way_name(shown, cells))}: {'correct' if shown.correct else 'wrong'}.</b>"
    if shown.correct:
        same = ", and the same likeliest next token" if shown.others == 0 else ""
        apart = amount(shown.apart)
        rounding = "without any difference" if shown.apart == 0 else f"largest difference {apart}: rounding"
        return f"{title} Every sentence has the {what} that it has alone ({rounding}){same}."
    worst = max(texts, key=lambda text: text.largest)
    return (
        f"{title} Sentence {worst.number}'s {what} are up to {amount(worst.largest)} away from those of the same "
        f"sentence alone{_consequence(texts, worst)}"
    )


def advice(ways: Sequence[Way], shown: Way, cells: int) -> str:
    """What would mend the way shown, or what it could do without; nothing where no way is better, as plain text."""
    return _could_do_without(ways, shown, cells) if shown.correct else _mended(ways, shown, cells)


def reasons(ways: Sequence[Way], *, causal: bool, cells: int) -> list[tuple[str, str]]:
    """Why, one case after the other: a title and a text each."""
    counted = {(way.side, way.mask): way for way in ways if way.positions != "cells"}
    naive = next((way for way in ways if (way.side, way.mask, way.positions) == ("left", "keys", "cells")), None)
    positions = OWN_POSITIONS if naive is None else _positions(naive, counted["left", "keys"], cells)
    return [_right(counted, causal), _left(counted, causal), positions, _queries(ways)]


OWN_POSITIONS = (
    "Position ids: this model's own",
    "It works them out by itself and takes none, so only the masks are left to choose.",
)


def reading(texts: Sequence[PaddedText], side: str) -> str:
    """Where the next token is read, and what the last cell would say instead."""
    if side == "left":
        return (
            "The next token is read at a sentence's last real token. With padding on the left all of those stand in "
            "the last cell, and logits[:, −1] is right for every sentence: that is why texts are padded on the left "
            "when a model is to write on from them."
        )
    begin = (
        "The next token is read at a sentence's last real token. With padding on the right, logits[:, −1] is a padding "
        "cell's row for every shorter sentence"
    )
    for text in texts:
        if text.padding and text.at_end and text.padded and text.at_end.label != text.padded.label:
            wrong, right = _quoted(text.at_end.label), _quoted(text.padded.label)
            return f"{begin}: for sentence {text.number} it names {wrong} instead of {right}."
    return f"{begin}, although here it names the same token."


def listed(cases: Sequence[tuple[str, str]]) -> str:
    """Titles and texts as HTML, side by side where there is room."""
    items = "".join(f"<div><b>{escape(title)}.</b> {escape(text)}</div>" for title, text in cases)
    return f'{STYLE}<div class="reasons">{items}</div>'


STYLE = """
<style>
  div.reasons { display: grid; grid-template-columns: repeat(auto-fill, minmax(22rem, 1fr)); gap: .8rem 1.6rem; }
  div.reasons div { line-height: 1.45; font-size: .95rem; }
</style>
"""


def _consequence(texts: Sequence[PaddedText], worst: PaddedText) -> str:
    """How a wrong way's predictions change: of the sentence that is furthest off, or else of another."""
    changed = [text for text in (worst, *texts) if text.goes_on_otherwise()]
    if changed:
        text = changed[0]
        who = "its" if text is worst else f"sentence {text.number}'s"
        assert text.padded is not None
        assert text.alone is not None
        return (
            f", and {who} likeliest next token is <b>{escape(_quoted(text.padded.label))}</b> "
            f"({chance(text.padded.probability)}) instead of <b>{escape(_quoted(text.alone.label))}</b> "
            f"({chance(text.alone.probability)})."
        )
    return "." if worst.alone is None else ". The likeliest next token of every sentence stays the same."


def _mended(ways: Sequence[Way], shown: Way, cells: int) -> str:
    """The correct way that is the fewest changes away, those of the side counting most."""
    better = [way for way in ways if way.correct]
    if not better:
        return "No way to pad is correct here."
    best = min(better, key=lambda way: len(_changes(shown, way, cells)) + 2 * (way.side != shown.side))
    changes = " and ".join(_changes(shown, best, cells))
    return f"With {changes} the largest difference is {amount(best.apart)}: correct."


def _changes(one: Way, other: Way, cells: int) -> list[str]:
    """What is to be chosen to come from one way to the other."""
    changes = []
    if one.side != other.side:
        changes.append(f"padding on the {other.side}")
    if one.mask != other.mask:
        changes.append("no padding mask" if other.mask == "off" else f"the padding {MASKS[other.mask]}")
    if one.positions != other.positions:
        changes.append(f"position ids {position_words(other.positions, cells)}")
    return changes


def _could_do_without(ways: Sequence[Way], shown: Way, cells: int) -> str:
    """For a correct way: what happens without its mask, and with the other position ids."""
    by_choice = {(way.side, way.mask, way.positions): way for way in ways}
    simpler = {  # in one respect
        "without the padding mask": replace(shown, mask="off"),
        f"with position ids 0…{cells - 1}": replace(shown, positions="cells"),
    }
    found = {
        words: by_choice[way.side, way.mask, way.positions]
        for words, way in simpler.items()
        if way != shown and (way.side, way.mask, way.positions) in by_choice
    }
    needed = [(words, amount(way.apart)) for words, way in found.items() if not way.correct]
    spare = [words for words, way in found.items() if way.correct]
    parts = []
    if needed:
        (first, difference), *others = needed
        more = "".join(f", {words} {other}" for words, other in others)
        parts.append(f"{first.capitalize()} the largest difference would be {difference}{more}.")
    if spare:
        parts.append(f"It is as correct {' or '.join(spare)}.")
    if not found:
        parts.append("It needs neither a padding mask nor position ids.")
    return " ".join(parts)


def _right(found: dict[tuple[str, str], Way], causal: bool) -> tuple[str, str]:
    without, masked = found["right", "off"], found["right", "keys"]
    numbers = _differences(("without a padding mask", without), ("with one", masked))
    if causal and without.correct:
        return "Right padding needs no padding mask", (
            "It stands behind the sentence, and the causal mask already hides from every token whatever comes later. "
            f"Position ids count from cell 0 either way. {numbers}"
        )
    if not without.correct and not causal:
        return "Right padding needs the padding mask", (
            f"Without the causal mask every token looks at the whole row, the padding behind it included. {numbers}"
        )
    return "Right padding", f"It stands behind the sentence. {numbers}"


def _left(found: dict[tuple[str, str], Way], causal: bool) -> tuple[str, str]:
    without, masked = found["left", "off"], found["left", "keys"]
    numbers = _differences(("without a padding mask", without), ("with one", masked))
    if without.correct:
        return "Left padding", f"It stands before the sentence. {numbers}"
    where = "where the causal mask lets every token look" if causal else "where every token looks"
    return "Left padding needs the padding mask", f"It stands before the sentence, {where}. {numbers}"


def _positions(naive: Way, counted: Way, cells: int) -> tuple[str, str]:
    numbers = _differences((f"with ids 0…{cells - 1}", naive), ("from the mask", counted))
    if not naive.correct:
        return "Left padding needs position ids too", (
            "Counted from cell 0, a sentence begins at a later position than it has alone, and this model tells "
            f"positions apart by their number, as one with learned positions does. {numbers}"
        )
    return "Left padding works with any position ids here", (
        f"Counted from cell 0, all tokens of a sentence are shifted by the same number, and to this model only the "
        f"distance between tokens matters, as one with rotary or relative positions does. {numbers}"
    )


def _differences(*ways: tuple[str, Way]) -> str:
    """The ways' largest differences, after their names."""
    return f"Largest difference {'; '.join(f'{words}: {amount(way.apart)}' for words, way in ways)}."


def _queries(ways: Sequence[Way]) -> tuple[str, str]:
    """The mask on queries too, against the one on keys alone."""
    keys = {(way.side, way.positions): way.apart for way in ways if way.mask == "keys"}
    both = {(way.side, way.positions): way.apart for way in ways if way.mask == "both"}
    most = max((abs(keys[choice] - both[choice]) for choice in keys if keys[choice] != both[choice]), default=0.0)
    numbers = f"are at most {amount(most)} apart" if most else "hold the same numbers"
    return "Masking queries too changes no sentence", (
        "It also keeps padding from looking at anything. No real token looks at padding under either mask, so nothing "
        "that padding looks at gets into a sentence. "
        f"The table's last two columns {numbers}."
    )


def _quoted(label: str) -> str:
    return f"“{label}”"
