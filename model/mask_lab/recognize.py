"""Recognition of the kinds that a given mask is composed of, and of the mistake that its author may have made.

Sizes: Q queries, K keys, Q <= K: the queries are the last Q of the K positions, as in one call with a cache.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, combinations, groupby, pairwise, product
from typing import Any

import numpy as np
import torch

from i18n import N_, msg, msg_all, msg_count, msg_list, msg_together
from model.mask_kinds import KINDS, Cells
from model.mask_lab.mask_files import read_mask, strokes_of_rows
from model.masks import ON_TEXT
from model.spec import MAX_STROKES

MAX_VALUES = 24  # of a kind's parameter, tried on one mask
MAX_KINDS = 4  # in the nearest mask
MAX_ROWS = 48  # compared to find the nearest kinds
MISTAKE_RATIO = 4  # a mistake that leaves further differences is named if this many times fewer cells differ with it
MAX_LISTED = 5  # rows, cells or documents in a sentence

OF_A_BATCH = N_(
    "It seems to be the padding mask of a batch, with a row for each text: it says which tokens are padding, not which "
    "query sees which key."
)

Masks = dict[tuple[str, Any], np.ndarray]  # bool [Q,K], by kind and parameter
Kinds = tuple[tuple[str, Any], ...]  # each kind with its parameter, or True


@dataclass(frozen=True, eq=False)
class NamedMask:
    """A mask and the kinds it is composed of. allowed: bool [Q,K], the mask, True = may attend. kinds: exact, or the
    nearest.
    masks: a dict for `run(masks=…)` that gives a text of K tokens (without padding) exactly this mask, within a model's
    native masks (Mistral's window), with strokes for what no kind gives; None if Q < K and kinds alone do not give it,
    or if it takes too many strokes.
    differs: int [N,2], the cells (query, key) that differ from the nearest kinds. sentence: all of it in words."""

    allowed: np.ndarray = field(repr=False)
    kinds: dict[str, Any]
    masks: dict[str, Any] | None
    differs: np.ndarray = field(repr=False)
    sentence: str

    @property
    def empty_rows(self) -> np.ndarray:
        """The queries without an allowed key."""
        return np.flatnonzero(~self.allowed.any(axis=1))


@dataclass(frozen=True)
class Reading:
    """A reading of what a mask may be meant as. kinds: what it is composed of. parts: of documents, how many tokens
    each has. shared: how many first keys all documents see. padding: how many keys at one end no query sees, negative
    at the beginning. within: the kind that blocks opened cells too. cells: how many differ. fault: the mistake that
    then explains it, as a sentence."""

    kinds: Kinds
    parts: tuple[int, ...] = ()
    shared: int = 0
    padding: int = 0
    within: str = ""
    cells: int = 0
    fault: str = ""


def name_mask(given: Any) -> NamedMask:
    """Name the kinds of a mask. given: an array or tensor of 2 to 4 dimensions, a printed one, or the bytes of an NPY
    file: 0 and 1 or booleans with True = may attend, or what is added to the scores, 0 and −∞ or a dtype's minimum. Of
    a batch, the first mask. Raises ValueError, saying what was expected, for anything else."""
    allowed, others_differ = read_mask(given)
    reading = _read(allowed)
    differs = np.argwhere(allowed != _mask_of_reading(reading, allowed))
    found = NamedMask(allowed, dict(reading.kinds), _masks(allowed, reading), differs, "")
    first = msg("The masks of this batch differ; this is the first.") if others_differ else ""
    sentences = [first, reading.fault, _kinds_sentence(found, reading), _differences(found, reading), _empty(found)]
    return replace(found, sentence=msg_together([*filter(None, sentences)]))


def positions(queries: int, keys: int, shift: int = 0, /) -> np.ndarray:
    """Return the positions of the last `queries` of `keys` positions, moved by `shift`: int64 [Q]."""
    return np.arange(keys - queries + shift, keys + shift)


def expected(kinds: Kinds, at: np.ndarray, keys: int) -> np.ndarray:
    """Return what these kinds allow to queries at these positions: bool [Q,K]."""
    return _together(kinds, {one: _kind(one, at, keys) for one in kinds}, (len(at), keys))


def _together(kinds: Kinds, masks: Masks, shape: tuple[int, int]) -> np.ndarray:
    """Combine masks: those that block, then those that open: bool [Q,K]."""
    allowed = np.ones(shape, bool)
    for one in sorted(kinds, key=lambda kind: KINDS[kind[0]].opens):
        allowed = allowed | masks[one] if KINDS[one[0]].opens else allowed & masks[one]
    return allowed


def _kind(one: tuple[str, Any], at: np.ndarray, keys: int) -> np.ndarray:
    """Return what one kind allows, or opens: bool [Q,K]."""
    kind = KINDS[one[0]]
    query, key = torch.from_numpy(at)[None, None, :, None], torch.arange(keys)[None, None, None]
    mask = kind.cells(Cells(query, key, query, key, keys + int(abs(at[-1] - keys + 1))), one[1])
    if mask is None:
        return np.full((len(at), keys), not kind.opens)
    return np.broadcast_to(mask[0, 0].numpy(), (len(at), keys))


def _read(allowed: np.ndarray) -> Reading:
    """Return the simplest reading that fits, else the nearest one."""
    if not allowed.any():
        return Reading((), cells=allowed.size)
    plain = _exact(allowed) or _opened_within(allowed) or _documents(allowed) or _padded(allowed)
    if plain:
        return plain
    if _of_a_batch(allowed):
        return Reading((), cells=allowed.size, fault=msg(OF_A_BATCH))
    mistakes = [*_mistakes(allowed)]
    exact = []
    for mask, shift, fault in mistakes:
        found = _exact(mask, shift) or (None if shift else _documents(mask) or _padded(mask))
        if found and (found.kinds or found.parts):
            exact.append(replace(found, fault=fault))
    if exact:
        return min(exact, key=lambda reading: len(reading.kinds))
    nearest = _nearest(allowed)
    others = [replace(_nearest(mask, shift), fault=fault) for mask, shift, fault in mistakes]
    best = min(others, key=lambda reading: reading.cells)
    return best if MISTAKE_RATIO * best.cells < nearest.cells else nearest


def _of_a_batch(allowed: np.ndarray) -> bool:
    """Whether the rows are texts of some lengths, padded at one end."""
    lengths = allowed.sum(axis=1)
    from_left = np.arange(allowed.shape[1]) < lengths[:, None]
    padded = any(np.array_equal(side, allowed) for side in (from_left, from_left[:, ::-1]))
    return padded and len(allowed) < allowed.shape[1] == lengths.max() and (np.diff(lengths) != 1).any()


def _mistakes(allowed: np.ndarray) -> Iterator[tuple[np.ndarray, int, str]]:
    """Yield the author's possible mistakes: the mask to read instead, the shift of its queries, and a sentence."""
    queries, keys = allowed.shape
    if queries == keys:
        yield allowed.T, 0, msg("It is transposed: its rows are keys and its columns queries.")
    else:
        sizes = {"queries": queries, "keys": keys, "position": keys - queries}
        yield allowed, queries - keys, msg(
            "It is aligned at the top left. With {queries} queries and {keys} keys, the first query is at position "
            "{position}: align it at the bottom right.", **sizes
        )  # fmt: skip
    yield ~allowed, 0, msg("It is inverted: it allows what should be blocked, and blocks what should be allowed.")
    yield allowed, -1, msg("It is off by one: each token has the row of the token before it.")
    yield allowed, 1, msg("It is off by one: each token has the row of the token after it.")


def _exact(allowed: np.ndarray, shift: int = 0, within: np.ndarray | bool = True) -> Reading | None:
    """Return the kinds that give exactly this mask inside of `within`, with as few opening kinds as possible."""
    some, all_rows = _some_rows(len(allowed)), np.arange(len(allowed))
    found = _exact_in_rows(some, allowed, shift, within)  # some rows rule out most of what does not fit
    return found if not found or len(some) == len(allowed) else _exact_in_rows(all_rows, allowed, shift, within)


def _exact_in_rows(rows: np.ndarray, whole: np.ndarray, shift: int, within: np.ndarray | bool) -> Reading | None:
    at, allowed = positions(len(whole), whole.shape[1], shift)[rows], whole[rows]
    within = within if isinstance(within, bool) else within[rows]
    masks = {one: _kind(one, at, allowed.shape[1]) for one in _candidates(whole)}
    inside = {one: mask for one, mask in masks.items() if KINDS[one[0]].opens and not (mask & within & ~allowed).any()}
    names = sorted({name for name, _ in inside}, key=list(KINDS).index)
    sets = []
    for some in chain.from_iterable(combinations(names, count) for count in range(len(names) + 1)):
        opening = {one: mask for one, mask in inside.items() if one[0] in some}
        opened = np.logical_or.reduce([*opening.values(), np.zeros_like(allowed)])
        blocking = {
            one: mask for one, mask in masks.items()
            if not KINDS[one[0]].opens and not (allowed & ~(mask | opened)).any()
        }  # fmt: skip
        sets.append((blocking, opening))
    orders = product((-1, 1), (1, -1))
    every = (_needed(allowed, *some, within, order) for order in orders for some in sets)
    kinds = next((needed for needed in every if needed is not None), None)
    return None if kinds is None else Reading(kinds)


def _needed(
    allowed: np.ndarray, blocking: Masks, opening: Masks, within: np.ndarray | bool, order: tuple[int, int]
) -> Kinds | None:
    """Return the kinds needed to make the mask, of all that agree with it, each the smallest; None if all together do
    not make it, or if two of one kind remain. order: the order, 1 or -1, in which kinds and sizes are tried to omit."""

    def fits(some: list[tuple[str, Any]]) -> bool:
        free = np.logical_and.reduce([blocking[one] for one in some if one in blocking] or [np.ones_like(allowed)])
        free = np.logical_or.reduce([free, *(opening[one] for one in some if one in opening)])
        return bool(((free & within) == allowed).all())

    kinds, rank = [*opening, *blocking], [*KINDS].index
    if not fits(kinds):
        return None
    for one in sorted(kinds, key=lambda one: (order[0] * rank(one[0]), order[1] * one[1])):
        rest = [other for other in kinds if other != one]
        kinds = rest if fits(rest) else kinds
    if len({name for name, _ in kinds}) < len(kinds):
        return None
    for name, size in [one for one in kinds if one in blocking]:
        rest = [one for one in kinds if one[0] != name]
        smaller = sorted(one for one in blocking if one[0] == name and one[1] <= size)
        kinds = [*rest, next(one for one in smaller if fits([*rest, one]))]
    return tuple(sorted(kinds, key=lambda one: rank(one[0])))


def _opened_within(allowed: np.ndarray) -> Reading | None:
    """Read a mask whose opened cells stay under a kind without parameter: sinks under the causal mask, for example."""
    for one in [one for one in _candidates(allowed) if one[1] is True]:
        mask = _kind(one, positions(*allowed.shape), allowed.shape[1])
        if not (allowed & ~mask).any():
            found = _exact(allowed, within=mask)
            if found:
                return replace(found, kinds=tuple(dict([one, *found.kinds]).items()), within=one[0])
    return None


def _nearest(allowed: np.ndarray, shift: int = 0) -> Reading:
    """Return the kinds that leave the fewest different cells, found by adding one after another, starting from each
    kind; from some of the rows if there are many."""
    queries, keys = allowed.shape
    at = positions(queries, keys, shift)
    rows = _some_rows(queries)
    masks = {one: _kind(one, at[rows], keys) for one in _candidates(allowed)}

    def differ(kinds: Kinds) -> int:
        return int((_together(kinds, masks, (len(rows), keys)) != allowed[rows]).sum())

    def better(kinds: Kinds) -> Kinds:
        for _ in range(MAX_KINDS):
            longer = [(*(one for one in kinds if one[0] != new[0]), new) for new in masks]
            best = min(longer, key=differ)
            if differ(best) >= differ(kinds):
                break
            kinds = best
        return kinds

    by_name = [[*group] for _, group in groupby(masks, key=lambda one: one[0])]
    starts = [(), *((min(group, key=lambda one: differ((one,))),) for group in by_name)]
    best = min(map(better, starts), key=lambda kinds: (differ(kinds), len(kinds)))
    best = tuple(sorted(best, key=lambda one: [*KINDS].index(one[0])))
    return Reading(best, cells=int((expected(best, at, keys) != allowed).sum()))


def _some_rows(count: int) -> np.ndarray:
    return np.unique(np.linspace(0, count - 1, min(count, MAX_ROWS)).astype(int))


def _candidates(allowed: np.ndarray) -> Iterator[tuple[str, Any]]:
    """Yield the kinds that a user can choose, with the parameters that the mask suggests."""
    sizes = _sizes(allowed)
    for name in ON_TEXT:
        if KINDS[name].first is None:
            yield name, True
        elif not KINDS[name].splits:
            yield from ((name, size) for size in sizes if size >= KINDS[name].least)


def _sizes(allowed: np.ndarray) -> list[int]:
    """Return lengths that stand out in a mask: of runs of allowed keys, from their ends to the query, and of the gaps
    between allowed keys. The most common, and a few small ones."""
    queries, keys = allowed.shape
    found: Counter[int] = Counter()
    firsts: Counter[int] = Counter()  # of the first run: a prefix shows in few rows
    ahead = 0  # a strided row of a block ends up to stride - 1 before the block does
    for position, row in enumerate(allowed, keys - queries):
        seen = np.flatnonzero(row)
        if not seen.size:
            continue
        begins = seen[np.diff(seen, prepend=-2) > 1]
        ends = seen[np.diff(seen, append=keys + 1) > 1]
        lengths = [*(ends - begins + 1)[:2], ends[-1] - position + 1, ends[0] + 1, ends[-1] + 1]
        lengths += [*(position - begins[:3] + 1), *(position - begins[-2:] + 1)]  # the first ones show a strided window
        firsts[int(ends[0] - begins[0]) + 1] += 1
        ahead = max(ahead, int(ends[-1]) - position + 1)
        found.update({int(length) for length in lengths} | set(np.diff(seen)[:3].tolist()))
    common = [size for size, _ in found.most_common() if 0 < size <= keys]
    rare = (*(size for size, _ in firsts.most_common(4)), *range(ahead, ahead + 3), 1, 2, 3, 4)
    return sorted({*common[:MAX_VALUES], *filter(None, rare)})


def _documents(allowed: np.ndarray) -> Reading | None:
    """Read a square mask none of whose tokens sees across certain borders, but the first keys, and which is a known one
    between them."""
    queries, keys = allowed.shape
    at = np.arange(keys)
    first = [size for size in (0, *_sizes(allowed)) if queries == keys and allowed[-1, :size].all()]
    for shared in first:
        inside = allowed & (at >= shared)
        last_before = np.maximum.accumulate(np.where(inside, at, -1).max(axis=1))  # the last key that they see
        first_after = np.minimum.accumulate(np.where(inside, at, keys).min(axis=1)[::-1])[::-1]
        borders = [key for key in range(shared + 1, keys) if last_before[key - 1] < key <= first_after[key]]
        parts = tuple(end - start for start, end in pairwise([0, *borders, keys]))
        if borders and (found := _exact(allowed, within=_same_part(parts, shared))):
            return replace(found, parts=parts, shared=shared)
    return None


def _same_part(parts: tuple[int, ...], shared: int) -> np.ndarray:
    """Return whether a key is in the query's document, for documents of these lengths, or shared: bool [T,T]."""
    part = np.repeat(np.arange(len(parts)), parts)
    return np.asarray((part[:, None] == part) | (np.arange(len(part)) < shared))


def _padded(allowed: np.ndarray) -> Reading | None:
    """Read a square mask with padding at one end, which no query sees; what padding itself sees does not count."""
    queries, keys = allowed.shape
    seen = np.flatnonzero(allowed.any(axis=0))
    if queries != keys or not seen.size or len(seen) == keys or (seen[0] and seen[-1] < keys - 1):
        return None
    real = slice(int(seen[0]), int(seen[-1]) + 1)
    inside = allowed[real, real]
    found = _exact(inside) or _documents(inside)
    return found and replace(found, padding=keys - real.stop or -real.start)


def _mask_of_reading(reading: Reading, allowed: np.ndarray) -> np.ndarray:
    """Return the mask that the reading stands for, bool [Q,K]. What padding sees does not count."""
    if reading.padding:
        real = slice(max(-reading.padding, 0), len(allowed) - max(reading.padding, 0))
        meant = allowed.copy()
        meant[:, : real.start] = meant[:, real.stop :] = False
        meant[real, real] = _mask_of_reading(replace(reading, padding=0), allowed[real, real])
        return meant
    at, keys = positions(*allowed.shape), allowed.shape[1]
    meant = expected(reading.kinds, at, keys)
    if reading.within:
        meant &= _kind((reading.within, True), at, keys)
    if reading.parts:
        meant &= _same_part(reading.parts, reading.shared)
    return meant


def _masks(allowed: np.ndarray, reading: Reading) -> dict[str, Any] | None:
    """Return the fields of a MaskSpec that give exactly this mask, if there are any."""
    kinds = {name: False for name, value in _candidates(allowed) if value is True} | dict(reading.kinds)
    queries, keys = allowed.shape
    wrong = allowed != expected(reading.kinds, positions(queries, keys), keys)
    if not wrong.any():
        return kinds
    strokes: list[list[Any]] = []
    first, last = (keys - reading.padding, keys) if reading.padding > 0 else (0, -reading.padding)
    if last > first and not allowed[:, first:last].any():
        strokes, wrong[:, first:last] = [["block", 0, first, queries - 1, last - 1]], False
    strokes = [*strokes, *strokes_of_rows(allowed, wrong)] if queries == keys else []
    return kinds | {"drawn": strokes} if 0 < len(strokes) <= MAX_STROKES else None


def _kinds_sentence(found: "NamedMask", reading: Reading) -> str:
    if not found.allowed.any():
        return msg("It blocks every cell.")
    phrases = [msg(KINDS[name].phrase, size=value) for name, value in reading.kinds]
    if reading.parts:
        phrases.append(msg("documents of {sizes} tokens", sizes=_listed([f"{size:,}" for size in reading.parts])))
    if reading.shared:
        phrases.append(msg_count("the first key visible in all documents",
                                 "the first {count} keys visible in all documents", reading.shared))  # fmt: skip
    if reading.padding:
        phrases.append(msg_count("{count} key of padding at one end", "{count} keys of padding at one end",
                                 abs(reading.padding)))  # fmt: skip
    if reading.within:
        phrases.append(msg("opened cells within the {kind}", kind=msg(KINDS[reading.within].phrase)))
    if not phrases and reading.fault:
        return ""
    if not phrases:
        return msg("The nearest mask blocks nothing.") if reading.cells else msg("It blocks nothing.")
    kinds = msg_all(phrases)
    if reading.fault:
        return msg("It seems meant as: {kinds}.", kinds=kinds)
    return msg("The nearest kinds are: {kinds}.", kinds=kinds) if reading.cells else msg("It is: {kinds}.", kinds=kinds)


def _differences(found: "NamedMask", reading: Reading) -> str:
    """Return a sentence on the cells that differ from the kinds; "" if a mistake's own sentence explains them."""
    if not reading.cells or reading.fault or not found.allowed.any():
        return ""
    cells = [f"({query}, {key})" for query, key in found.differs[: MAX_LISTED + 1].tolist()]
    return msg_count("{count} cell (query, key) differs: {cells}.", "{count} cells (query, key) differ: {cells}.",
                     len(found.differs), cells=_listed(cells))  # fmt: skip


def _empty(found: "NamedMask") -> str:
    rows = [f"{row:,}" for row in found.empty_rows[: MAX_LISTED + 1]]
    return msg_count(
        "Query {rows} has no allowed key: its softmax is NaN in most implementations.",
        "{count} queries have no allowed key ({rows}): their softmax is NaN in most implementations.",
        len(found.empty_rows), rows=_listed(rows),
    ) if rows else ""  # fmt: skip


def _listed(items: list[str]) -> str:
    return msg_list([*items[:MAX_LISTED], "…"] if len(items) > MAX_LISTED else items)
