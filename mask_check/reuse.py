"""What serving does with a model: reused caches, the last logits alone, draft trees, images, positions.

Each compares two ways to the same numbers. Sizes: B rows, T tokens, V outputs at each position.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from i18n import msg, msg_list, msg_together
from mask_check import cache, reach
from mask_check.declared import Declared
from mask_check.findings import BROKEN, CANNOT_TELL, OBEYS, CannotCheck, Finding
from mask_check.packing import explicit_form
from mask_check.padding import padded
from mask_check.subject import CheckedModule, apart
from mask_check.trial import CheckTrial, skipped, unknown
from model.errors import first_line

IMAGES = ("token_type_ids", "mm_token_type_ids")
DRAFTS = 2  # tokens of each branch of the tree


def judge_cache(trial: CheckTrial) -> Finding:
    """A cache cut back after rejected drafts, with its rows reordered, and copied for two continuations of one prefix,
    and a static cache that is filled in chunks: each against the text run all at once.

    Tolerated: what rounding moves. Limits: cutting back and reordering need a cache with crop and reorder_cache, which
    plain tuples lack.
    """
    if trial.found["cache"].verdict != OBEYS:
        return skipped(msg("it cannot be run step by step."))
    prompt, drafted = max(trial.length // 3, 1), max(trial.length // 3, 1) + 3
    row, other = trial.ids, trial.other(trial.ids, trial.generator(15))
    expected = {"row": trial.alone, "other": trial.subject.outputs(other[None])[0]}
    mixed = torch.cat([row[:prompt], other[prompt:]])
    expected["mixed"] = trial.subject.outputs(mixed[None])[0]

    def crop() -> list[tuple[Tensor, Tensor]]:
        kept = _read(trial, torch.cat([row[:prompt], other[prompt:drafted]])[None], [prompt, 1, 2])
        theirs = type(kept[1]).__module__.startswith("transformers.")
        kept[1].crop(prompt - drafted if theirs else prompt)  # theirs take how many to remove
        return [
            (_read(trial, row[None], [2, trial.length - 2 - prompt], kept[1], prompt)[0][0], expected["row"][prompt:])
        ]

    def reorder() -> list[tuple[Tensor, Tensor]]:
        _, kept = _read(trial, torch.stack([row, other])[:, :prompt], [prompt])
        kept.reorder_cache(torch.tensor([1, 0], device=row.device))
        found, _ = _read(trial, torch.stack([other, row]), [trial.length - prompt], kept, prompt)
        return list(zip(found, (expected["other"][prompt:], expected["row"][prompt:]), strict=True))

    def share() -> list[tuple[Tensor, Tensor]]:
        _, kept = _read(trial, row[None, :prompt], [prompt])
        steps = [1, trial.length - prompt - 1]
        found = [_read(trial, ids[None], steps, copy.deepcopy(kept), prompt)[0][0] for ids in (mixed, row)]
        return list(zip(found, (expected["mixed"][prompt:], expected["row"][prompt:]), strict=True))

    def fill() -> list[tuple[Tensor, Tensor]]:
        made = cache.static_cache(trial)
        if made is None:
            raise ValueError(msg("it has no static cache"))
        sizes = [2, 3, prompt, 1, trial.length - prompt - 6]
        return [(_read(trial, row[None], [one for one in sizes if one > 0], made)[0][0], expected["row"])]

    ways: dict[str, Callable[[], list[tuple[Tensor, Tensor]]]] = {
        msg("cut back after rejected drafts"): crop,
        msg("with its rows reordered"): reorder,
        msg("shared by two continuations"): share,
    }
    if trial.subject.is_transformers:
        ways[msg("filled in chunks in a static cache")] = fill
    most, gone, missing = 0.0, [], []
    for way, run in ways.items():
        try:
            pairs = run()
        except CannotCheck:
            raise
        except Exception as error:  # noqa: BLE001 - a cache that offers no such thing may raise anything
            missing.append(msg("{way} ({error})", way=way, error=first_line(error) or type(error).__name__))
            continue
        for found, wanted in pairs:
            difference = trial.difference(found, wanted[: len(found)])
            if difference.amount > trial.tolerance:
                values = {"way": way, "amount": difference.values["amount"], "where": difference.where}
                words = msg("a cache {way}: output {where} after it differs by {amount}.", **values)
                return Finding(BROKEN, words, difference.amount, trial.tolerance)
            most = max(most, difference.amount)
        gone.append(way)
    if not gone:
        return skipped(msg("its cache cannot be reused: {ways}.", ways=msg_list(missing)))
    kept = msg("a cache {ways}: the same as all at once.", ways=msg_list(gone))
    kept = msg_together([kept, msg("Not offered: {ways}.", ways=msg_list(missing))]) if missing else kept
    return trial.finding(most, broken="", kept=kept)


def _read(trial: CheckTrial, ids: Tensor, sizes: list[int], kept: Any = None, done: int = 0) -> tuple[Tensor, Any]:
    """ids [B,T] from position `done` on in steps of these sizes -> outputs of what was read, and the cache."""
    found: list[Tensor] = []
    for size in sizes:
        part = ids[:, done : done + size]
        with torch.no_grad():
            step = trial.subject.call(part, None, use_cache=True, past_key_values=kept)
        found.append(trial.subject.read(step, part))
        kept, done = cache.cache_of(step), done + size
    return torch.cat(found, dim=1), kept


def judge_last(trial: CheckTrial) -> Finding:
    """Logits of the last tokens alone, by logits_to_keep, against the last of all logits, of one row and of two.

    Tolerated: what rounding moves.
    """
    subject = trial.subject
    if not subject.takes("logits_to_keep"):
        return skipped(msg("its forward takes no logits_to_keep."))
    ids = torch.stack([trial.ids, trial.other(trial.ids, trial.generator(16))])[: 1 if subject.one_row else 2]
    whole, most = subject.outputs(ids), 0.0
    for count in (1, min(3, ids.shape[1])):
        with torch.no_grad():
            found = getattr(subject.call(ids, logits_to_keep=count), "logits", None)
        if not isinstance(found, Tensor) or found.shape != (len(ids), count, whole.shape[-1]):
            got = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
            words = msg("logits_to_keep={count} gives {got} in place of the last {count} logits.", count=count, got=got)
            return Finding(BROKEN, words)
        amount = float(apart(found.to(whole.dtype), whole[:, -count:]).max())
        if amount > trial.tolerance:
            words = msg("logits_to_keep={count} gives other logits than the last {count} of all.", count=count)
            return Finding(BROKEN, words, amount, trial.tolerance)
        most = max(most, amount)
    return trial.finding(most, broken="", kept=msg("logits_to_keep gives the last of all logits."))


def judge_tree(trial: CheckTrial) -> Finding:
    """Two drafts after one prompt, in one row, by an explicit mask [1,1,T,T] and positions: each as if it stood alone.

    Tolerated: what rounding moves. Limits: a module that takes such a mask and positions, with one mask in all layers.
    """
    form = explicit_form(trial)
    if form is None:
        return skipped(msg("it takes no explicit mask with positions, or its layers' masks differ."))
    prompt, length = trial.length - 2 * DRAFTS, trial.length - DRAFTS
    if prompt < 1 or not torch.equal(trial.declared.layers[0], torch.ones_like(trial.declared.layers[0]).tril()):
        return skipped(msg("draft trees are for causal masks alone."))
    allowed = torch.ones(trial.length, trial.length, dtype=torch.bool, device=trial.ids.device).tril()
    allowed[length:, prompt:length] = False
    positions = torch.arange(trial.length, device=trial.ids.device)
    positions[length:] -= DRAFTS
    given = {"attention_mask": form(allowed, trial.subject.dtype), "position_ids": positions[None]}
    found = trial.subject.outputs(trial.ids[None], **given)[0]
    second = torch.cat([trial.ids[:prompt], trial.ids[length:]])
    wanted = torch.cat([
        trial.subject.outputs(trial.ids[None, :length])[0],
        trial.subject.outputs(second[None])[0, prompt:],
    ])  # fmt: skip
    difference = trial.difference(found, wanted)
    broken = msg("in a draft tree output {where} differs by {amount} from its branch alone.", **difference.values)
    return trial.finding(difference.amount, broken=broken, kept=msg("each branch of a draft tree is as it is alone."))


def judge_positions(trial: CheckTrial) -> Finding:
    """Other position ids move the outputs: those of two tokens in the middle exchanged, and of all reversed.

    Tolerated as no change: what rounding moves. Limits: of transformers' models it is said and counts as no fault, for
    some have no positions in any layer.
    """
    subject = trial.subject
    if not subject.names_positions:
        return skipped(msg("its forward takes no position_ids."))
    if trial.found["reach"].verdict == CANNOT_TELL:  # output projections of 0, as some are initialized
        return unknown(trial.found["reach"].words)
    counted = torch.arange(trial.length, device=trial.ids.device)
    exchanged = counted.clone()
    middle = trial.length // 2
    exchanged[[middle - 1, middle]] = exchanged[[middle, middle - 1]]
    most = 0.0
    for positions in (exchanged, counted.flip(0)):
        found = subject.outputs(trial.ids[None], position_ids=positions[None])[0]
        most = max(most, trial.difference(found, trial.alone).amount)
    if most > trial.tolerance:
        return Finding(OBEYS, msg("other position_ids move its outputs."), None, trial.tolerance)
    subject.ignores_positions, subject.takes_positions = True, False
    words = msg("position_ids are accepted and change nothing.")
    return unknown(words) if subject.is_transformers else Finding(BROKEN, words, most, trial.tolerance)


def judge_unpositioned(trial: CheckTrial) -> Finding:
    """A row padded on the left, with its mask and without position_ids, as trainers call it: the row alone.

    Tolerated: what rounding moves. Limits: of transformers' models that count from the first cell it is said and counts
    as no fault: they ask for position_ids.
    """
    subject = trial.subject
    if not (subject.takes_mask and subject.names_positions) or subject.kind == "encoder-decoder" or trial.length < 3:
        return skipped(msg("it takes no attention_mask, or no position_ids that could be left out."))
    ids, keep, real = padded(trial, "left")
    difference = trial.difference(subject.outputs(ids, keep)[0, real], trial.part_alone)
    broken = msg("padded on the left without position_ids, output {where} differs by {amount}.", **difference.values)
    kept = msg("padded on the left without position_ids, the row gives the same outputs as alone.")
    finding = trial.finding(difference.amount, broken=broken, kept=kept)
    if finding.verdict == BROKEN and subject.is_transformers:
        return skipped(msg("it counts positions over pads unless position_ids are given: pass them to it."))
    return finding


class WithArguments(CheckedModule):
    """The module, called with further arguments each time."""

    def __init__(self, subject: CheckedModule, **arguments: Tensor) -> None:
        vars(self).update(vars(subject))
        self.arguments = arguments

    def call(self, ids: Tensor, keep: Tensor | None = None, **more: Any) -> Any:
        """As that of CheckedModule; the arguments [1,T] are those of every row."""
        given = {name: one.expand(len(ids), -1) for name, one in self.arguments.items()}
        return super().call(ids, keep, **given | more)


def judge_images(trial: CheckTrial) -> Finding:
    """Two blocks of image tokens, told by token_type_ids: an image's tokens see each other both ways and no later ones.

    Measured as what reaches what. Limits: modules whose configuration says image_blocks, of transformers' those that
    make such masks from token types alone.
    """
    subject, name = trial.subject, next((one for one in IMAGES if trial.subject.takes(one)), "")
    if not name or not getattr(subject.config, "image_blocks", False) or trial.length < 12:
        return skipped(msg("its configuration declares no image blocks."))
    types = torch.zeros(1, trial.length, dtype=torch.long, device=trial.ids.device)
    types[0, 2:6] = types[0, 8:11] = 1
    number = (types & ~torch.nn.functional.pad(types, (1, 0))[:, :-1].bool().long()).cumsum(-1)[0] * types[0]
    block = ((number[:, None] == number) & (number > 0)).cpu()
    declared = Declared(tuple(layer | block for layer in trial.declared.layers), msg("image blocks"))
    own = replace(trial, subject=WithArguments(subject, **{name: types}), declared=declared, mask=None)
    own.__dict__.pop("alone", None)
    found = reach.judge(own)
    gradients = reach.judge_gradients(own) if found.verdict != BROKEN else found
    wrong = found if found.verdict == BROKEN else gradients
    if wrong.verdict != BROKEN:
        return replace(found, words=msg("image tokens see their own image both ways, and nothing later."))
    return replace(wrong, words=msg("with images at 2 to 5 and 8 to 10: {found}", found=wrong.words))
