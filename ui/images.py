"""The Images page: its link, a scene that the user builds or an uploaded image, and the captioner's results on it."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Annotated, Literal, cast

import numpy as np
import streamlit as st
from PIL import Image
from pydantic import AfterValidator, ConfigDict, Field, StringConstraints

from i18n import N_, say, together
from model import catalog
from model.heads.view import head_name, head_view
from model.images import captioner, scenes
from model.images.captioner import GRID, MASKS, PATCH_NAMES, PATCHES, VERSIONS, CaptionerModel, CaptionView, encode
from model.images.patches import Box, grid_tokens
from model.images.reading import MAX_BYTES, read_picture
from model.images.scenes import BACKGROUNDS, COLOURS, SHAPES, SIDE, SIZES, Scene, SceneShape, scene_of
from model.mask_kinds import OF_IMAGES
from model.spec import MaskSpec
from serving.job import ModelRef, RunRef
from ui import explain, link, page, results
from ui.heads import head as head_picture
from ui.heads.head import canvas
from ui.markdown import escaped
from ui.results import cached_figure
from ui.run_view import RunView
from ui.sidebar import models
from ui.widgets import bound, component_value, one_of, uploaded, uploader, whole, wholes
from viz import images
from viz.hatch import picture_uri
from viz.head import head_figure, head_range
from viz.mask_styles import STYLES
from viz.numbers import next_token_table, number, percent, share_table

SOURCES = {"scene": N_("Build a scene"), "upload": N_("Upload an image")}
MODES = {"look": N_("Look"), "place": N_("Place a shape"), "remove": N_("Remove patches")}
PROMPTS = {"across": N_("across: from left to right"), "down": N_("down: from top to bottom")}
PLACED: tuple[tuple[str, str, Collection[str]], ...] = (
    ("images_size", N_("Size"), SIZES), ("images_colour", N_("Colour"), COLOURS), ("images_shape", N_("Shape"), SHAPES),
)  # fmt: skip
GROUNDS = {"white": N_("white"), "grey": N_("grey"), "sky": N_("sky"), "night": N_("night")}
FIRST = "white_square-red-large-12-14_circle-blue-small-36-32"
HELD_OUT = 64  # number of scenes on which the table of masks is measured
LARGEST, WHOLE = 480, 1024  # maximum side in pixels of a picture that is shown, and that another model gets
CANDIDATES = 5
FIRST_TEXT = N_("Describe the image.")  # the default for another model
MEAN = 0  # the mean of all heads as an index of with_means, where head n is 1 + n
_component = canvas("images")


class ImagesLink(link.Link):
    """The link of the Images page; it does not contain an uploaded image. images_head: a row of with_means; None: the
    head with the best localization. images_word: -1 for none. images_removed: comma-separated patches."""

    model_config = ConfigDict(alias_generator=lambda name: name.removeprefix("images_"))
    TYPED = ("images_text", "images_model")
    NOT_INCLUDED = link.NO_FILES
    images_source: Literal[*SOURCES] = "scene"  # type: ignore[valid-type]
    images_scene: Annotated[str, AfterValidator(lambda text: scene_of(text).text())] = FIRST
    images_prompt: Literal[*PROMPTS] = "across"  # type: ignore[valid-type]
    images_version: Literal[*VERSIONS] = "prefix"  # type: ignore[valid-type]
    images_mask: Literal[*MASKS] = "prefix"  # type: ignore[valid-type]
    images_mode: Literal[*MODES] = "look"  # type: ignore[valid-type]
    images_shape: Literal[*SHAPES] = "triangle"  # type: ignore[valid-type]
    images_colour: Literal[*COLOURS] = "green"  # type: ignore[valid-type]
    images_size: Literal[*SIZES] = "large"  # type: ignore[valid-type]
    images_shown: Literal[*images.SHOWN] = "raw"  # type: ignore[valid-type]
    images_head: link.Whole | None = None
    images_word: Annotated[int, Field(ge=-1, le=99)] = 2
    images_removed: Annotated[str, StringConstraints(pattern=r"^(\d{1,2}(,\d{1,2}){0,35})?$")] = ""
    images_folded: bool = True
    images_model: Annotated[str, link.at_most(300)] = ""
    images_text: Annotated[str, link.at_most(400)] = ""
    images_layer: link.Whole = 0
    images_causal: bool = True
    images_block: bool = True


@dataclass(frozen=True, eq=False)
class ShownImage:
    """An image. pixels: what the model reads, uint8 [SIDE,SIDE,3]. picture: what is shown, a URI; boxes: its patches,
    as shares of that. scene: None if uploaded. whole: the whole upload, uint8, at most WHOLE pixels a side."""

    pixels: np.ndarray
    picture: str
    boxes: tuple[Box, ...]
    scene: Scene | None = None
    whole: np.ndarray | None = None


def shown(picture: Image.Image, region: Box, scene: Scene | None = None) -> ShownImage:
    """Return a picture as a ShownImage. region: the part that the model reads, resized to SIDE pixels a side."""
    wide, high = picture.size
    tokens = grid_tokens(GRID, GRID, region, picture.size)
    boxes = tuple((one.box[0] / wide, one.box[1] / high, one.box[2] / wide, one.box[3] / high) for one in tokens)
    pixels = np.asarray(picture.resize((SIDE, SIDE), Image.Resampling.BOX, box=region))
    picture.thumbnail((LARGEST, LARGEST))
    return ShownImage(pixels, picture_uri(np.asarray(picture)), boxes, scene)


def of_upload(data: bytes) -> ShownImage:
    """Return an uploaded image; the model reads the square in its middle. Raises ValueError as read_picture."""
    picture = read_picture(data)
    side = min(picture.size)
    left, top = ((length - side) // 2 for length in picture.size)
    whole = picture.copy()
    whole.thumbnail((WHOLE, WHOLE))
    return replace(shown(picture, (left, top, left + side, top + side)), whole=np.asarray(whole))


def choose_image() -> ShownImage | None:
    """Let the user build a scene or upload an image, kept small and for this session only. Returns None without one."""
    state = st.session_state

    def take() -> None:
        file = uploaded("images_file")
        try:
            state.update(images_upload=of_upload(file.getvalue()) if file else None, images_word=-1)
        except ValueError as error:
            state.images_upload = str(error)

    if one_of(say("Image"), SOURCES, "images_source", width="stretch") == "upload":
        about = say("PNG, JPEG or WebP, at most 5 MB. It is read once, shown to you alone and never stored.")
        look = {"key": "images_file", "on_change": take, "max_upload_size": MAX_BYTES // 2**20, "help": about}
        uploader(say("Image file (PNG, JPEG or WebP)"), ["png", "jpg", "jpeg", "webp"], **look)
        choose_another()
        found = state.get("images_upload")
        if isinstance(found, str):
            st.error(say("{problem}.", problem=escaped(say(found))), icon=":material/error:")
        return found if isinstance(found, ShownImage) else None
    scene = scene_of(state.images_scene)
    # the scene may have changed since it was drawn: each change is of the newest one
    repaint = lambda name: _take(replace(scene_of(state.images_scene), background=name))  # noqa: E731
    name = lambda ground: say(GROUNDS[ground])  # noqa: E731
    chosen = bound("images_background", scene.background, repaint)
    st.selectbox(say("Background"), BACKGROUNDS, format_func=name, **chosen)
    with st.container(horizontal=True):
        another = lambda: _take(scenes.random_scene(Random(), held_out=True))  # noqa: E731
        st.button(say("Random scene"), on_click=another, key="images_random")
        clear = lambda: _take(replace(scene_of(state.images_scene), shapes=()))  # noqa: E731
        st.button(say("Clear"), on_click=clear, key="images_clear")
    draw = lambda: shown(Image.fromarray(scenes.render([scene])[0]), (0, 0, SIDE, SIDE), scene)  # noqa: E731
    return results.cached(("scene", state.images_scene), draw)


def choose_another() -> None:
    """Let the user choose another model for an uploaded image: any, or one of this server's that reads images."""
    state, offered = st.session_state, offered_models()
    if offered is None:
        about = say("A Hub id or a folder of an image-text model; empty: the small models of this page.")
        st.text_input(say("Another model"), key="images_model", max_chars=300, help=about)
        return
    if state.images_model not in ("", *offered):
        st.warning(models.not_offered(state.images_model, offered))
    if offered:
        small = say("the small models of this page")
        chosen = bound("images_offered", other_model(), lambda name: state.update(images_model=name or ""))
        st.selectbox(say("Another model"), ["", *offered], format_func=lambda name: name or small, **chosen)


def offered_models() -> list[str] | None:
    """Return the models offered here that read images; None if a user may name any."""
    given = models.settings()
    return [name for name in given.models if catalog.reads_images(name, given)] if given.models else None


def other_model() -> str:
    """Return the other model that was chosen, if it is allowed; "" for none."""
    name, offered = st.session_state.images_model.strip(), offered_models()
    return name if offered is None or name in offered else ""


def _take(scene: Scene) -> None:
    st.session_state.update(images_scene=scene.text(), images_word=-1)


def model_of(version: str) -> CaptionerModel:
    return cast(CaptionerModel, models.loaded().own(f"captioner-{version}"))


def removed() -> tuple[int, ...]:
    numbers = {int(one) for one in st.session_state.images_removed.split(",") if one}
    return tuple(sorted(numbers & set(range(PATCHES))))


@dataclass(frozen=True, eq=False)
class Captioned:
    """The captioner's results for an image. now: under the chosen mask, without the removed patches; standard: under
    the model's own. head: a row of with_means. run: with the generated caption. true: a scene's caption, () if its
    shapes have no order. located: what is measured on that caption, now and under the model's own mask."""

    model: CaptionerModel
    image: ShownImage
    spec: MaskSpec
    now: CaptionView
    standard: CaptionView
    head: int
    run: RunView
    true: tuple[str, ...] | None = None
    located: tuple[captioner.LocatedHeads, ...] | None = None


def captioned(model: CaptionerModel, image: ShownImage) -> Captioned:
    state, ref = st.session_state, ModelRef.of(model)
    spec, prompt = captioner.without(MASKS[state.images_mask], removed()), state.images_prompt
    now, standard = (results.ask(captioner.write, ref, image.pixels, prompt, one) for one in (spec, model.standard))
    last, chosen = model.num_layers * (model.num_heads + 1), state.images_head
    chosen = None if chosen is None or chosen > last else chosen
    head = MEAN if chosen is None else chosen
    run = RunView(model, RunRef(ref, encode(image.pixels[None], prompt, now.words), spec), spec, 0)
    found = Captioned(model, image, spec, now, standard, head, run)
    if image.scene is None or not image.scene.shapes:
        return found
    if not scenes.is_ordered(image.scene, prompt):
        return replace(found, true=())
    both = tuple(results.ask(captioner.locate, ref, image.scene, prompt, one) for one in (spec, model.standard))
    true = tuple(text for text, _ in scenes.caption(image.scene, prompt))
    head = 1 + int(both[0].shares.argmax()) if chosen is None else chosen
    return replace(found, true=true, located=both, head=head)


def best_head(located: captioner.LocatedHeads, heads: int) -> images.Best | None:
    """Return the head with the best localization; None if a word may attend to no patch."""
    best = divmod(int(located.shares.argmax()), heads)
    share, area = float(located.shares[best]), float(located.by_area[best])
    return None if np.isnan(share) else (head_name(*best), share, located.even, area, located.max_by_area)


def show(found: Captioned) -> None:
    """Draw the picture, its caption, and every head."""
    state, now, image = st.session_state, found.now, found.image
    modes = {name: label for name, label in MODES.items() if image.scene or name != "place"}
    if state.images_mode not in modes:
        state.images_mode = "look"
    with st.container(horizontal=True):
        mode = one_of(say("A click on the picture"), modes, "images_mode", width="content")
        kind = one_of(say("Attention"), images.SHOWN, "images_shown", help=images.shown_help(), width="content")
    if mode == "place":
        with st.container(horizontal=True):
            for key, label, names in PLACED:
                st.selectbox(say(label), names, key=key, width=115)
    neutral = now.weights[:, :, 0] if kind == "relative" and now.words else None
    standard_words = (*found.standard.words, *[""] * len(now.words))
    packet = cached_figure(
        images.images_packet, now.words, now.chances, now.weights, now.blocked,
        None if found.located is None else found.located[0].shares, image.boxes, removed(), mode,
        changed=tuple(one != other for one, other in zip(now.words, standard_words, strict=False)), names=PATCH_NAMES,
        neutral=neutral, picture=image.picture, smooth=image.scene is None, head=found.head,
        word=state.images_word if 0 <= state.images_word < len(now.words) else len(now.words),
    )  # fmt: skip
    hear = {f"on_{name}_change": partial(take_event, name) for name in ("word", "head", "spot", "patch")}
    shown = now.weights, now.blocked, now.words, PATCH_NAMES, found.head, neutral
    _component(data=packet, key="images_picture", tables=lambda: [images.weights_table(*shown)], **hear)


def take_event(name: str, key: str = "images_picture") -> None:
    """Handle what a picture sent. name: of the trigger. For use in a component's callback."""
    state, sent = st.session_state, component_value(key).get(name)
    number, point = whole(sent), wholes(sent, 2)
    if name == "spot" and point is not None and state.images_source == "scene":
        # add a shape within the picture; shapes that it touches are removed, and the first ones if too many
        half = SIZES[state.images_size]
        x, y = (min(max(round(coordinate * SIDE / 1000), half), SIDE - half) for coordinate in point)
        new = SceneShape(state.images_shape, state.images_colour, state.images_size, x, y)
        scene = scene_of(state.images_scene)
        others = [shape for shape in scene.shapes if shape.apart_from(new)]
        _take(replace(scene, shapes=(*others[-scenes.MAX_SHAPES + 1 :], new)))
    elif name == "patch" and number is not None:
        state.images_removed = ",".join(map(str, sorted({*removed()} ^ {min(number, PATCHES - 1)})))
    elif name == "word" and number is not None:
        state.images_word = -1 if state.images_word == number else number
    elif name == "head" and number is not None:
        state.images_head = number


def show_numbers(found: Captioned) -> None:
    """Draw the likeliest tokens at the chosen word, the loss of the scene's caption, and the table of all masks."""
    state, now = st.session_state, found.now
    if 0 <= state.images_word < len(now.words):
        predicted = found.run.predictions(PATCHES + state.images_word)
        some = predicted.candidates[:CANDIDATES] if predicted else []
        st.html(cached_figure(next_token_table, some, some, changed=False))
    if found.located is not None:
        rows = [(say("loss of the scene's caption, nats/word"), *(number(one.loss) for one in found.located))]
        rows.append((say("best localization"), *(percent(float(one.shares.max())) for one in found.located)))
        st.html(share_table(say("this scene"), rows, changed=found.spec != found.model.standard))
    every = [results.ask(captioner.under_masks, ModelRef.of(model_of(version)), HELD_OUT) for version in VERSIONS]
    st.html(images.masks_table(np.stack(every), VERSIONS, (found.model.version, state.images_mask), HELD_OUT))


def show_heatmap(found: Captioned) -> None:
    layers, heads = found.model.num_layers, found.model.num_heads
    layer = found.head - 1 - layers * heads  # from 0 for the mean of a layer
    chosen = (layer, 0) if layer >= 0 else divmod(max(found.head - 1, 0), heads)
    st.markdown("#### " + say("The full heatmap of {head}", head=head_name(*chosen)))
    if found.head == MEAN or layer >= 0:
        st.caption(say("For a mean of heads, its first head."))
    about = say("All image tokens as one row and one column: the mean of their rows, the sum of their columns.")
    folded = st.toggle(say("Merge the image tokens"), key="images_folded", help=about)
    view = found.run.ask(captioner.folded_head if folded else head_view, *chosen)
    figure = cached_figure(head_figure, view, dark=page.is_dark())
    alt = cached_figure(explain.head_alt, head_name(*chosen), view, False)
    head_picture.show(figure, alt, room="one", key="images_heatmap", on_pick=None)
    st.html(cached_figure(explain.key, [view], head_range(view)))


def show_another(name: str, whole: np.ndarray) -> None:
    """Draw what each head of a layer of the model `name` attends to in an uploaded image. whole: uint8."""
    from model.huggingface.image_prompts import NEUTRAL, look  # imports transformers, which takes seconds

    state, model = st.session_state, models.get(name)
    state.images_layer = min(state.images_layer, model.num_layers - 1)
    controls = st.container(horizontal=True, vertical_alignment="bottom")
    with controls:
        st.text_input(say("Text"), key="images_text", max_chars=400, placeholder=say(FIRST_TEXT))
        st.number_input(say("Layer"), 0, model.num_layers - 1, key="images_layer", width=120)
    spec = model.standard.replace(causal=state.images_causal, **{OF_IMAGES: state.images_block})
    text = state.images_text.strip() or FIRST_TEXT
    with controls:
        about = images.neutral_help(NEUTRAL)
        kind = one_of(say("Attention"), images.SHOWN, "images_shown", help=about, width="content")
    neutral = NEUTRAL if kind == "relative" else ""
    found = results.ask(look, ModelRef.of(model), whole, text, spec, state.images_layer, neutral)
    masks = {"causal": "images_causal"} | ({} if found.mask == "causal" else {OF_IMAGES: "images_block"})
    for mask, key in masks.items():
        controls.toggle(say(STYLES[mask].label), key=key, help=say(STYLES[mask].help))
    layer = model.describe().layer_number("self", state.images_layer)
    heads = tuple(head_name(layer, head) for head in range(len(found.weights)))
    word = state.images_word if 0 <= state.images_word < len(found.labels) else len(found.labels) - 1
    attention = images.image_attention(found, heads, whole, word)
    sentence = say("The network's own mask of the image tokens: {mask}.", mask=found.mask)
    st.html(page.sentence(together([sentence, images.mapping_note(attention)])))
    layers = list(attention.layers())
    head = min(state.images_head or MEAN, len(heads))
    for index, (part, column) in enumerate(zip(layers, st.columns(max(len(layers), 2)), strict=False)):
        key = f"images_another_{index}"
        hear = {f"on_{name}_change": partial(take_event, name, key) for name in ("word", "head", "spot", "patch")}
        with column:
            packet = images.image_attention_packet(part, alone=len(layers) == 1, head=head)
            _component(data=packet, key=key, tables=partial(images.weights_tables, part, head), **hear)
