"""Law 4: read step by step through a key-value cache, a text gives what it gives when it is read all at once.

One token a step, several a step, after a prompt padded on the left, and in transformers' static cache. A text longer
than a sliding window takes the cache past it.
"""

from collections.abc import Callable, Iterable
from itertools import cycle
from typing import Any

import torch
from torch import Tensor

from i18n import msg, msg_list, msg_together
from mask_check.findings import BROKEN, CannotCheck, Finding
from mask_check.packing import has_state
from mask_check.subject import CheckedModule, counted_positions
from mask_check.trial import CheckTrial, skipped, unknown
from model.huggingface.internals import runs_with_static_cache


def judge(trial: CheckTrial) -> Finding:
    """The largest difference over all ways of going step by step."""
    subject = trial.subject
    if not (subject.takes("past_key_values") and subject.takes("use_cache")):
        return skipped(msg("its forward takes no past_key_values."))
    if trial.length < 4:
        return skipped(msg("the text is too short for steps."))
    if bool(trial.declared.reach.triu(1).any()):
        return skipped(msg("a token that sees later ones cannot be computed before them."))
    prompt = max(trial.length // 3, 1)
    if not _gives_cache(trial, prompt):
        return skipped(msg("it returns no past_key_values when asked to use a cache."))
    chunks = [prompt, *_chunks(trial.length - prompt, (1, 3, 2))]
    ways: dict[str, Callable[[], Tensor | None]] = {
        msg("token by token"): lambda: _stepped(trial, [1] * trial.length),
        msg("in chunks"): lambda: _stepped(trial, chunks),
        msg("in a static cache"): lambda: _static(trial, prompt),
        msg("after left padding"): lambda: _after_left_padding(trial, prompt),
    }
    most, words, gone, errors = 0.0, "", [], []
    for way, run in ways.items():
        try:
            found = run()
        except (CannotCheck, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - a stranger's forward may raise anything
            values = {"way": way, "error": type(error).__name__, "words": str(error)[:100]}
            errors.append(msg("{way}, it raised {error}: {words}.", **values))
            continue
        if found is None:
            continue
        gone.append(way)
        difference = trial.difference(found, trial.alone[: len(found)])
        if difference.amount > trial.tolerance and not words:
            values = {"way": way} | difference.values
            words = msg("{way}, output {where} differs by {amount} from the text run all at once.", **values)
            plain = trial.declared.exact and not has_state(subject.config) and difference.where >= prompt
            if way == [*ways][1] and len(gone) == 2 and plain:  # one token at a time was right
                cause = msg("Likely cause: with cached keys the mask is aligned top-left (is_causal) or begins anew.")
                words = msg_together([words, cause])
        most = max(most, difference.amount)
    kept = msg("{ways}: the same as all at once.", ways=msg_list(gone))
    finding = trial.finding(most, broken=words, kept=kept)
    return unknown(errors[0], finding) if errors and finding.verdict != BROKEN else finding


def _chunks(total: int, sizes: tuple[int, ...]) -> Iterable[int]:
    """These sizes again and again, up to the total."""
    for size in cycle(sizes):
        if total <= 0:
            return
        yield min(size, total)
        total -= size


def _stepped(trial: CheckTrial, sizes: list[int], cache: Any = None) -> Tensor:
    """[T,V]: the row read in steps of these sizes."""
    return _run(trial.subject, trial.ids[None], sizes, None, cache)[0]


def _after_left_padding(trial: CheckTrial, prompt: int) -> Tensor | None:
    """[T',V]: the row's beginning in steps, in a batch whose first row's prompt is padded on the left.

    None for a module that cannot be told of padding, or of the positions that go with it.
    """
    subject = trial.subject
    can_be_shifted = subject.takes_positions or not subject.is_transformers  # others are held to the mask alone
    if not subject.takes_mask or subject.kind != "decoder" or not can_be_shifted:
        return None
    pads = max(prompt // 2, 1)
    many = trial.length - pads  # with its pads it is as long as the row, for a context may end there
    keep = torch.ones(2, trial.length, dtype=torch.bool, device=trial.ids.device)
    keep[0, :pads] = False
    row = torch.cat([trial.ids.new_full((pads,), trial.pad), trial.ids[:many]])
    sizes = [prompt + pads, *[1] * (many - prompt)]
    rows = slice(1) if subject.one_row else slice(2)
    return _run(subject, torch.stack([row, trial.ids])[rows], sizes, keep[rows], None)[0, pads:]


def _run(subject: CheckedModule, ids: Tensor, sizes: list[int], keep: Tensor | None, cache: Any) -> Tensor:
    """ids [B,T] in steps -> outputs [B,T,V]. The mask grows with the cache, positions are counted over real tokens."""
    counted = counted_positions(keep) if keep is not None and subject.takes_positions else None
    found, done, encoded = [], 0, None
    for size in sizes:
        part = slice(done, done + size)
        arguments: dict[str, Any] = {"use_cache": True, "past_key_values": cache, "encoder_outputs": encoded}
        if counted is not None:
            arguments["position_ids"] = counted[:, part]
        with torch.no_grad():
            step = subject.call(ids[:, part], None if keep is None else keep[:, : done + size], **arguments)
        found.append(subject.read(step, ids[:, part]))
        cache = cache_of(step)
        if subject.kind == "encoder-decoder" and encoded is None and subject.takes("encoder_outputs"):
            from transformers.modeling_outputs import BaseModelOutput  # it has such an argument, so it is theirs

            encoded = BaseModelOutput(step.encoder_last_hidden_state)
        done += size
    return torch.cat(found, dim=1)


def cache_of(step: Any) -> Any:
    cache = getattr(step, "past_key_values", None)
    return step.get("past_key_values") if cache is None and isinstance(step, dict) else cache


def _gives_cache(trial: CheckTrial, prompt: int) -> bool:
    with torch.no_grad():
        return cache_of(trial.subject.call(trial.ids[None, :prompt], use_cache=True)) is not None


def _static(trial: CheckTrial, prompt: int) -> Tensor | None:
    """[T,V] in a static cache; None for a module that transformers does not offer one for."""
    cache = static_cache(trial)
    return None if cache is None else _stepped(trial, [prompt, *[1] * (trial.length - prompt)], cache)


def static_cache(trial: CheckTrial) -> Any:
    """transformers' static cache for the row; None where it offers none."""
    subject = trial.subject
    offers = subject.is_transformers and runs_with_static_cache(subject.inner)
    if not offers or subject.kind != "decoder":
        return None
    from transformers import StaticCache

    try:
        return StaticCache(config=subject.config, max_cache_len=trial.length)
    except (ValueError, TypeError, AttributeError, KeyError):
        return None
