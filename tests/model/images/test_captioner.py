"""Tests of the captioner: its patches, its masks, and its model card's statements on the three versions that ship."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from model.heads.survey import survey
from model.images import captioner
from model.images.captioner import CONTEXT, GRID, MASKS, PATCH, PATCHES, VERSIONS, CaptionNetwork, encode, locate, write
from model.images.patches import MIN_ATTENTION, grid_tokens, with_means
from model.images.scenes import Scene, SceneShape, caption, held_out_scenes, random_scene, render, scene_of
from model.transformer import TransformerConfig

SCENE = Scene((SceneShape("square", "red", "small", 10, 30), SceneShape("circle", "blue", "large", 36, 12)), "grey")


@pytest.fixture(scope="module")
def tiny() -> captioner.CaptionerModel:
    torch.manual_seed(0)
    config = TransformerConfig(vocabulary=len(captioner.WORDS), context=CONTEXT, layers=2, heads=3, width=12)
    return captioner.CaptionerModel("window", CaptionNetwork(config).requires_grad_(False))


def test_a_caption_names_the_shapes_in_the_prompts_order() -> None:
    captions = {prompt: " ".join(text for text, _ in caption(SCENE, prompt)) for prompt in ("across", "down")}
    assert captions["across"] == "a small red square left of a large blue circle"
    assert captions["down"] == "a large blue circle above a small red square"
    assert [about for _, about in caption(SCENE, "down")] == [1, 1, 1, 1, None, 0, 0, 0, 0]


def test_a_shape_is_drawn_within_its_box_alone() -> None:
    (picture,), (empty,) = render([SCENE]), render([Scene((), "grey")])
    changed = np.argwhere((picture != empty).any(-1))
    wanted = np.zeros((48, 48), bool)
    for shape in SCENE.shapes:
        left, top, right, bottom = map(int, shape.box)
        wanted[top:bottom, left:right] = True
    assert wanted[tuple(changed.T)].all()
    assert (picture[26:34, 6:14] == (214, 40, 40)).all()


def test_scenes_come_back_from_their_text_and_others_are_refused() -> None:
    draw = random.Random(1)
    for _ in range(50):
        scene = random_scene(draw, held_out=False)
        assert scene_of(scene.text()) == scene
    for wrong in ("", "white_", "pink", "white_square-red-small-1-20", "white_square-red-small-a-b", "<b>",
                  "white" * 99, "white" + "_square-red-small-20-20" * 4):  # fmt: skip
        with pytest.raises(ValueError, match=r".*"):
            scene_of(wrong)


def test_held_out_scenes_are_never_trained_on_and_unseen_pairs_are_apart() -> None:
    seen, unseen = held_out_scenes(40), held_out_scenes(40, unseen=True)
    assert all(scene.held_out for scene, _ in seen + unseen)
    assert not any(scene.unseen for scene, _ in seen)
    assert all(scene.unseen for scene, _ in unseen)


def test_the_pixels_of_one_patch_change_its_embedding_and_no_other(tiny: captioner.CaptionerModel) -> None:
    (picture,) = render([SCENE])
    before = tiny.inputs(encode(picture[None], "across"))
    for token in grid_tokens(GRID, GRID, (0, 0, 48, 48), (48, 48)):
        left, top, right, bottom = map(int, token.box)
        changed = picture.copy()
        changed[top:bottom, left:right] ^= 128
        differs = (tiny.inputs(encode(changed[None], "across")) != before).any(-1)[0]
        assert differs.nonzero().flatten().tolist() == [token.position]


def test_relative_attention_is_a_word_over_the_prompt_and_a_mean_over_the_mean() -> None:
    weights = np.random.default_rng(0).uniform(0.01, 0.3, (2, 3, 4, 5)).astype(np.float32)  # [L,H,S,P]
    weights[:, :, 0, 2] = MIN_ATTENTION / 10
    raw, relative = with_means(weights), with_means(weights, weights[:, :, 0])
    for layer, head in np.ndindex(2, 3):
        np.testing.assert_array_equal(raw[1 + 3 * layer + head], weights[layer, head])
    for layer in range(2):
        mean = sum(weights[layer, head] for head in range(3)) / 3
        np.testing.assert_allclose(raw[7 + layer], mean, rtol=1e-6)
        for patch, word in np.ndindex(5, 4):
            divisor = MIN_ATTENTION if patch == 2 else mean[0, patch]
            assert relative[7 + layer, word, patch] == pytest.approx(mean[word, patch] / divisor, rel=1e-5)
    assert (relative[:, 0, [0, 1, 3, 4]] == 1).all()


@pytest.mark.parametrize("name", MASKS)
def test_each_mask_opens_and_blocks_what_it_is_named_for(tiny: captioner.CaptionerModel, name: str) -> None:
    words = ["a"] * (CONTEXT - PATCHES - 1)
    trace = tiny.run(encode(render([SCENE]), "across", words), MASKS[name])
    allowed = trace.allowed(1).numpy()
    q, k = np.indices(allowed.shape)
    block = (q < PATCHES) & (k < PATCHES)
    wanted = {
        "causal": k <= q, "prefix": (k <= q) | (np.maximum(q, k) <= PATCHES), "block": (k <= q) | block,
        "window": ((k <= q) | block) & (abs(q - k) < 32),
    }  # fmt: skip
    np.testing.assert_array_equal(allowed, wanted[name])


def test_patches_are_no_repeats_of_one_token(tiny: captioner.CaptionerModel) -> None:
    """Patches share an id; the only repeated token is the second “a”."""
    trace = tiny.run(encode(render([SCENE]), "down", ["a", "small", "a"]), MASKS["block"])
    on_it = [[float(trace.weights(layer, head)[PATCHES + 3, PATCHES + 1]) for head in range(3)] for layer in range(2)]
    np.testing.assert_allclose(survey(trace, 0).shares["duplicate"], on_it, rtol=1e-5)


def test_a_removed_patch_is_seen_by_nobody(tiny: captioner.CaptionerModel) -> None:
    (picture,) = render([SCENE])
    changed = picture.copy()
    changed[:PATCH, PATCH : 2 * PATCH] = 0  # the pixels of patch 1
    spec = captioner.without(MASKS["prefix"], [1])
    found = [captioner.read(tiny, one, "across", ("a", "small"), spec) for one in (picture, changed)]
    np.testing.assert_array_equal(found[0].chances, found[1].chances)
    assert (found[0].weights[..., 1] == 0).all()
    assert found[0].blocked[:, 1].all()
    whole = [captioner.read(tiny, one, "across", ("a", "small"), MASKS["prefix"]).chances for one in (picture, changed)]
    assert (whole[0] != whole[1]).any()


def test_localization_is_the_share_inside_the_boxes(tiny: captioner.CaptionerModel) -> None:
    words = [text for text, _ in caption(SCENE, "across")]
    found = captioner.read(tiny, render([SCENE])[0], "across", tuple(words), MASKS["block"])
    touched = np.zeros((len(words), GRID, GRID), bool)
    touched[1:4, 3:5, 0:2] = True  # the square, x from 6 to 14 and y from 26 to 34
    touched[7:10, 0:3, 3:6] = True  # the circle, x from 28 to 44 and y from 4 to 20
    rows = [1, 2, 3, 7, 8, 9]
    inside = touched.reshape(len(words), PATCHES)
    weights = found.weights[:, :, rows]
    located = locate(tiny, SCENE, "across", MASKS["block"])
    wanted = ((weights * inside[rows]).sum(-1) / weights.sum(-1)).mean(-1)
    np.testing.assert_allclose(located.shares, wanted, rtol=1e-5)
    assert located.even == pytest.approx(inside[rows].mean())
    area = np.zeros((2, GRID, GRID))  # share of each patch inside the boxes
    area[0, 3:5, 0:2] = np.outer((6, 2), (2, 6)) / 64
    area[1, 0:3, 3:6] = np.outer((4, 8, 4), (4, 8, 4)) / 64
    parts = area.reshape(2, PATCHES).repeat(3, axis=0)
    np.testing.assert_allclose(located.by_area, ((weights * parts).sum(-1) / weights.sum(-1)).mean(-1), rtol=1e-5)
    assert located.max_by_area == pytest.approx((36 / 64 + 1) / 2)
    assert located.loss == pytest.approx(found.loss)
    some = locate(tiny, SCENE, "across", captioner.without(MASKS["block"], [3 * GRID + 1, 1, 2]))  # one in the square
    assert some.even == pytest.approx((3 / 33 + 9 / 33) / 2)
    assert some.max_by_area == pytest.approx((12 / 64 + 1) / 2)
    none = locate(tiny, SCENE, "across", captioner.without(MASKS["block"], range(PATCHES)))
    assert np.isnan(none.shares).all()


def test_a_folded_head_keeps_every_rows_sum(tiny: captioner.CaptionerModel) -> None:
    trace = tiny.run(encode(render([SCENE]), "down", ["a", "small"]), MASKS["block"])
    whole, view = trace.weights(1, 2).numpy(), captioner.folded_head(trace, 0, MASKS["block"], 1, 2)
    assert view.weights.shape == (4, 4)
    np.testing.assert_allclose(view.weights.sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(view.weights[1:, 0], whole[PATCHES:, :PATCHES].sum(1), rtol=1e-5)
    np.testing.assert_array_equal(view.blocked["prefix_lm"], np.triu(np.ones((4, 4), bool), 1))


def test_a_folded_image_that_two_masks_block_together_is_blocked(tiny: captioner.CaptionerModel) -> None:
    """The window leaves a word only the end of the image, and that end is removed."""
    spec = captioner.without(replace(MASKS["window"], sliding=PATCHES // 2), range(PATCHES // 3, PATCHES))
    trace = tiny.run(encode(render([SCENE]), "down", ["a", "small"]), spec)
    whole, view = trace.allowed(0).numpy(), captioner.folded_head(trace, 0, spec, 0, 0)
    np.testing.assert_array_equal(view.any_blocked()[1:, 0], ~whole[PATCHES:, :PATCHES].any(1))
    assert view.any_blocked()[1:, 0].any()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_that_ships_writes_what_is_there(version: str) -> None:
    model = captioner.load(version)
    assert model.standard == MASKS[version]
    scenes = held_out_scenes(20)
    right = 0
    for scene, prompt in scenes:
        found, true = write(model, render([scene])[0], prompt, model.standard), caption(scene, prompt)
        right += list(found.words) == [text for text, _ in true]
        assert found.weights.shape == (model.num_layers, model.num_heads, len(found.words), PATCHES)
    assert right >= 18
