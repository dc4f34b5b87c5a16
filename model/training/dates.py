"""The dates model: an encoder-decoder that writes dates as ISO 8601.

    python -m model.training dates [--minutes 38] [--out FOLDER]
    python -m model.training.dates [FOLDER]                        print the numbers on its card

Every row is made on the spot by model/cross_attention/written_dates.py, of days that are not held out. Learning
follows the clock.
"""

import csv
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn

from model.cross_attention import dates
from model.cross_attention import written_dates as written
from model.cross_attention.dates import BATCH, END, FOLDER, PAD, START, DatesModel, Pairs, answer_chances, exact_match
from model.cross_attention.reading import read
from model.cross_attention.written_dates import FIRST_DAY, LAST_DAY, NO_DATE, examples, held_out_days, word, words
from model.masks import MaskSpec
from model.text import padded
from model.training.story import LossCurve
from model.transformer import EncoderDecoder, EncoderDecoderConfig
from model.why_causal.live_training import Rates, new_optimizers, rate_at, update

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


def listed_texts() -> list[Listed]:
    """The list: 200 definite dates, texts that are none, and dates with two readings."""
    with LIST.open(newline="", encoding="utf-8") as file:
        return [Listed(row["kind"], row["text"], row["answer"], row["other_reading"]) for row in csv.DictReader(file)]


def answered(model: DatesModel, texts: Sequence[str]) -> list[tuple[str, float]]:
    """What the model writes for each text, and the probability that it gives to this as a whole."""
    found: list[tuple[str, float]] = []
    for begin in range(0, len(texts), BATCH):
        wrote = model.write(model.encode_source(list(texts[begin : begin + BATCH])))
        found += zip(wrote.texts, map(math.prod, wrote.probabilities), strict=True)
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
    listed = listed_texts()
    wrote = [text for text, _ in answered(model, [one.text for one in listed])]
    right = [one for one, text in zip(listed, wrote, strict=True) if text == one.answer]
    definite, none = [one for one in listed if one.definite], [one for one in listed if one.answer == NO_DATE]
    two, kinds = [one for one in listed if one.other], Counter(one.kind for one in definite)
    of_kind = Counter(one.kind for one in right)
    first, second = zip(*(answer_chances(model, one.text, (one.answer, one.other)) for one in two), strict=True)
    missed = sum(text == NO_DATE for one, text in zip(listed, wrote, strict=True) if one.definite)
    each = [f"{kind} {of_kind[kind]} of {count}" for kind, count in kinds.items()]
    return [
        f"the list, exact: {sum(one.definite for one in right)} of {len(definite)} ({', '.join(each)})",
        f"the list, dates answered with 'none': {missed}",
        f"the list, other texts answered with 'none': {sum(one.answer == NO_DATE for one in right)} of {len(none)}",
        f"the list, two readings: the day first in {sum(bool(one.other) for one in right)} of {len(two)}; "
        f"mean probability {sum(first) / len(two):.1%} the day first, {sum(second) / len(two):.1%} the month first",
    ]


def _of_held_out(model: DatesModel, some: Pairs, none: Pairs) -> list[str]:
    """Under the standard masks."""
    both = some + none
    found = answered(model, [text for text, _ in both])
    judged = [(text == right, sure >= written.SURE) for (text, sure), (_, right) in zip(found, both, strict=True)]
    of_some, of_none = judged[: len(some)], judged[len(some) :]
    called_none = sum(text == NO_DATE for text, _ in found[: len(some)])
    sure, unsure = ([right for right, is_sure in judged if is_sure is which] for which in (True, False))
    return [
        f"exact on {len(some):,} held-out strings, standard masks: {_share(of_some)}, answered with 'none': "
        f"{called_none / len(some):.2%}",
        f"exact on {len(none):,} texts that are not dates: {_share(of_none)}",
        f"of these {len(both):,} answers {len(sure) / len(both):.1%} have a probability of {written.SURE:.0%} or more: "
        f"{sum(sure) / len(sure):.2%} of them are right, of the others {sum(unsure) / max(len(unsure), 1):.1%}",
    ]


def _share(judged: list[tuple[bool, bool]]) -> str:
    return f"{sum(right for right, _ in judged) / len(judged):.2%}"


LIKE_MONTHS = ("may", "march", "august", "May", "March", "April", "June", "August", "mark", "jan", "dec", "sun", "sat")
DAYS_IN = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)  # at the most


def none_examples(count: int, draw: random.Random) -> list[tuple[str, str]]:
    """(a text that names no whole day from 1900 to 2099 by the rules of reading.py, what to write for it)."""
    found: list[tuple[str, str]] = []
    while len(found) < count:
        text = draw.choice(KINDS)(draw)
        if text and not read(text):
            found.append((text, NO_DATE))
    return found


def _sentence(draw: random.Random) -> str:
    text = words(draw, 9)
    if draw.random() < 0.3:
        text = f"{draw.choice(LIKE_MONTHS)} {text}" if draw.random() < 0.5 else f"{text} {draw.choice(LIKE_MONTHS)}"
    if draw.random() < 0.3:
        text = f"{draw.choice(written.BEFORE)} {text}"
    if draw.random() < 0.2:
        text = f"{text} {draw.choice(written.AFTER)}"
    text = text.capitalize() if draw.random() < 0.5 else text
    return (text.upper() if draw.random() < 0.05 else text) + draw.choice(("", ".", "!", "?"))


def _half_date(draw: random.Random) -> str:
    """A month and a year, a day and a month, a weekday, a time …"""
    month = draw.choice(written.MONTHS)
    month = draw.choice((month, month, month[:3], written.mistyped(month, draw)))
    day, year = str(draw.randint(1, 31)), str(draw.randint(FIRST_DAY.year, LAST_DAY.year))
    ordinal = draw.choice((written.ORDINALS[int(day) - 1], f"{day}th"))
    text = draw.choice(
        (
            f"{month} {year}", f"{month}, {year}", f"{day} {month}", f"{month} {day}", f"the {ordinal} of {month}",
            f"{month} {ordinal}", year, month, f"summer of {year}", f"in {year}", f"{ordinal} of the month",
            f"next {draw.choice(written.WEEKDAYS)}", draw.choice(written.SHORT_WEEKDAYS),
            f"{draw.choice(written.WEEKDAYS)}, {month} {day}",
            f"{month[:3]}-{year[2:]}", f"{int(day) % 12 + 1}/{year}", f"{year}-{int(day) % 12 + 1:02d}",
            f"{day}/{int(day) % 12 + 1}", written.time_of_day(draw), f"{month} {year}, {written.time_of_day(draw)}",
            f"{word(draw)} {month}", f"{month} {word(draw)}", f"the {ordinal} of {word(draw)} {year}",
        )
    )  # fmt: skip
    return written.with_surroundings(text, draw) if draw.random() < 0.3 else draw.choice((text, text, text.lower()))


def _impossible(draw: random.Random) -> str:
    """In the same shapes as dates: a day too many, a month too many, a year too early or too late."""
    year, month = draw.randint(FIRST_DAY.year, LAST_DAY.year), draw.randint(1, 12)
    day = draw.randint(1, DAYS_IN[month - 1])
    kind = draw.choice((*["day after the last"] * 3, "leap", "leap", "day", "month", "year", "nothing"))
    if kind == "day after the last":
        month = draw.choice((2, 2, 4, 6, 9, 11))
        day = draw.randint(DAYS_IN[month - 1] + 1, 31)
    elif kind == "day":
        day = draw.randint(32, 99)
    elif kind == "leap":
        month, day, year = 2, 29, draw.choice([year for year in range(1900, 2100) if year % 4 or year == 1900])
    elif kind == "month":
        month, day = draw.randint(13, 99), draw.randint(13, 60)
    elif kind == "year":
        year = draw.choice((draw.randint(1000, FIRST_DAY.year - 1), draw.randint(LAST_DAY.year + 1, 2999)))
    else:
        return draw.choice(("00/00/0000", "0000-00-00", f"{year}-00-00", f"00.00.{year}", f"0/0/{year}"))
    return written.write_numbers(year, month, day, draw.randrange(7), draw)


def _numbers(draw: random.Random) -> str:
    """Telephone numbers, prices, addresses of computers, versions, sums, and digits of no kind."""
    few, many = draw.randrange(100), draw.randrange(1000, 10_000)
    text = draw.choice(
        (
            f"+{few} {draw.randint(10, 99)} {many} {draw.randrange(10_000):04d}", f"({many % 1000}) 555-{many:04d}",
            f"{many % 900 + 100}-{draw.randint(100, 999)}-{many}", f"0{many} {draw.randrange(10**6):06d}",
            f"${few}.{draw.randrange(100):02d}", f"${few},{many % 1000:03d}.00", f"{few}.{few:02d} euros", f"{few} %",
            ".".join(str(draw.randrange(256)) for _ in range(4)), f"version {few % 12}.{draw.randrange(30)}.{few % 10}",
            f"v{few % 9}.{few}", f"{few} + {many % 97} = {many % 200}", f"{few} x {many}", str(few), f"{many}",
            f"{few} {few % 37}", f"ISBN 978-{few % 10}-{few}-{many}{few}-{few % 10}", f"{few}/{many % 100}",
            f"{few} {word(draw)}, {many % 97} {word(draw)}", f"{word(draw)} {few}", f"{many} {words(draw, 4)}",
            str(draw.randrange(10**5, 10**12)), f"{few}.{many}", f"-{few}", f"#{many}", f"{few}:{few % 60:02d}",
            f"{few} {words(draw, 3)} {many}", "-".join(str(draw.randrange(1000)) for _ in range(draw.randint(2, 5))),
        )
    )  # fmt: skip
    return written.with_surroundings(text, draw) if draw.random() < 0.3 else text


def _markup(draw: random.Random) -> str:
    name = draw.choice(("p", "b", "div", "script", "time", "a", "h1", word(draw)))
    inside = draw.choice((words(draw, 4), "alert(1)", "", str(draw.randrange(100))))
    return draw.choice(
        (
            f"<{name}>{inside}</{name}>", f"<{name}>", f"{{{name}: {inside}}}", f"# {inside}", f"[{name}]({inside})",
            f"**{inside}**", f"${inside}$", f"{name}@{inside}.com", f"https://{name}.org/{inside}", f"`{inside}`",
            "".join(draw.choices("!#$%&()*+,-./:;<=>?@[]^_{|}~ ", k=draw.randint(1, 12))), " " * draw.randint(1, 6),
        )
    )  # fmt: skip


def _other_script(draw: random.Random) -> str:
    """Characters for which the model has one token, with words and numbers between."""

    def unknown() -> str:
        return "".join(draw.choices(written.UNKNOWN_CHARACTERS, k=draw.randint(1, 6)))

    parts = [draw.choice((unknown(), word(draw), str(draw.randrange(50)))) for _ in range(draw.randint(0, 6))]
    return draw.choice(("", " ")).join([unknown(), *parts])


KINDS = (_sentence, _sentence, _half_date, _half_date, *[_impossible] * 3, _numbers, _markup, _other_script)


EVERY = 200  # steps between two lines of the loss curve
POOL = 8  # batches that are drawn together


@dataclass(frozen=True, kw_only=True)
class DatesRecipe(Rates):
    """Everything that made the weights, but the machine."""

    minutes: float = 38.0
    context: int = 96
    encoder_layers: int = 2
    decoder_layers: int = 2
    heads: int = 4
    width: int = 64
    rows: int = 192
    no_dates: float = 0.25  # share of the rows
    month_first: float = 0.25  # share of the numeric dates with two readings that are taught with the month first
    leap_days: int = 20  # how many times as often as other days
    warmup: float = 0.03
    seed: int = 11


def train(out: Path, recipe: DatesRecipe) -> None:
    """Train, and write a checkpoint, its tokenizer and its loss curve to out."""
    torch.set_num_threads(1)  # on tensors this small more threads only wait for each other
    torch.manual_seed(recipe.seed)
    tokenizer, batches = dates.new_tokenizer(), training_rows(recipe)
    model = new_model(recipe, tokenizer.get_vocab_size())
    optimizers = new_optimizers(model, recipe)
    held_out, none = examples(held_out_days(), 400, random.Random("loss curve")), none_examples(100, random.Random(0))
    curve = LossCurve(out, ["step", "minutes", "training_loss", "held_out_exact", "none_exact"])
    began, step = time.monotonic(), 0
    while (elapsed := (time.monotonic() - began) / 60) < recipe.minutes:
        source, target = rows_of(next(batches), tokenizer)
        logits = model(source, target[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD)
        loss.backward()
        update(model, optimizers, rate_at(elapsed / recipe.minutes, recipe.warmup))
        step += 1
        if step % EVERY == 0:
            reader = DatesModel("dates", model, tokenizer)
            shares = (f"{exact_match(reader, some):.4f}" for some in (held_out, none))
            curve.add(step, f"{elapsed:.2f}", f"{loss.item():.5f}", *shares)
            dates.save(model, out)
    dates.save(model, out)
    print(f"{step} steps, {step * recipe.rows:,} rows; recipe {asdict(recipe)}")


def new_model(recipe: DatesRecipe, vocabulary: int) -> EncoderDecoder:
    """Small random weights, smaller where they write into the stream."""
    sizes = {name: getattr(recipe, name) for name in ("context", "encoder_layers", "decoder_layers", "heads", "width")}
    model = EncoderDecoder(EncoderDecoderConfig(vocabulary=vocabulary, **sizes))
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(weight)
        elif "embedding" in name and "un" not in name:
            nn.init.normal_(weight, std=0.7)  # as large as the sines and cosines that are added
        elif weight.ndim == 2:
            into_stream = name.endswith(("attention.output.weight", "mlp_out.weight"))
            std = weight.shape[1] ** -0.5
            nn.init.normal_(weight, std=std / math.sqrt(2 * recipe.decoder_layers) if into_stream else std)
    return model


def training_rows(recipe: DatesRecipe) -> Iterator[Pairs]:
    """Batches of (source, target) without end, each of sources of about one length, so that little is padding."""
    draw, days = random.Random(recipe.seed), written.training_days()
    held_out = set(held_out_days())
    days += [day for day in days if (day.month, day.day) == (2, 29)] * (recipe.leap_days - 1)
    while True:
        none = round(recipe.no_dates * POOL * recipe.rows)
        some = []
        for text, iso in examples(days, POOL * recipe.rows - none, draw):
            # now and then the other reading of a text that has two: the model is to be as unsure as the text
            readings = read(text) if draw.random() < recipe.month_first else ()
            other = readings[1] if len(readings) > 1 and readings[1] not in held_out else None
            some.append((text, iso if other is None else other.isoformat()))
        pool = sorted(some + none_examples(none, draw), key=lambda row: len(row[0]))
        batches = [pool[begin : begin + recipe.rows] for begin in range(0, len(pool), recipe.rows)]
        draw.shuffle(batches)
        yield from batches


def rows_of(some: Pairs, tokenizer: Tokenizer) -> tuple[Tensor, Tensor]:
    """Source ids [B,S] and target ids [B,T], the target between its start and its end token, padded on the right."""
    sources = [encoded.ids for encoded in tokenizer.encode_batch([source for source, _ in some])]
    targets = [[START, *encoded.ids, END] for encoded in tokenizer.encode_batch([target for _, target in some])]
    return padded(sources, PAD)[0], padded(targets, PAD)[0]


if __name__ == "__main__":
    print(report(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER))
