"""Laws of an encoder-decoder's encoder, measured on its own, and of the cross-attention to it."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from i18n import N_, msg
from mask_check import padding, reach
from mask_check.findings import BROKEN, OBEYS, Finding, format_amount, skipped, unknown, worst
from mask_check.prepare import prepare
from mask_check.subject import CheckedModule, hooks_on, setting, text_config
from mask_check.trial import CheckTrial

STATES = "encoder_last_hidden_state"
PADS = 3


class EncoderOnly(nn.Module):
    """The encoder alone of an encoder-decoder: source ids [B,S] -> states [B,S,D]."""

    def __init__(self, pair: CheckedModule, ids: Tensor) -> None:
        """ids [T]: the decoder's input, which does not matter."""
        super().__init__()
        self.module, self.config = pair.module, text_config(pair.config, encoder=True)
        self._pair, self._ids = pair, ids

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Any:
        ids = self._ids.expand(len(input_ids), -1)
        return encoded(self._pair, ids, input_ids, attention_mask)[1]


def encoded(pair: CheckedModule, ids: Tensor, source: Tensor, keep: Tensor | None = None) -> tuple[Any, Tensor | None]:
    """Return the module's result for ids [B,T] and a source [B,S], T not S, and the encoder's states [B,S,D]: those in
    the result; else those that a part is given together with states of the target; else the last that were computed
    before such a part or, without one, before any states of the target. None if none are found."""
    states: list[Tensor] = []
    read: list[Tensor] = []
    begins: list[int] = []

    def look(_part: nn.Module, given: tuple[Any, ...], named: dict[str, Any], found: Any) -> None:
        some = _states([*given, *named.values()])
        if len({state.shape[:2] == ids.shape for state in some}) > 1:
            read.extend(state for state in some if state.shape[:2] == source.shape)
            begins.append(len(states))
        found = found[0] if isinstance(found, tuple) and found else getattr(found, "last_hidden_state", found)
        states.extend(_states([found]))

    with pair.uncompiled(), hooks_on(pair.inner.modules(), look, with_kwargs=True):
        called = pair.call(ids, **{pair.ids_name: source, "attention_mask": keep})
    own = getattr(called, STATES, None)
    if isinstance(own, Tensor) or read:
        return called, own if isinstance(own, Tensor) else read[0]
    begins += [index for index, state in enumerate(states) if state.shape[1] == ids.shape[1]]
    before = [state for state in states[: begins[0] if begins else 0] if state.shape[:2] == source.shape]
    return called, before[-1] if before else None


def _states(some: list[Any]) -> list[Tensor]:
    """Return those of these values that are states [B,T,D]."""
    tensors = [one for one in some if isinstance(one, Tensor) and not one.is_nested]  # a nested one has no shape
    return [one for one in tensors if one.ndim == 3 and one.is_floating_point()]


def judge(trial: CheckTrial) -> Finding:
    """In an encoder-decoder's encoder every source token influences every state that its windows allow, as measured by
    other tokens and by gradients; padding after the source changes no state of a real token.

    Tolerated: rounding; for gradients the dtype's epsilon times the largest. Limits: a source of 7 or 8 tokens.
    """
    pair, source = trial.subject, trial.subject.source
    if pair.kind != "encoder-decoder" or source is None:
        return skipped(msg("it has no encoder besides its decoder."))
    encoder = EncoderOnly(pair, trial.ids[:1])
    with torch.no_grad():
        if not isinstance(encoder(source[None]), Tensor):
            return skipped(msg("its encoder's states were not found."))
    subject = CheckedModule(encoder)
    subject.kind = "encoder"
    own = replace(prepare(subject, source, seed=trial.seed), pool=trial.pool, pad=trial.pad)
    findings = [replace(reach.judge(own), law="reach"), replace(reach.judge_gradients(own), law="gradients")]
    if pair.takes_mask:
        findings.append(replace(padding.judge(own, "right"), law="padding-right"))
        findings.append(replace(padding.judge_content(own), law="pad-content"))
    wrong = worst(findings)
    if wrong:
        return replace(wrong, words=msg("{law}: {found}", law=msg(wrong.name), found=wrong.words))
    found = replace(findings[-1], words=msg("its states: {found}", found=findings[0].words))
    return found.because(msg("Pads after its source change no state, whatever they are.") if pair.takes_mask else "")


def judge_cross(trial: CheckTrial) -> Finding:
    """A source padded on the right gives the same outputs as the source alone, whatever the padding contains; another
    source gives other outputs.

    Tolerated: rounding. Limits: one source of 7 or 8 tokens.
    """
    subject, source = trial.subject, trial.subject.source
    if subject.kind != "encoder-decoder" or source is None:
        return skipped(msg("it has no cross-attention."))
    if not subject.takes_mask:
        return skipped(msg("its forward takes no argument named attention_mask for the source."))
    own, length = subject.ids_name, len(source)
    pads = source.new_full((PADS,), trial.pad)
    keep = torch.ones(1, length + PADS, dtype=torch.long, device=source.device)
    keep[0, length:] = 0
    ids = trial.ids[None]
    padded = subject.outputs(ids, **{own: torch.cat([source, pads])[None], "attention_mask": keep})[0]
    difference = trial.difference(padded, trial.alone)
    if difference.amount > trial.tolerance:
        words = N_("with {pads} pads after its source, output {row} differs by {size} from the source alone.")
        return Finding.at((difference.where, length), words, difference.amount, trial.tolerance, pads=PADS)
    filled = trial.other(pads, trial.generator(6))
    other = subject.outputs(ids, **{own: torch.cat([source, filled])[None], "attention_mask": keep})[0]
    moved = trial.difference(other, padded)
    values = {"where": moved.where, "moved": format_amount(moved.amount)}
    broken = msg("changing the ids of the source's pads changes output {where} by {moved}.", **values)
    obeyed = msg("{pads} pads after its source change nothing, whatever they contain.", pads=PADS)
    max_change = max(difference.amount, moved.amount)
    finding = trial.finding(max_change, broken=broken, obeyed=obeyed, pair=(moved.where, length))
    changed = subject.outputs(ids, **{own: trial.other(source, trial.generator(6))[None]})[0]
    if finding.verdict != BROKEN and trial.difference(changed, trial.alone).amount <= trial.tolerance:
        return unknown(msg("changing the source changes nothing either: perhaps it is not read at all."), finding)
    return finding


def judge_cross_reach(trial: CheckTrial) -> Finding:
    """Every output has a gradient with respect to the encoder's state at every source token, even for a shorter target:
    cross-attention is neither causal nor cut short.

    Tolerated: nothing; a gradient is exactly 0 or not. Limits: the states must be among the outputs, or be computed by
    a part of the module before its decoder begins; as many outputs are tried as there are source tokens.
    """
    subject, source = trial.subject, trial.subject.source
    if subject.kind != "encoder-decoder" or source is None:
        return skipped(msg("it has no cross-attention."))
    for many in (trial.length, max(len(source) // 2, 1)):
        ids = trial.ids[None, :many]
        floating = [p for p in subject.inner.parameters() if p.is_floating_point()]  # perhaps frozen
        with setting((p, "requires_grad", True) for p in floating), torch.enable_grad():
            called, states = encoded(subject, ids, source[None])
            if states is None or not states.requires_grad or states.shape[1] != len(source):
                return skipped(msg("its encoder's states were not found."))
            logits = subject.read(called, ids)[0]
            sign = torch.randint(0, 2, logits.shape[1:], generator=trial.generator(7)).to(logits) * 2 - 1
            picked = [(row * sign)[row.isfinite()].sum() for row in logits[: len(source)]]  # a norm's plain sum is 0
            found = [torch.autograd.grad(one, states, retain_graph=True, allow_unused=True)[0] for one in picked]
        if any(one is None for one in found):
            return unknown(msg("no gradient of an output reaches the encoder's states."))
        reads = torch.stack([one[0].abs().amax(-1) > 0 for one in found]).cpu()  # [outputs, S]
        if bool(reads.all()):
            continue
        row, token = (~reads).nonzero()[0].tolist()
        words = N_("output {row} does not read source token {column}. Pairs that are not read: {silent}.")
        unread = Finding.at((row, token), words, silent=int((~reads).sum()))
        if torch.equal(reads, torch.ones_like(reads).tril()):
            return unread.because(msg("Likely cause: cross-attention is given a causal mask."))
        return unread if bool(reads.any(0).all()) else unread.because(msg("Likely cause: the source is cut short."))
    return Finding(OBEYS, msg("every output reads all {count} source tokens.", count=len(source)))
