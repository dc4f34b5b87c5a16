"""The captioner: an image as 36 patches, a prompt, and a caption that a small decoder generates word by word.

A row is the image tokens, row by row from the top left, then the prompt, then the caption and <end>. A word is
predicted at the position before it, and that position's attention is shown. On scenes with known captions, the module
measures losses, exact captions and localization: the share of a word's image attention inside the true box. Sizes: B
rows, T positions, P image tokens, N numbers of a patch, L layers, H heads, S words, Q queries, K keys.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.base import CHECKPOINTS, files_key
from model.decoder import DecoderModel
from model.gpt2 import load_network
from model.heads import merging
from model.heads.view import HeadView, head_view
from model.images import scenes
from model.images.patches import grid_tokens
from model.images.scenes import MAX_SHAPES, SHAPES, SIDE, SIZES, Scene, caption, render
from model.masks import MaskContext, MaskSpec, Stroke
from model.spec import MAX_POSITIONS
from model.text import TokenBatch
from model.trace import Trace
from model.transformer import Transformer, TransformerConfig

PATCH = 8  # pixels, across and down
GRID = SIDE // PATCH
PATCHES, NUMBERS = GRID * GRID, 3 * PATCH * PATCH
IMAGE, END = 0, 1
WORDS = ("<image>", "<end>", *scenes.PROMPTS, "a", *SIZES, *scenes.COLOURS, *SHAPES, "left", "of", "above")
ID_OF = {word: number for number, word in enumerate(WORDS)}
LONGEST = 4 * MAX_SHAPES + 2 * (MAX_SHAPES - 1) + 1  # most tokens of a caption, including <end>
CONTEXT = PATCHES + 1 + LONGEST
MASKS = {  # masks of the image; all but the first are prefix language models
    "causal": MaskSpec(),
    "prefix": MaskSpec(causal=False, prefix_lm=PATCHES + 1),  # includes the prompt: PaliGemma, arXiv:2407.07726
    "block": MaskSpec(causal=False, prefix_lm=PATCHES),
    "window": MaskSpec(causal=False, prefix_lm=PATCHES, sliding=32),  # Gemma 3's local layers, arXiv:2503.19786
}
VERSIONS = ("causal", "prefix", "window")  # the masks that a model was trained with
TOKENS = grid_tokens(GRID, GRID, (0, 0, SIDE, SIDE), (SIDE, SIDE))  # an image's tokens, in its own pixels
PATCH_NAMES = tuple(f"r{number // GRID} c{number % GRID}" for number in range(PATCHES))
FOLDER = CHECKPOINTS / "captioner"
IGNORED = -100  # a target that has no loss


class CaptionNetwork(Transformer):
    """A decoder whose image tokens are patches of an image, embedded by a linear layer."""

    more = ("patch_embedding.weight", "patch_embedding.bias")

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.patch_embedding = nn.Linear(NUMBERS, config.width)

    def inputs(self, ids: Tensor, patches: Tensor) -> Tensor:
        """Return the input embeddings [B,T,W] of ids [B,T], with patches [B,T,N] in place of image tokens."""
        return torch.where((ids == IMAGE)[..., None], self.patch_embedding(patches), self.token_embedding(ids))


class CaptionerModel(DecoderModel):
    """One version of the captioner as a Model; standard: the mask that it was trained with."""

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
    """Load one version of the captioner. Raises CheckpointError if its files cannot be used."""
    network = load_network(CaptionNetwork, folder / version)
    return CaptionerModel(version, network, key=files_key(f"captioner-{version}", folder / version))


def to_patches(pictures: np.ndarray) -> Tensor:
    """Cut images uint8 [B,SIDE,SIDE,3] into patches, row by row, each pixel by pixel: float32 [B,P,N], -1 to 1."""
    cut = pictures.reshape(-1, GRID, PATCH, GRID, PATCH, 3).transpose(0, 1, 3, 2, 4, 5)  # [B, rows, columns, ..]
    return torch.from_numpy(cut.reshape(len(pictures), PATCHES, NUMBERS).astype(np.float32) / 127.5 - 1)


def encode(pictures: np.ndarray, prompt: str, words: Sequence[str] = ()) -> TokenBatch:
    """Encode images uint8 [B,SIDE,SIDE,3] with one prompt and beginning of a caption, a row each, without padding.

    Pieces of image tokens are "r0 c5": the patch's row and column. Raises KeyError for unknown words.
    """
    ids = torch.tensor([IMAGE] * PATCHES + [ID_OF[word] for word in (prompt, *words)]).expand(len(pictures), -1)
    patches = F.pad(to_patches(pictures), (0, 0, 0, ids.shape[1] - PATCHES))
    pieces = ((*PATCH_NAMES, prompt, *words),) * len(pictures)
    return TokenBatch(ids, torch.ones_like(ids, dtype=torch.bool), pieces, patches=patches)


@dataclass(frozen=True, eq=False)
class CaptionView:
    """A caption that a model generated, or was given. words: without <end>. chances: their probabilities when they were
    generated, float32 [S], 0 to 1. loss: nats per word, including <end>.

    weights: attention of the positions that predict the words to the image, float32 [L,H,S,P]; blocked: the image
    tokens that these may not attend to, bool [S,P].
    """

    words: tuple[str, ...]
    chances: np.ndarray
    loss: float
    weights: np.ndarray
    blocked: np.ndarray


def without(spec: MaskSpec, removed: Sequence[int]) -> MaskSpec:
    """Return the spec with these patches blocked for all tokens."""
    return replace(spec, drawn=tuple(Stroke("block", 0, patch, MAX_POSITIONS, patch) for patch in removed))


def write(model: CaptionerModel, picture: np.ndarray, prompt: str, spec: MaskSpec) -> CaptionView:
    """Generate a caption, greedily, for an image uint8 [SIDE,SIDE,3]."""
    words: list[str] = []
    while len(words) < LONGEST - 1:
        likeliest = int(model.run(encode(picture[None], prompt, words), spec).next_token().argmax())
        if likeliest == END:
            break
        words.append(model.label(likeliest))
    return read(model, picture, prompt, tuple(words), spec)


@torch.inference_mode()
def read(
    model: CaptionerModel, picture: np.ndarray, prompt: str, words: tuple[str, ...], spec: MaskSpec
) -> CaptionView:
    """Return the view of a given caption. Raises KeyError for words that the model does not know."""
    trace = model.run(encode(picture[None], prompt, words), spec)
    chances = trace.logits[0, PATCHES:].softmax(-1)  # [S+1,V]
    given = chances[range(len(words) + 1), [*(ID_OF[word] for word in words), END]]
    blocked = ~trace.allowed(0)[PATCHES:-1, :PATCHES].numpy()
    loss = -float(given.clamp(min=1e-30).log().mean())
    weights = np.asarray(torch.stack([some for _, _, some in trace.blocks()])[:, :, PATCHES:-1, :PATCHES])
    return CaptionView(words, given[:-1].numpy(), loss, weights, blocked)


@dataclass(frozen=True, eq=False)
class LocatedHeads:
    """How well heads localize a caption. loss: nats per word. shares: each head's localization, 0 to 1, [L,H], the mean
    over the words for a size, a colour or a shape, NaN if one of them may attend to no patch; even: the same for
    attention spread evenly over the allowed patches.

    by_area: the same with each patch weighted by the share of its area inside the box. max_by_area: its maximum, for a
    head that attends only to the patch that lies most inside.
    """

    loss: float
    shares: np.ndarray
    even: float
    by_area: np.ndarray
    max_by_area: float


def locate(model: CaptionerModel, scene: Scene, prompt: str, spec: MaskSpec) -> LocatedHeads:
    """Measure localization on a scene. Patches that touch a box count as inside: attention within one is unknown."""
    words = caption(scene, prompt)
    found = read(model, render([scene])[0], prompt, tuple(text for text, _ in words), spec)
    described = [number for number, (text, about) in enumerate(words) if about is not None and text != "a"]
    boxes = [scene.shapes[about].box for _, about in (words[one] for one in described) if about is not None]
    area = np.array([[one.overlap(box) for one in TOKENS] for box in boxes])  # [described,P]
    weights, seen = found.weights[:, :, described], ~found.blocked[described]
    area *= seen
    image = np.where(seen.any(-1), np.maximum(weights.sum(-1), 1e-9), np.nan)
    touching, by_area = (((weights * inside).sum(-1) / image).mean(-1) for inside in (area > 0, area))
    even = ((area > 0).sum(-1) / seen.sum(-1).clip(1)).mean()
    return LocatedHeads(found.loss, touching, float(even), by_area, float(area.max(-1).mean()))


def mean_localization(model: CaptionerModel, count: int) -> LocatedHeads:
    """Return the means over held-out scenes, under the model's own mask."""
    found = [locate(model, scene, prompt, model.standard) for scene, prompt in scenes.held_out_scenes(count)]
    return LocatedHeads(*(np.mean([getattr(one, each.name) for one in found], axis=0) for each in fields(LocatedHeads)))


def batch(
    some: Sequence[tuple[Scene, str]], jitter: np.random.Generator | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Encode scenes with prompts: ids and targets [B,CONTEXT], patches [B,CONTEXT,N]; only captions have targets."""
    ids, targets = torch.full((len(some), CONTEXT), END), torch.full((len(some), CONTEXT), IGNORED)
    ids[:, :PATCHES] = IMAGE
    for row, (scene, prompt) in enumerate(some):
        words = [ID_OF[text] for text, _ in caption(scene, prompt)]
        ids[row, PATCHES : PATCHES + 1 + len(words)] = torch.tensor([ID_OF[prompt], *words])
        targets[row, PATCHES : PATCHES + 1 + len(words)] = torch.tensor([*words, END])
    patches = to_patches(render([scene for scene, _ in some], jitter))
    return ids, targets, F.pad(patches, (0, 0, 0, CONTEXT - PATCHES))


def losses_of(
    network: CaptionNetwork, spec: MaskSpec, ids: Tensor, targets: Tensor, patches: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the nats of every target [B,S], 0 where there is none, and whether each row's words are all the most
    likely ones [B]: the model would then generate the whole caption by itself."""
    allowed = MaskContext(torch.ones(1, CONTEXT, dtype=torch.bool), CONTEXT, 1).allowed(spec)  # [1,1,T,T]
    states, _ = network(network.inputs(ids, patches), torch.arange(CONTEXT), allowed)
    logits, wanted = network.logits(states[:, PATCHES:]), targets[:, PATCHES:]
    losses = F.cross_entropy(logits.transpose(1, 2), wanted, reduction="none", ignore_index=IGNORED)
    right = (logits.argmax(-1) == wanted) | (wanted == IGNORED)
    return losses, right.all(-1).float()


@torch.inference_mode()
def under_masks(model: CaptionerModel, count: int, *, unseen: bool = False) -> np.ndarray:
    """Measure nats per word and the share of exact captions, 0 to 1, on `count` held-out scenes under each mask of
    MASKS: float32 [masks,2]. unseen: see held_out_scenes."""
    part = batch(scenes.held_out_scenes(count, unseen=unseen))
    found = [losses_of(model.network, spec, *part) for spec in MASKS.values()]
    words = (part[1] != IGNORED).sum()
    return np.array([(float(losses.sum() / words), float(right.mean())) for losses, right in found], np.float32)


def folded_head(trace: Trace, row: int, masks: MaskSpec, layer: int, head: int) -> HeadView:
    """Return a head with the image tokens merged into one: their mean attention, and their total attention received."""
    view = head_view(trace, row, masks, layer, head)
    begins = np.array([0, *range(PATCHES, len(view.queries))])
    labels = [f"image ×{PATCHES}", *view.queries[PATCHES:]]
    return replace(merging.merged(view, begins, begins), queries=labels, keys=labels)
