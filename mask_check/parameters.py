"""The law that every parameter receives a gradient. Experts that no row is routed to are told from parts never used.

A part of a list may be such an expert if another part of the list is idle in some rows only, in the same way: it does
not run, or its gradient is 0. It must be idle as a whole: idle experts of one layer say nothing about other layers.
"""

import torch
from torch import Tensor, nn

from i18n import N_, msg, msg_list, msg_together
from mask_check.differentiate import random_mix, trained_parameters
from mask_check.findings import BROKEN, OBEYS, Finding, skipped, unknown
from mask_check.reach import gradients_by, watching_embeddings
from mask_check.subject import setting
from mask_check.trial import CheckTrial

MAX_PARAMETERS = 5e8  # most parameters whose gradients are kept in memory too
ROUTED_ROWS = 8  # more random rows, and rows of one token, in which a parameter without a gradient may have one
LISTS = nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict
LISTED = 5  # most parameters without a gradient that are named
NO_TOKEN = N_(
    "The embeddings of the tokens receive none either, as behind a threshold, rounding or argmax, or under "
    "torch.no_grad(): this does not tell whether a parameter is used."
)
OTHER_INPUTS = ("pixel_values", "input_features", "input_values", "audio_values", "images")


def judge_parameters(trial: CheckTrial) -> Finding:
    """A random mix of all that the module returns has a gradient for every parameter: one without is never used.

    Tolerated: nothing; a gradient is exactly 0 or not. Limits: parts that an initialization with zeros turns off; those
    listed: experts that no row tried is routed to, parts for other inputs in models of transformers, and all parts if
    embeddings are trained and no token has a gradient.
    """
    subject, module = trial.subject, trial.subject.inner
    if any(subject.takes(name) for name in OTHER_INPUTS):
        return skipped(msg("it has other inputs than ids, and parameters for them."))
    if subject.parameters > MAX_PARAMETERS:
        return skipped(msg("it is too large to keep a gradient of every parameter."))
    named = trained_parameters(module)
    idle = [_without_gradient(trial, named, trial.ids)]
    never, listed = {*idle[0]}, {name: _patterns(module, name) for name in named}
    rows = trial.random_rows(2 * ROUTED_ROWS, trial.length, trial.generator(15))
    rows[ROUTED_ROWS:] = rows[ROUTED_ROWS:, :1].clone()  # rows of one token each, which is routed to few experts
    for row in rows:
        if not any(listed[name] for name in never):  # no expert
            break
        idle.append(_without_gradient(trial, named, row))
        never &= idle[-1].keys()
    if not never:
        return Finding(OBEYS, msg("all {count:,} parameter tensors receive a gradient.", count=len(named)))
    reached = set[tuple[str, bool]]()
    for one in idle:
        used = {part for name in named if name not in one and not name.endswith("bias") for part in listed[name]}
        at_times = [(name, part) for name in one.keys() - never for part in listed[name].keys() - used]
        reached |= {(listed[name][part], one[name]) for name, part in at_times}
    routed = {name for name in never if {(one, idle[0][name]) for one in listed[name].values()} & reached}
    shown = [name for name in named if name in (never - routed or never)]
    names = msg_list(shown[:LISTED])
    if len(shown) > LISTED:
        names = msg("{listed} and {count} more", listed=names, count=len(shown) - LISTED)
    values = {"count": len(shown), "all": len(named), "names": names}
    words = msg("{count:,} of {all:,} parameter tensors receive no gradient: {names}.", **values)
    if never == routed:
        return unknown(msg_together([words, msg("They may be experts that only other texts are routed to.")]))
    if _no_token_has_gradient(trial, named):
        return unknown(msg_together([words, msg(NO_TOKEN)]))
    return unknown(words) if subject.is_transformers_model else Finding(BROKEN, words)


def _no_token_has_gradient(trial: CheckTrial, named: dict[str, nn.Parameter]) -> bool:
    """Whether all that the module returns has a gradient of 0 for what the tokens' embeddings make of the row, although
    embeddings are trained: those that are frozen may have no gradient because nothing before them needs one."""
    subject, ids = trial.subject, trial.ids[None]
    if {id(one.weight) for one in subject.embeddings}.isdisjoint(map(id, named.values())):
        return False
    with watching_embeddings(subject, ids) as leaves, torch.enable_grad():
        total = random_mix(subject.call(ids), trial.generator(13))
        return bool(leaves) and not any(bool(one.any()) for one in gradients_by(leaves, total))


def _without_gradient(trial: CheckTrial, named: dict[str, nn.Parameter], row: Tensor) -> dict[str, bool]:
    """Return the parameters for which all that the module returns for a row [T] has no gradient, by name: whether that
    is because their part did not run, and not because the gradient is 0."""
    subject = trial.subject
    with setting((p, "requires_grad", True) for p in named.values()), subject.uncompiled(), torch.enable_grad():
        total = random_mix(subject.call(row[None]), trial.generator(13))
        if not total.requires_grad:
            return dict.fromkeys(named, True)
        gradients = torch.autograd.grad(total, list(named.values()), allow_unused=True)
    asleep = any(not parameter.any() and "bias" not in name for name, parameter in named.items())
    return {
        name: gradient is None
        for name, gradient in zip(named, gradients, strict=True)
        if gradient is None or (not asleep and not gradient.any() and not name.endswith("bias"))
    }


def _patterns(module: nn.Module, name: str) -> dict[str, str]:
    """Return, by each list or dict's part that a parameter is in, its name with a * for the key, as in all experts."""
    keys = name.split(".")
    lists = [index for index in range(len(keys)) if isinstance(module.get_submodule(".".join(keys[:index])), LISTS)]
    return {".".join(keys[: index + 1]): ".".join([*keys[:index], "*", *keys[index + 1 :]]) for index in lists}
