"""Tests of image classifiers against transformers' own eager attention, on tiny random checkpoints."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf
from PIL import Image
from transformers.models.bit.image_processing_pil_bit import BitImageProcessorPil
from transformers.models.deit.image_processing_pil_deit import DeiTImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

import unmask
from model.errors import CheckpointError, TooLarge
from tests.model.huggingface.image_families import picture
from tests.tensors import largest_difference
from unmask.images import ImageRun

SIZES = {
    "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 37, "image_size": 32,
    "patch_size": 8, "num_labels": 5,
}  # fmt: skip
SQUARE = {"height": 32, "width": 32}
CROPPED = DeiTImageProcessorPil(size={"height": 40, "width": 40}, crop_size=SQUARE)
FAMILIES = {  # the configuration, the processor, and the tokens before the patches
    "vit": (hf.ViTConfig(**SIZES), ViTImageProcessorPil(size=SQUARE), ["[CLS]"]),
    "deit": (hf.DeiTConfig(**SIZES), CROPPED, ["[CLS]", "[DIST]"]),
    "dinov2": (hf.Dinov2Config(**SIZES, mlp_ratio=2),
               BitImageProcessorPil(size={"shortest_edge": 36}, crop_size=SQUARE), ["[CLS]"]),
    "dinov2_with_one_register": (hf.Dinov2WithRegistersConfig(**SIZES, mlp_ratio=2, num_register_tokens=1),
                                 BitImageProcessorPil(size={"shortest_edge": 36}, crop_size=SQUARE),
                                 ["[CLS]", "[REG1]"]),
    "dinov2_with_registers": (hf.Dinov2WithRegistersConfig(**SIZES, mlp_ratio=2, num_register_tokens=4),
                              BitImageProcessorPil(size={"shortest_edge": 36}, crop_size=SQUARE),
                              ["[CLS]", "[REG1]", "[REG2]", "[REG3]", "[REG4]"]),
}  # fmt: skip


def save(name: str, folder: Path) -> Path:
    config, processor, _ = FAMILIES[name]
    torch.manual_seed(5)
    kind = hf.DeiTForImageClassification if name == "deit" else None  # DeiT has two classifier classes
    network = kind(config) if kind else hf.AutoModelForImageClassification.from_config(config)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    network.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("name", FAMILIES)
def test_a_classifier_is_as_transformers_has_it(name: str, tmp_path: Path) -> None:
    run = unmask.load(str(save(name, tmp_path))).run(image=picture(60, 40))
    assert isinstance(run, ImageRun)
    theirs = hf.AutoModelForImageClassification.from_pretrained(tmp_path, attn_implementation="eager").eval()
    with torch.inference_mode():
        out = theirs(**FAMILIES[name][1](picture(60, 40), return_tensors="pt"), output_attentions=True)
    assert largest_difference(run.trace.logits, out.logits) <= 1e-5
    for layer, weights in enumerate(out.attentions):
        shown = torch.stack([run.trace.weights(layer, head) for head in range(4)])
        assert largest_difference(shown, weights[0]) <= 1e-6
    assert run.labels == [*FAMILIES[name][2], *(f"▦{number}" for number in range(1, 17))]
    assert np.isnan(run.measures()["duplicate"]).all()  # no token occurs twice
    top = run.classes(2)
    assert top.candidates[0].label == f"LABEL_{out.logits.argmax()}"
    assert top.numpy().tolist() == pytest.approx(out.logits.softmax(-1)[0].topk(2).values.tolist(), abs=1e-5)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_class_token_and_every_patch_look_at_the_image(name: str, tmp_path: Path) -> None:
    run = unmask.load(str(save(name, tmp_path))).run(image=picture(60, 40))
    before = len(FAMILIES[name][2])
    assert [token.position for token in run.image_tokens] == list(range(before, before + 16))
    resized = tuple(at * 60 / 54 for at in (11, 2, 19, 10))  # to 54 × 36, then cropped to the middle 32 × 32
    first = {"vit": (0, 0, 15, 10), "deit": (6, 4, 18, 12)}.get(name, resized)
    assert run.image_tokens[0].box == pytest.approx(first, abs=1e-3)
    for token in (0, before + 5):
        drawn = run.on_image(2, 1, token)
        assert torch.equal(torch.tensor(drawn.numpy()), run.trace.weights(2, 1)[token, before:])
        assert drawn.view.labels == (run.labels[token],)
    assert run.image_mask == "none"
    assert run.under({"sliding": 3}).view(0, 0).weights[0, 5] == 0


def test_patches_need_not_be_as_many_across_as_down(tmp_path: Path) -> None:
    size = {"height": 16, "width": 32}
    hf.ViTForImageClassification(hf.ViTConfig(**SIZES | {"image_size": (16, 32)})).save_pretrained(tmp_path)
    ViTImageProcessorPil(size=size).save_pretrained(tmp_path)
    run = unmask.load(str(tmp_path)).run(image=picture(60, 40))
    assert run.labels == ["[CLS]", *(f"▦{number}" for number in range(1, 9))]
    assert run.image_tokens[-1].box == pytest.approx((45, 20, 60, 40), abs=1e-3)
    assert run.on_image(2, 1).numpy().shape == (8,)


def test_what_a_classifier_does_not_do_is_said(tmp_path: Path) -> None:
    vit = unmask.load(str(save("vit", tmp_path)))
    for arguments in ({"text": "a cat", "image": picture()}, {"text": "a cat"}):
        with pytest.raises(ValueError, match="reads an image and no text"):
            vit.run(**arguments)
    with pytest.raises(ValueError, match="expected an image, as run"):
        vit.run()
    with pytest.raises(ValueError, match="1 × 10000"):
        vit.run(image=Image.new("RGB", (1, 10_000)))
    (tmp_path / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(CheckpointError):
        unmask.load(str(tmp_path))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_of_16_bits_are_computed_with_in_float32(dtype: torch.dtype, tmp_path: Path) -> None:
    save("vit", tmp_path)
    network = hf.ViTForImageClassification.from_pretrained(tmp_path).to(dtype)
    network.save_pretrained(tmp_path)
    found = unmask.load(str(tmp_path)).run(image=picture(32, 32))
    with torch.inference_mode():
        out = network.float()(**FAMILIES["vit"][1](picture(32, 32), return_tensors="pt"))
    assert largest_difference(found.trace.logits, out.logits) <= 1e-5


def test_the_limit_on_weights_counts_what_is_computed_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save("vit", tmp_path)
    network = hf.ViTForImageClassification.from_pretrained(tmp_path).to(torch.bfloat16)
    network.save_pretrained(tmp_path)
    monkeypatch.setenv("UNMASK_PRECISION", "bfloat16")
    monkeypatch.setenv("UNMASK_MAX_WEIGHTS_GB", str(3 * network.num_parameters() / 1e9))  # 2 to 4 bytes each
    with pytest.raises(TooLarge):
        unmask.load(str(tmp_path))


def test_a_classifier_of_more_weights_than_its_files_hold_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save("vit", tmp_path) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"intermediate_size": 10**9}))
    monkeypatch.setattr(hf.PreTrainedModel, "from_pretrained", lambda *_, **__: pytest.fail("the weights were read"))
    with pytest.raises(TooLarge, match="GB of memory for its weights"):
        unmask.load(str(tmp_path))


@pytest.mark.parametrize("given", [{"precision": "bfloat16"}, {"device_map": "auto"}, {"tokens": 64}])
def test_what_a_classifier_does_not_follow_is_refused(given: dict, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"expected no {next(iter(given))} for .*, which runs in float32 on the CPU"):
        unmask.load(str(save("vit", tmp_path)), **given)
