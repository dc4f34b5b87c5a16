"""Laws of key-value caches: read step by step, a text has the same outputs as in one forward pass. A text longer than a
sliding window takes the cache past it. Also reused caches, and logits_to_keep."""

import copy
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate, cycle, pairwise, takewhile
from typing import Any

import torch
from torch import Tensor

from i18n import N_, msg, msg_list
from mask_check.findings import BROKEN, OBEYS, CannotCheck, Finding, skipped, unknown
from mask_check.packing import has_state
from mask_check.subject import logits_in, max_difference
from mask_check.trial import CheckTrial
from model.blocks import positions_of
from model.errors import first_line
from model.huggingface.internals import runs_with_static_cache

Pairs = list[tuple[Tensor, Tensor]]  # outputs [T',V]: measured and expected
Ways = dict[str, Callable[[], Pairs]]
STEPPED = N_("{way}, output {where} differs by {amount} from one forward pass over the text.")
REUSED = N_("a cache {way}: output {where} after it differs by {amount}.")


class UnsupportedMethod(Exception):
    """Raised if a cache has no such method, or the method raises."""


def judge(trial: CheckTrial) -> Finding:
    """Read step by step through a key-value cache, the row gives the same outputs as in one forward pass: one token per
    step, several per step, after a prompt padded on the left, and in transformers' static cache.

    Tolerated: rounding. Limits: one row, of --length tokens; masks that block all later tokens.
    """
    subject = trial.subject
    if not (subject.takes("past_key_values") and subject.takes("use_cache")):
        return skipped(msg("its forward takes no argument named past_key_values, or none named use_cache."))
    if trial.length < 4:
        return skipped(msg("the text is too short for steps."))
    if bool(trial.declared.reach.triu(1).any()):
        return skipped(msg("a token that sees later ones cannot be computed before them."))
    prompt = max(trial.length // 3, 1)
    if _read(trial, trial.ids[None, :prompt], [prompt])[1] is None:
        with torch.no_grad():
            step = subject.call(trial.ids[None, :prompt], use_cache=True)
        if type(step) in (tuple, list) and any(one is not None for one in step[1:]):
            return unknown(msg("it is not known which of its outputs is its cache."))
        return skipped(msg("it returns no past_key_values when asked to use a cache."))
    chunks = [prompt, *_chunks(trial.length - prompt, (1, 3, 2))]
    ways: Ways = {
        msg("token by token"): lambda: _stepped(trial, [1] * trial.length),
        msg("in chunks"): lambda: _stepped(trial, chunks),
        msg("in a static cache"): lambda: _in_static(trial, [prompt, *[1] * (trial.length - prompt)]),
        msg("after left padding"): lambda: _after_left_padding(trial, prompt),
    }
    finding, same, _, failed = _compare_ways(trial, ways, STEPPED)
    if finding.verdict == BROKEN:
        plain = trial.declared.exact and not has_state(subject.config)
        return finding.because(_cause(trial) if plain else "")
    if failed:
        return unknown(msg("{way}, it raised {error}.", way=failed[0][0], error=failed[0][1]), finding)
    return replace(finding, words=msg("{ways}: the same as one forward pass.", ways=msg_list(same)))


def judge_reuse(trial: CheckTrial) -> Finding:
    """A cache that is cut back after rejected drafts, has its rows reordered, or is copied for two continuations of a
    prefix, and a static cache that is filled in chunks give the same outputs as one forward pass.

    Tolerated: rounding. Limits: cutting back and reordering need a cache with crop and reorder_cache, which plain
    tuples lack.
    """
    if trial.found["cache"].verdict != OBEYS:
        return skipped(trial.found["cache"].words)
    prompt = max(trial.length // 3, 1)
    drafted = prompt + 3
    row, other = trial.ids, trial.other(trial.ids, trial.generator(15))
    mixed = torch.cat([row[:prompt], other[prompt:]])
    of_other, of_mixed = (trial.subject.outputs(ids[None])[0, prompt:] for ids in (other, mixed))
    rest, of_row = [2, trial.length - 2 - prompt], trial.alone[prompt:]

    def cut_back() -> Pairs:
        _, cache = _read(trial, torch.cat([row[:prompt], other[prompt:drafted]])[None], [prompt, 1, 2])
        theirs = type(cache).__module__.startswith("transformers.")
        _change(cache, "crop", prompt - drafted if theirs else prompt)  # transformers' take minus the number to remove
        return [(_read(trial, row[None], rest, cache, prompt)[0][0], of_row)]

    def reordered() -> Pairs:
        _, cache = _read(trial, torch.stack([row, other])[:, :prompt], [prompt])
        _change(cache, "reorder_cache", torch.tensor([1, 0], device=row.device))
        found, _ = _read(trial, torch.stack([other, row]), [trial.length - prompt], cache, prompt)
        return list(zip(found, (of_other, of_row), strict=True))

    def shared() -> Pairs:
        _, cache = _read(trial, row[None, :prompt], [prompt])
        found = [_read(trial, ids[None], rest, copy.deepcopy(cache), prompt)[0][0] for ids in (mixed, row)]
        return list(zip(found, (of_mixed, of_row), strict=True))

    ways: Ways = {
        msg("cut back after rejected drafts"): cut_back,
        msg("with its rows reordered"): reordered,
        msg("shared by two continuations"): shared,
    }
    if trial.subject.is_pretrained_model:
        sizes = _chunks(trial.length, (2, 3, prompt, 1, trial.length))
        ways[msg("filled in chunks in a static cache")] = lambda: _in_static(trial, sizes)
    finding, same, missing, failed = _compare_ways(trial, ways, REUSED)
    if finding.verdict == BROKEN:
        return finding
    if failed:
        words = msg("a cache {way}: the next call raised {error}.", way=failed[0][0], error=failed[0][1])
        return Finding(BROKEN, words, torch.inf, trial.tolerance)
    refused = msg_list([msg("{way} ({error})", way=way, error=error) for way, error in missing])
    if not same:
        return skipped(msg("its cache cannot be reused: {ways}.", ways=refused))
    found = replace(finding, words=msg("a cache {ways}: the same as one forward pass.", ways=msg_list(same)))
    return found.because(msg("Not offered: {ways}.", ways=refused) if missing else "")


def judge_last(trial: CheckTrial) -> Finding:
    """The logits of the last tokens, selected by logits_to_keep, equal the last of all logits, for one row and for two.

    Tolerated: rounding. Limits: the last token and the last three.
    """
    subject = trial.subject
    if not subject.takes("logits_to_keep"):
        return skipped(msg("its forward takes no argument named logits_to_keep."))
    ids = torch.stack([trial.ids, trial.other(trial.ids, trial.generator(16))])[: 1 if subject.row_by_row else 2]
    whole, max_change = subject.outputs(ids), 0.0
    for count in (1, min(3, ids.shape[1])):
        with torch.no_grad():
            found = logits_in(subject.call(ids, logits_to_keep=count), ids[:, -count:])
        if not isinstance(found, Tensor) or found.shape != (len(ids), count, whole.shape[-1]):
            got = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
            words = msg("logits_to_keep={count} gives {got} instead of the last {count} logits.", count=count, got=got)
            return Finding(BROKEN, words)
        max_change = max(max_change, float(max_difference(found.to(whole.dtype), whole[:, -count:]).max()))
        if max_change > trial.tolerance:
            words = msg("logits_to_keep={count} gives other logits than the last {count} of all.", count=count)
            return Finding(BROKEN, words, max_change, trial.tolerance)
    return trial.finding(max_change, broken="", obeyed=msg("logits_to_keep gives the last logits."))


def _compare_ways(
    trial: CheckTrial, ways: Ways, differs: str
) -> tuple[Finding, list[str], list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the finding of the first way whose outputs differ, or of all; the ways tried; and, with a reason each,
    those not offered and those that failed. differs: a sentence with {way}, {where} and {amount}."""
    max_change, same = 0.0, list[str]()
    refused, failed = list[tuple[str, str]](), list[tuple[str, str]]()
    for way, run in ways.items():
        try:
            pairs = run()
        except (CannotCheck, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - a third-party forward may raise anything
            (refused if isinstance(error, UnsupportedMethod) else failed).append((way, first_line(error)))
            continue
        for found, wanted in pairs:
            difference = trial.difference(found, wanted[: len(found)])
            if difference.amount > trial.tolerance:
                words = msg(differs, way=way, **difference.values)
                return Finding(BROKEN, words, difference.amount, trial.tolerance), same, refused, failed
            max_change = max(max_change, difference.amount)
        same += [way] if pairs else []
    return Finding(OBEYS, "", max_change, trial.tolerance), same, refused, failed


def _change(cache: Any, method: str, *given: Any) -> None:
    try:
        getattr(cache, method)(*given)
    except Exception as error:
        raise UnsupportedMethod(first_line(error)) from error


def _cause(trial: CheckTrial) -> str:
    """Return the likely cause if a last step of two tokens reads no earlier token but the first two, which are all that
    a mask aligned top-left allows it; else ""."""
    prompt, other = trial.length - 2, trial.ids.clone()
    hidden = slice(min(2, prompt - 1), prompt)
    other[hidden] = trial.other(trial.ids, trial.generator(17))[hidden]
    rows = [_read(trial, ids[None], [prompt, 2])[0][0, prompt:] for ids in (trial.ids, other)]
    if float(max_difference(*rows).max()) > trial.tolerance:
        return ""
    return msg("Likely cause: with cached keys the mask is aligned top-left (is_causal) or restarts.")


def _chunks(total: int, sizes: tuple[int, ...]) -> list[int]:
    """Repeat these sizes until they add up to the total."""
    ends = [0, *takewhile(lambda end: end < total, accumulate(cycle(sizes))), total]
    return [end - begin for begin, end in pairwise(ends)]


def _stepped(trial: CheckTrial, sizes: list[int], cache: Any = None) -> Pairs:
    return [(_read(trial, trial.ids[None], sizes, cache)[0][0], trial.alone)]


def _after_left_padding(trial: CheckTrial, prompt: int) -> Pairs:
    """Read the row's beginning in a batch whose first row is padded on the left; [] if padding cannot be passed."""
    subject = trial.subject
    can_be_shifted = subject.takes_positions or not subject.is_transformers_model  # else by the mask alone
    if not subject.takes_mask or subject.kind != "decoder" or not can_be_shifted:
        return []
    pads = max(prompt // 2, 1)
    many = trial.length - pads  # with its pads it is as long as the row, because a context may end there
    keep = torch.ones(2, trial.length, dtype=torch.bool, device=trial.ids.device)
    keep[0, :pads] = False
    row = torch.cat([trial.ids.new_full((pads,), trial.pad), trial.ids[:many]])
    sizes = [prompt + pads, *[1] * (many - prompt)]
    rows = slice(1) if subject.row_by_row else slice(2)
    return [(_read(trial, torch.stack([row, trial.ids])[rows], sizes, keep=keep[rows])[0][0, pads:], trial.alone)]


def _read(
    trial: CheckTrial, ids: Tensor, sizes: list[int], cache: Any = None, begin: int = 0, keep: Tensor | None = None
) -> tuple[Tensor, Any]:
    """Read ids [B,T] from `begin` on in steps of these sizes; return the outputs [B,T',V] and the cache."""
    subject = trial.subject
    counted = positions_of(keep) if keep is not None and subject.takes_positions else None
    if keep is None and subject.needs_mask and subject.kind == "decoder":
        keep = torch.ones_like(ids).bool()  # cut below to what has been read, this step included
    found, done, encoded = [], begin, None
    for size in sizes:
        part = slice(done, done + size)
        arguments: dict[str, Any] = {"use_cache": True, "past_key_values": cache, "encoder_outputs": encoded}
        arguments["position_ids"] = None if counted is None else counted[:, part]
        with torch.no_grad():
            step = subject.call(ids[:, part], None if keep is None else keep[:, : done + size], **arguments)
        found.append(subject.read(step, ids[:, part]))
        cache = _cache_in(step)
        if cache is None and type(step) in (tuple, list):
            with torch.no_grad():
                cache = _find_cache(step, subject.call(ids[:, :1]))
        if subject.kind == "encoder-decoder" and encoded is None and subject.takes("encoder_outputs"):
            from transformers.modeling_outputs import BaseModelOutput  # only transformers' models have this argument

            encoded = BaseModelOutput(step.encoder_last_hidden_state)
        done += size
    return torch.cat(found, dim=1), cache


def _cache_in(step: Any) -> Any:
    """Return the cache in what a forward returned: by name, or in a tuple the first part after the logits that is
    neither a tensor, nor a list of tensors, as hidden states are, nor a dict."""
    if isinstance(step, dict):
        return step.get("past_key_values")
    if type(step) not in (tuple, list):
        return getattr(step, "past_key_values", None)
    parts = [one for one in step[1:] if one is not None and not isinstance(one, Tensor | dict)]
    of_states = [isinstance(one, tuple | list) and all(isinstance(part, Tensor) for part in one) for one in parts]
    return next((one for one, states in zip(parts, of_states, strict=True) if not states), None)


def _find_cache(step: Any, plain: Any) -> Any:
    """Return the part of a returned tuple that is its cache: without it, the tuple has the structure of one returned
    without a cache. None if several parts fit."""
    without = _kind([one for one in (plain if type(plain) in (tuple, list) else [plain]) if one is not None])
    parts = [part for part in step if part is not None]
    found = [part for index, part in enumerate(parts) if _kind(parts[:index] + parts[index + 1 :]) == without]
    return found[0] if len(found) == 1 else None


def _kind(some: Any) -> Any:
    """Return the structure of what a forward returned, with each tensor as its number of axes."""
    if isinstance(some, Tensor):
        return some.ndim
    return [_kind(part) for part in some] if isinstance(some, tuple | list) else type(some)


def _in_static(trial: CheckTrial, sizes: list[int]) -> Pairs:
    """Read the row in steps of these sizes with transformers' static cache; [] if the module does not support it."""
    subject = trial.subject
    if not subject.is_pretrained_model or subject.kind != "decoder" or not runs_with_static_cache(subject.inner):
        return []
    from transformers import StaticCache

    try:
        made = StaticCache(config=subject.config, max_cache_len=trial.length)
    except (ValueError, TypeError, AttributeError, KeyError):
        return []
    return _stepped(trial, sizes, made)
