"""The Images page without a browser: its caption, numbers and heads are those of the built-in models."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import unmask
from model.huggingface.image_prompts import NEUTRAL
from model.images import captioner
from model.images.captioner import MASKS, PATCHES, VERSIONS, locate, under_masks, without, write
from model.images.patches import MIN_ATTENTION
from model.images.scenes import render, scene_of
from tests.model.huggingface import image_families
from tests.pages.page import Page, plain
from tests.tiny import save_tiny
from tests.viz.packet import unpacked
from ui.images import FIRST, HELD_OUT, of_upload, take_event
from viz.numbers import number, percent


class Images(Page):
    SCRIPT = "pages/images.py"

    def packet(self) -> tuple[dict[str, Any], np.ndarray]:
        """Return the picture's header, and the weights [heads, words, patches], the mean over heads first."""
        (one,) = [one for one in self.app.get("bidi_component") if one.proto.component_name == "unmask_images"]
        header, body = unpacked(one.proto.bytes)
        shape = len(header["heads"]), len(header["caption"]) + 1, len(header["boxes"])
        return header, np.frombuffer(body[: 4 * np.prod(shape)], "<f4").reshape(shape)


@pytest.mark.parametrize(("version", "mask", "removed"), [("prefix", "prefix", ()), ("window", "causal", (7, 8, 13))])
def test_the_caption_and_the_heads_are_the_models(version: str, mask: str, removed: tuple[int, ...]) -> None:
    page = Images(version=version, mask=mask, removed=",".join(map(str, removed)))
    header, weights = page.packet()
    model, scene = captioner.load(version), scene_of(FIRST)
    spec = without(MASKS[mask], removed)
    found = write(model, render([scene])[0], "across", spec)
    assert header["caption"] == list(found.words)
    flat = found.weights.reshape(-1, *found.weights.shape[2:])
    np.testing.assert_allclose(weights[1 : 1 + len(flat), :-1], flat, atol=1e-6)
    np.testing.assert_allclose(weights[0, :-1], flat.mean(0), atol=1e-6)
    np.testing.assert_allclose(weights[:, -1], weights[:, :-1].mean(1), atol=1e-6)
    assert (weights[:, :, list(removed)] == 0).all()
    located = locate(model, scene, "across", spec)
    shares = located.shares.ravel()
    ranked = [header["heads"][head]["share"] for head in header["order"][-shares.size :]]
    assert ranked == [percent(share) for share in sorted(shares, reverse=True)]
    assert header["head"] == header["order"][-shares.size] == 1 + shares.argmax()
    assert header["words"]["every"] == "Every head with its localization over the scene's caption, the best first"
    assert percent(shares.max()) in page.sentence()
    assert percent(located.even) in page.sentence()
    standard = write(model, render([scene])[0], "across", model.standard).words
    nothing = Images(removed=",".join(map(str, range(PATCHES))))
    assert "touch the box" not in nothing.sentence()
    assert {head["share"] for head in nothing.packet()[0]["heads"][1 : 1 + shares.size]} == {"–"}
    assert nothing.packet()[0]["words"]["every"] == "All heads"
    assert header["changed"] == [one != other for one, other in zip(found.words, [*standard, *"-" * 20], strict=False)]


def test_each_mask_is_measured_on_every_version_and_its_own_is_best() -> None:
    page = Images()
    (table,) = [plain(one) for one in page.html() if 'class="numbers masks"' in one]
    for version in VERSIONS:
        found = under_masks(captioner.load(version), HELD_OUT)
        for loss, exact in found:
            assert f"{number(float(loss))} nats, {percent(float(exact))} exact" in table
        assert list(MASKS)[found[:, 0].argmin()] == version
    assert any("3 of 3 models" in plain(one) for one in page.html())


def test_relative_attention_and_the_mean_of_a_layer_are_in_the_link() -> None:
    found = captioner.load("prefix")
    weights = write(found, render([scene_of(FIRST)])[0], "across", found.standard).weights
    layers, heads = weights.shape[:2]
    page = Images(shown="relative", head=str(layers * heads + layers))
    header, shown = page.packet()
    assert (header["relative"], header["heads"][header["head"]]["name"]) == (True, f"mean of layer {layers - 1}")
    mean = weights[-1].mean(0)
    assert "For a mean of heads, its first head." in page.words()
    np.testing.assert_allclose(shown[header["head"], :-1], mean / np.maximum(mean[0], MIN_ATTENTION), rtol=1e-4)
    page.set(images_shown="raw")
    np.testing.assert_allclose(page.packet()[1][header["head"], :-1], mean, atol=1e-6)


def test_the_heatmap_folds_and_unfolds_the_image() -> None:
    page = Images(word="-1")
    assert "For a mean of heads" not in page.words()
    rows = lambda: len(page.figures()["images_heatmap"]["layout"]["yaxis"]["ticktext"])  # noqa: E731
    words = len(page.packet()[0]["caption"])
    assert rows() == words + 2
    page.set(images_folded=False)
    assert rows() == words + 1 + captioner.PATCHES


def test_clicks_place_shapes_remove_patches_and_choose_words(monkeypatch: pytest.MonkeyPatch) -> None:
    state: Any = type("State", (dict,), {"__getattr__": dict.__getitem__, "__setattr__": dict.__setitem__})()
    state.update(images_mode="place", images_size="small", images_colour="green", images_shape="cross",
                 images_removed="", images_word=-1, images_scene=FIRST, images_source="scene")  # fmt: skip
    sent: dict[str, Any] = {}
    monkeypatch.setattr("ui.images.st.session_state", state)
    monkeypatch.setattr("ui.images.component_value", lambda _: sent)

    def send(name: str, value: Any) -> None:
        sent.update({name: value})
        take_event(name)

    send("spot", [999, 0])  # in the corner: moved so that all of it is visible
    assert state.images_scene == f"{FIRST}_cross-green-small-44-4"
    send("spot", [250, 250])  # on the red square, which is removed
    assert "red" not in state.images_scene
    state.images_mode = "remove"
    send("patch", 1)
    send("patch", 35)
    assert state.images_removed == "1,35"
    send("patch", 1)
    assert state.images_removed == "35"
    before = dict(state)
    for junk in (None, [1], [float("nan"), 0], "1", {}, [10**9, 0], -1, 0.5):
        for name in ("spot", "word", "head", "patch"):
            send(name, junk)
    assert state == before
    send("word", 3)
    assert state.images_word == 3
    send("word", 3)
    assert state.images_word == -1


def test_changes_that_come_together_are_all_of_the_newest_scene(monkeypatch: pytest.MonkeyPatch) -> None:
    other = scene_of("night_circle-red-small-10-10")
    monkeypatch.setattr("ui.images.scenes.random_scene", lambda *_, **__: other)
    page = Images()
    assert page.value("images_background") != other.background
    for key in ("images_random", "images_clear"):
        page.app.button(key=key).click()
    assert scene_of(page.run()["images_scene"]) == replace(other, shapes=())


def test_shapes_exactly_above_each_other_have_no_order_across() -> None:
    scene = f"{FIRST}_triangle-green-large-36-10"
    page = Images(scene=scene)
    assert "neither order is right" in page.sentence()
    assert "scene's caption" not in page.sentence() + page.words()
    assert "scene's caption" in Images(scene=scene, prompt="down").sentence()


def test_patches_of_an_upload_lie_where_its_pixels_are() -> None:
    """A change within one drawn patch changes that patch alone, for three shapes of images."""
    for wide, high in ((480, 480), (600, 300), (123, 330)):
        pixels = np.full((high, wide, 3), 200, np.uint8)
        before = of_upload(_file(pixels))
        for patch in (0, 17, 35):
            left, top, right, bottom = before.boxes[patch]
            changed = pixels.copy()
            rows, columns = slice(round(top * high) + 2, round(bottom * high) - 2), slice(round(left * wide) + 2, None)
            changed[rows, columns][:, : round((right - left) * wide) - 4] = 0
            after = of_upload(_file(changed))
            differs = (captioner.to_patches(after.pixels[None]) != captioner.to_patches(before.pixels[None])).any(-1)[0]
            assert differs.nonzero().flatten().tolist() == [patch]


def test_a_broken_upload_is_a_sentence() -> None:
    page = Images(source="upload")
    box = page.app.file_uploader(key="images_file")
    assert box.label == "Image file (PNG, JPEG or WebP)"  # others are refused, with the reason only in a tooltip
    box.upload("x.png", b"<svg/>", "image/png").run()
    assert not page.app.exception
    assert "PNG, JPEG or WebP image" in page.app.error[0].value
    page.app.file_uploader(key="images_file").upload("y.png", _file(render([scene_of(FIRST)])[0]), "image/png").run()
    assert not page.app.error
    header = page.packet()[0]
    assert header["caption"] == ["a", "large", "red", "square", "left", "of", "a", "small", "blue", "circle"]
    assert header["words"]["every"] == "All heads"  # an upload has no known localization


def _file(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize(("name", "layers"), [("idefics3", 2), ("aria", 1), ("gemma3", 1)])
def test_another_model_reads_an_upload(name: str, layers: int, tmp_path: Path) -> None:
    folder, whole = str(image_families.save(name, tmp_path)), image_families.picture(120, 80)
    page = Images(source="upload", model=folder, text="the cat sat on a mat", layer="1")
    page.app.file_uploader(key="images_file").upload("x.png", _file(np.asarray(whole)), "image/png").run()
    assert not page.app.exception
    assert not page.app.error
    run = unmask.load(folder).run("the cat sat on a mat", image=whole)
    packets = [unpacked(one.proto.bytes) for one in page.app.get("bidi_component")]
    assert len(packets) == layers
    weights = {}
    for header, body in packets:
        shape = len(header["heads"]), len(header["caption"]) + 1, len(header["boxes"])
        planes = np.frombuffer(body[: 4 * np.prod(shape)], "<f4").reshape(shape)
        weights |= dict(zip(header["names"], planes[1:-1, -2].T, strict=True))
    expected = run.numpy()[1, :, -1, list(run.trace.batch.image_positions)]
    found = [weights.get(run.labels[at], np.zeros(4)) for at in run.trace.batch.image_positions]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert f"mask of the image tokens: {run.image_mask}." in page.sentence()
    assert ("For an image of this size it is not known" in page.sentence()) == (name == "aria")
    if name == "gemma3":
        page.set(images_block=False)
        lifted = run.under({"image_block": False})
        (one,) = page.app.get("bidi_component")
        planes = np.frombuffer(unpacked(one.proto.bytes)[1], "<f4", count=planes.size).reshape(planes.shape)
        np.testing.assert_allclose(planes[1:-1, -2], lifted.numpy()[1, :, -1, 1:5], atol=1e-6)


@pytest.mark.parametrize(("model", "words"), [("story", "reads no images"), ("/no/such/folder", "not a folder")])
def test_a_model_that_reads_no_image_is_a_sentence(model: str, words: str) -> None:
    page = Images(source="upload", model=model)
    page.app.file_uploader(key="images_file").upload(
        "x.png", _file(np.full((40, 60, 3), 9, np.uint8)), "image/png"
    ).run()
    assert not page.app.exception
    assert words in page.app.error[0].value


@pytest.mark.parametrize("offered", [(), ("story", "foo/bar")])
def test_a_server_whose_models_read_no_images_offers_no_other(
    offered: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a link names one: the page reports that it is not available, and the small models read the image."""
    monkeypatch.setenv("UNMASK_SHARED", "true")
    monkeypatch.setenv("UNMASK_MODELS", ",".join(offered))
    for link, notes in {"": [], "foo/bar": ["The link names the model foo/bar, which is not available here."]}.items():
        page = Images(source="upload", model=link)
        page.app.file_uploader(key="images_file").upload("x.png", _file(render([scene_of(FIRST)])[0])).run()
        assert "Another model" not in {one.label for one in (*page.app.text_input, *page.app.selectbox)}
        assert (page.boxes("error"), page.boxes("warning")) == ([], notes)
        assert page.packet()[0]["caption"][:4] == ["a", "large", "red", "square"]


def test_a_server_offers_those_of_its_models_that_read_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, text = str(image_families.save("llava", tmp_path / "reader")), tmp_path / "text"
    save_tiny(text)
    monkeypatch.setenv("UNMASK_MODELS", f"story,{text},{reader}")
    page = Images(source="upload", model="story", text="the cat sat on a mat", layer="1")
    warned = f"The link names the model story, which is not available here. Choose one of {reader}."
    assert page.boxes("warning") == [warned]
    (choice,) = [one for one in page.app.selectbox if one.label == "Another model"]
    assert choice.options == ["the small models of this page", reader]
    page.app.file_uploader(key="images_file").upload("x.png", _file(np.asarray(image_families.picture(120, 80)))).run()
    choice.set_value(reader).run()
    assert (page.boxes("error"), page.boxes("warning")) == ([], [])
    assert "mask of the image tokens: causal." in page.sentence()


def test_another_models_attention_is_shown_over_that_of_a_neutral_prompt(tmp_path: Path) -> None:
    folder, whole = str(image_families.save("llava", tmp_path)), image_families.picture(120, 80)
    page = Images(source="upload", model=folder, text="the cat sat on a mat", layer="1", shown="relative")
    page.app.file_uploader(key="images_file").upload("x.png", _file(np.asarray(whole)), "image/png").run()
    model = unmask.load(folder)
    run, neutral = (model.run(text, image=whole) for text in ("the cat sat on a mat", NEUTRAL))
    header, planes = page.packet()
    assert header["relative"]
    assert "neutral prompt" in header["words"]["word"]
    weights, divisor = (one.numpy()[1][:, -1, list(one.trace.batch.image_positions)] for one in (run, neutral))
    np.testing.assert_allclose(planes[1:-1, -2], weights / np.maximum(divisor, MIN_ATTENTION), rtol=1e-4)
    np.testing.assert_allclose(planes[0, -2], weights.mean(0) / np.maximum(divisor.mean(0), MIN_ATTENTION), rtol=1e-4)
    page.set(images_shown="raw")
    np.testing.assert_allclose(page.packet()[1][1:-1, -2], weights, atol=1e-6)
