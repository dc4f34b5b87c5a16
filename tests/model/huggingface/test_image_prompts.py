"""Tests of models with an image in the prompt against transformers' own eager attention, on tiny random checkpoints.

Logits agree to 1e-4 of the largest, weights to 1e-5, under each network's masks with an image, and with these lifted.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf
from PIL import Image
from torch import Tensor
from transformers import PreTrainedModel

from i18n import say, spoken
from model.errors import CheckpointError, NotSupported
from model.huggingface import adapter
from model.huggingface.adapter import HuggingFaceModel
from model.huggingface.image_prompts import ImageBatch, image_mask, look
from model.huggingface.pixel_map import embedder
from model.images.patches import Box
from model.masks import MaskSpec
from serving.settings import Settings
from tests.model.huggingface import families, image_families
from tests.model.huggingface.image_families import FAMILIES, picture
from tests.tensors import largest_difference

pytestmark = pytest.mark.slow  # loads twenty models
TEXT = "the cat sat on a mat"
ALIKE = {
    "vipllava",
    "qwen2_5_vl",
    "lighton_ocr",
    "deepseek_vl",
}  # same code as another; all are in tests.benchmarks.families --images
NO_BOXES = {"idefics2", "aria"}  # a resampler makes their tokens, each from the whole image
TWICE = {"idefics3", "smolvlm"}  # they resize an image twice, so that their filter reaches a little into the next box
GROUPS = {"gemma3": "image", "paligemma": "all"}  # the tokens that see each other despite the causal mask


@torch.inference_mode()
def eager(network: PreTrainedModel, batch: ImageBatch) -> tuple[Tensor, Tensor]:
    """Return transformers' logits [T,V] and weights [L,H,T,T]."""
    out = network(batch.ids, attention_mask=torch.ones_like(batch.ids), **batch.inputs, output_attentions=True)
    return out.logits[0], torch.cat(list(out.attentions))


@pytest.fixture(scope="module", params=[name for name in FAMILIES if name not in ALIKE])
def family(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, HuggingFaceModel, PreTrainedModel]:
    folder = image_families.save(request.param, tmp_path_factory.mktemp(request.param))
    theirs = hf.AutoModelForImageTextToText.from_pretrained(folder, attn_implementation="eager").eval()
    return request.param, adapter.load(str(folder), settings=Settings()), theirs


def test_an_image_in_the_prompt_is_as_transformers_has_it(
    family: tuple[str, HuggingFaceModel, PreTrainedModel],
) -> None:
    _, ours, theirs = family
    batch = ours.encode_image(TEXT, picture())
    trace = ours.run(batch)
    logits, weights = eager(theirs, batch)
    assert largest_difference(trace.logits[0], logits) <= 1e-4 * float(logits.abs().max())
    shown = torch.stack([trace.weights(layer, head) for layer in range(trace.num_layers) for head in range(4)])
    assert largest_difference(shown, weights.flatten(0, 1)) <= 1e-5
    other = ours.run(ours.encode_image(TEXT, picture(seed=4)))
    assert largest_difference(other.logits, trace.logits) > 1e-3  # the image is read


def test_a_row_that_is_repeated_has_its_image_each_time(
    family: tuple[str, HuggingFaceModel, PreTrainedModel],
) -> None:
    """Ablation and patching repeat rows."""
    _, ours, _ = family
    batch = ours.encode_image(TEXT, picture())
    alone, repeated = ours.run(batch).logits[0], ours.run(batch.rows([0, 0, 0])).logits
    assert len(repeated) == 3
    assert max(largest_difference(row, alone) for row in repeated) <= 1e-5 * float(alone.abs().max())


def test_the_image_mask_is_measured_and_lifted(family: tuple[str, HuggingFaceModel, PreTrainedModel]) -> None:
    name, ours, _ = family
    batch = ours.encode_image(TEXT, picture())
    tokens = batch.ids.shape[1]
    here = torch.zeros(tokens, dtype=torch.bool)
    here[list(batch.image_positions)] = True
    pairs = here[:, None] & here[None] if GROUPS.get(name) == "image" else torch.ones(tokens, tokens, dtype=torch.bool)
    later = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    assert image_mask(ours.run(batch)) == {"image": "block", "all": "prefix-lm"}.get(GROUPS.get(name, ""), "causal")
    for spec, seen in (
        (None, later & pairs if name in GROUPS else later & False),
        (MaskSpec(image_block=False), later & False),
        (MaskSpec(causal=False, window=False), later),
    ):
        trace = ours.run(batch, spec)
        for layer in range(trace.num_layers):
            assert torch.equal(trace.allowed(layer) & later, seen), (name, spec)
            weights = trace.weights(layer, 1)
            assert torch.equal(weights > 0, trace.allowed(layer))


@pytest.mark.parametrize("size", [(80, 120), (66, 64)])
def test_the_pixels_of_a_token_change_it_and_no_other(
    family: tuple[str, HuggingFaceModel, PreTrainedModel], size: tuple[int, int]
) -> None:
    """A spot in the middle of a token's box changes that token, no other token of its size, and of other tiles' tokens
    only those within reach of the processor's resizing filter."""
    name, ours, _ = family
    batch = ours.encode_image(TEXT, picture(*size))
    if name in NO_BOXES:
        assert not batch.image_tokens
        return
    levels, stacks = np.asarray(picture(*size)), ours._stacks
    arguments = stacks.arguments(stacks.body, ours._inputs(batch), None)
    positions = [token.position for token in batch.image_tokens]
    embed = embedder(stacks.body, stacks.stack, arguments, torch.tensor(positions))
    before = embed(batch.inputs["pixel_values"])
    drawn = [at for at, token in enumerate(batch.image_tokens) if min(_sides(token.box)) > 4]
    assert len(drawn) > len(batch.image_tokens) / 2
    strict = 0
    for at in drawn[:: max(len(drawn) // 7, 1)]:
        box = batch.image_tokens[at].box
        x, y = int((box[0] + box[2]) / 2), int((box[1] + box[3]) / 2)
        spot, other = (x - 1, y - 1, x + 1, y + 1), levels.copy()
        other[y - 1 : y + 1, x - 1 : x + 1] = 255 - 255 * (levels[y - 1 : y + 1, x - 1 : x + 1] > 127)
        after = embed(ours._prompts.prepare(TEXT, Image.fromarray(other))["pixel_values"])
        change, threshold = (after - before).abs().amax(-1), 1e-4 * before.abs().max()
        moved = set((change > threshold).nonzero()[:, 0].tolist())
        reach = max(size) / 32 * 3  # of a Lanczos filter over 3 of at least 32 resized pixels
        near = {index for index, token in enumerate(batch.image_tokens) if _apart(token.box, spot) < reach}
        alike = {index for index, token in enumerate(batch.image_tokens) if np.allclose(_sides(token.box), _sides(box))}
        assert at in moved
        assert moved <= near, (name, size, at)
        if min(_sides(box)) > 9:  # patches of 8 pixels or more: the filter reaches from the middle to the edge
            limit = change[at] / 20 if name in TWICE else threshold
            assert {index for index in alike if change[index] > limit} == {at}, (name, size, at)
            strict += 1
    assert strict


def _sides(box: Box) -> tuple[float, float]:
    return box[2] - box[0], box[3] - box[1]


def _apart(one: Box, other: Box) -> float:
    """Return the pixels between two boxes, 0 where they meet."""
    return max(one[0] - other[2], other[0] - one[2], one[1] - other[3], other[1] - one[3], 0)


def test_boxes_are_the_resizing_inverted(family: tuple[str, HuggingFaceModel, PreTrainedModel]) -> None:
    """Together an image's tokens cover it, except for what its processor crops."""
    name, ours, _ = family
    batch = ours.encode_image(TEXT, picture(200, 150))
    covered = np.zeros((150, 200), dtype=bool)
    for token in batch.image_tokens:
        left, top, right, bottom = token.box
        covered[round(top) : round(bottom), round(left) : round(right)] = True
    left, right = {"llava": (24, 176), "vipllava": (24, 176)}.get(name, (0, 200))  # cropped: the middle 32 of 42 pixels
    assert covered[:, left:right].all() or name in NO_BOXES
    assert not covered[:, :left].any()
    assert not covered[:, right:].any()


def test_pixels_beyond_the_last_whole_patch_are_in_no_box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """30 pixels hold three patches of 8 and leave 6, as SigLIP's 384 pixels hold 27 patches of 14 and leave 6."""
    monkeypatch.setitem(FAMILIES, "paligemma", lambda: image_families._paligemma(30))
    model = adapter.load(str(image_families.save("paligemma", tmp_path)), settings=Settings())
    tokens = model.encode_image(TEXT, picture(60, 90)).image_tokens
    assert [token.box for token in tokens[:3]] == [(0, 0, 16, 24), (16, 0, 32, 24), (32, 0, 48, 24)]
    assert tokens[-1].box == (32, 48, 48, 72)


def test_a_text_alone_is_run_as_before(family: tuple[str, HuggingFaceModel, PreTrainedModel]) -> None:
    _, ours, _ = family
    trace = ours.run(ours.encode([TEXT]))
    assert not torch.cat([trace.weights(layer, 0).triu(1) for layer in range(trace.num_layers)]).any()


def test_what_reads_no_image_says_so(tmp_path: Path) -> None:
    model = adapter.load(str(families.save("llama", tmp_path)), settings=Settings())
    with pytest.raises(NotSupported, match="reads no images"):
        model.encode_image(TEXT, picture())


@pytest.mark.parametrize(
    ("change", "message"),
    [({"size": {"shortest_edge": 10**6}}, "shortest_edge"), ({"crop_size": {"height": 10**9, "width": 8}}, "height"),
     ({"max_patches": 10**6}, "max_patches"), ({"image_seq_length": 10**9}, "image_seq_length")],
)  # fmt: skip
def test_a_processor_of_absurd_sizes_is_refused(change: dict, message: str, tmp_path: Path) -> None:
    path = image_families.save("llava", tmp_path) / "processor_config.json"
    config = json.loads(path.read_text())
    config["image_processor"] |= change
    path.write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=message):
        adapter.load(str(tmp_path), settings=Settings()).encode_image(TEXT, picture())


def test_a_text_says_where_its_image_is(tmp_path: Path) -> None:
    model = adapter.load(str(image_families.save("llava", tmp_path)), settings=Settings())
    at = [
        model.encode_image(text, picture()).image_positions[0] for text in (TEXT, "<image> " + TEXT, "cat <image> it")
    ]
    assert at == [0, 0, 1]
    with pytest.raises(ValueError, match=r"cannot take this text with this image .*Change the text or"):
        model.encode_image("<image> and <image>", picture())
    with pytest.raises(ValueError, match="at most"):
        model.run(model.encode_image("cat " * 600, picture()))
    np.testing.assert_array_equal(model.encode_image(TEXT, picture()).picture, np.asarray(picture()))


def test_threads_share_a_processor(tmp_path: Path) -> None:
    model = adapter.load(str(image_families.save("llava", tmp_path)), settings=Settings())
    alone = [model.encode_image("cat " * count, picture(60 + count, 40)) for count in range(1, 9)]
    model._prompts._boxes.clear()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda count: model.encode_image("cat " * count, picture(60 + count, 40)), range(1, 9)))
    for one, other in zip(alone, found, strict=True):
        assert torch.equal(one.ids, other.ids)
        assert one.image_tokens == other.image_tokens


def test_a_token_of_the_image_too_many_is_a_sentence(tmp_path: Path) -> None:
    ours = adapter.load(str(image_families.save("gemma3", tmp_path)), settings=Settings())
    batch = ours.encode_image("the <image> cat", picture())
    with pytest.raises(ValueError, match=r"cannot take this text with this image \(.*Change the text or"):
        ours.run(batch)


def test_the_image_mask_is_named_in_the_readers_language(tmp_path: Path) -> None:
    ours = adapter.load(str(image_families.save("paligemma", tmp_path)), settings=Settings())
    found = image_mask(ours.run(ours.encode_image(TEXT, picture())))
    with spoken("zh"):
        assert (found, say(found)) == ("prefix-lm", "前缀语言模型")


def test_where_no_token_follows_the_image_the_last_one_looks(tmp_path: Path) -> None:
    ours = adapter.load(str(image_families.save("llava", tmp_path)), settings=Settings())
    found = look(ours, np.asarray(picture(64, 64)), "the cat <image>", ours.standard, layer=1)
    last = ours.run(ours.encode_image("the cat <image>", picture(64, 64))).weights(1, 0)[-1]
    assert found.labels == ("▦16",)
    np.testing.assert_allclose(found.weights[0, 0], last[-16:], atol=1e-6)
