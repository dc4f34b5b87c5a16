"""Every sentence that the pages say of a run, on 200 texts and masks by chance, against numbers computed again.

Each sentence that occurs has an entry in CLAIMS, which says of the numbers that stand in it whether they are true: from
the run's weights, masks and logits alone, in numpy. -s prints how often each occurred.
"""

import logging
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from gettext import NullTranslations
from string import Formatter

import pytest
import torch

import i18n
from model import catalog
from model.base import Model, tokenize
from model.heads.ablation import HeadsOff, answer, outcome
from model.heads.rollout import layer_maps
from model.heads.view import HeadView, cropped
from model.masks import MaskSpec
from tests.model.random_specs import random_spec
from tests.ui.sentences.claims import CLAIMS, NO_CLAIM, Said, plain
from tests.ui.sentences.facts import Facts
from ui import explain, run_view
from ui.mask_lab.effect import effect_of
from viz.ablation import AskedPrediction
from viz.ablation import sentence as ablation_sentence
from viz.heads.bars import rest_words, row_of, where_it_lies
from viz.heads.tokens import left_out, light_words
from viz.layers.token import token_sentence
from viz.mask_lab.effect import after_query, effect
from viz.numbers import leak_notes
from viz.sentence import sentence

pytestmark = pytest.mark.slow  # hundreds of combinations

COMBINATIONS = 200
TEXTS = (
    "a", "Hello", "the the the the", "no no", "They walked and walked.", "cat", ".", "He lost his hat. He saw a dog.",
    "Peter blew his silver whistle twice, and Peter blew his silver whistle twice, and Peter blew his silver",
    "Once upon a time\nThe little girl ran down the hill, over the bridge and through the wood.",
    "one\n\n\ntwo words here\n \nthe third line, which is the longest of them by far", "猫在垫子上", "猫\nthe cat",
    "🙂🙂 hat", "The cat 🐱 sat\n猫 on the mat", "<b>bold</b> & {braces} %s", "A fox. A hen. A fox. A hen. A fox.",
    "the cat sat on the mat and the cat sat still on the mat\na cat", "⏎⏎ \t tab", "x" * 60, "1 2 3 1 2 3 1 2 3 1 2",
)  # fmt: skip


Spoken = tuple[str, Said]


def heard(monkeypatch: pytest.MonkeyPatch) -> list[Spoken]:
    """What is said from here on: the sentence as it is in the source, and what its places were filled with."""
    found: list[Spoken] = []
    key, filled = "", i18n._filled

    class Catalogue(NullTranslations):
        def gettext(self, message: str) -> str:
            nonlocal key
            key = message
            return message

        def ngettext(self, one: str, many: str, count: int) -> str:
            nonlocal key
            key = one if count == 1 and plain(one) in CLAIMS else many
            return one if count == 1 else many

    def listen(sentence: str, values: dict[str, object]) -> str:
        found.append((key, _filled(key, values)))
        return filled(sentence, values)

    monkeypatch.setattr(i18n, "_catalogue", lambda _: Catalogue())
    monkeypatch.setattr(i18n, "_filled", listen)
    return found


def _filled(sentence: str, values: dict[str, object]) -> Said:
    """The values as they are written."""
    spec = {name: form for _, name, form, _ in Formatter().parse(sentence) if name}
    return {name: format(values[name], form or "") for name, form in spec.items() if name in values}


SHARE, COUNT = r"[<>]?[\d.]+%?", r"[\d,]+"
SHAPES = dict.fromkeys(("moved", "opened", "share", "before", "after"), SHARE) | dict.fromkeys(("half", "keys"), COUNT)
CHANGE = r"\d+: .+? \([\d.]+ → [\d.]+\)"
SHAPES |= {"token": r"(?:(?!After ).)+? \(\d+\)", "nats": "nats", "changes": f"{CHANGE}(?:, {CHANGE})?"}
SHAPES |= {"path": r"in L.+? \(\d+\)", "loss": r"[\d.]+"}


def read(sentence: str, said: Said, text: str, number: int, *, markup: bool) -> Said:
    """Its places; those that were filled after it was said out of the whole text, its number-th such sentence."""
    said = {name: plain(value) if markup else value for name, value in said.items()}
    parts = list(Formatter().parse(sentence))
    if {name for _, name, _, _ in parts if name} <= set(said):
        return said
    pattern = "".join(
        re.escape(plain(part)) + (f"(?P<{name}>{SHAPES.get(name, '.+?')})" if name else "")
        for part, name, _, _ in parts
    )
    return list(re.finditer(pattern, plain(text), re.DOTALL))[number].groupdict() | said


def facts_of(model: Model, chance: random.Random, *, lab: bool) -> Facts:
    """A text, a head and masks by chance: any in all layers, or those that Explore switches, in one layer alone too."""
    reading = tokenize(model, chance.choice(TEXTS), chance.choice(["left", "right"]), None, most_rows=16)
    row, layer, head = chance.randrange(len(reading.rows)), chance.randrange(6), chance.randrange(6)
    size = reading.batch.ids.shape[1]
    if lab:
        layers, heads = chance.choice([((), ()), ((0, 3, 5), ()), ((), (0, 2))])
        masks = chance.choice([random_spec(chance, layers=layers, heads=heads), MaskSpec(causal=False, padding=False)])
    else:
        masks = MaskSpec(causal=chance.random() < 0.5, padding=chance.random() < 0.5)
    only = layer if not lab and chance.random() < 0.3 and masks != model.standard else None
    now, standard = run_view.run_pair(model, reading.batch, masks, row, "self", only_layer=only)
    runs = model.run(reading.batch, now.run.spec), model.run(reading.batch, standard.run.spec)
    edges = [sorted(chance.sample(range(size + 1), 2)) for _ in range(2)]
    part = tuple((0, size) if chance.random() < 0.5 else (begin, end) for begin, end in edges)
    return Facts(now, standard, runs, layer, head, chance.randrange(size), part)


def said_of(facts: Facts, *, lab: bool) -> Iterator[tuple[str, bool]]:
    """What Explore and the Mask Lab say of a run; and whether it is HTML."""
    now, standard, at, pieces = facts.now, facts.standard, facts.at, facts.pieces
    place, changed = (facts.layer, facts.head), now.masks != standard.masks
    only = changed and now.run.spec == standard.run.spec
    whole = now.head(*place)
    view, row = cropped(whole, *facts.part), row_of(whole, standard.head(*place) if changed else None, at)
    yield explain.head_alt(now.name(*place), view, changed), False
    yield explain.key([view], 1.0), True
    yield where_it_lies(row), True
    yield rest_words(row, 3), True
    yield left_out(whole, cropped(whole, (at, at + 1), facts.part[1]), at), True
    yield light_words(whole), True
    survey = now.survey()
    yield leak_notes(*(shares[place][None, None] for shares in (survey.future, survey.padding)))[0][0], True
    means = now.ask(layer_maps, "mean").maps[:, at]
    lines = HeadView(means, means, {}, [f"L{one}" for one in range(6)], pieces)
    yield token_sentence(lines, "mean", at, pieces[at]), True
    if not lab:
        scope = "layer" if only else "model"
        yield sentence(explain.scene(now, scope, now.name(*place), whole, *place)), True
    if only:
        return  # nothing of the predictions
    predicted, found = [one.predictions(at) for one in (now, standard)], effect_of(now, standard, at)
    yield after_query(found), True
    if changed:
        yield explain.what_moved(pieces, at, *predicted), True
        yield effect(found), True


def heads_off(model: Model, facts: Facts) -> tuple[Facts, str]:
    """What Ablation says of the head off, and the run without it."""
    now, at = facts.now, facts.at
    batch, target = now.run.batch, int(facts.logs[at].argmax())

    def edit(attention: str, layer: int, record: object, output: torch.Tensor) -> torch.Tensor:
        output = output.clone()
        if layer == facts.layer:
            output[now.row, facts.head] = 0
        return output

    off = HeadsOff(((facts.layer, facts.head),))
    without = outcome(model, batch, now.run.spec, now.row, at, off, target)
    with_it = answer(model, facts.runs[0], now.row, at, target)
    asked = AskedPrediction(with_it.label, facts.pieces[at], at, follows=False)
    words = ablation_sentence(["L0 H0"], "zero", asked, with_it.log_probability, without.log_probability)
    return replace(facts, runs=(model.run(batch, now.run.spec, edit), facts.runs[0])), words


def test_every_sentence_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    logging.disable(logging.WARNING)  # of streamlit, that no page is being made
    model, chance = catalog.load("story"), random.Random(31)
    counted: Counter[str] = Counter()
    words = heard(monkeypatch)
    wrong, unknown = [], set()

    def check(text: str, facts: Facts, *, markup: bool) -> None:
        here: Counter[str] = Counter()
        for found, said in words:
            name = plain(found)
            if name in CLAIMS:
                counted[name] += 1
                here[name] += 1
                if not CLAIMS[name](read(found, said, text, here[name] - 1, markup=markup), facts):
                    wrong.append((name, plain(text), facts.pieces, facts.now.masks, facts.at))
            elif name.endswith(".") and name not in NO_CLAIM:
                unknown.add(name)
        words.clear()

    for number in range(COMBINATIONS):
        facts = facts_of(model, chance, lab=number % 2 == 0)
        words.clear()
        for text, markup in said_of(facts, lab=number % 2 == 0):
            check(text, facts, markup=markup)
        if number % 5 == 0:
            changed, text = heads_off(model, facts)
            check(text, changed, markup=True)
    logging.disable(logging.NOTSET)
    print(*(f"{count:5} {name}" for name, count in counted.most_common()), sep="\n")
    print(f"{counted.total()} sentences, {len(wrong)} of them wrong")
    assert not {one[0]: one[1:] for one in wrong}
    assert not unknown
    assert counted.total() > 10 * COMBINATIONS
    never = set(CLAIMS) - set(counted)
    assert len(never) < len(CLAIMS) / 5, never
