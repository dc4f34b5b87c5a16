"""What padding did, in words, every one of them from what was measured."""

from collections.abc import Sequence
from dataclasses import replace

from markupsafe import Markup, escape

from i18n import N_, say, say_all, say_count, together
from viz.html import amount, say_one
from viz.numbers import chance
from viz.padding.grid import PaddedText
from viz.padding.tables import Way, position_words, way_name

Case = tuple[str, str]  # of an explanation: its title, its text
READ = {  # where the next token is read
    "left": N_("The next token is read at a sentence's last real token. With padding on the left that is the last cell "
               "of every row, where logits[:, −1] reads: that is why texts are padded on the left for generation."),
    "wrong": N_("The next token is read at a sentence's last real token. With padding on the right, logits[:, −1] is a "
                "padding cell's row for every shorter sentence: for sentence {number} it predicts “{wrong}” instead of "
                "“{right}”."),
    "same": N_("The next token is read at a sentence's last real token. With padding on the right, logits[:, −1] is a "
               "padding cell's row for every shorter sentence, although here it predicts the same token."),
}  # fmt: skip
CHOICES = {  # what is to be chosen, as a part of a sentence
    "left": N_("padding on the left"),
    "right": N_("padding on the right"),
    "off": N_("no padding mask"),
    "keys": N_("the padding mask on keys"),
    "both": N_("the padding mask on keys and queries"),
}
WHY = {
    "causal": N_("It comes after the sentence, and the causal mask already hides later cells from every token. "
                 "Position ids count from cell 0 either way."),
    "whole_row": N_("Without the causal mask every token attends to the whole row, including the padding after it."),
    "after": N_("It comes after the sentence."),
    "before": N_("It comes before the sentence."),
    "before_causal": N_("It comes before the sentence, where the causal mask lets every token attend to it."),
    "before_whole_row": N_("It comes before the sentence, where every token attends to it."),
    "absolute": N_("Counted from cell 0, a sentence begins at a later position than it has alone, and this model "
                   "depends on absolute position ids, as one with learned positions does."),
    "relative": N_("Counted from cell 0, all tokens of a sentence are shifted by the same number, and for this model "
                   "only the distance between tokens matters, as one with rotary or relative positions does."),
    "queries": N_("It also keeps padding from attending to anything. No real token attends to padding under either "
                  "mask, so nothing that padding attends to reaches a sentence."),
}  # fmt: skip


def sentence(texts: Sequence[PaddedText], shown: Way, what: str) -> str:
    """What to notice under the way shown, as HTML. what: LOGITS, or STATES of a model without logits."""
    cells = len(texts[0].keep)
    if not any(text.padding for text in texts):
        return say("All sentences are {cells} tokens long: nothing is padded, and every choice is the same run.",
                   cells=cells)  # fmt: skip
    way = way_name(shown, cells)
    if shown.correct:
        title = say("{way}: correct.", way=way)
        return together([f"<b>{title}</b>", _same(shown, say(what))])
    worst = max(texts, key=lambda text: text.largest)
    away = say("Sentence {number}'s {what} differ by up to {amount} from those of the same sentence alone.",
               number=worst.number, what=say(what), amount=amount(worst.largest))  # fmt: skip
    title = say("{way}: wrong.", way=way)
    return together([f"<b>{title}</b>", away, _consequence(texts, worst)]).rstrip()


def _same(shown: Way, what: str) -> str:
    rounding = say("largest difference {amount}: rounding", amount=amount(shown.apart))
    places = {"what": what, "rounding": rounding if shown.apart else say("without any difference")}
    if shown.others is None:
        return say("Every sentence has the same {what} as alone ({rounding}).", **places)
    return say(
        "Every sentence has the same {what} as alone ({rounding}), and the same most likely next token.", **places
    )


def advice(ways: Sequence[Way], shown: Way, cells: int) -> str:
    """What would mend the way shown, or what it could do without; nothing where no way is better, as plain text."""
    return _could_do_without(ways, shown, cells) if shown.correct else _mended(ways, shown, cells)


def reasons(ways: Sequence[Way], *, causal: bool, cells: int) -> list[Case]:
    """Why, one case after the other."""
    counted = {(way.side, way.mask): way for way in ways if way.positions != "cells"}
    naive = next((way for way in ways if (way.side, way.mask, way.positions) == ("left", "keys", "cells")), None)
    positions = _positions(naive, counted["left", "keys"], cells)
    return [_right(counted, causal), _left(counted, causal), positions, _queries(ways)]


def reading(texts: Sequence[PaddedText], side: str) -> str:
    """Where the next token is read, and what the last cell would say instead."""
    if side == "right":
        for text in texts:
            if text.padding and text.at_end and text.padded and text.at_end.label != text.padded.label:
                tokens = {"wrong": text.at_end.label, "right": text.padded.label}
                return say_one(READ, "wrong", number=text.number, **tokens)
        return say_one(READ, "same")
    wrong = sum(text.goes_on_otherwise() for text in texts)
    still = say_count(
        "Here {count} of {total} sentences still gets a different token than alone: its padding mask or position ids "
        "are wrong.",
        "Here {count} of {total} sentences still get a different token than alone: their padding mask or position ids "
        "are wrong.",
        wrong, total=len(texts),
    )  # fmt: skip
    return together([say_one(READ, "left"), still] if wrong else [say_one(READ, "left")])


def listed(cases: Sequence[Case]) -> str:
    """The cases as HTML, side by side where there is room."""
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
    for text in (worst, *texts):
        if text.alone and text.padded and text.goes_on_otherwise():
            found, expected = text.padded, text.alone
            chances = {"chance": chance(found.probability), "expected_chance": chance(expected.probability)}
            return Markup(say("Sentence {number}'s most likely next token is <b>“{found}”</b> ({chance}) instead of "
                              "<b>“{expected}”</b> ({expected_chance}).", number=text.number, **chances,
                              found=escape(found.label), expected=escape(expected.label)))  # fmt: skip
    return "" if worst.alone is None else say("The most likely next token of every sentence stays the same.")


def _mended(ways: Sequence[Way], shown: Way, cells: int) -> str:
    """The correct way that is the fewest changes away, those of the side counting most."""
    better = [way for way in ways if way.correct]
    if not better:
        return say("No padding setting is correct here.")
    best = min(better, key=lambda way: len(_changes(shown, way, cells)) + 2 * (way.side != shown.side))
    places = {"changes": say_all(_changes(shown, best, cells)), "amount": amount(best.apart)}
    return say("With {changes} the largest difference is {amount}: correct.", **places)


def _changes(one: Way, other: Way, cells: int) -> list[str]:
    pairs = ((one.side, other.side), (one.mask, other.mask))
    changes = [say(CHOICES[chosen]) for before, chosen in pairs if before != chosen]
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
    choices = {words: (way.side, way.mask, way.positions) for words, way in simpler.items() if way != shown}
    found = {words: by_choice[choice] for words, choice in choices.items() if choice in by_choice}
    if not found:
        return say("It needs neither a padding mask nor position ids.")
    spare = [words for words, way in found.items() if way.correct]
    parts = []
    for words, way in found.items():
        said = say("{change} the largest difference would be {amount}.", change=words, amount=amount(way.apart))
        parts += [] if way.correct else [said[:1].upper() + said[1:]]
    if spare:
        parts.append(say("It is equally correct {changes}.", changes=say_all(spare, last="or")))
    return together(parts)


def _right(found: dict[tuple[str, str], Way], causal: bool) -> Case:
    without, masked = found["right", "off"], found["right", "keys"]
    title, why = say("Right padding"), "after"
    if causal and without.correct:
        title, why = say("Right padding needs no padding mask"), "causal"
    elif not causal and not without.correct:
        title, why = say("Right padding needs the padding mask"), "whole_row"
    return title, together([say(WHY[why]), _without_and_with(without, masked)])


def _left(found: dict[tuple[str, str], Way], causal: bool) -> Case:
    without, masked = found["left", "off"], found["left", "keys"]
    title = say("Left padding") if without.correct else say("Left padding needs the padding mask")
    why = "before" if without.correct else "before_causal" if causal else "before_whole_row"
    return title, together([say(WHY[why]), _without_and_with(without, masked)])


def _positions(naive: Way | None, counted: Way, cells: int) -> Case:
    """naive: with ids counted from cell 0; None of a model that takes no ids."""
    if naive is None:
        own = say("It computes them itself and accepts none, so only the masks can be chosen.")
        return say("Position ids: this model's own"), own
    numbers = say("Largest difference with ids 0…{last}: {naive}; from the mask: {counted}.",
                  last=cells - 1, naive=amount(naive.apart), counted=amount(counted.apart))  # fmt: skip
    if naive.correct:
        return say("Left padding works with any position ids here"), together([say_one(WHY, "relative"), numbers])
    return say("Left padding needs position ids too"), together([say_one(WHY, "absolute"), numbers])


def _without_and_with(without: Way, masked: Way) -> str:
    amounts = {"without": amount(without.apart), "masked": amount(masked.apart)}
    return say("Largest difference without a padding mask: {without}; with one: {masked}.", **amounts)


def _queries(ways: Sequence[Way]) -> Case:
    keys, both = (
        {(way.side, way.positions): way.apart for way in ways if way.mask == mask} for mask in ("keys", "both")
    )
    most = max((abs(keys[choice] - both[choice]) for choice in keys if keys[choice] != both[choice]), default=0.0)
    numbers = say("The table's last two columns hold the same numbers.")
    if most:
        numbers = say("The table's last two columns differ by at most {amount}.", amount=amount(most))
    return say("Masking queries too changes no sentence"), together([say_one(WHY, "queries"), numbers])
