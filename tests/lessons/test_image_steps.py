"""Lesson steps on an image: what a captioner reads, which shape a token attends to, and which steps are refused."""

import numpy as np
import pytest

from lessons.image_steps import encoded, shape_shares
from lessons.questions import QuestionSubject, answer
from lessons.reading import read
from model.images import captioner
from model.images.captioner import MASKS, PATCHES
from model.images.scenes import render, scene_of
from unmask.course import CourseModels

SCENE = "grey_square-red-small-12-20_circle-blue-large-36-12"  # x, y: 8–16, 16–24; 28–44, 4–20
LESSON = """---
title: Mine
aim: To look.
minutes: 1
model: captioner-prefix
image: {image}
text: {text}
---

## A step

```run
head: L1 H2
{more}
```
"""


def fail(setting: str, problem: object) -> ValueError:
    return ValueError(f"{setting}: {problem}")


def lesson(image: str = SCENE, text: str = "across a small", more: str = "ask: where") -> str:
    return LESSON.format(image=image, text=text, more=more)


def test_a_step_reads_the_image_and_the_words_as_the_images_page_does() -> None:
    model = captioner.load("causal")
    found, wanted = (
        encoded(fail, model, "captioner-causal", SCENE, "down a large"),
        captioner.encode(render([scene_of(SCENE)]), "down", ["a", "large"]),
    )
    assert found.pieces == wanted.pieces
    np.testing.assert_array_equal(found.patches, wanted.patches)


def test_each_patch_counts_for_the_shape_that_it_shows_most_of() -> None:
    weights = np.zeros(PATCHES, np.float32)
    weights[[13, 3, 4, 11, 35]] = 0.1, 0.2, 0.05, 0.04, 0.11  # the square; three of the circle; background
    shares = shape_shares(weights, SCENE)
    assert shares == pytest.approx({"small red square": 0.2, "large blue circle": 0.58, "": 0.22})
    for image in ("white_square-red-small-8-8_square-red-small-40-40", SCENE):
        with pytest.raises(ValueError, match="an image of different shapes"):
            shape_shares(weights * (image != SCENE), image)


@pytest.mark.parametrize(
    ("words", "shape"), [("across a small", "small red square"), ("down a large", "large blue circle")]
)
def test_the_shape_that_a_token_attends_to_is_asked(words: str, shape: str) -> None:
    model = captioner.load("prefix")
    batch = encoded(fail, model, "", SCENE, words)
    assert batch is not None
    trace = model.run(batch)
    found = answer(model, trace, trace, "", QuestionSubject("where", 0, 2, 2, None, (), image=SCENE))
    shares = shape_shares(trace.weights(2, 2)[-1, :PATCHES].numpy(), SCENE)
    assert [choice.values["shape"] for choice in found.choices] == [*shares]
    assert [found.choices[index].values["shape"] for index in found.right] == [max(shares, key=lambda one: shares[one])]
    assert (found.why.values["shape"], found.why.values["share"]) == (shape, shares[shape])


def test_a_captions_loss_is_that_of_its_words() -> None:
    model = captioner.load("causal")
    batch = encoded(fail, model, "", SCENE, "across a small red square")
    trace = model.run(batch, MASKS["prefix"])
    losses, chance = trace.losses().numpy(), float(trace.next_token(0, PATCHES + 3)[batch.ids[0, -1]])
    assert np.isnan(losses).nonzero()[0].tolist() == [*range(PATCHES + 1)]
    assert losses[-1] == pytest.approx(-np.log(chance), rel=1e-4)


@pytest.mark.parametrize(
    "image",
    ["https://example.org/cat.png", "../../etc/passwd", "white_square-red-huge-9-9", "9", "data:image/png;base64,AAAA",
     "white_square-red-large-1-1"],
)  # fmt: skip
def test_an_image_is_a_scene_and_no_address(image: str) -> None:
    with pytest.raises(ValueError, match=r"line 6: (expected )?image[,:]"):
        read(lesson(image))


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (
            lesson(more="model: story"),
            "line 10: expected an image, and a model that describes it, one of captioner-causal,",
        ),
        (lesson(text="once upon a time"), "line 10: expected a prompt (across, down) and at most 16 words of a, small"),
        (lesson(text="across" + " a" * 17), "line 10: expected a prompt (across, down) and at most 16 words"),
        (lesson(text="across <end>"), "line 10: expected a prompt"),
        (lesson(more="image: white\nask: where"), "line 15: expected an image of different shapes"),
    ],
)
def test_what_is_no_step_on_an_image_is_said_with_its_line(made: str, sentence: str) -> None:
    (step,) = read(made).steps
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared below
        CourseModels(download=False).step(step)
    assert sentence in str(caught.value)


def test_the_questions_and_pictures_of_a_text_need_no_image() -> None:
    for more, sentence in (
        ("show: image", "line 13: expected `image`"),
        ("ask: where", "line 13: expected a step with an image"),
    ):
        text = lesson(text="Once upon a time", more=more).replace(f"image: {SCENE}\n", "").replace("-prefix", "")
        (step,) = read(text.replace("model: captioner", "model: story").replace("L1", "L0")).steps
        with pytest.raises(ValueError) as caught:  # noqa: PT011
            CourseModels(download=False).step(step)
        assert sentence in str(caught.value)
