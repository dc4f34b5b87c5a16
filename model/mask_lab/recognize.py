"""Which kinds of masks a mask written by somebody else is made of, and what its author may have meant.

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
MAX_ROWS = 48  # looked at to find the nearest kinds
MISTAKE_RATIO = 4  # times fewer cells differ where a mistake is named beside further differences
MAX_LISTED = 5  # rows, cells or documents in a sentence

OF_A_BATCH = N_(
    "It seems to be the padding mask of a batch, with a row for each text: it says which tokens are padding, not which "
    "query sees which key."
)

Masks = dict[tuple[str, Any], np.ndarray]  # bool [Q,K], by kind and parameter
Kinds = tuple[tuple[str, Any], ...]  # each kind with its parameter, or True


@dataclass(frozen=True, eq=False)
class NamedMask:
    """allowed: bool [Q,K], the mask, True = may attend. kinds: those it is made of, or the nearest ones.
    masks: a dict for `run(masks=…)` that gives a text of K tokens (without padding) exactly this mask, within the masks
    of a model's own (a window of Mistral's), what no kind gives as strokes; None where Q < K and kinds alone do not
    give it, or where it takes too many strokes.
    differs: int [N,2], the cells (query, key) that differ from the nearest kinds. sentence: all of it in words.
    """

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
    """What a mask may be meant as. kinds: what it is made of. parts: of documents, how many tokens each has. padding:
    how many keys at one end nobody sees, negative at the beginning. within: the kind that blocks opened cells too.
    cells: how many are something else. fault: what is wrong with it then, as a sentence.
    """

    kinds: Kinds
    parts: tuple[int, ...] = ()
    padding: int = 0
    within: str = ""
    cells: int = 0
    fault: str = ""


def name_mask(given: Any) -> NamedMask:
    """Name a mask. given: an array or tensor of 2 to 4 dimensions, a printed one, or the bytes of an NPY file: 0 and 1
    or booleans with True = may attend, or what is added to the scores, 0 and −∞ or a dtype's minimum. Of a batch, the
    first mask. Raises ValueError, saying what was expected, for anything else."""
    allowed, others_differ = read_mask(given)
    reading = _read(allowed)
    differs = np.argwhere(allowed != _mask_of_reading(reading, allowed))
    found = NamedMask(allowed, dict(reading.kinds), _masks(allowed, reading), differs, "")
    first = msg("The masks of this batch differ; this is the first.") if others_differ else ""
    sentences = [first, reading.fault, _kinds_sentence(found, reading), _differences(found, reading), _empty(found)]
    return replace(found, sentence=msg_together([*filter(None, sentences)]))


def positions(queries: int, keys: int, shift: int = 0, /) -> np.ndarray:
    """int64 [Q]: where the last `queries` of so many keys stand, moved by `shift`."""
    return np.arange(keys - queries + shift, keys + shift)


def expected(kinds: Kinds, at: np.ndarray, keys: int) -> np.ndarray:
    """bool [Q,K]: what these kinds allow to queries at these positions."""
    return _together(kinds, {one: _kind(one, at, keys) for one in kinds}, (len(at), keys))


def _together(kinds: Kinds, masks: Masks, shape: tuple[int, int]) -> np.ndarray:
    """bool [Q,K]: what blocks, then what opens."""
    allowed = np.ones(shape, bool)
    for one in sorted(kinds, key=lambda kind: KINDS[kind[0]].opens):
        allowed = allowed | masks[one] if KINDS[one[0]].opens else allowed & masks[one]
    return allowed


def _kind(one: tuple[str, Any], at: np.ndarray, keys: int) -> np.ndarray:
    """bool [Q,K]: what one kind allows, or opens."""
    kind = KINDS[one[0]]
    query, key = torch.from_numpy(at)[None, None, :, None], torch.arange(keys)[None, None, None]
    mask = kind.cells(Cells(query, key, query, key, keys + int(abs(at[-1] - keys + 1))), one[1])
    if mask is None:
        return np.full((len(at), keys), not kind.opens)
    return np.broadcast_to(mask[0, 0].numpy(), (len(at), keys))


# How a mask is read


def _read(allowed: np.ndarray) -> Reading:
    """The simplest reading that fits, else the nearest one."""
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
        return min(exact, key=lambda one: len(one.kinds))
    nearest = _nearest(allowed)
    others = [replace(_nearest(mask, shift), fault=fault) for mask, shift, fault in mistakes]
    best = min(others, key=lambda one: one.cells)
    return best if MISTAKE_RATIO * best.cells < nearest.cells else nearest


def _of_a_batch(allowed: np.ndarray) -> bool:
    """Whether the rows are texts of some lengths, padded at one end."""
    lengths = allowed.sum(axis=1)
    from_left = np.arange(allowed.shape[1]) < lengths[:, None]
    padded = any(np.array_equal(side, allowed) for side in (from_left, from_left[:, ::-1]))
    return padded and len(allowed) < allowed.shape[1] == lengths.max() and (np.diff(lengths) != 1).any()


def _mistakes(allowed: np.ndarray) -> Iterator[tuple[np.ndarray, int, str]]:
    """What the author may have done: the mask to be read instead, how far its queries are moved, and a sentence."""
    queries, keys = allowed.shape
    if queries == keys:
        yield allowed.T, 0, msg("It is transposed: its rows are keys and its columns queries.")
    else:
        place = {"queries": queries, "keys": keys, "position": keys - queries}
        yield allowed, queries - keys, msg(
            "It is aligned at the top left. With {queries} queries and {keys} keys, the first query is at position "
            "{position}: align it at the bottom right.", **place
        )  # fmt: skip
    yield ~allowed, 0, msg("It is inverted: it allows what should be blocked, and blocks what should be allowed.")
    yield allowed, -1, msg("It is off by one: each token has the row of the token before it.")
    yield allowed, 1, msg("It is off by one: each token has the row of the token after it.")


def _exact(allowed: np.ndarray, shift: int = 0, within: np.ndarray | bool = True) -> Reading | None:
    """The kinds that give just this mask inside of `within`, with as few as can be that open cells."""
    some, all_rows = _some_rows(len(allowed)), np.arange(len(allowed))
    found = _exact_in_rows(some, allowed, shift, within)  # most of what fits nowhere is told by some rows
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
    kinds = next((one for one in every if one is not None), None)
    return None if kinds is None else Reading(kinds)


def _needed(
    allowed: np.ndarray, blocking: Masks, opening: Masks, within: np.ndarray | bool, order: tuple[int, int]
) -> Kinds | None:
    """The kinds that are needed to make the mask, of all that agree with it, each the smallest; None if all together do
    not make it, or if two of one kind remain. order: in which kinds and sizes are tried to be left out, 1 or -1."""

    def fits(some: list[tuple[str, Any]]) -> bool:
        free = np.logical_and.reduce([blocking[one] for one in some if one in blocking] or [np.ones_like(allowed)])
        free = np.logical_or.reduce([free, *(opening[one] for one in some if one in opening)])
        return bool(((free & within) == allowed).all())

    kinds, place = [*opening, *blocking], [*KINDS].index
    if not fits(kinds):
        return None
    for one in sorted(kinds, key=lambda one: (order[0] * place(one[0]), order[1] * one[1])):
        rest = [other for other in kinds if other != one]
        kinds = rest if fits(rest) else kinds
    if len({name for name, _ in kinds}) < len(kinds):
        return None
    for name, size in [one for one in kinds if one in blocking]:
        rest = [one for one in kinds if one[0] != name]
        smaller = sorted(one for one in blocking if one[0] == name and one[1] <= size)
        kinds = [*rest, next(one for one in smaller if fits([*rest, one]))]
    return tuple(sorted(kinds, key=lambda one: place(one[0])))


def _opened_within(allowed: np.ndarray) -> Reading | None:
    """A mask whose opened cells stay under a kind without parameter: sinks under the causal mask, say."""
    for one in [one for one in _candidates(allowed) if one[1] is True]:
        mask = _kind(one, positions(*allowed.shape), allowed.shape[1])
        if not (allowed & ~mask).any():
            found = _exact(allowed, within=mask)
            if found:
                return replace(found, kinds=tuple(dict([one, *found.kinds]).items()), within=one[0])
    return None


def _nearest(allowed: np.ndarray, shift: int = 0) -> Reading:
    """The kinds that leave the fewest different cells, found by adding one after another, from each kind on; from some
    of the rows where there are many."""
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
    """Kinds that a reader can choose, with the parameters that the mask suggests."""
    sizes = _sizes(allowed)
    for name in ON_TEXT:
        if KINDS[name].first is None:
            yield name, True
        elif not KINDS[name].splits:
            yield from ((name, size) for size in sizes if size >= KINDS[name].least)


def _sizes(allowed: np.ndarray) -> list[int]:
    """Lengths that stand out in a mask: of runs of allowed keys, from their ends to the query, and of the gaps between
    allowed keys. The commonest, and a few small ones."""
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
        lengths += [*(position - begins[:3] + 1), *(position - begins[-2:] + 1)]  # of a strided window the first ones
        firsts[int(ends[0] - begins[0]) + 1] += 1
        ahead = max(ahead, int(ends[-1]) - position + 1)
        found.update({int(length) for length in lengths} | set(np.diff(seen)[:3].tolist()))
    common = [size for size, _ in found.most_common() if 0 < size <= keys]
    rare = (*(size for size, _ in firsts.most_common(4)), *range(ahead, ahead + 3), 1, 2, 3, 4)
    return sorted({*common[:MAX_VALUES], *filter(None, rare)})


def _documents(allowed: np.ndarray) -> Reading | None:
    """A square mask none of whose tokens sees across certain borders, and which is a known one between them."""
    queries, keys = allowed.shape
    if queries != keys:
        return None
    seen = np.where(allowed, np.arange(keys), -1).max(axis=1)  # each query's last key, and its first
    begin = np.where(allowed, np.arange(keys), keys).min(axis=1)
    last_before = np.maximum.accumulate(seen)
    first_after = np.minimum.accumulate(begin[::-1])[::-1]
    borders = [one for one in range(1, keys) if last_before[one - 1] < one <= first_after[one]]
    parts = tuple(end - start for start, end in pairwise([0, *borders, keys]))
    found = _exact(allowed, within=_same_part(parts)) if borders else None
    return found and replace(found, parts=parts)


def _same_part(parts: tuple[int, ...]) -> np.ndarray:
    """bool [T,T]: whether two tokens stand in the same of some documents of so many tokens."""
    part = np.repeat(np.arange(len(parts)), parts)
    return np.asarray(part[:, None] == part)


def _padded(allowed: np.ndarray) -> Reading | None:
    """A square mask with padding at one end, which nobody sees; what padding itself sees does not count."""
    queries, keys = allowed.shape
    seen = np.flatnonzero(allowed.any(axis=0))
    if queries != keys or not seen.size or len(seen) == keys or (seen[0] and seen[-1] < keys - 1):
        return None
    real = slice(int(seen[0]), int(seen[-1]) + 1)
    inside = allowed[real, real]
    found = _exact(inside) or _documents(inside)
    return found and replace(found, padding=keys - real.stop or -real.start)


# What is said of it


def _mask_of_reading(reading: Reading, allowed: np.ndarray) -> np.ndarray:
    """bool [Q,K]: the mask that the reading stands for. What padding sees does not count."""
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
        meant &= _same_part(reading.parts)
    return meant


def _masks(allowed: np.ndarray, reading: Reading) -> dict[str, Any] | None:
    """The fields of a MaskSpec that give just this mask."""
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
    """Which cells are otherwise than the kinds would have it; of a mistake the sentence about it says that."""
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


def _listed(words: list[str]) -> str:
    return msg_list([*words[:MAX_LISTED], "…"] if len(words) > MAX_LISTED else words)
