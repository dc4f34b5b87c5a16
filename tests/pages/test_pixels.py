"""The Pixels page without a browser: its numbers are those of the built-in model."""

import html
import re
from typing import Any, Self

import numpy as np
import pytest

from model.masks import MaskSpec
from model.pixels import digits
from model.pixels.digits import SAMPLING, class_probabilities, real_digits, recogniser, write
from tests.apptest import charts
from tests.pages.page import Page, array, plain
from tests.viz.packet import unpacked
from viz.numbers import percent


class Pixels(Page):
    """One user's Pixels page. No run of it shows an error."""

    SCRIPT = "pages/pixels.py"

    def run(self) -> Self:
        super().run()
        assert not self.app.error
        return self

    def set(self, **choices: Any) -> Self:
        """Set widgets by their keys without "pixels_"."""
        return super().set(**{"pixels_" + name: value for name, value in choices.items()})

    def put(self, **choices: Any) -> Self:
        """Set choices as a click on a canvas does."""
        for name, value in choices.items():
            self.app.session_state["pixels_" + name] = value
        return self.run()

    def canvases(self) -> dict[str, Any]:
        """Return the headers that the canvases are sent, by key."""
        return {
            one.proto.id.rpartition("-")[2]: unpacked(one.proto.bytes)[0]
            for one in self.app.get("bidi_component")
            if one.proto.bytes
        }

    def piece(self, what: str) -> str:
        (found,) = [one for one in self.html() if f'class="{what}"' in one]
        return found

    def words(self) -> str:
        return plain(self.piece("sentence"))

    def numbers(self, table: str) -> list[list[str]]:
        """Return the rows of a table, each as its cells' texts."""
        rows = re.findall("<tr>(.*?)</tr>", self.piece(f"numbers {table}"))
        return [list(map(html.unescape, re.findall(r"<td class=\"number\">(.*?)</td>", row))) for row in rows[1:]]


@pytest.fixture(scope="module")
def model() -> digits.DigitsModel:
    return digits.load()


def third() -> np.ndarray:
    """Return the digit that the page begins with: the first test digit of class 3."""
    test = real_digits().test
    return test.levels[test.classes == 3][0]


def test_the_first_view_has_a_digit_and_every_head_and_the_future_hatched(model: digits.DigitsModel) -> None:
    page = Pixels()
    packets = page.canvases()
    picture, heads = packets["pixels_picture"], packets["pixels_heads"]
    assert picture["levels"] == heads["levels"] == third().tolist()
    pixel = picture["chosen"]
    assert picture["blocked"] == [False] * (pixel + 2) + [True] * (63 - pixel)
    assert len(heads["pictures"]) == model.num_layers * model.num_heads
    assert f"Later pixels that are blocked: {63 - pixel}." in page.words()
    assert "pixels_standard" not in packets
    assert [row[0] for row in page.numbers("shares")[:4]] == ["0%"] * 4


def test_every_number_of_a_lifted_mask_is_the_models(model: digits.DigitsModel) -> None:
    page = Pixels().put(pixel=20, layer=2, head=1).set(causal=False)
    levels = third()
    batch = digits.encode(levels[None], [3])
    now, standard = model.run(batch, MaskSpec(causal=False)), model.run(batch)
    shares = page.numbers("shares")
    leak = digits.attention(now, 21)[2, 1, 22:].sum()
    assert shares[0] == [percent(float(leak)), "0%"]
    assert percent(float(leak)) in page.words()
    assert shares[3][0] == percent(float(digits.attention(now, 20)[..., 21].mean()))
    chances = [digits.level_probabilities(trace)[20] for trace in (now, standard)]
    assert shares[4] == [percent(float(chance[levels[20]])) for chance in chances]
    losses = [float(trace.losses()[1:].mean()) for trace in (now, standard)]
    assert shares[5] == [f"{loss:.3f}" for loss in losses]
    assert page.numbers("levels") == [
        [percent(float(chances[0][level])), percent(float(chances[1][level]))] for level in range(8)
    ]
    assert f"from {losses[1]:.3f} to {losses[0]:.3f} nats/pixel" in page.words()
    weights = digits.attention(now, 21)[2, 1]
    assert (
        f"r2 c4 attends to r3 c0 (level {levels[24]}): weight {weights[25]:.4f}"
        in page.canvases()["pixels_picture"]["names"]
    )
    assert not any(page.canvases()["pixels_picture"]["blocked"])
    assert sum(page.canvases()["pixels_standard"]["blocked"]) == 43


def test_a_mask_lifted_on_a_layer_alone_leaves_the_predictions(model: digits.DigitsModel) -> None:
    page = Pixels().set(causal=False).set(scope="layer")
    assert all(now == standard for now, standard in page.numbers("levels"))
    assert "predictions do not change" in page.words()
    assert page.numbers("shares")[5][0] == page.numbers("shares")[5][1]
    assert page.numbers("shares")[0][0] != "0%"
    layer, pixel = page.app.session_state.pixels_layer, page.app.session_state.pixels_pixel
    small = page.canvases()["pixels_heads"]["pictures"]
    blocked = [one["colours"].count(None) for one in small]  # other layers remain causal
    assert blocked == [0 if number // model.num_heads == layer else 63 - pixel for number in range(len(small))]


def test_a_drawing_is_of_its_most_likely_class(model: digits.DigitsModel) -> None:
    page = Pixels()
    test = real_digits().test
    page.app.session_state.pixels_drawing = test.levels[test.classes == 7][0].tolist()
    page.set(source="drawn")
    likeliest = int(digits.class_probabilities(model, test.levels[test.classes == 7][0]).argmax())
    assert likeliest != page.app.session_state.pixels_digit
    assert page.canvases()["pixels_picture"]["className"] == f"class {likeliest}"
    assert f"the most likely, {likeliest}" in page.widget("pixels_told").options


def test_the_step_that_writes_a_pixel_sees_everything_but_it() -> None:
    page = Pixels().set(looker="writer")
    picture = page.canvases()["pixels_picture"]
    assert picture["query"] == picture["chosen"]
    assert sum(picture["blocked"]) == 64 - picture["chosen"]


def test_a_wrong_class_token_is_read_by_the_model(model: digits.DigitsModel) -> None:
    page = Pixels().set(told=8)
    loss = float(model.run(digits.encode(third()[None], [8])).losses()[1:].mean())
    assert page.numbers("shares")[5][0] == f"{loss:.3f}"
    assert page.canvases()["pixels_picture"]["className"] == "class 8"


def test_losses_are_drawn_pixel_by_pixel(model: digits.DigitsModel) -> None:
    (chart,) = charts(Pixels().app).values()
    (trace,) = chart["figure"]["data"]
    expected = model.run(digits.encode(third()[None], [3])).losses()[1:].reshape(8, 8)
    np.testing.assert_allclose(array(trace["z"]), expected, atol=1e-4)
    assert "Loss of every pixel" in chart["alt"]


def test_the_recognised_rate_is_counted_on_the_digits_shown(model: digits.DigitsModel) -> None:
    page = Pixels(part="write")
    classes = tuple(range(10)) * 2
    read = recogniser().read(write(model, classes, SAMPLING))
    right = int((read == np.array(classes)).sum())
    assert page.words().startswith(f"{right} of 20 written digits ({percent(right / 20)}) are recognized")
    assert f"never saw is {percent(recogniser().accuracy)}" in page.words()
    assert page.piece("gallery").count("<figure") == 20
    assert page.piece("gallery").count('class="yes"') == right
    page.set(wanted=7, count=10)
    assert re.findall(r"<figcaption>(\d),", page.piece("gallery")) == ["7"] * 10


def test_writing_that_was_stopped_waits_for_the_reader() -> None:
    page = Pixels(part="write")
    page.app.session_state["stopped_work"] = repr(((0, 1, 2, 3, 4, 5, 6, 7, 8, 9), SAMPLING))
    page.set(count=10)
    assert not [one for one in page.app.get("html") if "gallery" in one.proto.body]
    (button,) = [one for one in page.app.button if "Stopped" in one.label]
    button.click()
    page.run()
    assert page.piece("gallery").count("<figure") == 10


def test_completions_begin_with_the_drawing_and_the_class_is_the_likeliest(model: digits.DigitsModel) -> None:
    page = Pixels(part="finish", rows="5")
    given = third()[:40]
    chances = class_probabilities(model, given)
    digit = int(chances.argmax())
    assert [row[0] for row in page.numbers("classes")] == [percent(float(chance)) for chance in chances]
    made = write(model, [digit] * 5, SAMPLING, np.repeat(given[None], 5, 0))
    right = int((recogniser().read(made) == digit).sum())
    assert f"From the 5 rows above the line the model wrote the rest 5 times; {right} of them" in page.words()
    canvas = page.canvases()["pixels_canvas"]
    assert canvas["given"] == 40
    assert canvas["levels"] == third().tolist()
    page.put(drawing=[0] * 64, rows=0)
    assert "From the class token alone" in page.words()
    assert "No row is given, so every class is equally likely." in page.words()
    for of_a_drawing in ("most likely", "iven the drawing", "the given rows"):
        assert of_a_drawing not in page.words()
    assert "class 0" in page.app.selectbox(key="pixels_finish_class").options
    page.put(rows=8, finish_class=2)
    assert "nothing is left to write" in page.words()
    assert page.canvases()["pixels_canvas"]["className"] == "class 2"


def test_a_real_digit_replaces_the_drawing() -> None:
    page = Pixels(part="finish").put(drawing=[0] * 64).set(digit=6, nth=2)
    assert page.canvases()["pixels_canvas"]["levels"] == [0] * 64
    (button,) = [one for one in page.app.button if one.label == "Use this real digit"]
    button.click()
    page.run()
    test = real_digits().test
    canvas = page.canvases()["pixels_canvas"]
    assert canvas["levels"] == test.levels[test.classes == 6][1].tolist()
    assert canvas["epoch"] == 1


def test_before_anything_is_drawn_the_picture_is_the_digit_that_is_chosen_and_linked() -> None:
    page = Pixels(part="finish").set(digit=6, nth=2)
    (button,) = [one for one in page.app.button if one.label == "Use this real digit"]
    assert button.disabled
    test = real_digits().test
    for opened in (page, Pixels(**page.url)):
        levels = opened.canvases()["pixels_canvas"]["levels"]
        assert levels == test.levels[test.classes == 6][1].tolist()


@pytest.mark.parametrize("source", ["written", "drawn"])
def test_other_pictures_can_be_looked_into(source: str, model: digits.DigitsModel) -> None:
    page = Pixels().set(source=source)
    levels = write(model, [3], SAMPLING)[0] if source == "written" else third()
    assert page.canvases()["pixels_picture"]["levels"] == levels.tolist()


def test_another_page_and_another_part_leave_the_choices_as_they_are() -> None:
    page = Pixels().set(digit=5, layer=2).set(causal=False, told=4).put(pixel=9, drawing=[3] * 64)
    before = page.canvases()
    page.set(part="finish").set(rows=6)
    page.go("pages/padding.py")
    page.go("pages/pixels.py")
    assert page.canvases()["pixels_canvas"]["given"] == 48
    assert page.canvases()["pixels_canvas"]["levels"] == [3] * 64
    page.set(part="look")
    assert page.canvases() == before
