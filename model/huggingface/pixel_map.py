"""A measured mapping from image tokens back to pixels, inverting a processor's resizing, cropping, tiling and merging.

Two ramps sent through the processor give the pixel that each of its outputs was made from. Which outputs a token is
made from is guessed (`_cells`) and then verified by changing them: in pass b, with the towers' attention off, changing
the outputs of every token whose number has bit b must change these tokens and no others. A mapping that fails is
discarded. Sizes: N tiles, T image tokens. A processor's flat patches are put together to one tile.
"""

import copy
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from model.huggingface import internals
from model.huggingface.attention_hook import NAME, AttentionReached, ScriptedAttention, active_run
from model.huggingface.stacks import Replacement
from model.images.patches import Box, clipped

GOLDEN = 0.618034  # dither step: the fractional parts of its multiples are evenly spread
CHANGED = 1e-5  # of the largest embedding value; unchanged embeddings are bitwise equal
EMPTY = 1e-6  # pixels; a token that covers less of the image covers none of it
Cell = tuple[int, ...]  # tile, left, top, right, bottom, in processed pixels
Cells = list[Cell | None]  # one per token, None for a token made from no pixels
Size = tuple[int, ...]  # height and width
Prepare = Callable[[Image.Image], Mapping[str, Any]]  # from an image to a network's inputs
Embed = Callable[[Tensor], Tensor]  # from pixel values to the image tokens' embeddings [T,W]


def pixel_boxes(pixels_of: Prepare, embed: Embed, size: tuple[int, int]) -> list[Box | None]:
    """Return the pixels of each image token, None for one without any (padding, a line break); an empty list if no
    mapping is known. size: the image's width and height."""
    inputs = pixels_of(_ramps(size))
    values = inputs.get("pixel_values")
    if not isinstance(values, Tensor):
        return []
    black, white = (pixels_of(Image.new("RGB", size, tone))["pixel_values"] for tone in ("black", "white"))
    share = torch.where(white == black, torch.nan, (values - black) / (white - black))
    grid = next((value[0].tolist()[1:] for name, value in inputs.items() if name.endswith("grid_thw")), None)
    shape = (*share.shape[:-3], 1, *share.shape[-2:])  # broadcasts a plane [N,H,W] on the tiles to the pixel values
    tiles, spread = share.reshape(-1, *share.shape[-3:]), lambda plane: plane.reshape(shape)
    if grid is not None:
        tiles, spread = _join_patches(share, *grid)
    regions, tokens = [_region(tile, size) for tile in tiles], embed(values)
    while len(regions) > 1 and regions[-1] is None:  # drop tiles of padding alone
        regions.pop()
    cells = _cells(len(tokens), regions, tiles.shape[-2:]) if regions and all(regions) else []
    planes = torch.zeros(len(tiles), *tiles.shape[-2:])
    side = max((cell[3] - cell[1] for cell in cells if cell is not None), default=0)
    for less in range(side, 0, -1):  # a tile may be some pixels larger than its patches
        if tiles.shape[-1] // less != tiles.shape[-1] // side:
            break
        scaled = [cell and (cell[0], *(edge // side * less for edge in cell[1:])) for cell in cells]
        if _verify_cells(values, tokens, scaled, embed, planes, spread):
            return [None if cell is None else _box(cell, regions[cell[0]], tiles.shape[-2:], size) for cell in scaled]
    return []


def embedder(body: nn.Module, stack: nn.Module, inputs: dict[str, Any], positions: Tensor) -> Embed:
    """Return a function from pixel values to a stack's inputs at the image tokens' positions, with all attention before
    the stack set to 0, so that each patch is embedded alone. The network is not changed."""
    shared: dict[int, Any] = {id(one): one for one in (*body.parameters(), *body.buffers())}
    alone = copy.deepcopy(body, shared | {id(stack): _End(stack)})
    internals.set_attention_name(alone, NAME, [alone])  # changes the copy's configurations
    for module in alone.modules():
        if re.search("Att(?!.*(Layer|Block))", type(module).__name__):
            module.register_forward_hook(
                lambda _, __, output: (output[0] * 0, *output[1:]) if isinstance(output, tuple) else output * 0
            )

    def embed(values: Tensor) -> Tensor:
        try:
            with torch.inference_mode(), active_run(ScriptedAttention()):
                alone(**inputs | {"pixel_values": values.to(inputs["pixel_values"])})
        except AttentionReached as reached:
            found: Tensor = reached.args[0]
            return found[0, positions].float().cpu()
        raise AssertionError("a network's body runs its stack")  # not shown

    return embed


class _End(Replacement):
    """A replacement for a stack that ends the forward pass there."""

    def forward(self, *_: Any, inputs_embeds: Tensor, **__: Any) -> None:
        raise AttentionReached(inputs_embeds)


def _ramps(size: tuple[int, int]) -> Image.Image:
    """Return an image whose red grows from left to right and green from top to bottom, from 0 to 1 over the whole
    image, dithered so that a mean of several pixels is finer than their levels."""
    (wide, high), levels = size, np.zeros((size[1], size[0], 3))
    x, y = np.arange(wide), np.arange(high)[:, None]
    levels[..., 0] = 255 * (x + 0.5) / wide + y * GOLDEN % 1
    levels[..., 1] = 255 * (y + 0.5) / high + x * GOLDEN % 1
    return Image.fromarray(levels.clip(0, 255).astype(np.uint8))


def _join_patches(values: Tensor, rows: int, columns: int) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Join flat patches [rows · columns, ..], in any order, into one tile: each patch's ramp gives its position. Also
    return a function from numbers on the tile [1,H,W] to the same numbers on the pixel values."""
    frames = (values[0].numel() // 3, values[0].numel() // 6)  # one frame, or two equal ones
    side = next(round(area**0.5) for area in frames if round(area**0.5) ** 2 == area)
    patches = values.reshape(len(values), 3, -1, side, side)[:, :, 0]
    x, y = ((patches[:, channel].nanmean((1, 2)) * count).long() for channel, count in ((0, columns), (1, rows)))
    whole = torch.full((3, rows, side, columns, side), torch.nan)
    whole[:, y, :, x] = patches
    shape = [len(values), *[1] * (values.ndim - 1)]
    return whole.reshape(1, 3, rows * side, columns * side), lambda plane: plane[0, y * side, x * side].reshape(shape)


def _region(tile: Tensor, size: tuple[int, int]) -> Box | None:
    """Return what a tile [3,H,W] covers, in the image's pixels; padding extends beyond the image. None if its pixels
    are not those of a resized image in the same order."""
    ends = []
    for channel, length in enumerate(size):
        line = tile[channel].nanmean(channel).double()
        inner = (line > 0.1) & (line < 0.9)  # pixels near an edge are resized differently
        at, here = (some[inner if inner.sum() > 2 else ~line.isnan()] for some in (torch.arange(len(line)), line))
        if len(at) < 2:
            return None
        centred = at - at.double().mean()
        slope = float((centred * (here - here.mean())).sum() / centred.square().sum())
        whole = round(1 / max(slope, 1e-6))  # pixels of the whole resized image
        before = float((here * whole - at - 0.5).mean())
        if abs(before - round(before)) > 0.3:
            return None
        ends.append([(round(before) + edge) * length / whole for edge in (0, len(line))])
    return ends[0][0], ends[1][0], ends[0][1], ends[1][1]


def _cells(tokens: int, regions: list[Any], tile: Size) -> Cells:
    """Guess the cells: each tile's tokens row by row; or the first tile's, then all others' together row by row,
    without rows or columns of padding and with a token at the end of each row (LLaVA-NeXT)."""
    rows = round((tokens / len(regions) * tile[0] / tile[1]) ** 0.5)
    columns = round(rows * tile[1] / tile[0])
    if rows * columns * len(regions) == tokens and rows * tile[1] == columns * tile[0]:
        return [cell for number in range(len(regions)) for cell in _rows(rows, columns, number, tile)]
    for side in range(1, int(tokens**0.5) + 1) if len(regions) > 1 else ():
        if found := _packed(tokens - side * side, side, regions, tile):
            return [*_rows(side, side, 0, tile), *found]
    return []


def _rows(rows: int, columns: int, number: int, tile: Size) -> Cells:
    high, wide = tile[0] // rows, tile[1] // columns
    corners = [(x * wide, y * high) for y in range(rows) for x in range(columns)]
    return [(number, x, y, x + wide, y + high) for x, y in corners]


def _packed(tokens: int, side: int, regions: list[Box], tile: Size) -> Cells:
    """side: rows and columns of a tile."""
    across = sum(region[1] == regions[1][1] for region in regions[1:])
    rows, columns = (len(regions) - 1) // across * side, across * side
    cut = [(y, 0) for y in range(rows // 2)] + [(0, x) for x in range(1, columns // 2)]
    y, x = next(((y, x) for y, x in cut if (rows - 2 * y) * (columns - 2 * x + 1) == tokens), (rows, 0))
    every = [_rows(side, side, 1 + number, tile) for number in range(len(regions) - 1)]
    found: Cells = []
    for row in range(y, rows - y):
        cells = [(row // side * across + at // side, row % side * side + at % side) for at in range(x, columns - x)]
        found += [*(every[number][index] for number, index in cells), None]
    return found


def _box(cell: Cell, region: Any, tile: Size, size: tuple[int, int]) -> Box | None:
    """Return a cell's box in the image; None if it is padding alone."""
    left, top, right, bottom = region
    x, y = (right - left) / tile[1], (bottom - top) / tile[0]
    box = left + cell[1] * x, top + cell[2] * y, left + cell[3] * x, top + cell[4] * y
    found = clipped(box, (0, 0, *size))
    return found if min(found[2] - found[0], found[3] - found[1]) > EMPTY else None


def _verify_cells(
    values: Tensor, tokens: Tensor, cells: Cells, embed: Embed, planes: Tensor, spread: Callable[[Tensor], Tensor]
) -> bool:
    """Whether changing a cell's pixel values changes its token's embedding and no other. planes: zeros [N,H,W]."""
    noise = torch.randn(values.shape, generator=torch.Generator().manual_seed(0)).to(values)
    for bit in range(len(cells).bit_length()):
        chosen = torch.tensor([cell is not None and bool(number >> bit & 1) for number, cell in enumerate(cells, 1)])
        plane = planes.clone()
        for cell in (cell for cell, here in zip(cells, chosen.tolist(), strict=True) if here):
            tile, left, top, right, bottom = cell or (0, 0, 0, 0, 0)
            plane[tile, top:bottom, left:right] = 1
        moved = (embed(values + noise * spread(plane)) - tokens).abs().amax(-1) > CHANGED * tokens.abs().amax()
        if not torch.equal(moved.cpu(), chosen):
            return False
    return True
