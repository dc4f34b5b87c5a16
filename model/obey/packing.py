"""Law 3: documents packed into one row, by the module's own convention, are each as it is alone.

Conventions: positions that start again (transformers' own, where its masks are made from position ids), a document
number for each token, cumulative lengths.
"""

import ast
import inspect
import sys
from typing import Any

import torch
from torch import Tensor

from model.obey.findings import BROKEN, Finding
from model.obey.subject import apart
from model.obey.trial import Trial, difference_of, first_above, say, skipped, unknown

LAW, NAME = "packing", "Packed documents"
DOCUMENT_ARGUMENTS = ("document_ids", "doc_ids", "documents", "sequence_ids", "segment_ids", "seq_idx")
LENGTH_ARGUMENTS = ("cu_seqlens", "cu_seq_lens", "cu_seq_lens_q")


def judge(trial: Trial) -> Finding:
    """Two documents in one row: each as alone, and no token of the first moves the second."""
    first = trial.length * 2 // 5
    how = convention(trial, first)
    if how is None:
        return skipped(LAW, NAME, "it has no convention for packed documents that this check knows.")
    words, arguments = how
    if first < 1:
        return skipped(LAW, NAME, "the text is too short for two documents.")
    found = trial.subject.outputs(trial.ids[None], **arguments)[0]
    alone = [trial.subject.outputs(trial.ids[None, :first])[0], trial.subject.outputs(trial.ids[None, first:])[0]]
    amount, each = difference_of(found, torch.cat(alone))
    where = first_above(each, trial.tolerance)
    finding = trial.finding(
        LAW,
        NAME,
        amount=amount,
        broken=f"{words}: output {where} differs by {say(amount)} from its document alone.",
        kept=f"{words}: both documents are as they are alone.",
    )
    pair = _seen_across(trial, first, arguments)
    if finding.verdict == BROKEN and pair is not None:
        seen = f"{words}: output {pair[0]} of the second document moves when token {pair[1]} of the first is changed."
        return Finding(LAW, NAME, BROKEN, seen, amount, trial.tolerance, pair)
    if finding.verdict != BROKEN and not _joined_would_differ(trial, first, alone[1]):
        return unknown(LAW, NAME, "as one document they give the same outputs too, so nothing is shown.", finding)
    return finding


def convention(trial: Trial, first: int) -> tuple[str, dict[str, Any]] | None:
    """In words, and as arguments for a row whose first document has so many tokens."""
    subject, length = trial.subject, trial.length
    row = torch.arange(length, device=trial.ids.device)
    restarted = torch.where(row < first, row, row - first)[None]
    too = {"position_ids": restarted} if subject.takes("position_ids") else {}
    for name in DOCUMENT_ARGUMENTS:
        if subject.takes(name):
            return f"by {name}", {name: (row >= first).long()[None]} | too
    for name in LENGTH_ARGUMENTS:
        if subject.takes(name):
            lengths = torch.tensor([0, first, length], dtype=torch.int32, device=trial.ids.device)
            return f"by {name}", {name: lengths} | (
                {"position_ids": restarted} if subject.takes("position_ids") else {}
            )
    if (
        subject.takes("position_ids")
        and not _has_state(subject.config)
        and (packs_by_positions(subject.module) or _says_so(subject.config))
    ):
        return "by positions that start again", {"position_ids": restarted}
    return None


def packs_by_positions(module: Any) -> bool:
    """Whether a model of transformers' makes its causal mask from its position ids too, read from its source."""
    source = sys.modules.get(type(module).__module__)
    if source is None or not source.__name__.startswith("transformers.models."):
        return False
    try:
        tree = ast.parse(inspect.getsource(source))
    except OSError:
        return False
    return any(_gives_positions(node) for node in ast.walk(tree))


def _gives_positions(node: ast.AST) -> bool:
    """create_causal_mask(position_ids=…), or the dict of arguments that it is called with."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "create_causal_mask":
        return any(keyword.arg == "position_ids" for keyword in node.keywords)
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
        named = any(isinstance(target, ast.Name) and "mask_kwargs" in target.id for target in node.targets)
        return named and any(isinstance(key, ast.Constant) and key.value == "position_ids" for key in node.value.keys)
    return False


def _has_state(config: Any) -> bool:
    """Whether some layers carry a state along instead of attending: positions do not tell them of documents."""
    types = getattr(config, "layer_types", None) or []
    return any("attention" not in str(one) or "linear" in str(one) for one in types)


def _says_so(config: Any) -> bool:
    return getattr(config, "packs_by", None) == "position_ids"


def _seen_across(trial: Trial, first: int, arguments: dict[str, Any]) -> tuple[int, int] | None:
    """The first pair of an output of the second document and a token of the first that moves it."""
    base = trial.subject.outputs(trial.ids[None], **arguments)[0]
    changed = trial.other(trial.ids, trial.generator(3))
    for column in range(first):
        ids = trial.ids.clone()
        ids[column] = changed[column]
        moved = apart(trial.subject.outputs(ids[None], **arguments)[0], base)[first:]
        if bool((moved > trial.tolerance).any()):
            return first + first_above(moved, trial.tolerance), column
    return None


def _joined_would_differ(trial: Trial, first: int, second_alone: Tensor) -> bool:
    """The positive control: without the convention the second document is not as it is alone."""
    joined = trial.subject.outputs(trial.ids[None])[0, first:]
    return difference_of(joined, second_alone)[0] > trial.tolerance
