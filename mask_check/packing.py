"""Laws of packed documents: in one row, by each of the module's conventions, they give the same outputs as alone."""

import inspect
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from i18n import N_, msg, msg_all
from mask_check.findings import BROKEN, Finding, skipped, unknown, worst
from mask_check.subject import CheckedModule, TookTooLong, class_in, max_difference
from mask_check.trial import CheckTrial, OperationObserver, first_above

DOCUMENT_ARGUMENTS = ("document_ids", "doc_ids", "documents", "sequence_ids", "segment_ids", "seq_idx")
OF_SENTENCES = ("sequence_ids", "segment_ids")  # if embedded, of BERT's two sentences, which attend to each other
LENGTH_ARGUMENTS = ("cu_seqlens", "cu_seq_lens", "cu_seq_lens_q")
GIVEN = re.compile(  # the position_ids that create_causal_mask gets, in a call or in the dict of its arguments
    r"(?:create_causal_mask\([^()]*(?:\([^()]*\)[^()]*)*?\bposition_ids=|mask_kwargs = \{[^{}]*\"position_ids\": )(\w+)"
)
DRAFTS = 2  # tokens of each branch of a draft tree
SEEN = N_("{how}: output {output} of the second document changes when token {token} of the first is changed.")


def judge(trial: CheckTrial) -> Finding:
    """Two documents in one row give the same outputs as each alone, by each way of separating them that the module
    takes: positions that restart, a document number for each token, cumulative lengths, an explicit mask [1,1,T,T].

    Tolerated: rounding. Limits: two documents; restarting positions of a module of your own are tested with --packing.
    """
    first = trial.length * 2 // 5
    if first < 1:
        return skipped(msg("the text is too short for two documents."))
    known = conventions(trial, first)
    findings = [_judge(trial, first, *how) for how in known]
    embedded = next((name for name in OF_SENTENCES if trial.subject.takes(name)), "")
    if not findings and embedded:
        words = N_("{name} are embedded: it is not known whether they tell documents or sentences apart.")
        return unknown(msg(words, name=embedded))
    if not findings:
        return skipped(msg("it has no convention for packed documents that this check knows."))
    if wrong := worst(findings):
        return wrong
    largest = max(findings, key=lambda finding: finding.amount or 0.0)
    how = msg_all([words for words, _ in known])
    return replace(largest, words=msg("{how}: both documents give the same outputs as alone.", how=how))


def conventions(trial: CheckTrial, first: int) -> list[tuple[str, dict[str, Any]]]:
    """Return each way to separate documents: its name, and arguments for a row whose first document has this length."""
    subject, length = trial.subject, trial.length
    row = torch.arange(length, device=trial.ids.device)
    restarted = torch.where(row < first, row, row - first)[None]
    too = {"position_ids": restarted} if subject.has_position_argument else {}
    lengths = torch.tensor([0, first, length], dtype=torch.int32, device=trial.ids.device)
    known = dict.fromkeys(DOCUMENT_ARGUMENTS, (row >= first).long()[None]) | dict.fromkeys(LENGTH_ARGUMENTS, lengths)
    names = (name for name in known if subject.takes(name))
    taken = [name for name in names if name not in OF_SENTENCES or not _embeds(trial, name, known[name])][:1]
    found: list[tuple[str, dict[str, Any]]]
    found = [(msg("by {name}", name=name), {name: known[name]} | too) for name in taken]
    if not found and too and (trial.options.packing or not has_state(subject.config)):
        rows = 1 if trial.options.packing else rows_of_positions(subject)
        if rows == 1:
            found.append((msg("by positions that restart"), too))
        elif rows:
            words = msg("by positions that restart, in {rows} rows", rows=rows)
            found.append((words, {"position_ids": restarted.expand(rows, 1, -1)}))
    form = explicit_form(trial)
    if form is not None:
        mask = form(_packed(trial, first), subject.dtype)
        found.append((msg("by a mask [1,1,T,T] of its documents"), {"attention_mask": mask, "position_ids": restarted}))
    return found


def _embeds(trial: CheckTrial, name: str, numbers: Tensor) -> bool:
    """Whether the module looks these numbers [1,T] up in a table, by nn.Embedding or F.embedding."""
    seen: list[bool] = []

    def look(operation: str, given: list[Any], _found: Any) -> None:
        if operation.startswith("embedding"):
            seen.extend(torch.equal(one.flatten(), numbers[0].to(one)) for one in given[1:] if isinstance(one, Tensor))

    with OperationObserver(look):
        trial.subject.outputs(trial.ids[None], **{name: numbers})
    return any(seen)


Form = Callable[[Tensor, torch.dtype], Tensor]  # bool [T,T] to the explicit mask [1,1,T,T] that a module takes
FORMS: tuple[Form, ...] = (  # additive, 0 or the dtype's minimum; bool
    lambda mask, dtype: torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, torch.finfo(dtype).min)[None, None],
    lambda allowed, _dtype: allowed[None, None],
)


def explicit_form(trial: CheckTrial) -> Form | None:
    """Return the form in which the declared mask, passed explicitly, changes nothing: added to the scores (0 or the
    dtype's minimum), or bool. None if neither does, if its layers' masks differ (one mask cannot stand for two) or if
    it takes no position ids. A module that is not known to take such masks must also respond to one that packs
    documents."""
    subject, layers = trial.subject, trial.declared.layers
    alike = all(torch.equal(layer, layers[0]) for layer in layers)
    if not (alike and subject.takes_mask and subject.takes_positions) or has_state(subject.config):
        return None
    source = _source(subject)  # its mask functions pass on a mask of four axes unchanged
    hands_on = hasattr(source, "create_causal_mask") or hasattr(source, "create_bidirectional_mask")
    if subject.kind == "encoder-decoder" or (subject.is_transformers_model and not hands_on):
        return None
    known = subject.is_transformers_model or getattr(subject.config, "packs_by", None) == "attention_mask"
    whole, packed = layers[0].to(trial.ids.device), _packed(trial, trial.length * 2 // 5)
    for form in FORMS:
        if _moves(trial, form(whole, subject.dtype)) is False and (_moves(trial, form(packed, subject.dtype)) or known):
            return form
    return None


def _packed(trial: CheckTrial, first: int) -> Tensor:
    """Return bool [T,T]: the first layer's mask in each of two documents; windows and chunks restart."""
    whole = trial.declared.layers[0].to(trial.ids.device)
    packed: Tensor = torch.block_diag(*(whole[:size, :size] for size in (first, trial.length - first)))
    return packed.bool()


def _judge(trial: CheckTrial, first: int, words: str, arguments: dict[str, Any]) -> Finding:
    found = trial.subject.outputs(trial.ids[None], **arguments)[0]
    alone = [trial.subject.outputs(trial.ids[None, :first])[0], trial.subject.outputs(trial.ids[None, first:])[0]]
    broken = N_("{how}: output {where} differs by {amount} from its document alone.")
    finding = trial.compared(found, torch.cat(alone), broken, "", how=words)
    if finding.verdict == BROKEN:
        changed = trial.other(trial.ids, trial.generator(3))
        for token in range(first):
            ids = trial.ids.clone()
            ids[token] = changed[token]
            moved = max_difference(trial.subject.outputs(ids[None], **arguments)[0], found)[first:]
            if bool((moved > trial.tolerance).any()):
                output = first + first_above(moved, trial.tolerance)
                return replace(finding, words=msg(SEEN, how=words, output=output, token=token), pair=(output, token))
        return finding
    joined = trial.difference(trial.alone[first:], alone[1])  # the positive control: without the convention
    if joined.amount > trial.tolerance:
        return finding
    return unknown(msg("as one document they give the same outputs too, so this proves nothing."), finding)


def rows_of_positions(subject: CheckedModule) -> int:
    """Return how many rows of position ids separate a decoder's documents, 0 for none: for transformers' own models,
    read from the source, if the causal mask is made from them.

    4 rows, [4,B,T], where a token has a time, a height and a width (Qwen2-VL): the first are the positions in the text,
    and without them documents are not separated.
    """
    if getattr(subject.config, "packs_by", None) == "position_ids":
        return 1
    text = ""
    with suppress(OSError, TypeError):  # no source, or no module of transformers'
        text = inspect.getsource(_source(subject))  # type: ignore[arg-type]
    if subject.kind != "decoder":  # another mask is made without them; an encoder-decoder's documents need sources
        return 0
    given = set(GIVEN.findall(text))
    if "position_ids" in given:
        return 1
    return 4 if "text_position_ids" in given and "position_ids.shape[0] == 4" in text else 0


def _source(subject: CheckedModule) -> ModuleType | None:
    """Return the Python module of transformers that defines its class, or the one it is derived from."""
    return inspect.getmodule(class_in("transformers.models.", subject.inner))


def has_state(config: Any) -> bool:
    """Whether some layers carry a recurrent state instead of attending: positions do not separate their documents."""
    types = getattr(config, "layer_types", None) or []
    return any("attention" not in str(one) or "linear" in str(one) for one in types)


def _moves(trial: CheckTrial, mask: Tensor) -> bool | None:
    """Whether an explicit mask changes the row's outputs; None if the module refuses it."""
    try:
        found = trial.subject.outputs(trial.ids[None], attention_mask=mask)[0]
    except (TookTooLong, MemoryError):
        raise
    except Exception:  # noqa: BLE001 - a forward that takes no such mask may raise anything, or give other shapes
        return None
    return trial.difference(found, trial.alone).amount > trial.tolerance


def judge_tree(trial: CheckTrial) -> Finding:
    """Two drafts after one prompt, in one row with an explicit mask [1,1,T,T] and positions, give the same outputs as
    each alone.

    Tolerated: rounding. Limits: a module that takes such a mask and positions, with one mask in all layers.
    """
    form = explicit_form(trial)
    if form is None:
        return skipped(msg("it takes no explicit mask with positions, or its layers' masks differ."))
    prompt, length = trial.length - 2 * DRAFTS, trial.length - DRAFTS
    if prompt < 1:
        return skipped(msg("the text is too short for a draft tree."))
    if not torch.equal(trial.declared.layers[0], torch.ones_like(trial.declared.layers[0]).tril()):
        return skipped(msg("draft trees are for causal masks alone."))
    allowed = torch.ones(trial.length, trial.length, dtype=torch.bool, device=trial.ids.device).tril()
    allowed[length:, prompt:length] = False
    positions = torch.arange(trial.length, device=trial.ids.device)
    positions[length:] -= DRAFTS
    given = {"attention_mask": form(allowed, trial.subject.dtype), "position_ids": positions[None]}
    found = trial.subject.outputs(trial.ids[None], **given)[0]
    second = torch.cat([trial.ids[:prompt], trial.ids[length:]])
    first, rest = trial.subject.outputs(trial.ids[None, :length])[0], trial.subject.outputs(second[None])[0, prompt:]
    broken = N_("in a draft tree output {where} differs by {amount} from its branch alone.")
    obeyed = msg("each branch of a draft tree is the same as alone.")
    return trial.compared(found, torch.cat([first, rest]), broken, obeyed)
