"""A run of an image-text model with an image in its text, in notebooks: where in the image a token attends."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from i18n import say, together
from model.errors import index
from model.huggingface.image_prompts import ImageBatch, attention_to_image, image_mask
from model.images.patches import ImageToken
from model.mask_kinds import OF_IMAGES
from unmask.pictures import Picture, Predicted, predicted, printed_file
from unmask.runs import MAX_PREDICTED, Run
from viz.hatch import picture_uri
from viz.html import tag
from viz.images import (
    ImageHeatmaps,
    composed,
    image_attention,
    image_attention_packet,
    image_attention_sentence,
    mapping_note,
    shown_at,
)
from viz.numbers import TOP, Candidate
from viz.saved.standalone import Canvas, page

MAX_REPORTED = 3  # heads whose pictures are in a report


@dataclass(frozen=True, eq=False, repr=False)
class ImageRun(Run):
    """A run with an image: all of a Run, and where in the image tokens attend."""

    @property
    def batch(self) -> ImageBatch:
        batch = self.trace.batch
        assert isinstance(batch, ImageBatch)
        return batch

    @property
    def title(self) -> str:  # type: ignore[override]
        """As Run's, with the image mask if the network lets tokens around the image see each other."""
        opened = self.image_mask not in ("causal", "none") and getattr(self.masks, OF_IMAGES) is not False
        return f"{super().title}, {self.image_mask} around the image" if opened else super().title

    @property
    def text(self) -> str:
        """The labels of its tokens, those of the image among them."""
        return "".join(self.labels)

    @property
    def image_tokens(self) -> list[ImageToken]:
        """The position of each image token in the row, and its pixels; empty if the mapping is not known."""
        return list(self.batch.image_tokens)

    @property
    def image_mask(self) -> str:
        """The image's mask as measured: "causal", "block" (an image's tokens see each other), "prefix-lm" (others do
        too), or "none" for a network without a causal mask."""
        return image_mask(self.trace)

    def _of_text(self, *_: Any, **__: Any) -> Any:
        raise ValueError("expected a run of a text alone, got one with an image")

    served = tree = packed = streamed = check = _of_text  # their models get ids alone
    ids = property(_of_text)  # a run on them would have no image

    def classes(self, most: int = TOP) -> Predicted:
        """The `most` most likely classes of an image classifier's image. Raises ValueError for another model."""
        names = getattr(self.model, "classes", {})
        if not names:
            raise ValueError(f"expected an image classifier with its classes, got {self.model.name}")
        most = min(index("number of classes", most, MAX_PREDICTED, first=1), len(names))
        self._expect_same_weights()
        found = self.model.ranked(self.trace.logits[0].softmax(-1), most)
        return predicted("class", [Candidate(*one) for one in found])

    def on_image(self, layer: int, head: int, token: int | None = None) -> Picture:
        """What a token, by its position, attends to in the image; by default the row's last one. Its numbers are
        float32 [P], a weight for each image token. Raises ValueError for a head or a token that is not there."""
        lit = self.lit(layer, head, token)
        layers = list(lit.layers())
        line = image_attention_sentence(lit)
        note = tag("p", together([line, mapping_note(lit)]))
        canvases = [Canvas("images", image_attention_packet(one, alone=len(layers) == 1)) for one in layers]
        html = partial(page, line, [note, *canvases])
        printed = partial(printed_file, "image", lit.heads[0], self.merged("tokens").title, lit)
        weights = lit.weights[0, lit.query]
        axes = {"image token": lit.names}
        return Picture(line, lit, weights, html, lambda: canvases[0], printed, axes)

    def pictures(self, heads: Sequence[tuple[int, int]]) -> list[tuple[str, str]]:
        found = []
        for layer, head in heads[:MAX_REPORTED]:
            lit = self.lit(layer, head)
            uris = [picture_uri(composed(one)) for one in lit.layers()]
            found += [(image_attention_sentence(lit) if not number else "", uri) for number, uri in enumerate(uris)]
        words = say("The network's own mask of the image tokens: {mask}.", mask=self.image_mask)
        return [(words, picture_uri(shown_at(self.batch.picture, ())[0])), *found]

    def lit(self, layer: int, head: int, token: int | None = None) -> ImageHeatmaps:
        """As `on_image`, but returns arrays."""
        self._check(layer, head)
        batch, count = self.batch, len(self.labels)
        token = self.last if token is None else index("token", token, count)
        texts = sorted({token, *range(max(batch.image_positions) + 1, count)})
        found = attention_to_image(self.trace, layer, [head], texts)
        return image_attention(found, (self.named(layer, head),), batch.picture, texts.index(token))
