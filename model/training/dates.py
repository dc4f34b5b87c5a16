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
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn

from model.cross_attention import dates
from model.cross_attention.dates import BATCH, END, FOLDER, PAD, START, DatesModel, Pairs, answer_chances, exact_match
from model.cross_attention.days import NO_DATE, SURE, held_out_days, training_days
from model.cross_attention.no_dates import none_examples
from model.cross_attention.reading import read
from model.cross_attention.written_dates import examples
from model.masks import MaskSpec
from model.seq2seq import EncoderDecoder, EncoderDecoderConfig
from model.text import padded
from model.training.story import LossCurve
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
    config = EncoderDecoderConfig(
        vocabulary=vocabulary,
        context=recipe.context,
        encoder_layers=recipe.encoder_layers,
        decoder_layers=recipe.decoder_layers,
        heads=recipe.heads,
        width=recipe.width,
    )
    model = EncoderDecoder(config)
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
    draw, days = random.Random(recipe.seed), training_days()
    held_out = set(held_out_days())
    days += [day for day in days if (day.month, day.day) == (2, 29)] * (recipe.leap_days - 1)
    while True:
        none = round(recipe.no_dates * POOL * recipe.rows)
        some = examples(days, POOL * recipe.rows - none, draw)
        some = [(text, _taught(text, iso, held_out, recipe.month_first, draw)) for text, iso in some]
        pool = sorted(some + none_examples(none, draw), key=lambda row: len(row[0]))
        batches = [pool[begin : begin + recipe.rows] for begin in range(0, len(pool), recipe.rows)]
        draw.shuffle(batches)
        yield from batches


def _taught(text: str, iso: str, held_out: set[date], month_first: float, draw: random.Random) -> str:
    """The day, or now and then the other reading of a text that has two: the model is to be as unsure as the text."""
    readings = read(text) if draw.random() < month_first else ()
    return iso if len(readings) < 2 or readings[1] in held_out else readings[1].isoformat()


def rows_of(some: Pairs, tokenizer: Tokenizer) -> tuple[Tensor, Tensor]:
    """Source ids [B,S] and target ids [B,T], the target between its start and its end token, padded on the right."""
    sources = [encoded.ids for encoded in tokenizer.encode_batch([source for source, _ in some])]
    targets = [[START, *encoded.ids, END] for encoded in tokenizer.encode_batch([target for _, target in some])]
    return padded(sources, PAD)[0], padded(targets, PAD)[0]


if __name__ == "__main__":
    print(report(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER))
