"""transformers' image classifiers (ViT, DeiT, DINOv2): a class token and patches that all attend to each other.

Sizes: T tokens, the class token included; C classes.
"""

from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from transformers import AutoImageProcessor, AutoModelForImageClassification, PreTrainedModel

from i18n import N_, msg
from model.base import Description, HeadEdit, Model, check_finite
from model.errors import CheckpointError, first_line
from model.huggingface.attention_hook import NAME, AttentionRun
from model.huggingface.checkpoint_files import allowed_folder, check_folder
from model.huggingface.described import SAFE, check_described, configuration
from model.huggingface.image_prompts import ImageBatch, check_sizes
from model.huggingface.pixel_map import pixel_boxes
from model.huggingface.probe import Probe, far_positions
from model.huggingface.recording import Recording
from model.huggingface.stacks import intercepted, logits_of
from model.huggingface.verify import check_logits
from model.images.patches import ImageToken
from model.masks import MaskSpec
from model.text import TokenBatch
from model.trace import Trace
from serving.settings import Settings


class ImageClassifier(Model):
    """A model of an image without text; its trace's logits are those of the classes, [1,C]. classes: id -> name."""

    network: PreTrainedModel
    kind, standard, predicts = "encoder", MaskSpec(causal=False), False

    def __init__(self, name: str, network: Any, processor: Any, classes: dict[int, str]) -> None:
        """Raises NotSupported for a network whose results differ with Unmask's attention."""
        self.network, self._processor, self.classes = network, processor, classes
        levels = np.arange(64 * 64 * 3).reshape(64, 64, 3) % 251
        batch = self.encode_image("", Image.fromarray(levels.astype(np.uint8)))
        with torch.inference_mode():
            expected = network(**batch.inputs).logits
            network.set_attn_implementation(NAME)
            probe = Probe({"self": batch.keep}, (), far_positions((), batch.ids.shape[1]))
            self._logits(probe, batch)
        self._sites = tuple(probe.sites)
        heads, size = self._sites[0].heads[0], sum(site.bytes_per_token for site in self._sites)
        context = batch.ids.shape[1]
        super().__init__(name, num_layers=len(self._sites), num_heads=heads, context=context, bytes_per_token=size)
        check_logits(self.run(batch).logits[:, None], expected[:, None], batch.keep[:, :1])

    def _logits(self, run: AttentionRun, batch: ImageBatch) -> Tensor:
        """Return the logits [1,C], with the attentions computed by run."""
        with intercepted(run, self.network, 1):
            return logits_of(self.network(**batch.inputs))

    def encode(self, texts: list[str], pad_side: str = "right", targets: list[str] | None = None) -> TokenBatch:
        raise ValueError(msg("{model} reads an image and no text", model=self.name))

    @torch.inference_mode()
    def encode_image(self, text: str, picture: Image.Image) -> ImageBatch:
        """Return one row: the class token, other tokens that a network has before its patches, and the patches. Raises
        ValueError for a text."""
        if text:
            self.encode([text])
        values = self._prepare(picture)["pixel_values"]
        embed: Any = self.network.get_submodule(f"{self.network.base_model_prefix}.embeddings")
        tokens = embed(values).shape[1]
        before = tokens - embed.patch_embeddings(values).shape[1]  # ViT has 1, DeiT 2, DINOv2 with registers 5
        distilled = hasattr(embed, "distillation_token")
        names = ("[CLS]", *("[DIST]" if distilled else f"[REG{number}]" for number in range(1, before)))
        boxes = pixel_boxes(self._prepare, lambda some: embed(some)[0, before:], picture.size)
        patches = range(before, tokens)
        return ImageBatch(
            torch.arange(tokens)[None],  # not vocabulary ids: every token is distinct
            torch.ones(1, tokens, dtype=torch.bool),
            ((*names, *(f"▦{number}" for number in range(1, tokens - before + 1))),),
            picture=np.asarray(picture),
            inputs={"pixel_values": values},
            image_tokens=tuple(ImageToken(at, box) for at, box in zip(patches, boxes, strict=False) if box is not None),
            image_positions=tuple(patches),
        )

    def _prepare(self, picture: Image.Image) -> dict[str, Any]:
        return dict(self._processor(images=picture, return_tensors="pt"))

    def label(self, token: int) -> str:
        return self.classes.get(token, str(token))

    def describe(self) -> Description:
        return self.described(architecture=type(self.network).__name__, masks=())

    @torch.inference_mode()
    def run(self, batch: TokenBatch, spec: MaskSpec | None = None, edit: HeadEdit | None = None) -> Trace:
        assert isinstance(batch, ImageBatch)
        spec = spec or self.standard
        spec.check_scope(self.num_layers, self.num_heads)
        run = Recording(self._sites, spec, {"self": batch.keep}, standard=self.standard, edit=edit)
        logits = self._logits(run, batch)
        return Trace(batch, spec, run.layers()["self"], logits, self.readout)

    def readout(self, states: Tensor) -> Tensor:
        return states


def load(name: str) -> ImageClassifier:
    """Load a classifier from a folder of safetensors. Raises CheckpointError and its subclasses."""
    settings = Settings.from_environment()
    folder = allowed_folder(name, settings)
    check_folder(name, folder, settings.model_copy(update={"precision": "float32"}))  # its only precision
    config = configuration(name, folder)
    check_described(name, config, torch.float32, settings, AutoModelForImageClassification)
    try:
        check_sizes(folder)
        processor = AutoImageProcessor.from_pretrained(folder, **SAFE)
        network, found = AutoModelForImageClassification.from_pretrained(
            folder,
            config=config,
            dtype=torch.float32,
            use_safetensors=True,
            attn_implementation="eager",
            output_loading_info=True,
            **SAFE,
        )
    except Exception as error:  # noqa: BLE001 - a damaged file may make its reader raise anything
        template = N_("{model}: it cannot be read ({why}). Fetch its files again")
        raise CheckpointError(msg(template, model=name, why=first_line(error))) from None
    check_finite(name, network)
    classes = {} if found["missing_keys"] else network.config.id2label
    return ImageClassifier(name, network.eval().requires_grad_(False), processor, classes)
