"""The numbers on the dates model's card: on dates of days it never saw, on texts that are none, and on the list of ways
that people write dates, which was made before the model."""

import csv
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model.cross_attention import dates
from model.cross_attention.dates import BATCH, DatesModel, Pairs, answer_chances, exact_match
from model.cross_attention.days import NO_DATE, SURE, held_out_days
from model.cross_attention.no_dates import none_examples
from model.cross_attention.written_dates import examples
from model.masks import MaskSpec

LIST = Path(__file__).with_name("dates_people_write.csv")


@dataclass(frozen=True)
class Listed:
    """A line of the list: a text, the answer to it, and where it has two readings, the other one; "" elsewhere."""

    kind: str
    text: str
    answer: str
    other: str

    @property
    def definite(self) -> bool:
        """A date with one reading."""
        return self.answer != NO_DATE and not self.other


def people_write() -> list[Listed]:
    """The list: 200 definite dates, texts that are none, and dates with two readings."""
    with LIST.open(newline="", encoding="utf-8") as file:
        return [Listed(row["kind"], row["text"], row["answer"], row["other_reading"]) for row in csv.DictReader(file)]


def answered(model: DatesModel, texts: Sequence[str]) -> list[tuple[str, float]]:
    """What the model writes for each text, and the probability that it gives to this as a whole."""
    found: list[tuple[str, float]] = []
    for begin in range(0, len(texts), BATCH):
        written = model.write(model.encode_source(list(texts[begin : begin + BATCH])))
        found += zip(written.texts, map(math.prod, written.probabilities), strict=True)
    return found


def report(folder: Path, count: int = 10_000) -> str:
    """The measured numbers of the checkpoint in folder, as the card has them."""
    model = dates.load(folder)
    some = examples(held_out_days(), count, random.Random("card"))
    none = none_examples(count // 5, random.Random("card"))
    lines = [f"size: {sum(path.stat().st_size for path in folder.iterdir()) / 2**20:.2f} MiB in all"]
    lines += _of_the_list(model)
    for name, spec in (
        ("without the padding mask", MaskSpec(padding=False)),
        ("without the causal mask", MaskSpec(causal=False)),
    ):
        lines.append(f"exact on {count:,} held-out strings, {name}: {exact_match(model, some, spec):.2%}")
    return "\n".join(lines + _of_held_out(model, some, none))


def _of_the_list(model: DatesModel) -> list[str]:
    listed = people_write()
    wrote = [text for text, _ in answered(model, [one.text for one in listed])]
    right = [one for one, text in zip(listed, wrote, strict=True) if text == one.answer]
    definite, none = [one for one in listed if one.definite], [one for one in listed if one.answer == NO_DATE]
    two = [one for one in listed if one.other]
    first, second = zip(*(answer_chances(model, one.text, (one.answer, one.other)) for one in two), strict=True)
    kinds = dict.fromkeys(one.kind for one in definite)
    missed = sum(text == NO_DATE for one, text in zip(listed, wrote, strict=True) if one.definite)
    each = [f"{kind} {_of(right, kind)} of {_of(definite, kind)}" for kind in kinds]
    return [
        f"the list, exact: {sum(one.definite for one in right)} of {len(definite)} ({', '.join(each)})",
        f"the list, called no date that are one: {missed}",
        f"the list, no dates called so: {sum(one.answer == NO_DATE for one in right)} of {len(none)}",
        f"the list, two readings: the day first in {sum(bool(one.other) for one in right)} of {len(two)}; "
        f"mean probability {sum(first) / len(two):.1%} the day first, {sum(second) / len(two):.1%} the month first",
    ]


def _of_held_out(model: DatesModel, some: Pairs, none: Pairs) -> list[str]:
    """Under the standard masks."""
    both = some + none
    found = answered(model, [text for text, _ in both])
    judged = [(text == wanted, chance >= SURE) for (text, chance), (_, wanted) in zip(found, both, strict=True)]
    of_some, of_none = judged[: len(some)], judged[len(some) :]
    called_none = sum(text == NO_DATE for text, _ in found[: len(some)])
    sure, unsure = ([right for right, is_sure in judged if is_sure is which] for which in (True, False))
    return [
        f"exact on {len(some):,} held-out strings, standard masks: {_share(of_some)}, called no date: "
        f"{called_none / len(some):.2%}",
        f"exact on {len(none):,} texts that are no date: {_share(of_none)}",
        f"of these {len(both):,} answers {len(sure) / len(both):.1%} have a probability of {SURE:.0%} or more: "
        f"{sum(sure) / len(sure):.2%} of them are right, of the others {sum(unsure) / max(len(unsure), 1):.1%}",
    ]


def _share(judged: list[tuple[bool, bool]]) -> str:
    return f"{sum(right for right, _ in judged) / len(judged):.2%}"


def _of(some: list[Listed], kind: str) -> int:
    return sum(one.kind == kind for one in some)
