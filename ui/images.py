"""The Images page: its link, the scene that a user builds or the image that one uploads, and what the captioner makes
of it."""

from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Annotated, Literal, cast

import numpy as np
import streamlit as st
from markupsafe import Markup
from PIL import Image
from pydantic import AfterValidator, ConfigDict, Field, StringConstraints

from i18n import N_, say
from model.heads.view import head_name
from model.images import scenes
from model.images.captioner import GRID, MASKS, PATCHES, VERSIONS, CaptionerModel, encode, patch_names
from model.images.measures import under_masks
from model.images.patches import Box, grid_tokens
from model.images.reading import MOST_BYTES, read_picture
from model.images.scenes import BACKGROUNDS, COLOURS, SHAPES, SIDE, SIZES, Scene, SceneShape, scene_of, scene_text
from model.images.view import CaptionView, LocatedHeads, locate, whole_head, without, write
from model.spec import MaskSpec
from serving.job import ModelRef, RunRef
from ui import explain, link, page, results
from ui.heads import head as head_picture
from ui.heads.head import canvas
from ui.markdown import escaped
from ui.results import cached_figure
from ui.sidebar import models
from ui.widgets.choices import bound, one_of, select
from ui.widgets.key import component_value, whole, wholes
from ui.widgets.uploads import uploaded, uploader
from viz import images
from viz.head import head_figure, head_range
from viz.numbers import Candidate, next_token_table, share_table

SOURCES = {"scene": N_("Build a scene"), "upload": N_("Upload an image")}
MODES = {"look": N_("Look"), "place": N_("Place a shape"), "remove": N_("Remove patches")}
PROMPTS = {"across": N_("across: from left to right"), "down": N_("down: from top to bottom")}
FIRST = "white_large-red-square-12-14_small-blue-circle-36-32"
HELD_OUT = 64  # scenes that the table of masks is measured on
LARGEST = 480  # pixels of an uploaded image as it is shown
MEAN = 0  # in the place of a head; others are 1 + their number
WORDS_OF = {
    "red": N_("red"), "green": N_("green"), "blue": N_("blue"), "yellow": N_("yellow"), "purple": N_("purple"),
    "orange": N_("orange"), "square": N_("square"), "circle": N_("circle"), "triangle": N_("triangle"),
    "cross": N_("cross"), "small": N_("small"), "large": N_("large"), "white": N_("white"), "grey": N_("grey"),
    "sky": N_("sky blue"), "night": N_("dark"),
}  # fmt: skip
PLACED = (
    (N_("Size"), SIZES, "images_size"), (N_("Colour"), COLOURS, "images_colour"), (N_("Shape"), SHAPES, "images_shape"),
)  # fmt: skip
_component = canvas("images")


def _checked(text: str) -> str:
    scene_of(text)
    return text


class ImagesLink(link.Link):
    """This page's link; an uploaded image is not in it. images_head: MEAN, or 1 + its number; None: the one with the
    best localization. images_word: -1 for none. images_removed: patches, with commas."""

    model_config = ConfigDict(alias_generator=lambda name: name.removeprefix("images_"))
    images_source: Literal[*SOURCES] = "scene"  # type: ignore[valid-type]
    images_scene: Annotated[str, AfterValidator(_checked)] = FIRST
    images_prompt: Literal[*PROMPTS] = "across"  # type: ignore[valid-type]
    images_version: Literal[*VERSIONS] = "prefix"  # type: ignore[valid-type]
    images_mask: Literal[*MASKS] = "prefix"  # type: ignore[valid-type]
    images_mode: Literal[*MODES] = "look"  # type: ignore[valid-type]
    images_shape: Literal[*SHAPES] = "triangle"  # type: ignore[valid-type]
    images_colour: Literal[*COLOURS] = "green"  # type: ignore[valid-type]
    images_size: Literal[*SIZES] = "large"  # type: ignore[valid-type]
    images_head: link.Whole | None = None
    images_word: Annotated[int, Field(ge=-1, le=99)] = 2
    images_removed: Annotated[str, StringConstraints(pattern=r"^(\d{1,2}(,\d{1,2}){0,35})?$")] = ""
    images_folded: bool = True


@dataclass(frozen=True, eq=False)
class ShownImage:
    """What the model reads: pixels uint8 [SIDE,SIDE,3]. shown: its URI; boxes: the patches, in shares of what is shown.
    scene: None of an uploaded image."""

    pixels: np.ndarray
    shown: str
    boxes: tuple[Box, ...]
    scene: Scene | None


def in_boxes(region: Box, size: tuple[int, int]) -> tuple[Box, ...]:
    """The patches of a region of an image of this size, in shares of that."""
    wide, high = size
    tokens = grid_tokens(0, GRID, GRID, region, size)
    return tuple((one.box[0] / wide, one.box[1] / high, one.box[2] / wide, one.box[3] / high) for one in tokens)


def of_scene(scene: Scene) -> ShownImage:
    pixels = scenes.render([scene])[0]
    uri = images.picture_uri(Image.fromarray(pixels))
    return ShownImage(pixels, uri, in_boxes((0, 0, SIDE, SIDE), (SIDE, SIDE)), scene)


def of_upload(data: bytes) -> ShownImage:
    """The square in its middle, made SIDE pixels wide. Raises ValueError as read_picture."""
    picture = read_picture(data)
    wide, high = picture.size
    side = min(wide, high)
    region = ((wide - side) // 2, (high - side) // 2, (wide + side) // 2, (high + side) // 2)
    pixels = np.asarray(picture.resize((SIDE, SIDE), Image.Resampling.BOX, box=region))
    boxes = in_boxes(region, picture.size)
    picture.thumbnail((LARGEST, LARGEST))
    return ShownImage(pixels, images.picture_uri(picture), boxes, None)


def choose_image() -> ShownImage | None:
    """None until an image is uploaded."""
    state = st.session_state
    if one_of(say("Image"), SOURCES, "images_source", width="stretch") == "upload":
        return _upload()
    scene = scene_of(state.images_scene)
    names = {name: WORDS_OF[name] for name in BACKGROUNDS}
    repaint = lambda name: _take(replace(scene, background=name))  # noqa: E731
    look = bound("images_background", scene.background, repaint)
    st.selectbox(say("Background"), names, format_func=lambda name: say(names[name]), **look)
    with st.container(horizontal=True):
        st.button(say("Random scene"), on_click=lambda: _take(scenes.random_scene(Random())), key="images_random")
        st.button(say("Clear"), on_click=lambda: _take(replace(scene, shapes=())), key="images_clear")
    return results.kept(("scene", state.images_scene), partial(of_scene, scene))


def _take(scene: Scene) -> None:
    st.session_state.update(images_scene=scene_text(scene), images_word=-1)


def _upload() -> ShownImage | None:
    """What was uploaded is kept, small, for its own session alone."""
    state = st.session_state

    def take() -> None:
        file = uploaded("images_file")
        try:
            state.images_upload = of_upload(file.getvalue()) if file else None
        except ValueError as error:
            state.images_upload = str(error) and error
        state.images_word = -1

    about = say("PNG, JPEG or WebP, at most 5 MB. It is read once, shown to you alone and never stored.")
    kinds = ["png", "jpg", "jpeg", "webp"]
    uploader(
        say("Image file"), kinds, key="images_file", on_change=take, max_upload_size=MOST_BYTES // 2**20, help=about
    )
    found = state.get("images_upload")
    if isinstance(found, ValueError):
        st.error(say("{problem}.", problem=escaped(say(str(found)))), icon=":material/error:")
    return found if isinstance(found, ShownImage) else None


def choose_model() -> CaptionerModel:
    names = {version: images.MASKS[version] for version in VERSIONS}
    follow = lambda: st.session_state.update(images_mask=st.session_state.images_version)  # noqa: E731
    about = say("Three models, the same but for the mask of the image tokens in training.")
    version = select(say("Trained with image mask"), names, "images_version", on_change=follow, help=about)
    select(say("Prompt"), PROMPTS, "images_prompt", help=say("What orders the shapes of the caption."))
    return cast(CaptionerModel, models.loaded().own(f"captioner-{version}"))


def choose_mask() -> None:
    about = say(
        "What image tokens see of each other. Causal: the ones before. Prefix: all, and the prompt (PaliGemma). Block: "
        "all. Block within a window: all that are near, as in Gemma 3's local layers."
    )
    one_of(say("Image mask"), images.MASKS, "images_mask", help=about, width="content")


def removed() -> tuple[int, ...]:
    return tuple(sorted({int(one) for one in st.session_state.images_removed.split(",") if one and int(one) < PATCHES}))


@dataclass(frozen=True, eq=False)
class Captioned:
    """now: under the chosen mask, without what is removed; standard: under the model's own. located: of a scene."""

    model: CaptionerModel
    image: ShownImage
    spec: MaskSpec
    now: CaptionView
    standard: CaptionView
    true: tuple[str, ...] | None
    located: LocatedHeads | None

    @property
    def best(self) -> int:
        """1 + the number of the head with the best localization; MEAN where that is not known."""
        return MEAN if self.located is None else 1 + int(self.located.shares.argmax())


def captioned(model: CaptionerModel, image: ShownImage) -> Captioned:
    state, ref = st.session_state, ModelRef.of(model)
    spec = without(MASKS[state.images_mask], removed())
    now = results.ask(write, ref, image.pixels, state.images_prompt, spec)
    standard = results.ask(write, ref, image.pixels, state.images_prompt, model.standard)
    if image.scene is None or not image.scene.shapes:
        return Captioned(model, image, spec, now, standard, None, None)
    located = results.ask(locate, ref, image.scene, state.images_prompt, spec)
    true = tuple(word.text for word in scenes.caption(image.scene, state.images_prompt))
    return Captioned(model, image, spec, now, standard, true, located)


def chosen_head(found: Captioned) -> int:
    head = st.session_state.images_head
    return found.best if head is None or head > found.model.num_layers * found.model.num_heads else head


def sentence(found: Captioned) -> Markup:
    best = None
    if found.located is not None:
        name = head_name(*divmod(found.best - 1, found.model.num_heads))
        best = name, float(found.located.shares.max()), found.located.even
    return images.sentence(found.now.words, found.true, found.standard.words, best)


def show(found: Captioned) -> None:
    """The picture, its caption, and every head."""
    state, now = st.session_state, found.now
    modes = MODES if found.image.scene else _without_place()
    with st.container(horizontal=True, vertical_alignment="bottom"):
        mode = one_of(say("A click on the picture"), modes, "images_mode", width="content")
        if mode == "remove" and removed():
            st.button(say("Bring all back"), on_click=lambda: state.update(images_removed=""), key="images_back")
    if mode == "place":
        with st.container(horizontal=True):
            for label, what, key in PLACED:
                select(say(label), {name: WORDS_OF[name] for name in what}, key, width=115)
    word = state.images_word if state.images_word < len(now.words) else -1
    other = [*found.standard.words, *[""] * len(now.words)]
    packet = cached_figure(
        images.images_packet, now.words, now.chances, now.weights, now.blocked,
        None if found.located is None else found.located.shares,
        picture=found.image.shown, boxes=found.image.boxes, names=patch_names(),
        changed=tuple(one != standard for one, standard in zip(now.words, other, strict=False)),
        removed=removed(), head=chosen_head(found), word=word, mode=mode,
    )  # fmt: skip
    hear = {f"on_{name}_change": partial(_heard, name, found.image) for name in ("word", "head", "spot")}
    _component(data=packet, key="images_picture", **hear)


def _without_place() -> dict[str, str]:
    if st.session_state.images_mode == "place":
        st.session_state.images_mode = "look"
    return {name: words for name, words in MODES.items() if name != "place"}


def _heard(name: str, image: ShownImage) -> None:
    """What the picture sent."""
    state, sent = st.session_state, component_value("images_picture").get(name)
    number, point = whole(sent), wholes(sent, 2)
    if name == "word" and number is not None:
        state.images_word = -1 if state.images_word == number else number
    elif name == "head" and number is not None:
        state.images_head = number
    elif name == "spot" and point is not None:
        x, y = (min(one, 999) / 1000 for one in point)
        if state.images_mode == "remove":
            patch = next(
                (
                    n
                    for n, (left, top, right, bottom) in enumerate(image.boxes)
                    if left <= x < right and top <= y < bottom
                ),
                None,
            )
            if patch is not None:
                state.images_removed = ",".join(map(str, sorted({*removed()} ^ {patch})))
        elif state.images_mode == "place" and image.scene is not None:
            _place(image.scene, x * SIDE, y * SIDE)


def _place(scene: Scene, x: float, y: float) -> None:
    """A shape at a point of the picture, within its edges; those too near, and of more than three the first, go."""
    state = st.session_state
    half = SIZES[state.images_size]
    x, y = (min(max(round(one), half), SIDE - half) for one in (x, y))
    new = SceneShape(state.images_shape, state.images_colour, state.images_size, x, y)
    others = [one for one in scene.shapes if one.apart_from(new)]
    _take(replace(scene, shapes=(*others[-scenes.MOST_SHAPES + 1 :], new)))


def show_numbers(found: Captioned) -> None:
    """The likeliest words at the one that is chosen; what the scene's caption costs; what each mask is worth."""
    state, now = st.session_state, found.now
    if 0 <= state.images_word < len(now.words):
        candidates = [Candidate(*one) for one in now.top[state.images_word]]
        st.html(cached_figure(next_token_table, candidates, candidates, changed=False))
    if found.located is not None:
        own = results.ask(
            locate, ModelRef.of(found.model), found.image.scene, state.images_prompt, found.model.standard
        )
        both = (found.located, own)
        rows = [(say("loss of the scene's caption, nats/word"), *(f"{one.loss:.4f}" for one in both))]
        rows.append((say("best localization"), *(images.percent(float(one.shares.max())) for one in both)))
        st.html(share_table(say("this scene"), rows, changed=found.spec != found.model.standard))
    every = [results.ask(under_masks, ModelRef.of(_version(version)), HELD_OUT) for version in VERSIONS]
    table = np.stack(every)
    st.html(images.masks_table(table, VERSIONS, (found.model.version, state.images_mask)))
    st.caption(
        say("{count} held-out scenes, computed here.", count=HELD_OUT) + " " + images.masks_sentence(table, VERSIONS)
    )


def _version(version: str) -> CaptionerModel:
    return cast(CaptionerModel, models.loaded().own(f"captioner-{version}"))


def show_heatmap(found: Captioned) -> None:
    head = chosen_head(found)
    layer, number = divmod(max(head - 1, 0), found.model.num_heads)
    name = say("mean of all heads") if head == MEAN else head_name(layer, number)
    st.markdown("#### " + say("The whole attention of {head}", head=name))
    folded = st.toggle(
        say("Fold the image tokens"),
        key="images_folded",
        help=say("All image tokens as one row and one column: the mean of their rows, the sum of their columns."),
    )
    batch = encode(found.image.pixels[None], st.session_state.images_prompt, found.now.words)
    run = RunRef(ModelRef.of(found.model), batch, found.spec)
    view = results.ask(whole_head, run, 0, found.spec, None if head == MEAN else layer, number, folded=folded)
    figure = cached_figure(head_figure, view, dark=page.is_dark())
    head_picture.show(figure, explain.head_alt(name, view, False), room="one", key="images_heatmap", on_pick=None)
    st.html(cached_figure(explain.key, [view], head_range(view)))
