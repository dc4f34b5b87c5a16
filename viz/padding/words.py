"""Sentences on the effects of padding, all computed from measurements."""

from collections.abc import Sequence
from dataclasses import replace

from markupsafe import Markup, escape

from i18n import N_, say, say_all, together
from viz.html import amount, join, tag
from viz.numbers import chance
from viz.padding.tables import SIDES, PaddedText, Way, choices, way_name

Case = tuple[str, str]  # the title and the text of an explanation
READ = {  # padding side -> which cell predicts the next token
    "left": N_("The next token is read at a sentence's last real token. With padding on the left that is the last cell "
               "of every row, where logits[:, −1] reads: that is why texts are padded on the left for generation."),
    "right": N_("The next token is read at a sentence's last real token. With padding on the right, logits[:, −1] is a "
                "padding cell's row for every shorter sentence."),
}  # fmt: skip
WHY = {  # (padding side, causal mask on) -> explanation
    ("right", True): N_("It comes after the sentence, and the causal mask already hides later cells from every token. "
                        "Position ids count from cell 0 either way."),
    ("right", False): N_("It comes after the sentence. Without the causal mask every token attends to the whole row."),
    ("left", True): N_("It comes before the sentence, where the causal mask lets every token attend to it."),
    ("left", False): N_("It comes before the sentence, where every token attends to it."),
}  # fmt: skip
OWN_REACH = N_("Where a layer has a window or chunks, tokens attend only within these.")
POSITIONS = N_(
    "Counted from cell 0, all tokens of a sentence with padding on the left are shifted by the same number. That "
    "matters to a model with absolute position ids, such as learned positions, and not where only distances count, as "
    "with rotary or relative positions."
)
QUERIES = N_(
    "It also keeps padding from attending to anything. No real token attends to padding under either mask, so nothing "
    "that padding attends to reaches a sentence."
)
BY_MASK = {  # key: whether the model accepts position ids
    True: N_("With ids from the mask, the largest difference is {without} without a padding mask and {masked} with "
             "one."),
    False: N_("The largest difference is {without} without a padding mask and {masked} with one."),
}  # fmt: skip
BY_IDS = N_(
    "With left padding and a padding mask, the largest difference is {naive} with ids 0…{last} and {counted} with ids "
    "from the mask."
)
OTHER_TOKEN = N_(
    "Sentence {number}'s most likely next token is <b>“{found}”</b> ({chance}) instead of <b>“{expected}”</b> "
    "({expected_chance})."
)


def sentence(texts: Sequence[PaddedText], shown: Way, what: str) -> str:
    """Say what to notice under the way shown, as HTML. what: LOGITS, or STATES for a model without logits."""
    cells = len(texts[0].keep)
    if not any(text.padding for text in texts):
        words = N_(
            "All sentences have the same length (tokens: {cells}): nothing is padded, and every choice is the same run."
        )
        return say(words, cells=cells)
    title = N_("{way}: correct.") if shown.correct else N_("{way}: wrong.")
    parts = [f"<b>{say(title, way=way_name(shown, cells))}</b>"]
    worst = max(texts, key=lambda text: text.largest)
    away = {"number": worst.number, "what": say(what), "amount": amount(worst.largest)}
    if shown.correct:
        parts.append(say("Every sentence has the same {what} as alone: a largest difference of {amount}.", **away))
    else:
        words = N_("Sentence {number}'s {what} differ by up to {amount} from those of the same sentence alone.")
        parts.append(say(words, **away))
    return together([*parts, *_other_token(texts, worst)])


def _other_token(texts: Sequence[PaddedText], worst: PaddedText) -> list[str]:
    """Name a sentence whose most likely next token differs from that alone: `worst` if it does, otherwise the first."""
    for text in (worst, *texts):
        if text.alone and text.padded and text.next_token_differs():
            found, expected = text.padded, text.alone
            chances = {"chance": chance(found.probability), "expected_chance": chance(expected.probability)}
            labels = {"found": escape(found.label), "expected": escape(expected.label)}
            return [say(OTHER_TOKEN, number=text.number, **chances, **labels)]
    return [say("The most likely next token of every sentence stays the same.")] if worst.alone else []


def advice(ways: Sequence[Way], shown: Way, cells: int) -> str:
    """Say which changes would make the way shown correct or, if it is correct, why each part is needed. Plain text."""
    return _each_setting_changed(ways, shown, cells) if shown.correct else _mended(ways, shown, cells)


def reasons(ways: Sequence[Way], *, causal: bool, cells: int, tolerance: float, local: bool = False) -> list[Case]:
    """Explain the results, case by case. causal: whether the causal mask is on. tolerance: the largest difference that
    is rounding. local: whether layers of the model have a window or chunks."""
    counted = {(way.side, way.mask): way for way in ways if way.positions != "cells"}
    naive = next((way for way in ways if (way.side, way.mask, way.positions) == ("left", "keys", "cells")), None)
    cases = []
    for side in ("right", "left"):
        masks = {"without": "off", "masked": "keys"}
        amounts = {name: amount(counted[side, mask].difference) for name, mask in masks.items()}
        numbers = say(BY_MASK[naive is not None], **amounts)
        reach = [say(OWN_REACH)] if local and (side, causal) != ("right", True) else []
        cases.append((say(SIDES[side]), together([say(WHY[side, causal]), *reach, numbers])))
    if naive is None:
        positions = say("This model computes them itself and accepts none, so only the masks can be chosen.")
    else:
        amounts = {"naive": amount(naive.difference), "counted": amount(counted["left", "keys"].difference)}
        positions = together([say(POSITIONS), say(BY_IDS, last=cells - 1, **amounts)])
    return [*cases, (say("Position ids"), positions), (say("Masking queries too"), _queries(ways, tolerance))]


def reading(texts: Sequence[PaddedText], side: str, *, attention_alone: bool = True) -> str:
    """Say which cell predicts the next token, and what the last cell would predict. attention_alone: whether padding
    can affect real tokens only through attention."""
    parts = [say(READ[side])]
    if side == "left":
        wrong = sum(text.next_token_differs() for text in texts)
        words = (
            N_("Sentences that get another next token here than alone, due to their padding mask or position ids: "
               "{wrong} of {total}.") if attention_alone else
            N_("Sentences that get another next token here than alone: {wrong} of {total}.")
        )  # fmt: skip
        return together([*parts, say(words, wrong=wrong, total=len(texts))] if wrong else parts)
    for text in texts:
        if text.padding and text.at_end and text.padded and text.at_end.label != text.padded.label:
            tokens = {"wrong": text.at_end.label, "right": text.padded.label}
            words = N_("There it predicts “{wrong}” for sentence {number} instead of “{right}”.")
            return together([*parts, say(words, number=text.number, **tokens)])
    return together(parts)


def listed(cases: Sequence[Case]) -> Markup:
    """Return the cases as HTML, side by side if there is room."""
    titled = [(say("{name}.", name=title), text) for title, text in cases]
    items = join(tag("div", join((tag("b", title), text), " ")) for title, text in titled)
    return STYLE + tag("div", items, class_="reasons")


STYLE = Markup("""
<style>
  div.reasons { display: grid; gap: .8rem 1.6rem;
    grid-template-columns: repeat(auto-fill, minmax(min(22rem, 100%), 1fr)); }
  div.reasons div { line-height: 1.45; font-size: .95rem; }
</style>
""")


def _mended(ways: Sequence[Way], shown: Way, cells: int) -> str:
    """Name the correct way that needs the fewest changes; changing the side counts most."""
    better = [way for way in ways if way.correct]
    if not better:
        return say("No padding setting is correct here.")
    before = choices(shown, cells)

    def changes(way: Way) -> list[str]:
        return [after for after in choices(way, cells) if after not in before]

    best = min(better, key=lambda way: len(changes(way)) + 2 * (way.side != shown.side))
    words = N_("Correct would be: {changes}. The largest difference is then {amount}.")
    return say(words, changes=say_all(changes(best)), amount=amount(best.difference))


def _each_setting_changed(ways: Sequence[Way], shown: Way, cells: int) -> str:
    """Say how large a correct way's difference becomes without its mask, and with other position ids."""
    by_choice = {(way.side, way.mask, way.positions): way for way in ways}
    simpler = {  # ways that differ in one choice
        say("Without the padding mask"): replace(shown, mask="off"),
        say("With position ids 0…{last}", last=cells - 1): replace(shown, positions="cells"),
    }
    found = {
        change: by_choice.get((way.side, way.mask, way.positions)) for change, way in simpler.items() if way != shown
    }
    return together(
        say("{change}: a largest difference of {amount}.", change=change, amount=amount(way.difference))
        for change, way in found.items()
        if way is not None
    )


def _queries(ways: Sequence[Way], tolerance: float) -> str:
    keys, both = (
        {(way.side, way.positions): way.difference for way in ways if way.mask == mask} for mask in ("keys", "both")
    )
    most = max((abs(keys[choice] - both[choice]) for choice in keys if keys[choice] != both[choice]), default=0.0)
    differ = N_("The table's last two columns differ by at most {amount}.")
    numbers = say(differ if most else N_("The table's last two columns are equal."), amount=amount(most))
    return together([say(QUERIES), numbers]) if most <= tolerance else numbers  # unless a convolution reads padding
