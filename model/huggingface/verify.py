"""Proof, when a network is loaded, that what we show of it is its own.

A small batch goes through the network three times: as transformers runs it; to find its attentions and its masks; and
through our attention under its standard masks. Unless every attention layer came through our function and both give the
same logits, the network is refused: better no picture than a wrong one.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from model.errors import NotSupported
from model.huggingface import attention_hook
from model.huggingface.attention_hook import Probe, Recording, Site
from model.huggingface.stacks import OneStack, Stacks, TwoStacks, device_of, vocabulary_of
from model.masks import MaskSpec

TOKENS, SOURCE_TOKENS = 6, 9  # different, so that cross-attention shows by its shape
FAR_POSITIONS = 64
TOLERANCE = {torch.float32: 1e-3}  # of the largest logit; a layer left out or a mask ignored changes them by about 1
COARSE = 0.1  # for float16 and bfloat16


@dataclass(frozen=True, eq=False)
class Findings:
    """sites: every attention in the order in which they run. heads: query and key-value heads of each site.

    bytes_per_token: what a trace keeps for each token.
    """

    sites: tuple[Site, ...]
    heads: tuple[tuple[int, int], ...]
    bytes_per_token: int


@dataclass(frozen=True, eq=False)
class _Batch:
    """Two rows, one of them padded: ids and keep [2,T]; source and its keep [2,S]."""

    ids: Tensor
    keep: Tensor
    source: Tensor
    source_keep: Tensor


@torch.inference_mode()
def examine(stacks: Stacks) -> Findings:
    """Switch a network, loaded with eager attention, to ours, and find out where its attentions are.

    Raises NotSupported for a network that does not send all of its attention through us, or gives other logits then.
    """
    batch = _batch(stacks)
    expected = _reference(stacks, batch)
    stacks.network.set_attn_implementation(attention_hook.NAME)
    probe = Probe(_far_positions(stacks))
    _states(stacks, probe, batch)
    _check_counts(stacks, probe)
    causal = any(site.causal for site in probe.sites)
    run = Recording(tuple(probe.sites), MaskSpec(causal=causal), _keeps(batch))
    states = _states(stacks, run, batch)
    run.layers()
    _check_logits(stacks.logits(states), expected, batch.keep)
    return Findings(
        tuple(probe.sites), tuple(probe.heads), probe.bytes_per_token + states.shape[-1] * states.element_size()
    )


def _batch(stacks: Stacks) -> _Batch:
    """Padded on the left where the network takes positions, so that those are tried too."""
    device, known = device_of(stacks.network), vocabulary_of(stacks.network)
    generator = torch.Generator().manual_seed(0)
    pad = getattr(stacks.network.config, "pad_token_id", None) or 0
    sides = []
    for tokens in (TOKENS, SOURCE_TOKENS):
        ids = torch.randint(known, (2, tokens), generator=generator)
        ids[ids == pad] = (pad + 1) % known
        keep = torch.ones(2, tokens, dtype=torch.bool)
        left = isinstance(stacks, OneStack) and stacks.takes_positions
        keep[1, slice(0, 2) if left else slice(tokens - 2, tokens)] = False
        sides += [ids.masked_fill(~keep, pad).to(device), keep.to(device)]
    return _Batch(*sides)


def _reference(stacks: Stacks, batch: _Batch) -> Tensor:
    try:
        if isinstance(stacks, TwoStacks):
            return stacks.reference(batch.ids, batch.keep, batch.source, batch.source_keep)
        return stacks.reference(batch.ids, batch.keep)
    except Exception as error:  # noqa: BLE001 - sizes that an architecture cannot have show only here, in any way
        raise NotSupported(f"transformers itself cannot run it ({type(error).__name__}: {error})") from None


def _states(stacks: Stacks, run: Probe | Recording, batch: _Batch) -> Tensor:
    if isinstance(stacks, OneStack):
        return stacks.states(run, batch.ids, batch.keep)
    if isinstance(run, Probe):
        run.part = "encoder"
    memory = stacks.memory(run, batch.source, batch.source_keep)
    if isinstance(run, Probe):
        run.part = "decoder"
    return stacks.states(run, batch.ids, batch.keep, memory, batch.source_keep)


def _keeps(batch: _Batch) -> dict[str, Tensor]:
    return {"self": batch.keep, "decoder": batch.keep, "encoder": batch.source_keep, "cross": batch.source_keep}


def _far_positions(stacks: Stacks) -> Tensor:
    """Positions from 0 to the end of the context, close together at the start and on both sides of a window's edge."""
    last = stacks.context() - 1
    config = (stacks.decoder if isinstance(stacks, TwoStacks) else stacks.stack).config
    edges = [getattr(config, name, None) or 0 for name in ("sliding_window", "attention_chunk_size")]
    near = [edge + step for edge in (4, *edges) for step in range(-4, 4)]
    spread = torch.linspace(0, last, FAR_POSITIONS).long().tolist()
    return torch.tensor(sorted({position for position in (*near, *spread) if 0 <= position <= last}))


def _check_counts(stacks: Stacks, probe: Probe) -> None:
    found = {part: sum(site.part == part for site in probe.sites) for part in stacks.layer_counts()}
    if found != stacks.layer_counts() or len(probe.sites) != sum(found.values()):
        raise NotSupported(
            f"only {len(probe.sites)} of its {sum(stacks.layer_counts().values())} layers "
            "send their attention through transformers' attention interface"
        )


def _check_logits(ours: Tensor, theirs: Tensor, keep: Tensor) -> None:
    ours, theirs = ours[keep].float(), theirs[keep]
    allowed = TOLERANCE.get(theirs.dtype, COARSE) * max(float(theirs.abs().max()), 1.0)
    difference = float((ours - theirs.float()).abs().max())
    if not difference <= allowed:
        raise NotSupported(
            f"its attention is computed in a way of its own (the logits differ by {difference:.2g} from its own)"
        )
