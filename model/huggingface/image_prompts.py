"""A text with an image in it, as the network's own processor prepares it.

Sizes: T tokens of the row, including those of the image.
"""

import json
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any, Self

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from transformers import PreTrainedModel

from i18n import N_, msg
from model.errors import CheckpointError, NotSupported, first_line
from model.files import read_regular
from model.huggingface.checkpoint_files import PROCESSORS
from model.huggingface.described import SAFE
from model.huggingface.internals import processor_of
from model.huggingface.pixel_map import embedder, pixel_boxes
from model.huggingface.stacks import Inputs, OneStack, Stacks
from model.images.patches import Box, ImageToken
from model.masks import MaskSpec
from model.text import TokenBatch
from model.trace import Trace

MAX_QUERY_TOKENS = 16  # most text tokens whose attention a page shows
MAX_CACHED_SIZES = 16  # most image sizes whose token boxes are cached
MAX_SIDE, MAX_AREA = 2**13, 2**26  # most pixels per side, tokens or tiles per image; pixels per image
NEUTRAL = "Write a general description of the image."  # not shown so; Zhang et al. 2025, "MLLMs Know Where to Look"
COUNTED = re.compile("(height|width|edge|size|pixels|patches|length|seq_len|tokens|pinpoints)$")
AROUND = (("vision_start_token_id", "vision_end_token_id"), ("image_start_token_id", "image_end_token_id"))
NOT_INPUTS = {"input_ids", "attention_mask", "labels"}
READS_NO_IMAGES = N_("{model} reads no images: expected a text alone, or an image-text model with its processor")
UNREADABLE = N_("{model}: its image processor cannot be read ({why}). Its {files} must be complete.")
CANNOT_PREPARE = N_("{model}: it cannot take this text with this image ({why}). Change the text or the image")


@dataclass(frozen=True, eq=False)
class ImageBatch(TokenBatch):
    """A text with an image in it, as one row.

    picture: the image, uint8 [height, width, 3]. inputs: what the network gets besides ids and mask. image_tokens: the
    pixels of each image token, empty if no mapping is known; image_positions: the positions of all image tokens.
    groups: sets of tokens that a network's mask may let attend to each other, int64 [T] each, -1 outside.
    """

    picture: np.ndarray = field(default_factory=lambda: np.zeros((1, 1, 3), np.uint8))
    inputs: Mapping[str, Any] = field(default_factory=dict)
    image_tokens: tuple[ImageToken, ...] = ()
    image_positions: tuple[int, ...] = ()

    def rows(self, rows: Sequence[int]) -> Self:
        """Repeat the one row, with its image, once per entry of `rows`."""
        repeated = {
            name: torch.cat([value] * len(rows)) if isinstance(value, Tensor) else value
            for name, value in self.inputs.items()
        }
        return replace(super().rows(rows), inputs=repeated)

    def distinct_ids(self, row: int) -> Tensor:
        """Return ids that differ for each image token: image tokens share an id, but not their content."""
        ids, positions = super().distinct_ids(row).clone(), list(self.image_positions)
        ids[positions] = -1 - torch.tensor(positions)
        return ids

    @property
    def groups(self) -> tuple[Tensor, ...]:
        """Four groupings: runs of image tokens; all image tokens; all tokens up to the last of them; the whole row."""
        here = torch.zeros(self.ids.shape[1], dtype=torch.bool)
        here[list(self.image_positions)] = True
        runs = (here & ~here.roll(1)).long().cumsum(0) - 1
        before = torch.arange(len(here)) <= max(self.image_positions, default=-1)
        return runs.where(here, -1), -(~here).long(), -(~before).long(), torch.zeros_like(runs)


def image_mask(trace: Trace) -> str:
    """Return the network's own mask around an image, as measured by this run of an ImageBatch: "causal", "block" if the
    image tokens attend to each other, "prefix-lm" if other tokens do too, with the number of layers if not all have it;
    "none" for an encoder."""
    assert isinstance(trace.batch, ImageBatch)
    if "causal" not in trace.layers[0].context.on(trace.layers[0].context.standard):
        return msg("none")
    found = [record.context.groups for record in trace.layers if record.context.groups is not None]
    if not found:
        return msg("causal")
    kind = msg("block") if (found[0] >= 0).sum() == len(trace.batch.image_positions) else msg("prefix-lm")
    values = {"mask": kind, "count": len(found), "total": trace.num_layers}
    return kind if len(found) == trace.num_layers else msg("{mask} in {count} of {total} layers", **values)


@dataclass(frozen=True, eq=False)
class ImageAttention:
    """The attention of a layer's heads to an image. labels: of the S query tokens; names and boxes: of the P image
    tokens, boxes empty if no mapping is known. weights: float32 [H,S,P]; blocked: for each mask that is on, bool [S,P],
    True = it blocks the cell. mask: see image_mask. unmapped: the number of further image tokens, which cover no pixels
    (line breaks, padding). neutral: attention of a neutral prompt's last token, float32 [H,P], if it was requested."""

    labels: tuple[str, ...]
    names: tuple[str, ...]
    boxes: tuple[Box, ...]
    weights: np.ndarray
    blocked: dict[str, np.ndarray]
    mask: str
    unmapped: int
    neutral: np.ndarray | None = None


def look(model: Any, pixels: np.ndarray, text: str, spec: MaskSpec, layer: int, neutral: str = "") -> ImageAttention:
    """Run a model on a text and an image, uint8 [height, width, 3], and return the attention of every head of a layer
    to the image: from the text tokens after it, at most MAX_QUERY_TOKENS, or from the last token if none follows.
    neutral: a prompt for a second run, unless empty.

    Raises ValueError as encode_image and run do.
    """
    if not hasattr(model, "encode_image"):
        raise ValueError(msg(READS_NO_IMAGES, model=model.name))
    if neutral:
        last = look(model, pixels, neutral, spec, layer).weights[:, -1]
        return replace(look(model, pixels, text, spec, layer), neutral=last)
    trace = model.run(model.encode_image(text, Image.fromarray(pixels)), spec)
    tokens = trace.batch.ids.shape[1]
    after = list(range(max(trace.batch.image_positions) + 1, tokens))[-MAX_QUERY_TOKENS:] or [tokens - 1]
    return attention_to_image(trace, layer, range(trace.num_heads), after)


def attention_to_image(trace: Trace, layer: int, heads: Sequence[int], texts: Sequence[int]) -> ImageAttention:
    """Return the attention to the image from the tokens at the positions `texts`."""
    batch = trace.batch
    assert isinstance(batch, ImageBatch)
    boxes = {one.position: one.box for one in batch.image_tokens}
    keys, pieces = list(boxes or batch.image_positions), batch.pieces[0]
    cells, unmapped = np.ix_(texts, keys), len(batch.image_positions) - len(keys)
    weights = np.stack([trace.weights(layer, head).numpy()[cells] for head in heads])
    labels, names = (tuple(pieces[at] for at in some) for some in (texts, keys))
    blocked = {name: mask.numpy()[cells] for name, mask in trace.blocked_by(layer, head=heads[0]).items()}
    return ImageAttention(labels, names, tuple(boxes.values()), weights, blocked, image_mask(trace), unmapped)


class ImagePrompts:
    """A preparation of texts with an image for a network, by its own processor."""

    def __init__(self, name: str, stacks: Stacks, source: Any) -> None:
        """source: a folder, or a processor in memory. Raises NotSupported if it has no image processor."""
        config = stacks.network.config
        if isinstance(source, Path) and (kind := processor_of(config)):
            try:
                check_sizes(source)
                source = kind.from_pretrained(source, **SAFE)  # type: ignore[attr-defined]
            except Exception as error:  # noqa: BLE001 - a damaged file may make its reader raise anything
                why = msg(UNREADABLE, model=name, why=first_line(error), files=" and ".join(PROCESSORS))
                raise CheckpointError(why) from None
        self.processor = source
        if getattr(self.processor, "image_processor", None) is None or not isinstance(stacks, OneStack):
            raise NotSupported(msg(READS_NO_IMAGES, model=name))
        self._name, self._config, self._stacks = name, config, stacks
        self._boxes: dict[Hashable, list[Box | None]] = {}
        self._lock = Lock()  # transformers' tokenizers are not thread-safe

    def encode(self, text: str, picture: Image.Image, label: Callable[[int], str]) -> ImageBatch:
        """Return the row of a text with an image, see HuggingFaceModel.encode_image. label: what to show for an id."""
        found = self.prepare(text, picture)
        ids, numbers = found["input_ids"], count(1)
        token = getattr(self._config, "image_token_id", None)
        if not isinstance(token, int):
            template = N_("{model}: its text has no image token. Choose another model")
            raise NotSupported(msg(template, model=self._name))
        batch = ImageBatch(
            ids,
            torch.ones_like(ids, dtype=torch.bool),
            (tuple(f"▦{next(numbers)}" if one == token else label(one) for one in ids[0].tolist()),),
            cut=("",),
            picture=np.asarray(picture),
            inputs={name: value for name, value in found.items() if name not in NOT_INPUTS},
            image_positions=tuple((ids[0] == token).nonzero()[:, 0].tolist()),
        )
        boxes = zip(batch.image_positions, self._pixel_boxes(batch, text, picture.size), strict=False)
        return replace(batch, image_tokens=tuple(ImageToken(at, box) for at, box in boxes if box is not None))

    def _pixel_boxes(self, batch: ImageBatch, text: str, size: tuple[int, int]) -> list[Box | None]:
        """Return the tokens' pixels, see pixel_map, cached by the image's size and its number of tokens."""
        key = size, len(batch.image_positions)
        found = self._boxes.get(key)
        if found is None:
            network, body = self._stacks.network, self._stacks.body
            ids, image = batch.ids.to(network.device), on_device(batch.inputs, network)
            arguments = self._stacks.arguments(body, Inputs(ids, torch.ones_like(ids).bool(), image=image), None)
            embed = embedder(body, self._stacks.stack, arguments, torch.tensor(batch.image_positions))
            try:
                found = pixel_boxes(lambda image: self.prepare(text, image), embed, size)
            except Exception:  # noqa: BLE001 - an unusual network may raise anything; it then has no mapping
                found = []
            if len(self._boxes) >= MAX_CACHED_SIZES:
                self._boxes.clear()
            self._boxes[key] = found
        return found

    def prepare(self, text: str, picture: Image.Image) -> dict[str, Any]:
        """Return ids, mask and pixels of one row. The image comes first unless the text contains its token.

        Raises ValueError for what the processor refuses.
        """
        token = getattr(self.processor, "image_token", None)
        if isinstance(token, str) and token not in text:
            for pair in AROUND:  # ids around the image token in training
                ids = [getattr(self._config, name, None) for name in pair]
                if all(isinstance(one, int) for one in ids):
                    start, end = self.processor.tokenizer.convert_ids_to_tokens(ids)
                    token = f"{start}{token}{end}"
                    break
            text = f"{token}{text}"
        try:
            with self._lock:
                return dict(self.processor(images=picture, text=text, return_tensors="pt"))
        except Exception as error:  # noqa: BLE001 - processors may raise anything
            raise ValueError(msg(CANNOT_PREPARE, model=self._name, why=first_line(error))) from None


def on_device(inputs: Mapping[str, Any], network: PreTrainedModel) -> dict[str, Any]:
    """Move the inputs to the network's device and its precision."""
    device, dtype = network.device, network.dtype
    tensors = {name: value.to(device) for name, value in inputs.items() if isinstance(value, Tensor)}
    return {**inputs, **{name: one.to(dtype) if one.is_floating_point() else one for name, one in tensors.items()}}


def check_sizes(folder: Path) -> None:
    """Check the sizes in a processor's files, which would be allocated before any image is seen. Raises ValueError."""
    for path in (folder / file for file in PROCESSORS if (folder / file).is_file()):
        _check(json.loads(read_regular(path, MAX_AREA)))


def _check(data: Any, name: str = "", merges: bool = False) -> None:
    """merges: whether patches are merged, so that the edges of a size are counts of pixels."""
    if isinstance(data, dict | list | tuple):
        for key, value in data.items() if isinstance(data, dict) else ((name, value) for value in data):
            _check(value, key, merges or "merge_size" in data)
    elif COUNTED.search(name) and isinstance(data, int | float):
        area = "pixels" in name or (merges and name.endswith("edge"))
        limit = MAX_AREA if area else MAX_SIDE
        if not abs(data) <= limit:
            raise ValueError(msg("{name}: expected at most {most:,}, got {got}", name=name, most=limit, got=data))
