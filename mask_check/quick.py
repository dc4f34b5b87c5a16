"""Is it causal? In two forwards, three where a module has to be given targets: for tests and training loops.

One forward of copies of a row, and one in which each copy but the first has been replaced from another position on.
Each output is compared with that of the same cell of the batch, so that both are computed alike; what the first copy
moves by is no mask's doing.
"""

import time
from collections.abc import Sequence
from contextlib import suppress

import torch
from torch import Tensor, nn

from i18n import msg
from mask_check.declared import Declared, Mask, declare, with_cause
from mask_check.findings import BROKEN, OBEYS, CannotCheck, CheckReport, Finding, Noise
from mask_check.kernels import current
from mask_check.longer import CUTS, LENGTHS
from mask_check.prepare import context_of
from mask_check.subject import CheckedModule, apart, embeddings, evaluating, text_config, unwrapped
from mask_check.trial import first_above, unknown, written

MOST_LOGITS = 2**25  # of one forward: rows · T · V
ROUNDINGS = 64  # of the largest output: what the order of sums may come to in two forwards of one shape


def quick(
    module: nn.Module,
    *,
    ids: Tensor | Sequence[int] | None = None,
    mask: Mask = "causal",
    length: int | None = None,
    seed: int = 0,
    seconds: float | None = None,
) -> CheckReport:
    """The report of one law, "reach", by at most 3 forwards. ids [T], or random ones, `length` of them: 130, or what
    the context allows. Raises CannotCheck for a module that cannot be called."""
    if ids is None and length is None and next((one.device.type for one in module.parameters()), "cpu") == "cpu":
        with suppress(Exception):  # of a module that does not say how many tokens it reads; CUDA does not survive it
            return quick(module, mask=mask, length=_length(module, guess=False), seed=seed, seconds=seconds)
    started, subject = time.monotonic(), CheckedModule(module, seconds=seconds)
    generator = torch.Generator().manual_seed(seed)
    sizes = [one.num_embeddings for one in subject.embeddings if one.num_embeddings > 2]
    vocabulary = getattr(text_config(subject.config, decoder=True), "vocab_size", None)
    vocabulary = vocabulary if isinstance(vocabulary, int) and subject.table is None else min(sizes, default=3)
    many = length or _length(module, guess=True)
    row = torch.randint(vocabulary, (many,), generator=generator) if ids is None else torch.as_tensor(ids).flatten()
    if len(row) < 2 or int(row.min()) < 0:
        raise CannotCheck(msg("expected at least 2 ids from 0 to {last}, got {ids}", last=vocabulary - 1, ids=len(row)))
    other = (row + 1 + torch.randint(vocabulary - 1, row.shape, generator=generator)) % vocabulary
    cuts = sorted({one for one in CUTS if one < len(row)} | {len(row) - 1, len(row) // 2})
    rows = min(len(cuts), max(MOST_LOGITS // (len(row) * vocabulary) - 1, 2))
    cuts = [cuts[place * (len(cuts) - 1) // max(rows - 1, 1)] for place in range(rows)]
    same, changed = row.repeat(rows + 1, 1), row.repeat(rows + 1, 1)
    for place, cut in enumerate(cuts, 1):
        changed[place, cut:] = other[cut:]
    if subject.kind == "encoder-decoder":
        subject.source = other[:7].to(subject.device)
    with evaluating(module):
        before, after = (subject.batch_outputs(one.to(subject.device)) for one in (same, changed))
    declared = declare(subject.config, len(row), mask, subject.kind)
    moved = apart(after, before).cpu()
    largest = float(before[before.isfinite()].abs().max())
    floor = ROUNDINGS * torch.finfo(subject.dtype).eps * largest if subject.dtype == torch.float32 else 0.0
    noise = Noise(max(float(moved[0].max()), floor, torch.finfo(subject.dtype).eps * largest), 0.0)
    finding = _judge(moved[1:], cuts, declared, noise.beside)
    return CheckReport(
        name=type(subject.inner).__name__,
        kind=subject.kind,
        declared=declared.words,
        length=len(row),
        pieces=tuple(map(str, row.tolist())),
        dtype=str(subject.dtype).removeprefix("torch."),
        kernel=current(module),
        parameters=subject.parameters,
        seed=seed,
        noise=noise,
        findings=(finding,),
        mask=None,
        forwards=subject.forwards,
        seconds=time.monotonic() - started,
    )


def _judge(moved: Tensor, cuts: list[int], declared: Declared, tolerance: float) -> Finding:
    """moved [len(cuts), T]: how far each output moves where everything from a cut on is replaced."""
    closed = torch.stack([~declared.reach[:, cut:].any(1) for cut in cuts])
    leaks = torch.where(closed, moved, 0.0)
    amount = float(leaks.max())
    if amount > tolerance:
        place = int((leaks > tolerance).any(1).nonzero()[-1])  # the last cut: the nearest to what leaks
        row = first_above(leaks[place], tolerance)
        values = {"row": row, "size": written(float(leaks[place, row])), "column": cuts[place]}
        words = msg(
            "output {row} moves by {size} when the tokens from {column} on are changed, which its mask closes.",
            **values,
        )
        pairs = [(int(i), cuts[place]) for i in (leaks[place] > tolerance).nonzero()]
        said = with_cause(words, pairs, declared, short=False)
        return Finding(BROKEN, said, amount, tolerance, (row, cuts[place]), law="reach")
    found = Finding(OBEYS, msg("no output moved when later tokens were changed."), amount, tolerance, law="reach")
    if not bool((torch.where(closed, 0.0, moved).amax(1) > tolerance).all()):
        return unknown(msg("changing its tokens moved no output, or less than it moves by itself."), found)
    return found


def _length(module: nn.Module, *, guess: bool) -> int:
    """130, or what its context allows; where it does not say, as many as its tables and masks may have room for."""
    inner = unwrapped(module)
    context = context_of(getattr(inner, "config", None))
    if context or not guess:
        return min(LENGTHS[0], context or LENGTHS[0])
    shapes = [one.shape for one in (*inner.parameters(), *inner.buffers())]
    tables = [one[-2] for one in shapes if len(one) > 2 and one[0] == 1]
    masks = [one[0] for one in shapes if len(one) == 2 and one[0] == one[1]]
    sizes = [one.num_embeddings for one in embeddings(inner)]
    return int(max(min([LENGTHS[0], *(one for one in (*sizes, *tables, *masks) if one > 2)]), 2))
