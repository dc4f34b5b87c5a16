"""The Pixels page: its model and digits, controls, link and canvases; one pixel, what every head attends to from it and
what the mask changes; digits that the model writes or completes."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal, cast

import numpy as np
import streamlit as st
from pydantic import BeforeValidator, ConfigDict, Field

from i18n import N_, say, say_count, together
from model.heads.view import head_name
from model.pixels import digits
from model.pixels.digits import SAMPLING, DigitsModel, Kind, RealDigits, Recogniser, real_digits, recogniser, write
from model.pixels.view import PixelView, class_name
from model.sampling import Sampling
from serving.job import ModelRef
from ui import link, page, results, run_view
from ui.guard import guarded
from ui.heads.head import canvas
from ui.results import cached_figure
from ui.run_view import RunView
from ui.sidebar import models
from ui.widgets import bound, component_value, select, stoppable, whole, wholes
from viz import pixels as pictures
from viz.numbers import chance, percent, share_table

PARTS = {"look": N_("Look inside"), "write": N_("Write new digits"), "finish": N_("Finish a drawing")}
SOURCES = {"real": N_("a real digit"), "written": N_("a digit the model writes"), "drawn": N_("my drawing")}
QUERY_CHOICES = {"itself": N_("the pixel, once written"), "writer": N_("the step that writes it")}
OWN = -1  # no class chosen: the picture's own, all ten, or the likeliest is used
COUNTS = (10, 20, 50, 100)
Digit = Annotated[int, Field(ge=0, le=9)]
MaybeDigit = Annotated[int, Field(ge=OWN, le=9)]


class PixelsLink(link.Link):
    """The link of the Pixels page, without the user's drawing. pixel: from 0, row by row. nth: from 1."""

    NOT_INCLUDED = N_("Links do not contain drawn digits.")
    model_config = ConfigDict(alias_generator=lambda name: name.removeprefix("pixels_"))
    pixels_part: Literal[*PARTS] = "look"  # type: ignore[valid-type]
    pixels_source: Literal[*SOURCES] = "real"  # type: ignore[valid-type]
    pixels_digit: Digit = 3
    pixels_nth: Annotated[int, Field(ge=1, le=99)] = 1
    pixels_told: MaybeDigit = OWN
    pixels_pixel: Annotated[int, Field(ge=0, lt=pictures.PIXELS)] = 36
    pixels_layer: link.Whole = 1
    pixels_head: link.Whole = 3
    pixels_looker: Literal[*QUERY_CHOICES] = "itself"  # type: ignore[valid-type]
    pixels_causal: bool = True
    pixels_scope: Literal["model", "layer"] = "model"
    pixels_wanted: MaybeDigit = OWN
    pixels_count: Annotated[Literal[*COUNTS], BeforeValidator(int)] = 20  # type: ignore[valid-type]
    pixels_seed: Annotated[int, Field(ge=0, le=9999)] = 0
    pixels_temperature: Annotated[float, Field(ge=0, le=2)] = SAMPLING.temperature
    pixels_top_p: Annotated[float, Field(ge=0.05, le=1)] = SAMPLING.top_p
    pixels_rows: Annotated[int, Field(ge=0, le=pictures.SIDE)] = 4
    pixels_finish_class: MaybeDigit = OWN

    @classmethod
    def first(cls) -> dict[str, Any]:
        """Return the page's first choices, and the drawing, which both pixels.js and the page change."""
        none = {"pixels_drawing": None, "pixels_epoch": 0, "pixels_number": 0}
        return super().first() | {name: st.session_state.get(name, value) for name, value in none.items()}


def choose_digit(count_of: Any) -> tuple[int, int]:
    """Let the user choose a class and one of its digits, from 1. count_of(class): how many; None: a seed instead."""
    with st.container(horizontal=True, wrap=False):
        tell_its_own = lambda: st.session_state.update(pixels_told=OWN)  # noqa: E731
        digit = st.selectbox(say("Digit"), range(10), key="pixels_digit", on_change=tell_its_own)
        if count_of is None:
            return digit, int(st.number_input(say("Seed"), 0, 9999, key="pixels_seed"))
        count, unseen = count_of(digit), say("Test digits: the model never saw them.")
        st.session_state.pixels_nth = min(st.session_state.pixels_nth, count)
        return digit, st.selectbox(say("Example"), range(1, count + 1), key="pixels_nth", help=unseen)


def choose_head(layers: int, heads: int) -> tuple[int, int]:
    state = st.session_state
    state.pixels_layer, state.pixels_head = min(state.pixels_layer, layers - 1), min(state.pixels_head, heads - 1)
    with st.container(horizontal=True, wrap=False):
        st.selectbox(say("Layer"), range(layers), **bound("pixels_layer", state.pixels_layer))
        st.selectbox(say("Head"), range(heads), **bound("pixels_head", state.pixels_head))
    about = say("A pixel is predicted at the step before it: the query is then the previous pixel, or the class token.")
    select(say("Query"), QUERY_CHOICES, "pixels_looker", help=about)
    return state.pixels_layer, state.pixels_head


def choose_sampling() -> Sampling:
    divided = say(
        "Logits are divided by the temperature before a level is sampled: 0 always takes the most likely, 1 leaves "
        "them unchanged."
    )
    temperature = st.slider(say("Temperature"), 0.0, 2.0, step=0.05, key="pixels_temperature", help=divided)
    nucleus = say("Samples only from the most likely levels whose probabilities reach this sum; 1 keeps all.")
    top_p = st.slider(say("Top-p"), 0.05, 1.0, step=0.05, key="pixels_top_p", help=nucleus)
    same = say("The same seed and settings generate the same digits.")
    seed = int(st.number_input(say("Seed"), 0, 9999, key="pixels_seed", help=same))
    return Sampling(temperature, top_p=top_p, seed=seed)


def choose_class(label: str, key: str, own: int, template: str, help_text: str | None = None) -> int:
    """Let the user choose a class, or `own`. template: the label of `own`, with a placeholder {digit}, marked by N_."""
    name = lambda choice: say(template, digit=own) if choice == OWN else str(choice)  # noqa: E731
    chosen = st.selectbox(label, [OWN, *range(10)], key=key, format_func=name, help=help_text)
    return own if chosen == OWN else chosen


_component = canvas("pixels")


def the_model() -> DigitsModel:
    return cast(DigitsModel, models.loaded().own("digits"))


def the_digits() -> RealDigits:
    with nullcontext() if real_digits.cache_info().currsize else st.spinner(say("Reading the real digits …")):
        return real_digits()


def the_recogniser() -> Recogniser:
    known = recogniser.cache_info().currsize
    with nullcontext() if known else st.spinner(say("Training the recognizer on real digits …")):
        return recogniser()


def written(classes: tuple[int, ...], how: Sampling, given: np.ndarray | None = None) -> np.ndarray:
    """Return digits of these classes, [N,64], cached. given: levels [P] with which each of them begins."""
    start = None if given is None else np.repeat(given[None], len(classes), axis=0)
    return results.ask(write, ModelRef.of(the_model()), classes, how, start)


def count_of(digit: int) -> int:
    return int((the_digits().test.classes == digit).sum())


def real_digit(digit: int, nth: int) -> np.ndarray:
    """Return the nth (from 1) test digit of a class, or its last one if there are fewer: levels [64]."""
    test = the_digits().test
    some = test.levels[test.classes == digit]
    return some[min(max(nth, 1), len(some)) - 1]


def drawing() -> np.ndarray:
    """Return what the user has drawn, levels [64]; until then, the chosen real digit."""
    state = st.session_state
    if state.pixels_drawing is None:
        return real_digit(state.pixels_digit, state.pixels_nth)
    return np.array(state.pixels_drawing, np.uint8)


def class_probabilities(given: np.ndarray) -> np.ndarray:
    """Return the probability that the model gives to each class, [10], for the levels given; cached."""
    found: np.ndarray = results.ask(digits.class_probabilities, ModelRef.of(the_model()), given)
    return found


def show_picture(
    packet: bytes, key: str, view: PixelView, heads: Sequence[tuple[int, int]], picked: Callable[[int], None]
) -> None:
    """Draw some heads of a view; picked(number) is called before the next rerun when the user picks a part."""

    def taken() -> None:
        pick = whole(component_value(key).get("pick"))
        if pick is not None:
            picked(pick)

    tables = lambda: [pictures.weights_table(view, heads)]  # noqa: E731
    _component(data=packet, key=key, tables=tables, on_pick_change=taken, on_drawn_change=lambda: None)


def show_canvas(class_name: str, given: int, key: str = "pixels_canvas") -> None:
    def drawn() -> None:
        sent = component_value(key).get("drawn")
        if not isinstance(sent, dict) or sent.get("epoch") != st.session_state.pixels_epoch:
            return  # sent for a drawing that the page has replaced since
        levels, number = wholes(sent.get("levels"), pictures.PIXELS), whole(sent.get("number"))
        sound = levels is not None and max(levels) < pictures.LEVELS
        if sound and number is not None:  # anything else is not from Unmask's canvas
            st.session_state.update(pixels_drawing=levels, pixels_number=number)

    state = st.session_state
    packet = pictures.drawing_packet(drawing(), class_name, given, state.pixels_epoch, state.pixels_number)
    tables = lambda: [pictures.levels_table(drawing())]  # noqa: E731
    _component(data=packet, key=key, tables=tables, on_drawn_change=drawn, on_pick_change=lambda: None)


def choose_picture() -> tuple[np.ndarray, int]:
    """Let the user choose a picture, levels [64], and the class given to the model."""
    source, state = select(say("Picture"), SOURCES, "pixels_source"), st.session_state
    template = N_("the picture's own, {digit}")
    if source == "drawn":
        st.caption(say("Draw it under *Finish a drawing*."))
        levels, own = drawing(), state.pixels_finish_class
        if own == OWN:  # a drawing has no class: take the one chosen for finishing it
            own, template = int(class_probabilities(levels).argmax()), N_("the most likely, {digit}")
    elif source == "real":
        own, nth = choose_digit(count_of)
        levels = real_digit(own, nth)
    else:
        own, seed = choose_digit(None)
        levels = written((own,), replace(SAMPLING, seed=seed))[0]
    about = say(
        "The first token tells the model what to write. Choose another to see how a wrong class changes the loss."
    )
    label = say("Class token")
    return levels, choose_class(label, "pixels_told", own, template, about)


def run_pair(
    model: DigitsModel, levels: np.ndarray, digit: int, causal: bool, scope: str
) -> tuple[PixelView, PixelView]:
    batch, state = digits.encode(levels[None], [digit]), st.session_state
    spec, only_layer = model.standard.replace(causal=causal), state.pixels_layer if scope == "layer" else None
    both = run_view.run_pair(model, batch, spec, 0, "self", only_layer=only_layer)
    pixel = state.pixels_pixel
    query = pixel + (state.pixels_looker == "itself")

    def pixel_view(view: RunView) -> PixelView:
        return replace(view.ask(digits.pixel_view, query, pixel), mean_leak=view.survey().future)

    now, standard = (view.cached(("pixels", pixel, query), partial(pixel_view, view)) for view in both)
    return now, standard


def show(now: PixelView, standard: PixelView, layer: int, head: int) -> None:
    def pick_head(number: int) -> None:
        st.session_state.pixels_layer, st.session_state.pixels_head = divmod(number, now.weights.shape[1])

    changed = not st.session_state.pixels_causal
    name, zmax = head_name(layer, head), pictures.largest(now, standard)
    left, middle, right = st.columns([1, 1.35, 1.15], gap="medium")
    with left:
        every = list(np.ndindex(now.weights.shape[:2]))
        packet = cached_figure(pictures.heads_packet, now, layer, head, zmax)
        show_picture(packet, "pixels_heads", now, every, pick_head)
        if changed:
            st.caption(say("**{head}** under the standard masks, the same colours", head=name))
            packet = cached_figure(pictures.head_packet, standard, layer, head, zmax)
            show_picture(packet, "pixels_standard", standard, [(layer, head)], _pick_pixel)
    with middle:
        st.caption(say("**{head}**: where it attends", head=name))
        packet = cached_figure(pictures.head_packet, now, layer, head, zmax)
        show_picture(packet, "pixels_picture", now, [(layer, head)], _pick_pixel)
        st.html(pictures.scale_html(zmax, now, *([standard] if changed else [])))
    with right:
        what = say("{pixel}, before it is written", pixel=pictures.name_of(now.pixel + 1, ""))
        true = int(now.levels[now.pixel])
        st.html(pictures.level_table(now.chances, standard.chances, true, what, changed=changed))
        here = pictures.name_of(now.pixel + 1, "")

        def measured(view: PixelView) -> list[str]:
            leaks = view.leak[layer, head], view.mean_leak[layer, head], view.mean_leak.mean(), view.answer
            return [*map(percent, map(float, leaks)), chance(float(view.chances[true])), f"{view.losses.mean():.3f}"]

        names = [
            say("{head} from here: on later pixels", head=name),
            say("{head}, mean of all queries", head=name),
            say("all heads, all queries"),
            say("writing {pixel}: on the answer", pixel=here),
            say("true level {level} of {pixel}", level=true, pixel=here),
            say("loss, nats/pixel"),
        ]
        rows = list(zip(names, measured(now), measured(standard), strict=True))
        st.html(share_table(say("measured"), rows, changed=changed))
    with middle if changed else left:
        st.caption(say("Loss of every pixel: how much each surprises the model"))
        of = now.losses, standard.losses, tuple(now.levels.tolist())
        figure = cached_figure(pictures.loss_figure, *of, changed=changed)
        worst = int(now.losses.argmax())
        alt = say("Loss of every pixel, as a picture; the largest is {loss:.2f} nats at {pixel}.",
                  loss=now.losses[worst], pixel=pictures.name_of(worst + 1, ""))  # fmt: skip
        page.chart(figure, "pixels_losses", alt)


def _pick_pixel(pixel: int) -> None:
    st.session_state.pixels_pixel = min(max(pixel, 0), pictures.PIXELS - 1)


WAYS = 5  # completions shown side by side
RECOGNISERS: dict[Kind, str] = {"svc": N_("a support vector classifier"), "logistic": N_("a logistic regression")}
FRAMES = N_("Framed in green: recognized as its class. Dashed orange: recognized as another class.")


def show_sample(classes: tuple[int, ...], how: Sampling) -> None:
    writing = say_count(
        "Writing {count} digit, pixel by pixel …", "Writing {count} digits, pixel by pixel …", len(classes)
    )
    with stoppable(repr((classes, how)), say("Stopped. Write the digits again")) as line:
        if line is None:
            return
        line.caption(writing)
        levels = written(classes, how)
    recogniser, data = the_recogniser(), the_digits()
    read = recogniser.read(levels)
    right, count = int((read == np.array(classes)).sum()), len(classes)
    sentence = say(
        "{right} of {count} written digits ({share}) are recognized as their class by {recogniser} trained on "
        "{train:,} real digits and on no written ones. Its accuracy on {test} real digits that it never saw is "
        "{accuracy}.",
        right=right, count=count, share=percent(right / count), recogniser=say(RECOGNISERS[recogniser.kind]),
        train=len(data.train.classes), test=len(data.test.classes), accuracy=percent(recogniser.accuracy),
    )  # fmt: skip
    st.html(page.sentence(sentence))
    cards = [
        pictures.GalleryCard(picture, say("{told}, read as {found}", told=digit, found=found), bool(digit == found))
        for picture, digit, found in zip(levels, classes, read, strict=True)
    ]
    st.html(pictures.gallery(cards))
    st.caption(say(FRAMES))


def show_finish(rows: int, how: Sampling) -> None:
    given = drawing()[: rows * pictures.SIDE]
    chances = class_probabilities(given)
    left, right = st.columns([1.1, 1.6], gap="large")
    with right:
        label, template = say("Class given to the model"), N_("the most likely, {digit}")
        template = template if rows else N_("class {digit}")  # without a given row all classes are equally likely
        digit = choose_class(label, "pixels_finish_class", int(chances.argmax()), template)
        with guarded(say("Writing …")):
            made = written((digit,) * WAYS, how, given)
        read = the_recogniser().read(made)
        sure = chance(float(chances[digit]))
        about = {"told": digit, "sure": sure, "times": len(read), "right": int((read == digit).sum())}
        sentences = [say("Given the drawing, the model gives it a probability of {sure} to be class {told}.", **about)]
        if rows == pictures.SIDE:
            template = N_(
                "All rows are given: nothing is left to write. The model gives class {told} a probability of {sure}."
            )
            sentences = [say(template, **about)]
        elif not rows:
            alone = N_(
                "From the class token alone the model wrote {times} pictures; {right} of them are recognized as the "
                "digit {told}."
            )
            sentences = [say(alone, **about), say("No row is given, so every class is equally likely.")]
        else:
            wrote = say_count(
                "From the {count} row above the line the model wrote the rest {times} times; {right} of them are "
                "recognized as the digit {told}.",
                "From the {count} rows above the line the model wrote the rest {times} times; {right} of them are "
                "recognized as the digit {told}.",
                rows,
                **about,
            )
            sentences.insert(0, wrote)
        st.html(page.sentence(together(sentences)))
        cards = [
            pictures.GalleryCard(levels, say("read as {found}", found=int(found)), int(found) == digit, len(given))
            for levels, found in zip(made, read, strict=True)
        ]
        st.html(pictures.gallery(cards, WAYS))
        st.caption(together([*([say("Above the line: the given rows.")] if rows else []), say(FRAMES)]))
        if rows:
            st.html(pictures.class_table(chances, digit))
    with left:
        show_canvas(class_name(digit), len(given))
