"""The notices of lessons: each holds for the lesson's own text and for ten others.

A claim about one text alone names its tokens or numbers, and is checked on that text; claims about a row of four tokens
are checked in test_number_questions.py.
"""

import random
import re
import string
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch

from i18n import LANGUAGES
from lessons.reading import FOLDER, read
from model import catalog
from model.base import Model
from model.cross_attention import dates
from model.heads.survey import survey
from model.heads.vectors import RunScores, embeddings, head_vectors, run_scores
from model.masks import MaskSpec
from model.spec import Stroke
from model.trace import Trace
from model.why_causal import twins

TEXTS = [
    "Once upon a time there was a little girl who lived in a house by the sea.",
    "The king gave the queen a ring, and she wore it all her life.",
    "Peter blew his silver whistle twice, and ran down to the shore.",
    "There was once a house that was overrun with Mice.",
    "A Cat heard that the Birds in an aviary were ailing.",
    "The Moon once begged her Mother to make her a gown.",
    "A Peacock taunted a Crane with the dullness of her plumage.",
    "The wind blew, and the old door opened by itself.",
    "In the basket there were apples, pears, plums and a bottle of milk.",
    "Tom ran to the river, but the boat had gone.",
    "She said that she would never come back to the castle.",
]
DATES = [
    "the 3rd of March 2021",
    "March 4, 1999",
    "12 June 2015",
    "5 Jan 2003",
    "the 21st of August 1987",
    "July 9, 2040",
    "2 February 2010",
    "30 September 1971",
    "Nov 17, 2024",
    "the 8th of May 1963",
    "1 October 2031",
]
PETER = "Peter blew his silver whistle twice, and Peter blew his silver"
PAIRS = [f"{first[0].upper() + first[1:]} {second}" for first, second in pairwise(TEXTS)]


def random_texts() -> list[str]:
    """Return the lesson's text, and ten of 8 to 14 different characters, a space, and the same characters again."""
    draw = random.Random(0)
    spans = ["".join(draw.sample(string.ascii_letters + string.digits, 8 + index % 7)) + " " for index in range(10)]
    return ["qZ7kV3mXbR qZ7kV3mXb", *(span + span[:-1] for span in spans)]


def loss(model: Model, text: str, masks: MaskSpec | None = None) -> np.ndarray:
    """Return the loss of each token but the first, float [T-1]."""
    return model.run(model.encode([text]), masks).losses(0)[1:].numpy()


def run(model: Model, text: str, masks: MaskSpec | None = None) -> Trace:
    return model.run(model.encode([text]), masks)


def earlier_row(model: Model, text: str, other: str, query: int) -> float:
    """Return the largest change of a query's weights in L3 H5 when the text is replaced by another."""
    rows = [run(model, some).weights(3, 5, 0)[query, : query + 1] for some in (text, other)]
    return float((rows[0] - rows[1]).abs().max())


SINKS: dict[str, Callable[[Model, str], bool]] = {
    "in every row the first token gets more than 99%":
        lambda model, text: float(head_vectors(run(model, text), 0, 5, 2).weights[:, 0].min()) > 0.99,
    "the first value is short":
        lambda model, text: (norms := head_vectors(run(model, text), 0, 5, 2).norms)[0] < 0.5 * norms[1:].mean(),
    "real tokens have long values":
        lambda model, text: (norms := head_vectors(run(model, text), 0, 5, 2).norms)[1:].min() > norms[0],
    "blocked, the loss rises": lambda model, text: (
        loss(model, text, MaskSpec(drawn=(Stroke("block", 1, 0, 999, 0),))).mean() > loss(model, text).mean() + 0.5
    ),
    "in a window, the first three targets are as before, and the loss rises": lambda model, text: (
        np.allclose(loss(model, text)[:4], loss(model, text, MaskSpec(sliding=4))[:4], atol=1e-4)
        and loss(model, text, MaskSpec(sliding=4)).mean() > loss(model, text).mean() + 0.5
    ),
    "one sink brings back most of it": lambda model, text: (
        2 * (loss(model, text, MaskSpec(sliding=4, sinks=1)).mean() - loss(model, text).mean())
        < loss(model, text, MaskSpec(sliding=4)).mean() - loss(model, text).mean()
    ),
}  # fmt: skip


@pytest.mark.parametrize("claim", SINKS)
def test_attention_sinks(story: Model, claim: str) -> None:
    assert [text for text in TEXTS if not SINKS[claim](story, text)] == []


def test_an_induction_head_forms(subtests: pytest.Subtests) -> None:
    models = {step: catalog.load(name) for name, step in catalog.induction_steps().items()}
    for text in random_texts():
        with subtests.test(text):
            scores = {step: run_scores(run(model, text), 0) for step, model in models.items()}
            check_formation(scores)
            last, first = run(models[1500], text), run(models[0], text)
            span = text.index(" ") + 1
            line = last.weights(1, 0, 0).diagonal(-(span - 1))[2:]  # from repeated tokens to what followed them first
            assert float(line.min()) > 0.5
            weights = first.weights(1, 0, 0)
            assert float((weights.amax(-1) * torch.arange(1, len(weights) + 1)).max()) < 2  # nearly uniform
            assert float(last.weights(0, 6, 0).diagonal(-1).mean()) > 0.75


def check_formation(scores: dict[int, RunScores]) -> None:
    first = next(iter(scores.values()))
    begins = [
        next(step for step, one in scores.items() if getattr(one, name) > getattr(first, name) + 0.05)
        for name in ("previous", "induction")
    ]
    assert begins[0] < begins[1]
    assert scores[250].induction < 0.2 < scores[500].induction
    assert 0 < first.loss - scores[350].loss < scores[400].loss - scores[600].loss  # a small fall, then the drop
    assert scores[700].loss < 1.0


def test_from_text_to_next_token(story: Model) -> None:
    for text in TEXTS:
        twice = f"{text[:-1].lower()} {text[:-1].lower()}"
        batch, vectors = story.encode([twice]), embeddings(story, run(story, twice), 0)
        ids = batch.ids[0].tolist()
        again = [(ids.index(one), position) for position, one in enumerate(ids) if ids.index(one) < position]
        cosines = vectors @ vectors.T / np.outer(*[np.linalg.norm(vectors, axis=1)] * 2)
        assert all(0.5 < cosines[one, other] < 0.9999 for one, other in again)
        assert np.mean([cosines[one, other] for one, other in again]) > 2 * np.mean(cosines)
        head = head_vectors(run(story, twice), 0, 4, 0)
        assert head.weights.sum(-1) == pytest.approx(1, abs=1e-5)
        assert head.output == pytest.approx(head.weights @ head.v, abs=1e-3)
        shares = survey(run(story, twice), 0).shares
        assert shares["induction"][4, 0] > 10 * shares["duplicate"][4, 0]  # what followed the token, not itself
        assert shares["previous"].argmax() == 3  # L0 H3


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_formulas_of_from_text_to_next_token_give_what_it_shows(story: Model, language: str) -> None:
    _, qkv, _, output, prediction, _ = read((FOLDER / language / "text_to_next_token.md").read_bytes()).steps
    assert r"\hat x = \operatorname{LN}(x), \; q = W_Q \hat x, \; k = W_K \hat x" in qkv.formula
    assert r"W_U \operatorname{LN}(x)" in prediction.formula
    found, network = run(story, PETER), story.network
    streams, attention = story.residuals(found.batch, MaskSpec()).streams, network.blocks[4].attention
    with torch.inference_mode():
        normalized = network.blocks[4].attention_norm(streams[4][0])
        q, k = (normalized @ projection.weight[:32].T for projection in (attention.query, attention.key))
        weights = (q[output.query] @ k.T / 32**0.5).softmax(-1)
        chances = (network.unembedding.weight @ network.norm(streams[-1][0, -1])).softmax(-1)
    assert weights.numpy() == pytest.approx(found.weights(4, 0, 0)[13].numpy(), abs=0.001)  # also without the biases
    assert chances.numpy() == pytest.approx(found.logits[0, -1].softmax(-1).numpy(), abs=1e-5)
    assert network.unembedding.weight is network.token_embedding.weight
    assert f"{len(attention.output.weight)}" in output.prose
    assert f"{head_vectors(found, 0, 4, 0).output.shape[1]}" in output.prose


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", ["what_attention_is", "text_to_next_token"])
def test_a_token_that_is_said_to_come_twice_does(story: Model, language: str, name: str) -> None:
    """“Peter” begins the text without a space, and is therefore a different token from “·Peter”."""
    pieces = story.encode([PETER]).pieces[0]
    text = (FOLDER / language / f"{name}.md").read_text("utf-8")
    quoted = set(re.findall("“(·?(?:Peter|blew|his|silver))”", text))
    assert {one for one in quoted if pieces.count(one) != 2} == {"Peter", "·Peter"}


def test_masks_in_serving(story: Model) -> None:
    for text, other in zip(PAIRS, PAIRS[1:] + PAIRS[:1], strict=True):
        packed = run(story, text, MaskSpec(documents="."))
        part = packed.batch.split(".")[0]
        assert not packed.weights(3, 5, 0)[part == 1][:, part == 0].any()  # two triangles
        begins = run(story, text, MaskSpec(documents=".", positions="documents"))
        assert (begins.allowed(0, 0) == packed.allowed(0, 0)).all()  # the same mask
        own = story.run(story.encode([text, text + " " + other], "left"))
        assert own.losses(0)[-8:].numpy() == pytest.approx(loss(story, text)[-8:], abs=1e-3)
        end = len(story.encode([text]).ids[0]) - 1
        assert run(story, text).allowed(0, 0)[end].all()  # the last query may attend to every key
        longer = text[: text.index(".") + 1] + " The dog sat down."
        prefix = part.tolist().index(1) - 1
        assert earlier_row(story, text, longer, prefix) < 1e-5


def test_why_training_needs_the_mask() -> None:
    pair = twins.load()
    for text in TEXTS:
        copied, masked = (float(loss(pair.models[False], text, MaskSpec(causal=way)).mean()) for way in (False, True))
        learned = float(loss(pair.models[True], text).mean())
        assert copied < 0.5 < 1 < learned < masked  # near 0; the model of the higher training loss is better in use
        line = run(pair.models[False], text, MaskSpec(causal=False)).weights(0, 3, 0).diagonal(1)
        assert float(line[1:].min()) > 0.5  # one position above the diagonal


def test_the_masks_of_the_older_lessons(story: Model) -> None:
    for text, other in zip(TEXTS, TEXTS[1:] + TEXTS[:1], strict=True):
        lifted = run(story, text, MaskSpec(causal=False)).weights(3, 5, 0)
        assert lifted.triu(1).sum() > 0.1  # weight above the diagonal
        assert lifted.sum(-1).numpy() == pytest.approx(1, abs=1e-5)
        rows = sorted([text[: len(text) // 2], other], key=lambda one: len(story.encode([one]).ids[0]))
        padded = story.encode(rows, "left")
        open_cells, empty = story.run(padded).allowed(0, 0), int((~padded.keep[0]).sum())
        assert not open_cells[:empty].any()  # padding queries have no allowed key
        assert not open_cells[:, :empty].any()
        to_padding = story.run(padded, MaskSpec(padding=False)).weights(5, 0, 0)[empty:, :empty].sum(-1)
        assert to_padding.min() > 0  # weight that real tokens lose
        right = story.encode(rows, "right")
        both, without = (story.run(right, masks).weights(0, 3, 0) for masks in (MaskSpec(), MaskSpec(padding=False)))
        real = int(right.keep[0].sum())
        assert torch.equal(both[:real], without[:real])  # the causal mask already blocks the padding
        assert (both[real:] - without[real:]).abs().max() > 0.001  # only the padding's own rows change


def test_what_attention_is(story: Model) -> None:
    phrase = run(story, PETER)
    ids, rows = phrase.batch.ids[0], phrase.weights(4, 0, 0)
    assert ids[11:13].tolist() == ids[2:4].tolist()  # “·blew” and “·his” occur twice
    assert rows[10:13].argmax(-1).tolist() == [2, 3, 4]  # what followed before, for “·Peter” too
    assert ids[10] != ids[1]
    assert float(rows[10, 2]) > 0.5
    for text in TEXTS:
        assert float(run(story, text).weights(0, 3, 0).diagonal(-1).min()) > 0.5  # one position to the left
        first = survey(run(story, text), 0).shares["first"]
        assert first[5, 2] > 0.95
        assert (first > 0.5).sum() >= 6  # many heads


def test_without_the_causal_mask_the_loss_usually_falls(story: Model) -> None:
    falls = [loss(story, text, MaskSpec(causal=False)).mean() < loss(story, text).mean() for text in TEXTS]
    assert len(TEXTS) / 2 < sum(falls) < len(TEXTS)  # on some texts it rises


@pytest.mark.parametrize("text", DATES)
def test_from_decoder_to_translator(text: str) -> None:
    model = dates.load()
    batch = model.encode([text])
    trace, lifted = model.run(batch), model.run(batch, MaskSpec(causal=False))
    assert trace.select("encoder").allowed(0, 0).all()  # no causal mask
    assert not trace.weights(0, 2, 0).triu(1).any()  # exactly 0
    assert trace.select("cross").allowed(0, 0).all()
    assert trace.select("cross").weights(0, 1, 0).shape == (len(batch.ids[0]), len(batch.source.ids[0]))
    assert float(lifted.weights(0, 2, 0)[4, 5]) > 0.9  # this query attends to the token that it must predict
