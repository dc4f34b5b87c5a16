"""The captioner: a picture as 36 patches, a prompt, and a caption that a small decoder writes word by word.

A row is the image tokens, row by row from the top left, then the prompt, then the caption and <end>. A word is
predicted at the position before it, which is where its attention is looked at.
Sizes: B rows, T positions, P image tokens, N numbers of a patch, L layers, H heads, S words.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from model.base import CHECKPOINTS, files_key
from model.decoder import DecoderModel
from model.gpt2 import load_network
from model.images.patches import grid_tokens
from model.images.scenes import COLOURS, MOST_SHAPES, PROMPTS, SHAPES, SIDE, SIZES
from model.masks import MaskSpec
from model.text import TokenBatch
from model.transformer import Transformer, TransformerConfig

PATCH = 8  # pixels, across and down
GRID = SIDE // PATCH
PATCHES, NUMBERS = GRID * GRID, 3 * PATCH * PATCH
IMAGE, END = 0, 1
WORDS = ("<image>", "<end>", *PROMPTS, "a", *SIZES, *COLOURS, *SHAPES, "left", "of", "above")
ID_OF = {word: number for number, word in enumerate(WORDS)}
LONGEST = 4 * MOST_SHAPES + 2 * (MOST_SHAPES - 1) + 1  # tokens of a caption, <end> among them
CONTEXT = PATCHES + 1 + LONGEST
MASKS = {  # of the image; each a prefix language model but the first
    "causal": MaskSpec(),
    "prefix": MaskSpec(causal=False, prefix_lm=PATCHES + 1),  # PaliGemma, arXiv:2407.07726: the prompt too
    "block": MaskSpec(causal=False, prefix_lm=PATCHES),
    "window": MaskSpec(causal=False, prefix_lm=PATCHES, sliding=32),  # Gemma 3's local layers, arXiv:2503.19786
}
VERSIONS = ("causal", "prefix", "window")  # the masks that there is a model for
TOKENS = grid_tokens(0, GRID, GRID, (0, 0, SIDE, SIDE), (SIDE, SIDE))  # of a picture, in its own pixels
PATCH_NAMES = tuple(f"r{number // GRID} c{number % GRID}" for number in range(PATCHES))
FOLDER = CHECKPOINTS / "captioner"


class CaptionNetwork(Transformer):
    """A decoder whose image tokens are patches of a picture, through a linear layer."""

    more = ("patch_embedding.weight", "patch_embedding.bias")

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.patch_embedding = nn.Linear(NUMBERS, config.width)

    def inputs(self, ids: Tensor, patches: Tensor) -> Tensor:
        """ids [B,T], patches [B,T,N], which count where an image token is -> [B,T,W], for `embed`."""
        return torch.where((ids == IMAGE)[..., None], self.patch_embedding(patches), self.token_embedding(ids))


class CaptionerModel(DecoderModel):
    """One version, as the rest of the house takes a model; standard: the mask that it was trained with."""

    network: CaptionNetwork

    def __init__(self, version: str, network: CaptionNetwork, *, key: str | None = None) -> None:
        super().__init__(f"captioner-{version}", network, None, key=key)
        self.version, self.standard = version, MASKS[version]

    def inputs(self, batch: TokenBatch) -> Tensor:
        assert batch.patches is not None, "the captioner reads pictures: `encode` makes a batch of them"
        return self.network.inputs(batch.ids, batch.patches)

    def label(self, token: int) -> str:
        return WORDS[token]


def load(version: str, folder: Path = FOLDER) -> CaptionerModel:
    """Raises CheckpointError when its files cannot be used."""
    network = load_network(CaptionNetwork, folder / version)
    return CaptionerModel(version, network, key=files_key(f"captioner-{version}", folder / version))


def to_patches(pictures: np.ndarray) -> Tensor:
    """Pictures uint8 [B,SIDE,SIDE,3] -> float32 [B,P,N], -1 to 1: the patches row by row, each pixel by pixel."""
    cut = pictures.reshape(-1, GRID, PATCH, GRID, PATCH, 3).transpose(0, 1, 3, 2, 4, 5)  # [B, rows, columns, ..]
    return torch.from_numpy(cut.reshape(len(pictures), PATCHES, NUMBERS).astype(np.float32) / 127.5 - 1)


def encode(pictures: np.ndarray, prompt: str, words: Sequence[str] = ()) -> TokenBatch:
    """Pictures uint8 [B,SIDE,SIDE,3] with the same prompt and beginning of a caption: a row each, nothing padded.

    Pieces of image tokens are "r0 c5": the patch's row and column. Raises KeyError for words that it does not know.
    """
    ids = torch.tensor([IMAGE] * PATCHES + [ID_OF[word] for word in (prompt, *words)]).expand(len(pictures), -1)
    patches = nn.functional.pad(to_patches(pictures), (0, 0, 0, ids.shape[1] - PATCHES))
    pieces = ((*PATCH_NAMES, prompt, *words),) * len(pictures)
    return TokenBatch(ids, torch.ones_like(ids, dtype=torch.bool), pieces, patches=patches)
