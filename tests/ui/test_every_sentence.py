"""Every sentence of the pages about a run, on 300 random texts and masks, against recomputed numbers.

Each sentence that occurs has an entry in CLAIMS, which returns whether the values in the sentence are true, from the
run's weights, masks and logits alone, in numpy. -s prints how often each occurred.
"""

import logging
import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from gettext import NullTranslations
from string import Formatter
from typing import Any

import numpy as np
import pytest
import torch

import i18n
from model import catalog, padding
from model.base import Model, tokenize
from model.heads.ablation import AblatedHeads, answer, layer_effects, outcome
from model.heads.layers import layer_maps
from model.heads.reach import reach_of
from model.heads.view import HeadView, cropped
from model.images import captioner
from model.images.scenes import caption, random_scene, render
from model.inference.calls import ALIGNMENTS, compare_calls, continuation_ids, ends_of, pack
from model.inference.cost import cost
from model.inference.draft_tree import uniform_tree, verify_tree
from model.inference.streaming import ids_of, stream
from model.masks import MaskSpec
from model.text import TokenBatch
from serving.job import ModelRef
from tests.model.random_specs import random_spec
from tests.ui.sentences.claims import CLAIMS, NO_CLAIM, Said, plain
from tests.ui.sentences.compare_claims import COMPARE_CLAIMS, IMAGE_CLAIMS, ImageFacts
from tests.ui.sentences.facts import Facts
from tests.ui.sentences.layer_claims import LAYER_CLAIMS
from tests.ui.sentences.padding_claims import PADDING_CLAIMS, PaddedFacts
from tests.ui.sentences.serving_claims import (
    SERVING_CLAIMS,
    CallsFacts,
    CostFacts,
    PackingFacts,
    StreamFacts,
    TreeFacts,
)
from ui import explain, results, run_view
from ui.images import best_head
from ui.layers import _lens
from ui.mask_lab.lab import effect_of
from ui.padding import PaddedTexts, PaddingRuns
from viz import images
from viz.ablation import EffectsView, PredictionTarget, ranking_sentence
from viz.ablation import sentence as ablation_sentence
from viz.heads.bars import remaining_keys_sentence, row_of, weight_distribution_sentence
from viz.heads.tokens import colour_scale_sentence, left_out
from viz.inference import calls_sentence, cost_sentence, packing_sentence, stream_alt, stream_sentence, tree_sentence
from viz.layers import lens_sentence, token_sentence
from viz.mask_lab.effect import ReachView, effect, next_token_sentence, reach_sentence
from viz.numbers import leak_notes
from viz.padding import words as padding_words
from viz.sentence import prediction_sentence, sentence, weights_sentence

pytestmark = pytest.mark.slow  # hundreds of combinations

COMBINATIONS = 300
TEXTS = (
    "a", "Hello", "the the the the", "no no", "They walked and walked.", "cat", ".", "He lost his hat. He saw a dog.",
    "Peter blew his silver whistle twice, and Peter blew his silver whistle twice, and Peter blew his silver",
    "Once upon a time\nThe little girl ran down the hill, over the bridge and through the wood.",
    "one\n\n\ntwo words here\n \nthe third line, which is the longest of them by far", "猫在垫子上", "猫\nthe cat",
    "🙂🙂 hat", "The cat 🐱 sat\n猫 on the mat", "<b>bold</b> & {braces} %s", "A fox. A hen. A fox. A hen. A fox.",
    "the cat sat on the mat and the cat sat still on the mat\na cat", "⏎⏎ \t tab", "x" * 60, "1 2 3 1 2 3 1 2 3 1 2",
)  # fmt: skip


Spoken = tuple[str, Said]


def recorded(monkeypatch: pytest.MonkeyPatch, claims: Collection[str]) -> list[Spoken]:
    """Return a list that collects the sentences said from now on, as in the source, with their placeholders' values."""
    found: list[Spoken] = []
    key, filled = "", i18n._filled

    class Catalogue(NullTranslations):
        def gettext(self, message: str) -> str:
            nonlocal key
            key = message
            return message

        def ngettext(self, one: str, many: str, count: int) -> str:
            nonlocal key
            key = one if count == 1 and plain(one) in claims else many
            return one if count == 1 else many

    def listen(sentence: str, values: dict[str, object]) -> str:
        found.append((key, _filled(key, values)))
        return filled(sentence, values)

    monkeypatch.setattr(i18n, "_catalogue", lambda _: Catalogue())
    monkeypatch.setattr(i18n, "_filled", listen)
    return found


def _filled(sentence: str, values: dict[str, object]) -> Said:
    """Return the values as the sentence formats them."""
    spec = {name: form for _, name, form, _ in Formatter().parse(sentence) if name}
    return {name: format(values[name], form or "") for name, form in spec.items() if name in values}


SHARE, COUNT = r"[<>]?[\d.]+%?", r"[\d,]+"
SHAPES = dict.fromkeys(("moved", "opened", "share", "before", "after"), SHARE) | dict.fromkeys(("half", "keys"), COUNT)
CHANGE = r"\d+: .+? \([\d.]+ → [\d.]+\)"
SHAPES |= {"token": r"(?:(?!After ).)+? \(\d+\)", "nats": "nats", "changes": f"{CHANGE}(?:, {CHANGE})?"}
SHAPES |= {"path": r"in L.+? \(\d+\)", "loss": r"[\d.]+"}


def read(sentence: str, values: Said, text: str, number: int, *, markup: bool) -> Said:
    """Return the values of a sentence; those that are filled in later are parsed from its number-th match in text."""
    values = {name: plain(value) if markup else value for name, value in values.items()}
    parts = list(Formatter().parse(sentence))
    shapes = SHAPES if "{position}" not in sentence else {}  # there the token is without its position
    if {name for _, name, _, _ in parts if name} <= set(values):
        return values
    pattern = "".join(
        re.escape(plain(part)) + (f"(?P<{name}>{shapes.get(name, '.+?')})" if name else "")
        for part, name, _, _ in parts
    )
    return list(re.finditer(pattern, plain(text), re.DOTALL))[number].groupdict() | values


def facts_of(model: Model, chance: random.Random, *, lab: bool) -> Facts:
    """Return the facts of a random text, head and masks. lab: any masks; else Explore's, also in one layer only."""
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


def sentences_of(facts: Facts, *, lab: bool) -> Iterator[tuple[str, bool, Facts]]:
    """Yield what Explore, the Mask Lab and Across layers say of a run, whether it is HTML, and the facts for it."""
    now, standard, at, pieces = facts.now, facts.standard, facts.at, facts.pieces
    head, changed = (facts.layer, facts.head), now.masks != standard.masks
    only = changed and now.run.spec == standard.run.spec
    whole = now.head(*head)
    view, row = cropped(whole, *facts.part), row_of(whole, standard.head(*head) if changed else None, at)
    yield explain.head_alt(now.name(*head), view, changed), False, facts
    yield explain.key([view], 1.0), True, facts
    yield weight_distribution_sentence(row), True, facts
    yield remaining_keys_sentence(row, 3), True, facts
    yield left_out(whole, cropped(whole, (at, at + 1), facts.part[1]), at), True, facts
    yield colour_scale_sentence(whole), True, facts
    if changed:
        yield weights_sentence(standard.head(*head), whole), True, facts
    survey = now.survey()
    yield leak_notes(*(shares[head][None, None] for shares in (survey.future, survey.padding)))[0][0], True, facts
    for how in ("mean", "maximum", "rollout"):
        means = [of.ask(layer_maps, how).maps[:, at] for of in (now, standard)[: 1 + changed]]
        for span in (range(6), range(facts.layer, facts.layer + 1)):
            rows = [one[span.start : span.stop] for one in means]
            lines = [HeadView(one, one, {}, [f"L{layer}" for layer in span], pieces) for one in rows]
            words = token_sentence(lines[0], how, at, pieces[at], *lines[1:])
            yield words, True, replace(facts, how=how, layers=span)
    found = now.ask(reach_of, *head)
    names = run_view.layer_names(now.model, "self")
    yield reach_sentence(ReachView(found, facts.layer, list(pieces), at, names, facts.keep)), True, facts
    if not lab:
        scope = "layer" if only else "model"
        yield sentence(explain.scene(now, scope, now.name(*head), whole, *head)), True, facts
    if only:
        return  # the predictions do not change
    predicted, found = [one.predictions(at) for one in (now, standard)], effect_of(now, standard, at)
    if facts.keep[at]:
        lenses = [_lens(of, at, at + 1) for of in (now, standard)]
        yield lens_sentence(lenses[0], 0, pieces[at], lenses[1] if changed else None), True, facts
    yield next_token_sentence(found), True, facts
    if changed:
        yield explain.describe_change(pieces, at, *predicted), True, facts
        if all(predicted):
            yield prediction_sentence(*(one.candidates for one in predicted[::-1])), True, facts
        yield effect(found), True, facts


def heads_off(model: Model, facts: Facts) -> tuple[Facts, str]:
    """Return the run without the head, and Ablation's sentence about it."""
    now, at = facts.now, facts.at
    batch, target = now.run.batch, int(facts.logs[at].argmax())

    def edit(attention: str, layer: int, record: object, output: torch.Tensor) -> torch.Tensor:
        output = output.clone()
        if layer == facts.layer:
            output[now.row, facts.head] = 0
        return output

    off = AblatedHeads(((facts.layer, facts.head),))
    without = outcome(model, batch, now.run.spec, now.row, at, off, target)
    with_it = answer(model, facts.runs[0], now.row, at, target)
    target_shown = PredictionTarget(with_it.label, facts.pieces[at], at, follows=False)
    words = ablation_sentence(["L0 H0"], "zero", target_shown, with_it.log_probability, without.log_probability)
    return replace(facts, runs=(model.run(batch, now.run.spec, edit), facts.runs[0]), every={}), words


class Judge:
    """A judge of all sentences said from now on. counted: how often each sentence with a claim has occurred."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, claims: dict[str, Callable[..., bool]]) -> None:
        self.claims, self.counted = claims, Counter[str]()
        self.words = recorded(monkeypatch, claims)
        self.wrong: dict[str, tuple[object, ...]] = {}
        self.unknown: set[str] = set()

    def check(self, text: str, facts: Any, *, markup: bool) -> None:
        here: Counter[str] = Counter()
        for found, values in self.words:
            name = plain(found)
            if name in self.claims:
                self.counted[name] += 1
                here[name] += 1
                if not self.claims[name](read(found, values, text, here[name] - 1, markup=markup), facts):
                    self.wrong[name] = plain(text), facts
            elif name.endswith(".") and name not in NO_CLAIM:
                self.unknown.add(name)
        self.words.clear()

    def report(self, min_sentences: int) -> None:
        """Print the counts. Raises AssertionError unless all are true and four in five of the sentences occurred."""
        print(*(f"{count:5} {name}" for name, count in self.counted.most_common()), sep="\n")
        print(f"{self.counted.total()} sentences, {len(self.wrong)} of them wrong")
        assert not self.wrong
        assert not self.unknown
        assert self.counted.total() > min_sentences
        never = set(self.claims) - set(self.counted)
        assert len(never) < len(self.claims) / 5, never


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    """Silence Streamlit's warnings that no page is running."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def test_every_sentence_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    model, chance = catalog.load("story"), random.Random(31)
    judge = Judge(monkeypatch, CLAIMS | LAYER_CLAIMS | COMPARE_CLAIMS)
    for number in range(COMBINATIONS):
        facts = facts_of(model, chance, lab=number % 2 == 0)
        judge.words.clear()
        for text, markup, shown in sentences_of(facts, lab=number % 2 == 0):
            judge.check(text, shown, markup=markup)
        if number % 5 == 0:
            changed, text = heads_off(model, facts)
            judge.check(text, changed, markup=True)
        if number % 20 == 0:
            judge.check(ranking(facts), facts, markup=False)
    judge.report(10 * COMBINATIONS)


def test_every_sentence_of_images_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    """On 40 random scenes, each under a random mask, and half of them with some patches removed."""
    chance, judge = random.Random(35), Judge(monkeypatch, IMAGE_CLAIMS)
    for number in range(40):
        model = captioner.load(chance.choice(captioner.VERSIONS))
        scene = random_scene(chance, held_out=True)
        removed = chance.sample(range(captioner.PATCHES), 6 * (number % 2))
        spec = captioner.without(captioner.MASKS[chance.choice([model.version, *captioner.MASKS])], removed)
        prompt, (pixels,) = chance.choice(["across", "down"]), render([scene])
        now, own = (captioner.write(model, pixels, prompt, one).words for one in (spec, model.standard))
        true = tuple(text for text, _ in caption(scene, prompt))
        judge.words.clear()
        best = best_head(captioner.locate(model, scene, prompt, spec), model.num_heads)
        judge.check(images.sentence(now, true, own, best), ImageFacts(model, scene, prompt, spec), markup=True)
    judge.report(100)


def ranking(facts: Facts) -> str:
    """Return Ablation's sentence about all heads, each turned off alone."""
    now, target = facts.now, int(facts.logs[facts.at].argmax())
    arguments = ModelRef.of(now.model), now.run.batch, now.run.spec, now.row, facts.at, target
    effects = [results.ask(layer_effects, *arguments, layer, AblatedHeads(())) for layer in range(6)]
    return ranking_sentence(EffectsView(np.stack(effects), range(6), frozenset()))


def test_every_sentence_of_padding_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    """On 40 random batches and ways to pad them."""
    model, chance = catalog.load("story"), random.Random(7)
    lines = [line for text in TEXTS for line in text.split("\n") if line.strip()]
    judge = Judge(monkeypatch, PADDING_CLAIMS)
    for _ in range(40):
        texts, choice = tuple(chance.sample(lines, chance.randint(2, 4))), chance.choice(padding.CHOICES)
        facts = PaddedFacts(model, texts, choice, causal=chance.random() < 0.7)
        lines_of = PaddedTexts(texts, 0, (), "\n".join(texts))
        judge.words.clear()
        runs = PaddingRuns(model, lines_of, facts.causal, own=False)
        shown, every = runs.padded(choice), runs.ways()
        judge.words.clear()
        judge.check(padding_words.sentence(shown.texts, shown.way, "logits"), facts, markup=True)
        judge.check(padding_words.reading(shown.texts, choice.side), facts, markup=False)
        if shown.cells > min(map(len, map(facts.alone, range(len(texts))))):
            judge.check(padding_words.advice(every, shown.way, shown.cells), facts, markup=False)
            limits: dict[str, Any] = {"cells": shown.cells, "tolerance": shown.tolerance}
            found = padding_words.reasons(every, causal=facts.causal, **limits)
            judge.check(" ".join(text for _, text in found), facts, markup=False)
    judge.report(300)


def test_every_sentence_of_serving_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    """On texts read in calls and as streams, on trees and documents, and on masks cut into blocks."""
    model, chance = catalog.load("story"), random.Random(3)
    judge = Judge(monkeypatch, SERVING_CLAIMS)
    for number in range(40):
        batch = model.encode([chance.choice([text for text in TEXTS if len(text) > 20 and "\n" not in text])])
        ids, align = tuple(batch.ids[0].tolist()), chance.choice([*ALIGNMENTS])
        prefix = chance.randrange(len(ids) // 2)
        ends = tuple(ends_of(len(ids), chance.randint(1, len(ids)), prefix))
        more = chance.choice([" The cat ran", ", and"]) if prefix and chance.random() < 0.5 else ""
        second = tuple(continuation_ids(model, more)[0]) if more else ()
        found = compare_calls(model, batch, model.standard, ends, align, more)
        judge.words.clear()
        facts = CallsFacts(model, ids, ends, align, second)
        judge.check(calls_sentence(found, bool(second)), facts, markup=False)
        spec = MaskSpec(causal=chance.random() < 0.7, padding=False, sliding=chance.choice([0, 1, 7, 40]))
        tokens, block = chance.randint(1, 700), chance.choice([16, 32, 64, 128])
        documents = chance.choice([(), (chance.randint(1, tokens),)])
        words = cost_sentence(cost(spec, tokens, block, documents))
        judge.check(words, CostFacts(spec, tokens, block, documents), markup=False)
        if number % 4 == 0:
            judge_tree(judge, model, batch, chance)
        if number % 8 == 0:
            judge_stream(judge, model, 300 if number == 8 else chance.randint(40, 90), chance)
    judge.report(80)


def judge_tree(judge: Judge, model: Model, batch: TokenBatch, chance: random.Random) -> None:
    """Judge a tree of drafts after the text, the model's own or random ones, and the text as documents."""
    ids, stand = tuple(batch.ids[0].tolist()), chance.choice(["depth", "row"])
    parents = uniform_tree(chance.choice([[1], [2, 1], [1, 2, 2], [1, 1, 1], [3, 2]]))
    given = chance.choice([None, chance.choices(ids, k=len(parents))])
    tree = verify_tree(model, ids, parents, given, positions=stand)
    judge.words.clear()
    facts = TreeFacts(model, ids, tuple(tree.tokens), tuple(tree.parents), stand)
    judge.check(tree_sentence(tree), facts, markup=True)
    several: list[str | list[int]] = ["."] if any("." in piece for piece in batch.pieces[0][:-2]) else []
    for documents in (*several, [2, 1], [1, 2, 1]):
        found = pack(model, batch, documents)
        judge.words.clear()
        judge.check(packing_sentence(found), PackingFacts(model, ids, tuple(found.sizes)), markup=False)


def judge_stream(judge: Judge, model: Model, tokens: int, chance: random.Random) -> None:
    """Judge all texts as a stream, after its first call and at its end."""
    ids, window = ids_of(model, " ".join(TEXTS), tokens), chance.randint(8, 30)
    sizes = {"window": window, "sinks": chance.choice([0, 1, 4]), "step": chance.randint(1, 8)}
    first = stream(model, ids, **sizes, seconds=0)
    for found in (first, stream(model, ids, **sizes, so_far=first)):
        facts = StreamFacts(model, ids, **sizes, done=found.done)
        judge.words.clear()
        judge.check(stream_sentence(found, model.context, chunked=False), facts, markup=False)
        judge.check(stream_alt(found), facts, markup=False)
