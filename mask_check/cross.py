"""Law 6: what an encoder-decoder writes does not depend on its source's padding, and does depend on its source."""

import torch

from i18n import N_, say
from mask_check.findings import BROKEN, Finding
from mask_check.trial import CheckTrial, difference_of, first_above, skipped, unknown, written

LAW, NAME = "cross", N_("The source's padding")
PADS = 3


def judge(trial: CheckTrial) -> Finding:
    """A source padded on the right against the source alone; other ids under its pads; another source."""
    subject, source = trial.subject, trial.subject.source
    if subject.kind != "encoder-decoder" or source is None:
        return skipped(LAW, NAME, say("it has no cross-attention."))
    if not subject.takes_mask:
        return skipped(LAW, NAME, say("its forward takes no attention_mask for the source."))
    own, length = subject.ids_name, len(source)
    pads = source.new_full((PADS,), trial.pad)
    keep = torch.ones(1, length + PADS, dtype=torch.long, device=source.device)
    keep[0, length:] = 0
    ids = trial.ids[None]
    padded = subject.outputs(ids, **{own: torch.cat([source, pads])[None], "attention_mask": keep})[0]
    amount, each = difference_of(padded, trial.alone)
    where = first_above(each, trial.tolerance)
    if amount > trial.tolerance:
        words = say("with {pads} pads after its source, output {where} differs by {amount} from the source alone.",
                    pads=PADS, where=where, amount=written(amount))  # fmt: skip
        return Finding(LAW, NAME, BROKEN, words, amount, trial.tolerance, (where, length))
    filled = trial.other(pads, trial.generator(6))
    other = subject.outputs(ids, **{own: torch.cat([source, filled])[None], "attention_mask": keep})[0]
    moved, each = difference_of(other, padded)
    where = first_above(each, trial.tolerance)
    finding = trial.finding(
        LAW,
        NAME,
        amount=max(amount, moved),
        broken=say("changing the ids of the source's pads moves output {where} by {moved}.",
                   where=where, moved=written(moved)),
        kept=say("{pads} pads after its source move nothing, whatever they contain.", pads=PADS),
        pair=(where, length),
    )  # fmt: skip
    changed = subject.outputs(ids, **{own: trial.other(source, trial.generator(6))[None]})[0]
    if finding.verdict != BROKEN and difference_of(changed, trial.alone)[0] <= trial.tolerance:
        why = say("another source moves nothing either: perhaps it is not read at all.")
        return unknown(LAW, NAME, why, finding)
    return finding
