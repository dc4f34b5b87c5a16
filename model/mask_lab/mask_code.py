"""Export of a mask as PyTorch code. (mask_files.py exports it as NPY, MaskSpec as JSON.)

The code consists of numbers and fixed words. What a user typed, the separator between documents, appears in it once, as
a repr in a comment, which has no line ends. Sizes: T positions.
"""

import textwrap
from collections.abc import Iterator
from itertools import groupby
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from model import mask_kinds, masks
from model.mask_lab.mask_files import rectangles, runs_of
from model.masks import MaskContext, MaskSpec
from model.trace import Trace

Kind = Literal["scaled_dot_product_attention", "nn.MultiheadAttention", "flex_attention"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Step = tuple[str, str, str]  # "&" or "|", a condition on q_idx and k_idx, and its comment
Drawn = tuple[str, int, int, int, int]  # a stroke's kind, first query, first key, last query, last key

STROKES_AS_DRAWN = 12  # more of them are written as the fewest rectangles found
LINE = 84  # characters, as many as the page shows without scrolling


def code_of(trace: Trace, row: int, masks: MaskSpec, layer: int, head: int, kind: str) -> str:
    """Return `code` for the mask of one head of a run."""
    record = trace.layers[layer]
    return code(kind, record.context, masks, row=row, head=head, width=record.q.shape[-1])


def code(kind: str, context: MaskContext, spec: MaskSpec, *, row: int = 0, head: int = 0, width: int = 16) -> str:
    """Return a program that builds the mask of one head and calls PyTorch's attention with it, on random numbers. It
    needs torch and defines `allowed`: bool [T,T], True = may attend, as Trace.allowed of that layer, row and head.
    context: of self-attention. width: of a head. Raises ValueError for a kind that is not in KINDS and for an
    attention whose queries are not its keys."""
    if kind not in KINDS:
        raise ValueError(f"expected a kind of code out of {', '.join(KINDS)}, got {kind!r}")
    total, layer = context.keep.shape[-1], context.layer
    if context.queries != total:
        raise ValueError(f"expected the attention of a text to itself, got {context.queries} queries on {total} keys")
    ruling, keep = spec.at(layer, head, context.standard), context.keep[row].cpu()
    strokes = _strokes(ruling, int(keep.sum())) if "drawn" in context.available else []
    steps = list(_kinds(context, spec, head, keep))
    if any(kind == "block" for kind, *_ in strokes):
        steps.append(("&", "drawn[q_idx, k_idx] != BLOCK", "drawn by hand: blocked"))
    if any(kind == "open" for kind, *_ in strokes):  # the strokes override all masks
        steps.append(("|", "drawn[q_idx, k_idx] == OPEN", "drawn by hand: open, whatever blocks it"))
    tensors = list(_tensors(ruling, context, row, strokes, " ".join(condition for _, condition, _ in steps)))
    first = [f"# The mask of layer {layer}, head {head}: allowed[q, k] = token q may attend to token k"]
    if not spec.holds_in(layer, head):
        first.append("# The composed masks apply elsewhere; these are the model's standard ones")
    first.append(f"T = {total}  # tokens" + ("" if keep.all() else ", padding included"))
    last = [
        *_nothing_to_attend_to(kind, context.allowed_in_row(spec, row, head)),
        f"heads, width = {context.heads}, {width}",
    ]
    statements = "\n".join(_statements(steps))
    return {KINDS[0]: _SDPA, KINDS[1]: _MULTIHEAD, KINDS[2]: _FLEX}[kind].format(
        tensors="\n".join([*first, *tensors]),
        statements=statements,
        inside=textwrap.indent(statements, "    "),
        sizes="\n".join(last),
    )


# --- the conditions ---


def _kinds(context: MaskContext, spec: MaskSpec, head: int, keep: Tensor) -> Iterator[Step]:
    """Yield the blocking kinds, then the opening ones: the order of MaskContext.masks."""
    kinds, (blockers, openings) = mask_kinds.KINDS, context.masks_without_strokes(spec, head)
    sides = ("q_idx", "k_idx") if keep.all() else ("position[q_idx]", "position[k_idx]")
    distance = "q_idx - k_idx" if "causal" in blockers else "(q_idx - k_idx).abs()"
    names = mask_kinds.Names(not keep.all(), *sides, distance)
    on = context.on(spec, head)
    for sign, some in (("&", blockers), ("|", openings)):
        for name, parameter in [(name, on[name]) for one in some for name in on if one in (name, kinds[name].joins)]:
            if condition := kinds[name].code(names, parameter):
                yield sign, condition, kinds[name].comment


def _statements(steps: list[Step]) -> list[str]:
    """Return one statement for each step, valid for whole tensors of indices and for flex_attention's single ones."""
    if not steps or steps[0][0] == "|":
        steps = [("&", "k_idx >= 0", "no mask blocks anything"), *steps]
    lines = []
    for number, (sign, condition, what) in enumerate(steps):
        whole = condition if condition in ("keep[k_idx]", "keep[q_idx]") else f"({condition})"
        statement = f"allowed = allowed {sign} {whole}" if number else f"allowed = {condition}"
        together = f"{statement}  # {what}"
        if len(together) + 4 <= LINE:  # 4: the indent within a function
            lines.append(together)
        else:
            lines += [f"# {what}", *_wrapped(statement, width=LINE - 4).splitlines()]
    return lines


def _tensors(ruling: MaskSpec, context: MaskContext, row: int, strokes: list[Drawn], conditions: str) -> Iterator[str]:
    """Yield lines of code that define the tensors named in the conditions."""
    keep = context.keep[row].cpu()
    drawn = "drawn" in conditions
    if any(name in conditions for name in ("keep", "position")) or (drawn and not keep.all()):
        yield "# keep: True = a real token, False = padding"
        yield _assigned("keep", keep.tolist())
    if "position" in conditions:
        yield "# position: a token's position among the real ones; -1 at padding"
        yield "position = torch.where(keep, keep.cumsum(0) - 1, -1)"
    for separator in (value for value in ruling.on().values() if isinstance(value, str)):
        if "document" in conditions and context.split is not None:
            yield f"# document: the document number of each token; the text is split after {separator!r}"
            yield _assigned("document", context.split(separator)[row].tolist())
    if drawn:
        yield from _drawing(strokes, padded=not keep.all())


def _assigned(name: str, values: list[int] | list[bool]) -> str:
    """Return code for a tensor of these values, written as runs of equal ones."""
    runs = [(value, len(list(some))) for value, some in groupby(values)]
    each, lengths = [value for value, _ in runs], [length for _, length in runs]
    counted = str(each) == str(list(range(len(each))))  # as text, since [False, True] equals [0, 1]
    first = f"torch.arange({len(each)})" if counted else f"torch.tensor({each})"
    return _wrapped(f"{name} = {first}.repeat_interleave(torch.tensor({lengths}))")


def _wrapped(text: str, indent: str = "", width: int = LINE) -> str:
    """Wrap code at spaces, all of which are within brackets."""
    return textwrap.fill(text, width, initial_indent=indent, subsequent_indent="    ", break_long_words=False,
                         break_on_hyphens=False)  # fmt: skip


# --- the drawing ---


def _strokes(ruling: MaskSpec, real: int) -> list[Drawn]:
    """Return strokes on `real` tokens, (kind, first query, first key, last query, last key); [] without effect."""
    blocked, opened = (
        some[0, 0].numpy() for some in masks.drawn(ruling.drawn, torch.arange(real)[None], slice(0, real))
    )
    if not (blocked | opened).any():
        return []
    as_drawn: list[Drawn] = [
        (one.kind, one.query, one.key, min(one.last_query, real - 1), min(one.last_key, real - 1))
        for one in ruling.drawn
        if one.query < real and one.key < real
    ]
    if len(as_drawn) <= STROKES_AS_DRAWN:
        return as_drawn
    merged: list[Drawn] = [("block", *some) for some in rectangles(blocked)]
    merged += [("open", *some) for some in rectangles(opened)]
    return merged if len(merged) < len(as_drawn) else as_drawn


def _drawing(strokes: list[Drawn], *, padded: bool) -> Iterator[str]:
    """Yield code for drawn: uint8 [T,T]. Its loops end in a blank line, so that they can be pasted at a prompt."""
    canvas, size = ("canvas", "int(keep.sum())") if padded else ("drawn", "T")
    yield "ERASE, BLOCK, OPEN = 0, 1, 2"
    yield "# kind, first query, first key, last query, last key; the last on a cell counts"
    yield "strokes = ["
    listed = ", ".join(f"({kind.upper()}, {', '.join(map(str, where))})" for kind, *where in strokes)
    yield _wrapped(listed, "    ") + ","
    yield "]"
    yield f"{canvas} = torch.zeros({size}, {size}, dtype=torch.uint8)"
    yield "for what, query, key, last_query, last_key in strokes:"
    yield f"    {canvas}[query : last_query + 1, key : last_key + 1] = what"
    yield ""
    if padded:
        yield "drawn = torch.zeros(T, T, dtype=torch.uint8)  # nothing is drawn on padding"
        yield "drawn[keep[:, None] & keep] = canvas.flatten()"


# --- the three programs ---


_MATRIX = """
{tensors}

# of every cell, its query and its key
q_idx, k_idx = torch.meshgrid(torch.arange(T), torch.arange(T), indexing="ij")
{statements}

{sizes}
"""
_SDPA = f"""import torch
import torch.nn.functional as F
{_MATRIX}q, k, v = torch.randn(3, 1, heads, T, width)  # each [batch, heads, tokens, width]
output = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
"""
_MULTIHEAD = f"""import torch
{_MATRIX}attention = torch.nn.MultiheadAttention(heads * width, heads, batch_first=True)
x = torch.randn(1, T, heads * width)  # [batch, tokens, width]; it makes q, k and v
# The inverse convention: in its attn_mask True means blocked
output, weights = attention(x, x, x, attn_mask=~allowed)
"""
_FLEX = """import torch
from torch.nn.attention.flex_attention import create_block_mask, create_mask
from torch.nn.attention.flex_attention import flex_attention

{tensors}

def mask_mod(b, h, q_idx, k_idx):
{inside}
    return allowed

allowed = create_mask(mask_mod, 1, 1, T, T, device="cpu")[0, 0]  # all of it
block_mask = create_block_mask(mask_mod, None, None, T, T, device="cpu")

{sizes}
q, k, v = torch.randn(3, 1, heads, T, width)  # each [batch, heads, tokens, width]
# torch.compile(flex_attention) is fast and needs a compiler; without, it warns
output = flex_attention(q, k, v, block_mask=block_mask)
"""


def _nothing_to_attend_to(kind: str, allowed: Tensor) -> Iterator[str]:
    """Yield a comment on what PyTorch gives for rows without a key, if there are any."""
    blocked = (~allowed.any(1)).nonzero()[:, 0].tolist()
    if not blocked:
        return
    runs = runs_of(np.diff(np.pad((~allowed.any(1)).numpy().astype(np.int8), 1)))
    some = ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in runs[:4])
    more = " and more" if len(runs) > 4 else ""
    which = f"Query {some} has" if len(blocked) == 1 else f"Queries {some}{more} have"
    yield f"# {which} nothing to attend to:"
    yield f"# {kind} gives {'NaN' if kind == KINDS[1] else '0'} for {'it' if len(blocked) == 1 else 'them'}"
