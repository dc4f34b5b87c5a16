"""What padding did, in words, every one of them from what was measured."""

from collections.abc import Sequence
from dataclasses import replace

from markupsafe import Markup, escape

from i18n import say, say_all, say_count, together
from viz.html import amount
from viz.numbers import chance
from viz.padding.grid import PaddedText
from viz.padding.tables import Way, position_words, way_name


def sentence(texts: Sequence[PaddedText], shown: Way, what: str) -> str:
    """What to notice under the way shown, as HTML. what: LOGITS, or STATES of a model without logits."""
    cells = len(texts[0].keep)
    if not any(text.padding for text in texts):
        return say("All sentences are {cells} tokens long: nothing is padded, and every choice is the same run.",
                   cells=cells)  # fmt: skip
    way = way_name(shown, cells)
    if shown.correct:
        rounding = (
            say("without any difference")
            if shown.apart == 0
            else say("largest difference {amount}: rounding", amount=amount(shown.apart))
        )
        title, told = say("{way}: correct.", way=way), {"what": say(what), "rounding": rounding}
        if shown.others == 0:
            same = say("Every sentence has the same {what} as alone "
                       "({rounding}), and the same most likely next token.", **told)  # fmt: skip
        else:
            same = say("Every sentence has the same {what} as alone ({rounding}).", **told)
        return together([f"<b>{title}</b>", same])
    worst = max(texts, key=lambda text: text.largest)
    away = say(
        "Sentence {number}'s {what} differ by up to {amount} from those of the same sentence alone.",
        number=worst.number, what=say(what), amount=amount(worst.largest),
    )  # fmt: skip
    title = say("{way}: wrong.", way=way)
    return together([f"<b>{title}</b>", away, _consequence(texts, worst)]).rstrip()


def advice(ways: Sequence[Way], shown: Way, cells: int) -> str:
    """What would mend the way shown, or what it could do without; nothing where no way is better, as plain text."""
    return _could_do_without(ways, shown, cells) if shown.correct else _mended(ways, shown, cells)


def reasons(ways: Sequence[Way], *, causal: bool, cells: int) -> list[tuple[str, str]]:
    """Why, one case after the other: a title and a text each."""
    counted = {(way.side, way.mask): way for way in ways if way.positions != "cells"}
    naive = next((way for way in ways if (way.side, way.mask, way.positions) == ("left", "keys", "cells")), None)
    positions = _own_positions() if naive is None else _positions(naive, counted["left", "keys"], cells)
    return [_right(counted, causal), _left(counted, causal), positions, _queries(ways)]


def reading(texts: Sequence[PaddedText], side: str) -> str:
    """Where the next token is read, and what the last cell would say instead."""
    if side == "left":
        where = say(
            "The next token is read at a sentence's last real token. With padding on the left that is the last cell of "
            "every row, where logits[:, −1] reads: that is why texts are padded on the left for generation."
        )
        wrong = sum(text.padded != text.alone and text.padded.label != text.alone.label
                    for text in texts if text.padded and text.alone)  # fmt: skip
        return together([where, say_count(
            "Here {count} of {total} sentences still gets a different token than alone: its padding mask or position "
            "ids are wrong.",
            "Here {count} of {total} sentences still get a different token than alone: their padding mask or position "
            "ids are wrong.",
            wrong, total=len(texts),
        )]) if wrong else where  # fmt: skip
    for text in texts:
        if text.padding and text.at_end and text.padded and text.at_end.label != text.padded.label:
            return say(
                "The next token is read at a sentence's last real token. With padding on the right, logits[:, −1] is "
                "a padding cell's row for every shorter sentence: for sentence {number} it predicts “{wrong}” instead "
                "of “{right}”.",
                number=text.number, wrong=text.at_end.label, right=text.padded.label,
            )  # fmt: skip
    return say(
        "The next token is read at a sentence's last real token. With padding on the right, logits[:, −1] is a "
        "padding cell's row for every shorter sentence, although here it predicts the same token."
    )


def listed(cases: Sequence[tuple[str, str]]) -> str:
    """Titles and texts as HTML, side by side where there is room."""
    titled = [(say("{name}.", name=title), text) for title, text in cases]
    items = "".join(f"<div><b>{escape(title)}</b> {escape(text)}</div>" for title, text in titled)
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
        assert text.padded is not None
        assert text.alone is not None
        return Markup(say(
            "Sentence {number}'s most likely next token is <b>“{found}”</b> ({chance}) instead of <b>“{expected}”</b> "
            "({expected_chance}).",
            number=text.number, found=escape(text.padded.label), chance=chance(text.padded.probability),
            expected=escape(text.alone.label), expected_chance=chance(text.alone.probability),
        ))  # fmt: skip
    return "" if worst.alone is None else say("The most likely next token of every sentence stays the same.")


def _mended(ways: Sequence[Way], shown: Way, cells: int) -> str:
    """The correct way that is the fewest changes away, those of the side counting most."""
    better = [way for way in ways if way.correct]
    if not better:
        return say("No padding setting is correct here.")
    best = min(better, key=lambda way: len(_changes(shown, way, cells)) + 2 * (way.side != shown.side))
    changes = say_all(_changes(shown, best, cells))
    return say("With {changes} the largest difference is {amount}: correct.",
               changes=changes, amount=amount(best.apart))  # fmt: skip


def _changes(one: Way, other: Way, cells: int) -> list[str]:
    """What is to be chosen to come from one way to the other."""
    changes = []
    if one.side != other.side:
        changes.append(say("padding on the left") if other.side == "left" else say("padding on the right"))
    if one.mask != other.mask:
        changes.append({
            "off": say("no padding mask"), "keys": say("the padding mask on keys"),
            "both": say("the padding mask on keys and queries"),
        }[other.mask])  # fmt: skip
    if one.positions != other.positions:
        changes.append(say("position ids {which}", which=position_words(other.positions, cells)))
    return changes


def _could_do_without(ways: Sequence[Way], shown: Way, cells: int) -> str:
    """For a correct way: what happens without its mask, and with the other position ids."""
    by_choice = {(way.side, way.mask, way.positions): way for way in ways}
    simpler = {  # in one respect
        say("without the padding mask"): replace(shown, mask="off"),
        say("with position ids 0…{last}", last=cells - 1): replace(shown, positions="cells"),
    }
    found = {
        words: by_choice[way.side, way.mask, way.positions]
        for words, way in simpler.items()
        if way != shown and (way.side, way.mask, way.positions) in by_choice
    }
    needed = [(words, amount(way.apart)) for words, way in found.items() if not way.correct]
    spare = [words for words, way in found.items() if way.correct]
    parts = []
    for words, apart in needed:
        said = say("{change} the largest difference would be {amount}.", change=words, amount=apart)
        parts.append(said[:1].upper() + said[1:])
    if spare:
        parts.append(say("It is equally correct {changes}.", changes=say_all(spare, last="or")))
    if not found:
        parts.append(say("It needs neither a padding mask nor position ids."))
    return together(parts)


def _right(found: dict[tuple[str, str], Way], causal: bool) -> tuple[str, str]:
    without, masked = found["right", "off"], found["right", "keys"]
    numbers = _without_and_with(without, masked)
    if causal and without.correct:
        why = say(
            "It comes after the sentence, and the causal mask already hides later cells from every token. Position "
            "ids count from cell 0 either way."
        )
        return say("Right padding needs no padding mask"), together([why, numbers])
    if not without.correct and not causal:
        why = say("Without the causal mask every token attends to the whole row, including the padding after it.")
        return say("Right padding needs the padding mask"), together([why, numbers])
    return say("Right padding"), together([say("It comes after the sentence."), numbers])


def _left(found: dict[tuple[str, str], Way], causal: bool) -> tuple[str, str]:
    without, masked = found["left", "off"], found["left", "keys"]
    numbers = _without_and_with(without, masked)
    if without.correct:
        return say("Left padding"), together([say("It comes before the sentence."), numbers])
    where = (
        say("It comes before the sentence, where the causal mask lets every token attend to it.")
        if causal
        else say("It comes before the sentence, where every token attends to it.")
    )
    return say("Left padding needs the padding mask"), together([where, numbers])


def _own_positions() -> tuple[str, str]:
    return (
        say("Position ids: this model's own"),
        say("It computes them itself and accepts none, so only the masks can be chosen."),
    )


def _positions(naive: Way, counted: Way, cells: int) -> tuple[str, str]:
    numbers = say("Largest difference with ids 0…{last}: {naive}; from the mask: {counted}.",
                  last=cells - 1, naive=amount(naive.apart), counted=amount(counted.apart))  # fmt: skip
    if not naive.correct:
        why = say(
            "Counted from cell 0, a sentence begins at a later position than it has alone, and this model depends on "
            "absolute position ids, as one with learned positions does."
        )
        return say("Left padding needs position ids too"), together([why, numbers])
    why = say(
        "Counted from cell 0, all tokens of a sentence are shifted by the same number, and for this model only the "
        "distance between tokens matters, as one with rotary or relative positions does."
    )
    return say("Left padding works with any position ids here"), together([why, numbers])


def _without_and_with(without: Way, masked: Way) -> str:
    return say("Largest difference without a padding mask: {without}; with one: {masked}.",
               without=amount(without.apart), masked=amount(masked.apart))  # fmt: skip


def _queries(ways: Sequence[Way]) -> tuple[str, str]:
    """The mask on queries too, against the one on keys alone."""
    keys = {(way.side, way.positions): way.apart for way in ways if way.mask == "keys"}
    both = {(way.side, way.positions): way.apart for way in ways if way.mask == "both"}
    most = max((abs(keys[choice] - both[choice]) for choice in keys if keys[choice] != both[choice]), default=0.0)
    why = say(
        "It also keeps padding from attending to anything. No real token attends to padding under either mask, so "
        "nothing that padding attends to reaches a sentence."
    )
    numbers = (
        say("The table's last two columns differ by at most {amount}.", amount=amount(most))
        if most
        else say("The table's last two columns hold the same numbers.")
    )
    return say("Masking queries too changes no sentence"), together([why, numbers])
