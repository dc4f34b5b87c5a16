"""Several documents packed into one row, as in training, under the conventions in use: which of them keep the documents
apart is told by each document's loss, packed and alone.

Sizes: T positions of a row, D documents.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from i18n import N_, msg
from model.base import Model
from model.inference.cost import SPLIT, lengths_within
from model.kv_cache import batch_of
from model.spec import MaskSpec
from model.text import TokenBatch

CONVENTIONS = {  # whether documents are masked from each other, and whether positions begin again in each
    "both": (True, True),
    "mask": (True, False),
    "positions": (False, True),
    "neither": (False, False),
}


@dataclass(frozen=True, eq=False)
class PackedLosses:
    """sizes: tokens of each document. alone: float32 [D], nats, the mean loss of each document's tokens after its first
    when it is run alone. packed: the same within the row, by convention. differences: by convention, the largest
    difference between a document's logits in the row and alone; size: the largest of those.
    """

    sizes: list[int]
    alone: np.ndarray
    packed: dict[str, np.ndarray]
    differences: dict[str, float]
    size: float


@torch.inference_mode()
def pack(model: Model, batch: TokenBatch, documents: str | Sequence[int]) -> PackedLosses:
    """The only row of a batch as documents, under each of CONVENTIONS.

    documents: what they end with, or how many tokens each has; what is left is one more.
    Raises ValueError for fewer than two documents, and what Model.run raises.
    """
    if isinstance(documents, str):
        separator = documents
    else:
        separator, batch = ".", _marked(batch, documents)
    parts = batch.split(separator)[0]
    sizes = [size for size in torch.bincount(parts).tolist() if size]
    if len(sizes) < 2 and documents == separator:
        if not separator:
            raise ValueError(msg("expected a separator of documents, got none: type one"))
        words = N_(
            "expected a text of several documents, got one: “{separator}” does not split it. Choose another separator, "
            "or give the number of tokens of each document"
        )
        raise ValueError(msg(words, separator=documents))
    if len(sizes) < 2:
        words = N_("expected the lengths of several documents, got one of all {count}: give a smaller number")
        raise ValueError(msg(words, count=sizes[0]))
    texts = batch.ids[0].split(sizes)
    alone = [logits_of(model, batch_of(model, tuple(text.tolist())), model.standard) for text in texts]
    restarting = torch.cat([torch.arange(size) for size in sizes])[None]
    packed, differences = {}, {}
    for name, (masked, restarted) in CONVENTIONS.items():
        spec = model.standard.replace(**{SPLIT: separator}) if masked else model.standard
        row = logits_of(model, replace(batch, positions=restarting) if restarted else batch, spec).split(sizes)
        packed[name] = _losses(row, texts)
        differences[name] = max(float((one - other).abs().max()) for one, other in zip(row, alone, strict=True))
    size = max(float(one.abs().max()) for one in alone)
    return PackedLosses(sizes, _losses(alone, texts), packed, differences, size)


def _marked(batch: TokenBatch, sizes: Sequence[int]) -> TokenBatch:
    """The batch as if its text had a letter for each token, and a full stop for the last one of each document."""
    tokens = batch.ids.shape[1]
    ends = set(np.cumsum(lengths_within(tokens, sizes)).tolist())
    text = "".join("." if place in ends else "x" for place in range(1, tokens + 1))
    return replace(batch, texts=(text,), ends=(tuple(range(1, tokens + 1)),))


def logits_of(model: Model, batch: TokenBatch, spec: MaskSpec) -> Tensor:
    """[T,V] of a batch's only row."""
    return model.readout(model.run(batch, spec).states)[0].float()


def _losses(logits: Sequence[Tensor], texts: Sequence[Tensor]) -> np.ndarray:
    """float32 [D], nats: of each text's tokens after its first; NaN for a text of one token."""
    pairs = zip(logits, texts, strict=True)
    return torch.stack([F.cross_entropy(some[:-1], text[1:].to(some.device)) for some, text in pairs]).cpu().numpy()
