"""Checks of the sentences of the Padding page, by runs of the batch and of each text alone."""

# ruff: noqa: E501 - each sentence on one line, so that a search finds it

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from model.base import Model
from model.masks import MaskSpec
from model.padding import CHOICES, PaddingChoice
from tests.ui.sentences.claims import Said, same

ROUNDING = 1e-4  # relative to the largest logit
POWERS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")


@dataclass(frozen=True)
class PaddedFacts:
    """Texts padded by a choice, and each text alone. Other choices are all those that model.padding offers."""

    model: Model
    texts: tuple[str, ...]
    choice: PaddingChoice
    causal: bool

    @property
    def cells(self) -> int:
        return self.model.encode(list(self.texts)).ids.shape[1]

    def alone(self, number: int) -> np.ndarray:
        """Return the logits [n,V] of a text alone."""
        return _logits(self.model, (self.texts[number],), MaskSpec(causal=self.causal), "right")[0]

    def padded(self, choice: PaddingChoice) -> list[np.ndarray]:
        """Return the logits [n,V] of each text's own tokens."""
        batch = self.model.encode(list(self.texts), choice.side)
        logits = _logits(self.model, self.texts, choice.spec(self.causal), choice.side)
        return [row[keep] for row, keep in zip(logits, batch.keep.numpy(), strict=True)]

    def diffs(self, choice: PaddingChoice) -> list[float]:
        """Return the largest difference of logits for each text."""
        return _diffs(self, choice)

    def correct(self, choice: PaddingChoice) -> bool:
        largest = max(np.abs(self.alone(number)).max() for number in range(len(self.texts)))
        return max(self.diffs(choice)) <= ROUNDING * largest

    def others(self) -> list[int]:
        """Return the texts whose most likely next token differs from that of the text alone."""
        here = self.padded(self.choice)
        tokens = [(int(here[row][-1].argmax()), int(self.alone(row)[-1].argmax())) for row in range(len(here))]
        label = self.model.label
        return [row for row, (now, alone) in enumerate(tokens) if label(now) != label(alone)]

    def largest(self, side: str, mask: str, positions: str) -> float:
        return max(self.diffs(PaddingChoice(side, mask, positions)))


@cache
def _diffs(facts: PaddedFacts, choice: PaddingChoice) -> list[float]:
    return [float(np.abs(here - facts.alone(number)).max()) for number, here in enumerate(facts.padded(choice))]


@cache
def _logits(model: Model, texts: tuple[str, ...], spec: MaskSpec, side: str) -> np.ndarray:
    return model.run(model.encode(list(texts), side), spec).logits.double().numpy()


def written(said: str) -> float:
    """Parse a number such as "1.1 × 10⁻⁵"."""
    found = re.fullmatch(r"([\d.,]+)(?:\s×\s10([⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+))?|10([⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+)", said)
    power = found[2] or found[3] or "0"
    return float((found[1] or "1").replace(",", "")) * 10.0 ** int(power.translate(POWERS))


def size(said: str, value: float) -> bool:
    """Whether a number such as "1.1 × 10⁻⁵" is right for a difference. Rounding errors differ in every batch."""
    number = written(said)
    return abs(number - value) <= 0.06 * max(number, value) or max(number, value) < 1e-4


def _probability(logits: np.ndarray, token: int) -> float:
    shares = np.exp(logits - logits.max())
    return float(shares[token] / shares.sum())


def _says_other(said: Said, facts: PaddedFacts) -> bool:
    row = int(said["number"]) - 1
    here, alone = facts.padded(facts.choice)[row][-1], facts.alone(row)[-1]
    found, expected = int(here.argmax()), int(alone.argmax())
    labels = facts.model.label(found) == said["found"] and facts.model.label(expected) == said["expected"]
    shares = (
        same(said["chance"], _probability(here, found), 1e-4),
        same(said["expected_chance"], _probability(alone, expected), 1e-4),
    )
    return labels and all(shares) and row in facts.others()


def _worst(said: Said, facts: PaddedFacts) -> bool:
    diffs = facts.diffs(facts.choice)
    return size(said["amount"], max(diffs)) and diffs[int(said["number"]) - 1] == max(diffs)


def _changed(words: str, facts: PaddedFacts) -> PaddingChoice:
    """Return the choice with the changes that the words name."""
    words = words.lower()
    side = next((side for side in ("left", "right") if f"{side} padding" in words), facts.choice.side)
    masks = {
        "keys and queries": "both",
        "mask on keys": "keys",
        "no padding mask": "off",
        "without the padding mask": "off",
    }
    mask = next((mask for said, mask in masks.items() if said in words), facts.choice.mask)
    ids = "cells" if "0…" in words else "counted" if "from the mask" in words else facts.choice.positions
    return PaddingChoice(side, mask, ids)


def _mended(said: Said, facts: PaddedFacts) -> bool:
    changed = _changed(said["changes"], facts)
    return (
        facts.correct(changed) and not facts.correct(facts.choice) and size(said["amount"], max(facts.diffs(changed)))
    )


def _simpler(said: Said, facts: PaddedFacts) -> bool:
    """Whether the choice is correct, as the sentence requires, and the changed one has this difference."""
    changed = _changed(said["change"], facts)
    return facts.correct(facts.choice) and changed != facts.choice and size(said["amount"], max(facts.diffs(changed)))


def _both(said: Said, facts: PaddedFacts) -> bool:
    """Whether the differences are those of one side with counted ids, without a mask and with one on keys."""
    pairs = [[facts.largest(side, mask, "counted") for mask in ("off", "keys")] for side in ("left", "right")]
    return any(size(said["without"], without) and size(said["masked"], masked) for without, masked in pairs)


def _queries(facts: PaddedFacts) -> float:
    ways = [(choice.side, choice.positions) for choice in CHOICES if choice.mask == "keys"]
    return max(abs(facts.largest(side, "keys", ids) - facts.largest(side, "both", ids)) for side, ids in ways)


def _at_the_end(facts: PaddedFacts) -> np.ndarray:
    """Return bool [B], whether each row's last cell is a token of its text."""
    return facts.model.encode(list(facts.texts), facts.choice.side).keep[:, -1].numpy()


def _shorter_end_in_padding(facts: PaddedFacts) -> bool:
    shorter = [len(facts.alone(row)) < facts.cells for row in range(len(facts.texts))]
    return bool((_at_the_end(facts) != shorter).all())


def _wrong_end(said: Said, facts: PaddedFacts) -> bool:
    row = int(said["number"]) - 1
    batch = facts.model.encode(list(facts.texts), facts.choice.side)
    logits = _logits(facts.model, facts.texts, facts.choice.spec(facts.causal), facts.choice.side)[row]
    last = np.flatnonzero(batch.keep[row].numpy())[-1]
    wrong, right = (facts.model.label(int(logits[at].argmax())) for at in (-1, last))
    return wrong == said["wrong"] != right == said["right"] and facts.choice.side == "right"


Claim = Callable[[Said, PaddedFacts], bool]
READ = "The next token is read at a sentence's last real token. With padding on the "
PADDING_CLAIMS: dict[str, Claim] = {
    "All sentences have the same length (tokens: {cells}): nothing is padded, and every choice is the same run.": lambda said, facts: (
        int(said["cells"]) == facts.cells and bool(facts.model.encode(list(facts.texts)).keep.all())
    ),
    "{way}: correct.": lambda said, facts: facts.correct(facts.choice) and said["way"].lower().startswith(facts.choice.side),
    "{way}: wrong.": lambda said, facts: not facts.correct(facts.choice) and said["way"].lower().startswith(facts.choice.side),
    "Sentence {number}'s {what} differ by up to {amount} from those of the same sentence alone.": _worst,
    "Sentence {number}'s most likely next token is “{found}” ({chance}) instead of “{expected}” ({expected_chance}).": _says_other,
    "The most likely next token of every sentence stays the same.": lambda said, facts: not facts.others(),
    "Every sentence has the same {what} as alone: a largest difference of {amount}.": lambda said, facts: (
        facts.correct(facts.choice) and size(said["amount"], max(facts.diffs(facts.choice)))
    ),
    "No padding setting is correct here.": lambda said, facts: not any(map(facts.correct, CHOICES)),
    "Correct would be: {changes}. The largest difference is then {amount}.": _mended,
    "{change}: a largest difference of {amount}.": _simpler,
    READ + "left that is the last cell of every row, where logits[:, −1] reads: that is why texts are padded on the left for generation.": lambda said, facts: (
        facts.choice.side == "left" and bool(_at_the_end(facts).all())
    ),
    READ + "right, logits[:, −1] is a padding cell's row for every shorter sentence.": lambda said, facts: (
        facts.choice.side == "right" and _shorter_end_in_padding(facts)
    ),
    "There it predicts “{wrong}” for sentence {number} instead of “{right}”.": _wrong_end,
    "Sentences that get another next token here than alone, due to their padding mask or position ids: {wrong} of "
    "{total}.": lambda said, facts: (
        (int(said["wrong"]), int(said["total"])) == (len(facts.others()), len(facts.texts)) and bool(facts.others())
    ),
    "With ids from the mask, the largest difference is {without} without a padding mask and {masked} with one.": _both,
    "With left padding and a padding mask, the largest difference is {naive} with ids 0…{last} and {counted} with ids from the mask.": lambda said, facts: (
        size(said["naive"], facts.largest("left", "keys", "cells")) and size(said["counted"], facts.largest("left", "keys", "counted"))
        and int(said["last"]) == facts.cells - 1
    ),
    "The table's last two columns differ by at most {amount}.": lambda said, facts: (
        _queries(facts) > 0 and size(said["amount"], _queries(facts))
    ),
    "The table's last two columns are equal.": lambda said, facts: _queries(facts) == 0,
    "It comes after the sentence, and the causal mask already hides later cells from every token. Position ids count from cell 0 either way.": lambda said, facts: (
        facts.causal and facts.correct(PaddingChoice("right", "off", "counted"))
    ),
    "It comes after the sentence. Without the causal mask every token attends to the whole row.": lambda said, facts: (
        not facts.causal and not facts.correct(PaddingChoice("right", "off", "counted"))
    ),
    "It comes before the sentence, where the causal mask lets every token attend to it.": lambda said, facts: (
        facts.causal and not facts.correct(PaddingChoice("left", "off", "counted"))
    ),
    "It comes before the sentence, where every token attends to it.": lambda said, facts: (
        not facts.causal and not facts.correct(PaddingChoice("left", "off", "counted"))
    ),
    "Counted from cell 0, all tokens of a sentence with padding on the left are shifted by the same number. That matters to a model with absolute position ids, such as learned positions, and not where only distances count, as with rotary or relative positions.": lambda said, facts: (
        not facts.correct(PaddingChoice("left", "keys", "cells"))
    ),
    "It also keeps padding from attending to anything. No real token attends to padding under either mask, so nothing that padding attends to reaches a sentence.": lambda said, facts: (
        _queries(facts) < 1e-4
    ),
}  # fmt: skip
