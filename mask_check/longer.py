"""Influence between tokens in longer rows: leaks that need more tokens, and attention that ends too early.

In a row of 130 tokens and one of 520, or of as many as the module takes, all tokens from a position on are replaced,
then, under a window, all before it, then the one at it; no output may change that may attend to none of the replaced
tokens. One forward pass for each change tests all pairs across it.

`quick_check` tests one row in two forwards, three for a module that needs targets: one of copies of the row, and one in
which each copy but the first and the last is replaced from another position on. Each output is compared with that
of the same cell of the batch, so that both are computed alike; changes of those two have no cause in a mask. A
leak takes one more forward, for its cause.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from i18n import N_, msg, msg_all, msg_together
from mask_check import differentiate, prepare, reach
from mask_check.declared import Declared, Mask, cause_of, declare
from mask_check.findings import BROKEN, OBEYS, CannotCheck, CheckReport, Finding, Noise, format_amount, skipped, unknown
from mask_check.kernels import described, row_mixing_cause
from mask_check.rounding import LongRowRounding
from mask_check.subject import CheckedModule, TookTooLong, largest, max_difference, restoring_module, text_config
from mask_check.trial import CHANGES, STEP, CheckTrial, within
from model.errors import first_line
from model.spec import MAX_POSITIONS
from serving import machine

LENGTHS = 130, 520  # in a declared context the second is odd (`within`): a mask may be wrong at either
LEAK = N_(
    "in a row of {length} tokens output {row} changes by {size} if token {column} is changed, which its mask blocks. "
    "The shortest row that leaks has {shortest} tokens."
)
LEAK_OF_SEVERAL = N_(
    "in a row of {length} tokens output {row} changes by {size} if tokens {first} to {last} are changed, which its "
    "mask blocks. The token was not found: {why}."
)
SHUT = N_(
    "in a row of {length} tokens output {row} has no gradient with respect to token {column}, {distance} before it, "
    "where its mask is open."
)
SPARSE = N_(
    "In a row of {length} tokens the last two outputs do not read the token {distance} before them, and nothing "
    "declares a mask."
)
CUTS = 31, 127, 511, 256, 7, 63, 3, 1, 15, 32, 64, 128  # those that halve blocks of 2ⁿ come first
WORK = 2.5e11  # parameters · tokens · rows: the budget for one length, unless it was asked for
GRADIENT_WORK = 1.2e11
QUICK_LOGITS = 2**25  # in one forward: rows · T · V
MIN_CUTS = 3  # besides those needed, however large the vocabulary is
ROUNDINGS = 64  # epsilons of the largest output: the effect of the order of sums in two forwards of one shape
FLOAT32_EPSILON = torch.finfo(torch.float32).eps
COARSE_ROUNDINGS = 16  # ROUNDINGS in float16 and bfloat16
MIXED_ROWS = N_("the row changes by {size} when other rows of its batch are changed.")


def judge(trial: CheckTrial) -> Finding:
    """In rows of 130 and 520 tokens, of --tokens, or of as many as it takes, all tokens from a position on are
    replaced, then, under a window, all before it, then single tokens: no output changes that may not attend to them.
    The farthest pairs that the mask allows have a gradient. A leak is narrowed down to one token, and to the shortest
    row that leaks.

    Tolerated: rounding, also of this row if in float64 a change is a thousand times smaller or the module has no copy
    in it; gradients are exactly 0 or not. Limits: some positions (all: --thorough); for a large module
    fewer, or one length, and no gradients without --tokens.
    """
    if trial.given_as_cells:
        return skipped(msg("a mask given by hand has one length."))
    if trial.mask is not None and trial.mask.leaks.any():
        return skipped(msg("the short row leaks already."))
    if (trial.options.tokens or MAX_POSITIONS) <= trial.length:
        return skipped(msg("no row of more than {length} tokens was asked for.", length=trial.length))
    max_change, tolerance, why, near, tried = 0.0, trial.tolerance, "", "", list[str]()
    wanted = [*_lengths(trial, trial.max_tokens)]
    for length in wanted:
        row = trial.at(length)
        try:
            finding = _judge(row, trial.length)
        except (TookTooLong, MemoryError) as error:
            why, trial.refused = str(error) or msg("not enough memory"), True
            break
        except Exception as error:  # noqa: BLE001 - its context may be shorter
            values = {"length": length, "error": type(error).__name__, "words": first_line(error)}
            why = why or msg("a row of {length} tokens raised {error}: {words}", **values)
            shorter, after, trial.refused = trial.fitting(length), wanted.index(length) + 1, True
            wanted[after:after] = [shorter] if trial.longest < shorter < length else []
            continue
        if finding.verdict in (OBEYS, BROKEN):
            trial.longer.append(length)
        if finding.verdict != OBEYS:
            return finding
        max_change, near = max(max_change, finding.amount or 0.0), finding.words or near
        tolerance = max(tolerance, finding.tolerance or 0.0)
        tried.append(str(len({one.start or one.stop for one in changes(row)})))
    if not trial.longer:
        return skipped(why or msg("its context is too short, or it is too large to check without --tokens."))
    lengths = msg_all([*map(str, trial.longer)])
    words = msg("rows of {lengths} tokens: no leak.", lengths=lengths)
    if not trial.options.thorough:
        across = N_("rows of {lengths} tokens: no leak across {tried} of their positions (all: --thorough).")
        words = msg(across, lengths=lengths, tried=msg_all(tried))
    words = msg_together([words, msg("{problem}.", problem=why)]) if why else words
    found = Finding(OBEYS, words, max_change, tolerance)
    return unknown(msg_together([words, near]), found) if near else found


def _lengths(trial: CheckTrial, context: int) -> Iterator[int]:
    """Yield the lengths to try, shortest first: those asked for, or those that the context, memory and WORK allow."""
    requested = trial.options.tokens
    wanted = LENGTHS if requested is None else (*(one for one in LENGTHS if one < requested), requested)
    for length in sorted({one if one == requested else min(one, within(context)) for one in wanted}):
        fits = prepare.needed_bytes(trial.subject.config, length) <= prepare.MEMORY_SHARE * machine.free_bytes()
        if length > trial.length and fits and (requested is not None or _rows(trial, length) >= 2):
            yield length


def _rows(trial: CheckTrial, length: int) -> int:
    return int(WORK / max(trial.subject.parameters, 1) / length)


def changes(trial: CheckTrial) -> list[slice]:
    """Return the part to replace in each row, for as many rows as are allowed."""
    cuts = [trial.length - 1, *(one for one in CUTS if one < trial.length - 1)]  # the last: its block may not be full
    allowed = trial.declared.reach
    windowed = not bool(allowed.tril().eq(torch.ones_like(allowed).tril()).all())
    found = [slice(one, None) for one in cuts]
    found += [slice(0, one) for one in cuts if windowed]
    found += [slice(one, one + 1) for one in (range(trial.length) if trial.options.thorough else cuts)]
    whole, rows = trial.options.thorough or trial.options.tokens is not None, max(_rows(trial, trial.length), 2)
    return found if whole or len(found) <= rows else found[: min(rows, len(found) - len(cuts))]  # without single tokens


def _judge(trial: CheckTrial, short: int) -> Finding:
    changed, declared = trial.other(trial.ids, trial.generator(11)), trial.declared.reach
    max_change, alive = 0.0, False
    rounding = LongRowRounding(trial)
    for change in changes(trial):
        moved = _moved(trial, changed, change)
        closed = ~declared[:, change].any(1)
        amount = float(moved[closed].max()) if bool(closed.any()) else 0.0
        alive = alive or bool((moved[~closed] > trial.tolerance).any())
        if amount > trial.tolerance and not rounding.explains(amount, partial(_leaked, changed=changed, change=change)):
            row = int(moved.masked_fill(~closed, 0.0).argmax())
            of_row = rounding.trial_that_shows(amount)
            try:
                precise = _moved(of_row, changed, change)  # not the output that rounding changes most
                return _leak(of_row, changed, change, int(precise.masked_fill(~closed, 0.0).argmax()), short)
            except Exception as error:  # noqa: BLE001 - a shorter row may raise anything; the leak remains
                begin, end, _ = change.indices(trial.length)
                size, about = float(moved[row]), {"length": trial.length, "row": row, "why": first_line(error)}
                words = msg(LEAK_OF_SEVERAL, size=format_amount(size), first=begin, last=end - 1, **about)
                return Finding(BROKEN, words, size, of_row.tolerance)
        max_change = max(max_change, amount)
    if not alive:
        still = N_("in a row of {length} tokens no changed token changed an output by more than rounding.")
        return unknown(msg(still, length=trial.length))
    tolerance = (rounding.trial if max_change > trial.tolerance else trial).tolerance
    return _abrupt_end_of_gradients(trial, short, max_change, tolerance) or Finding(OBEYS, "", max_change, tolerance)


def _moved(trial: CheckTrial, changed: Tensor, change: slice) -> Tensor:
    """Return how much each output changes, [T]; each row runs by itself, so that all have the same shapes."""
    ids = trial.ids.clone()
    ids[change] = changed[change]
    return max_difference(trial.subject.outputs(ids[None])[0], trial.alone).cpu()


def _leaked(trial: CheckTrial, changed: Tensor, change: slice) -> float:
    """Return the largest change of an output that may attend to none of the replaced tokens."""
    return float(_moved(trial, changed, change)[~trial.declared.reach[:, change].any(1)].max())


def _leak(trial: CheckTrial, changed: Tensor, change: slice, row: int, short: int) -> Finding:
    """Find the token that changes output `row` most, by halving what was replaced, and the shortest row that leaks."""
    begin, end, _ = change.indices(trial.length)
    while end - begin > 1:
        middle = (begin + end) // 2
        halves = [slice(begin, middle), slice(middle, end)]
        amounts = [float(_moved(trial, changed, one)[row]) for one in halves]
        if max(amounts) <= trial.tolerance:  # neither half leaks alone
            break
        half = halves[amounts.index(max(amounts))]
        begin, end = half.start, half.stop
    moved = _moved(trial, changed, slice(begin, end))
    pairs: list[tuple[int, int]] = []
    tried = sorted({begin, *(one for one in CUTS if one < trial.length)})
    for token in tried:
        leaks = (_moved(trial, changed, slice(token, token + 1)) > trial.tolerance) & ~trial.declared.reach[:, token]
        pairs += [(one, token) for one in leaks.nonzero().flatten().tolist()]
    low, high = short, trial.length  # no leak at `low`, a leak at `high`
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _leaks(trial, middle, begin) else (middle, high)
    found = Finding.at((row, begin), LEAK, float(moved[row]), trial.tolerance, length=trial.length, shortest=high)
    return found.because(cause_of(pairs, trial.declared, tried=tried))


def _leaks(trial: CheckTrial, length: int, token: int) -> bool:
    """Whether the row's first `length` tokens leak: across some cuts, or from the first token or the one that leaks."""
    beginning = trial.at(length, trial.ids[:length])
    changed = trial.other(beginning.ids, trial.generator(11))
    closed = beginning.declared.reach.logical_not()
    for cut in (slice(0, 1), slice(token, token + 1), *changes(beginning)[:5]):
        moved = _moved(beginning, changed, cut) if cut.start < length else torch.zeros(length)
        if bool((moved[closed[:, cut].all(1)] > trial.tolerance).any()):
            return True
    return False


def _abrupt_end_of_gradients(trial: CheckTrial, short: int, change: float, tolerance: float) -> Finding | None:
    """Return the finding if gradients of the last two outputs end abruptly, exactly 0, at a distance that the mask
    allows; one that obeys, with a sentence on that, if no mask is declared."""
    large = trial.subject.parameters * trial.length * 6 > GRADIENT_WORK and trial.options.tokens is None
    if large or not trial.declared.exact or trial.found["gradients"].verdict != OBEYS:
        return None
    rows = [trial.length - 2, trial.length - 1]
    try:
        gradients = reach.measure_gradients(trial, rows)
    except RuntimeError:  # an operation that has no backward
        return None
    if gradients is None or not bool(gradients.isfinite().all()):
        return None
    others = trial.declared.reach[rows] & (torch.tensor(rows)[:, None] != torch.arange(trial.length))
    shut, limit = reach.zero_grad_pair(trial, gradients, others, rows), differentiate.ABRUPT * float(gradients.max())
    if shut is None or not float(gradients[rows.index(shut[0]), shut[1] + 1]) > limit:
        return None
    silent, distance = int((gradients[others] == 0).sum()), shut[0] - shut[1]
    if not trial.declared.assumed:
        return Finding.at(shut, SHUT, silent=silent, length=trial.length, distance=distance)
    near = reach.reads_nearby(trial, gradients, others, rows, distance) if distance >= short - 1 else ""
    return Finding(OBEYS, near or reach.advice(SPARSE, short, distance, length=trial.length), change, tolerance)


def quick_check(
    module: nn.Module,
    *,
    ids: Tensor | Sequence[int] | None = None,
    mask: Mask = "causal",
    length: int | None = None,
    seed: int = 0,
    seconds: float | None = None,
) -> CheckReport:
    """Check one law, "reach", by at most 3 forwards, and one more if it is broken; up to three more if a module does
    not state its vocabulary and context. ids [T], or `length` random ones: by default 130, or what the context allows.
    If the rows of a batch change each other, the law "batch" is broken instead. Raises CannotCheck for a module that
    cannot be called, or whose outputs are NaN or differ between runs."""
    prepare.check_seconds(seconds)
    subject = CheckedModule(module, seconds=seconds)
    if ids is None and length is None:
        guess = subject.device.type != "cpu"  # a GPU no longer responds after an index out of range
        try:
            return _of_one_row(subject, *_two_rows(subject, None, None, seed, guess=guess), mask, seed)
        except CannotCheck:
            raise
        except Exception:  # noqa: BLE001 - a module that does not state its vocabulary may raise
            subject = CheckedModule(module, seconds=seconds)
            usual = prepare.usual_length(subject.inner, LENGTHS[0], guess=True)
            length = usual // STEP * STEP or usual  # some modules take only whole blocks
    rows = _two_rows(subject, ids, length, seed, guess=True)
    with prepare.raising_cannot_check(subject, rows[0]):
        return _of_one_row(subject, *rows, mask, seed)


def _two_rows(
    subject: CheckedModule, ids: Tensor | Sequence[int] | None, length: int | None, seed: int, *, guess: bool
) -> tuple[Tensor, Tensor, int]:
    """Return a row [T], another that differs from it at every position, and the number of ids. guess: whether what the
    module reads is found by its tables and a forward of a few tokens, where it does not say it."""
    generator = prepare.generator_of(seed)
    length = prepare.usual_length(subject.inner, LENGTHS[0], guess=guess) if length is None else length
    sizes = [one.num_embeddings for one in subject.embeddings if one.num_embeddings > 2]
    size: Any = getattr(text_config(subject.config, decoder=True), "vocab_size", None)
    known = isinstance(size, int) and subject.table is None
    vocabulary: int = size if known else min(sizes, default=3)
    given = None if ids is None else prepare.row_of(ids)
    prepare.check_length(subject, length if given is None else len(given))
    if guess and not known:
        with suppress(CannotCheck), restoring_module(subject.module):  # it may look its ids up in no embedding
            vocabulary = prepare.vocabulary_of(subject, prepare.PROBE)
    row = torch.randint(vocabulary, (length,), generator=generator) if given is None else given
    row = prepare.checked(row, vocabulary if known else max(vocabulary, int(row.max()) + 1))
    other = (row + 1 + torch.randint(vocabulary - 1, row.shape, generator=generator)) % vocabulary
    return row, other, vocabulary


def _of_one_row(
    subject: CheckedModule, row: Tensor, other: Tensor, vocabulary: int, mask: Mask, seed: int
) -> CheckReport:
    """Check a row [T], parts of which are replaced by those of another."""
    started = time.monotonic()
    prepare.recognize_encoder(subject)
    declared = declare(subject.config, len(row), mask, subject.kind)
    parts = _replaced_parts(declared, vocabulary)
    same, changed = (row.repeat(len(parts) + 2, 1) for _ in range(2))  # the first and the last are not replaced
    for index, part in enumerate(parts, 1):
        changed[index, part] = other[part]
    if subject.kind == "encoder-decoder":
        subject.source = other[:7].to(subject.device)
    same, changed = same.to(subject.device), changed.to(subject.device)
    with restoring_module(subject.module):
        before, after = (subject.batch_outputs(one) for one in (same, changed))
        prepare.check_finite(before[0])
        moved, epsilon = max_difference(after, before).cpu(), torch.finfo(subject.dtype).eps
        scale = largest(before)
        limit = epsilon * scale * (COARSE_ROUNDINGS if epsilon > FLOAT32_EPSILON else ROUNDINGS)
        mixed = float(moved[[0, -1]].max())
        if mixed > limit:
            repeated = float(max_difference(subject.batch_outputs(same), before).max())
            if repeated > limit:
                raise CannotCheck(msg(CHANGES, count=len(row), amount=f"{repeated:.3g}"))
        noise = Noise(max(mixed, limit if epsilon <= FLOAT32_EPSILON else epsilon * scale), 0.0)
        found = _judge_quick(moved[1:-1], parts, declared, noise.beside, mixed)
        if found.verdict == BROKEN and mixed <= limit:
            tried = [part.start or part.stop - 1 for part in parts]  # a whole part does not tell which token is read
            leaks = _moved_by_tokens(subject, same, other, before, tried) > noise.beside
            pairs = [(row, tried[index]) for index, row in (leaks & ~declared.reach[:, tried].T).nonzero().tolist()]
            earlier_read = bool((moved[-2][_others(parts[-1], declared)] > mixed).any())
            found = found.because(cause_of(pairs, declared, tried=tried, earlier_read=earlier_read))
    findings = {"reach": found}
    if mixed > limit:
        rows = Finding(BROKEN, msg(MIXED_ROWS, size=format_amount(mixed)), mixed, limit)
        findings = {"reach": unknown(rows.words), "batch": rows.because(row_mixing_cause(subject.inner))}
    return CheckReport(
        name=type(subject.inner).__name__,
        declared=declared.words,
        assumed=declared.assumed,
        length=len(row),
        pieces=tuple(map(str, row.tolist())),
        seed=seed,
        noise=noise,
        findings=tuple(replace(finding, law=law) for law, finding in findings.items()),
        mask=None,
        seconds=time.monotonic() - started,
        **described(subject),
    )


def _replaced_parts(declared: Declared, vocabulary: int) -> list[slice]:
    """Return the part to replace in each row of the batch: all from a position on; under a window, all before it; and
    the first half, which must change an output of the other half or, where the mask allows none of them to read it, the
    token that most outputs may read."""
    length = len(declared.reach)
    blocked = ~declared.reach
    behind = bool(blocked.tril().any())  # a window: it blocks earlier tokens too
    first = blocked.float().argmax(1)[blocked.any(1)]  # under a prefix, not before its end
    needed = {*first.tolist()[:1], length - 1} - {0}
    cuts = sorted({one for one in CUTS if one < length} | {length // 2} - needed - {0})
    rows = min(len(cuts), max(QUICK_LOGITS // ((1 + behind) * length * vocabulary) - 3 - len(needed), MIN_CUTS))
    cuts = sorted(needed | {cuts[(2 * index + 1) * len(cuts) // (2 * rows)] for index in range(rows)})
    parts = [slice(cut, length) for cut in cuts] + [slice(0, cut) for cut in cuts if behind]
    half, read = length // 2, int(declared.reach.sum(0).argmax())
    across = bool(declared.reach[half:, :half].any())
    return [*parts, slice(0, half) if across else slice(read, read + 1)]


def _judge_quick(moved: Tensor, parts: list[slice], declared: Declared, tolerance: float, repeated: float) -> Finding:
    """Return the finding. moved [len(parts), T]: how much each output changes if all tokens of a part are replaced. The
    last part must change another output by more than `repeated`, the change of a row that is not replaced."""
    closed = torch.stack([~declared.reach[:, part].any(1) for part in parts])
    if not bool(closed.any()):
        return Finding(OBEYS, msg("its mask blocks no token, so that there is nothing to check."), 0.0, tolerance)
    leaks = torch.where(closed, moved, 0.0)[:-1]
    amount = float(leaks.max())
    if amount > tolerance:
        index, row = divmod(int(leaks.argmax()), leaks.shape[1])
        part = parts[index]
        words = N_("output {row} changes by {size} if the tokens from {column} on are changed, which its mask blocks.")
        if not part.start:
            words = N_(
                "output {row} changes by {size} if the tokens up to {column} are changed, which its mask blocks."
            )
        return Finding.at((row, part.start or part.stop - 1), words, amount, tolerance)
    words = N_("no output changed when tokens that its mask blocks from it were changed.")
    found, others = Finding(OBEYS, msg(words), amount, tolerance), _others(parts[-1], declared)
    if not bool((moved[-1][others if bool(others.any()) else parts[-1]] > repeated).any()):
        return unknown(msg(reach.UNMOVED), found)
    return found


def _others(part: slice, declared: Declared) -> Tensor:
    """Return bool [T]: the outputs outside the part that may read one of its tokens."""
    others = declared.reach[:, part].any(1)
    others[part] = False
    return others


def _moved_by_tokens(subject: CheckedModule, same: Tensor, other: Tensor, before: Tensor, tokens: list[int]) -> Tensor:
    """Return [len(tokens), T]: how much each output changes if one of these is replaced; 0 if no time is left."""
    changed = same.clone()
    changed[torch.arange(len(tokens)) + 1, tokens] = other[tokens].to(same)
    try:
        return max_difference(subject.batch_outputs(changed), before).cpu()[1:-1]
    except TookTooLong:
        return torch.zeros(len(tokens), len(other))
