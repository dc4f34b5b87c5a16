"""Checks of the sentences of the Serving page, by runs of the model and by masks counted cell by cell."""

# ruff: noqa: E501 - each sentence on one line, so that a search finds it

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from model.base import Model
from model.masks import MaskSpec, Stroke
from model.text import TokenBatch
from tests.ui.sentences.claims import Said, near, same
from tests.ui.sentences.padding_claims import written

ROUNDED = 1e-3  # rounding error of a logit
CONVENTIONS = {
    "mask and position ids": (True, True), "mask only": (True, False), "position ids only": (False, True),
    "neither": (False, False),
}  # fmt: skip


def _causal(size: int) -> np.ndarray:
    return np.tril(np.ones((size, size), bool))


def _logits(
    model: Model, ids: Sequence[int], allowed: np.ndarray | None = None, positions: Sequence[int] | None = None
) -> np.ndarray:
    """Return logits [T,V]. allowed: bool [T,T], which differs from the causal mask in one piece of each row."""
    row, causal = torch.tensor([[*ids]]), _causal(len(ids))
    cells = {} if allowed is None else {"block": causal & ~allowed, "open": allowed & ~causal}
    strokes = [
        Stroke(kind, query, int(keys[0]), query, int(keys[-1]))
        for kind, other in cells.items()
        for query, keys in ((query, np.flatnonzero(other[query])) for query in range(len(ids)))
        if len(keys)
    ]
    position_ids = None if positions is None else torch.tensor([[*positions]])
    batch = TokenBatch(row, torch.ones_like(row, dtype=torch.bool), (("",) * len(ids),), positions=position_ids)
    logits: np.ndarray = model.run(batch, replace(model.standard, drawn=tuple(strokes))).logits[0].double().numpy()
    return logits


def _count(said: str) -> int:
    return int(said.replace(",", ""))


def _number(said: str, value: float) -> bool:
    number = written(said)
    return abs(number - value) <= 0.02 * max(number, value) or max(number, value) < ROUNDED


@dataclass(frozen=True)
class CallsFacts:
    """A text read in calls that end at `ends`; a second text may follow the first call. align: "bottom-right",
    "top-left" or "none" (a mask in the first call only)."""

    model: Model
    ids: tuple[int, ...]
    ends: tuple[int, ...]
    align: str
    second: tuple[int, ...] = ()

    @property
    def texts(self) -> list[tuple[tuple[int, ...], tuple[int, ...], int]]:
        """For each text: its ids, the ends of its calls, and its first position that no other text has."""
        first = self.ends[0]
        other = (*self.ids[:first], *self.second), (first, first + len(self.second)), first
        return [(self.ids, self.ends, 0), *([other] if self.second else [])]

    def computed(self, ends: Sequence[int]) -> np.ndarray:
        """Return bool [T,T], the cells of each call's rectangle that its mask allows."""
        cells, start = np.zeros((ends[-1], ends[-1]), bool), 0
        for end in ends:
            shift = {"bottom-right": start, "top-left": 0, "none": end if start else 0}[self.align]
            cells[start:end, :end] = np.tril(np.ones((end - start, end), bool), shift)
            start = end
        return cells

    def cells(self) -> tuple[int, int, int]:
        """Return how many cells are computed, left out, and computed although the causal mask blocks them."""
        found = np.zeros(3, int)
        for _, ends, first in self.texts:
            right, computed = _causal(ends[-1])[first:], self.computed(ends)[first:]
            found += computed.sum(), (right & ~computed).sum(), (computed & ~right).sum()
        return int(found[0]), int(found[1]), int(found[2])

    def difference(self) -> float:
        """Return the largest difference of logits between one call and a run under the mask that the calls compute."""
        differences = [
            np.abs(_logits(self.model, ids) - _logits(self.model, ids, self.computed(ends)))[first:].max()
            for ids, ends, first in self.texts
        ]
        return float(max(differences))

    @property
    def calls(self) -> int:
        return len(self.ends) + bool(self.second)


def _equal(said: Said, facts: CallsFacts) -> bool:
    """Whether all cells are right; a sentence about one call has no difference."""
    counted = facts.cells() == (_count(said["cells"]), 0, 0) and int(said.get("count", 1)) == facts.calls
    return counted and written(said.get("difference", "0")) < ROUNDED


def _wrong(said: Said, facts: CallsFacts) -> bool:
    wrong = facts.cells()[1:]
    counted = wrong == (_count(said["missed"]), _count(said["extra"])) != (0, 0) and int(said["count"]) == facts.calls
    return counted and _number(said["difference"], facts.difference())


def _shared(said: Said, facts: CallsFacts) -> bool:
    prefix = facts.ends[0]
    return _count(said["prefix"]) == prefix and _count(said["saved"]) == _causal(prefix).sum() and bool(facts.second)


@dataclass(frozen=True)
class CostFacts:
    """A mask of T tokens in blocks of `block` positions. documents: sizes; the remaining tokens are one more."""

    spec: MaskSpec
    tokens: int
    block: int
    documents: tuple[int, ...]

    @property
    def open(self) -> np.ndarray:
        """The allowed cells, bool [T,T]."""
        at = np.arange(self.tokens)
        document = np.searchsorted(np.cumsum(self.documents), at, side="right")
        open_cells = document[:, None] == document
        if self.spec.causal:
            open_cells &= at[:, None] >= at
        return open_cells & (np.abs(at[:, None] - at) < self.spec.sliding) if self.spec.sliding else open_cells


def _cost(said: Said, facts: CostFacts) -> bool:
    side = -(-facts.tokens // facts.block)
    padded = np.zeros((side * facts.block, side * facts.block), bool)
    padded[: facts.tokens, : facts.tokens] = facts.open
    any_open = padded.reshape(side, facts.block, side, facts.block).any((1, 3))
    masked = 1 - padded.sum() / (any_open.sum() * facts.block**2)
    shares = same(said["share"], any_open.mean()) and same(said["masked"], masked)
    return shares and _count(said["tokens"]) == side * facts.block


def _padded(said: Said, facts: CostFacts) -> bool:
    whole = -(-facts.tokens // facts.block) * facts.block
    return _count(said["tokens"]) == facts.tokens and _count(said["whole"]) == whole > facts.tokens


@dataclass(frozen=True)
class TreeFacts:
    """A tree of draft tokens after a text. tokens: ids of the nodes. positions: "depth" or "row"."""

    model: Model
    ids: tuple[int, ...]
    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    positions: str

    def accepted(self) -> list[int]:
        path: list[int] = []
        while True:
            ids = *self.ids, *(self.tokens[node] for node in path)
            wanted, above = int(_logits(self.model, ids)[-1].argmax()), path[-1] if path else -1
            children = [node for node, parent in enumerate(self.parents) if parent == above]
            fitting = [node for node in children if self.tokens[node] == wanted]
            if not fitting:
                return path
            path.append(fitting[0])

    def difference(self) -> float:
        """Return the largest difference of logits between a branch alone and at the positions of its nodes."""
        if self.positions == "depth":
            return 0.0
        differences, start = [], len(self.ids)
        for node in range(len(self.tokens)):
            path = [node]
            while self.parents[path[0]] >= 0:
                path.insert(0, self.parents[path[0]])
            ids, slots = (*self.ids, *(self.tokens[one] for one in path)), [start + one for one in path]
            moved = _logits(self.model, ids, positions=[*range(start), *slots])
            differences.append(np.abs(moved[-1] - _logits(self.model, ids)[-1]).max())
        return float(max(differences))


def _branches(said: Said, facts: TreeFacts, *, equal: bool) -> bool:
    right = _number(said["difference"], facts.difference()) and (written(said["difference"]) < ROUNDED) == equal
    return right and int(said["nodes"]) == len(facts.parents)


def _accepts(said: Said, facts: TreeFacts) -> bool:
    path = facts.accepted()
    return int(said["count"]) == len(path) and said["path"] == "".join(
        facts.model.label(facts.tokens[node]) for node in path
    )


@dataclass(frozen=True)
class PackingFacts:
    """A text packed as documents of `sizes` tokens."""

    model: Model
    ids: tuple[int, ...]
    sizes: tuple[int, ...]

    def difference(self, convention: str) -> float:
        """Return the largest difference of logits between the row and each document alone."""
        masked, restarted = CONVENTIONS[convention]
        document = np.repeat(np.arange(len(self.sizes)), self.sizes)
        allowed = _causal(len(self.ids)) & (document[:, None] == document) if masked else None
        positions = [position for size in self.sizes for position in range(size)] if restarted else None
        row, found, start = _logits(self.model, self.ids, allowed, positions), 0.0, 0
        for size in self.sizes:
            alone = _logits(self.model, self.ids[start : start + size])
            found = max(found, float(np.abs(row[start : start + size] - alone).max()))
            start += size
        return found


def _apart(said: Said, facts: PackingFacts) -> bool:
    return said["names"].split("; ") == [name for name in CONVENTIONS if facts.difference(name) < ROUNDED]


def _of_one_token(said: Said, facts: PackingFacts) -> bool:
    return [int(one) for one in re.findall(r"\d+", said["documents"])] == [
        number for number, size in enumerate(facts.sizes, 1) if size == 1
    ]


def _mixed(said: Said, facts: PackingFacts) -> bool:
    differences = {name: facts.difference(name) for name in CONVENTIONS}
    mixed = [name for name, difference in differences.items() if difference >= ROUNDED]
    return all(
        one.startswith(f"{name} ") and _number(one.removeprefix(f"{name} "), differences[name])
        for name, one in zip(mixed, said["names"].split("; "), strict=True)
    )


@dataclass(frozen=True)
class StreamFacts:
    """A text read up to `done`, `step` tokens per call, with a cache of the first `sinks` tokens and a window."""

    model: Model
    ids: tuple[int, ...]
    window: int
    sinks: int
    step: int
    done: int

    @property
    def size(self) -> int:
        return self.window + self.sinks

    def allowed(self, sinks: int) -> np.ndarray:
        """Return bool [T,T], the keys still cached in each query's call if the first `sinks` are kept."""
        open_cells = _causal(self.done)
        for start in range(0, self.done, self.step):
            dropped = max(min(start + self.step, self.done) - self.size, 0)
            open_cells[start : start + self.step, sinks : sinks + dropped] = False
        return open_cells

    def mean(self, sinks: int) -> float:
        """Return the mean loss of the tokens from position `size` on."""
        logits = _logits(self.model, self.ids[: self.done], self.allowed(sinks))
        logs = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
        return float(np.mean([-logs[token - 1, self.ids[token]] for token in range(self.size, self.done)]))

    @property
    def held(self) -> float:
        """Size of the cache in MiB: float32 keys and values of all layers."""
        network = self.model.network
        return 2 * 4 * len(network.blocks) * network.token_embedding.weight.shape[1] * self.size / 2**20

    @property
    def absolute(self) -> bool:
        """Whether the same tokens have other logits at other positions."""
        ids = self.ids[:8]
        moved = _logits(self.model, ids, positions=range(5, 5 + len(ids)))
        return bool(np.abs(moved - _logits(self.model, ids)).max() > ROUNDED)

    @property
    def context(self) -> int:
        return int(self.model.network.position_embedding.weight.shape[0])


def _streamed(said: Said, facts: StreamFacts) -> bool:
    sizes = _count(said["size"]) == facts.size and _count(said["done"]) == facts.done > facts.size
    if not sizes or not near(said["held"], facts.held) or int(said.get("sinks", 0)) != facts.sinks:
        return False
    if facts.done > facts.context:
        return True  # no run can be that long
    both = (said.get("with_sinks"), facts.sinks), (said["without"], 0)
    return all(near(loss, facts.mean(sinks)) for loss, sinks in both if loss is not None)


def _none_dropped(said: Said, facts: StreamFacts) -> bool:
    sizes = (_count(said["done"]), _count(said["count"]), _count(said["size"]))
    equal = bool((facts.allowed(facts.sinks) == _causal(facts.done)).all())
    return sizes == (facts.done, len(facts.ids), facts.size) and equal


SERVING_CLAIMS: dict[str, Callable[..., bool]] = {
    "One call computes every cell ({cells} in the first layer).": _equal,
    "{count} calls compute {cells} cells of the first layer, each once, and give the logits of one call up to rounding: the largest difference is {difference}.": _equal,
    "With this alignment {count} calls leave out {missed} of the first layer's cells that one call computes, and compute {extra} that it does not: the largest difference between logits is {difference}.": _wrong,
    "The second continuation reads the cached tokens ({prefix}) instead of computing their cells ({saved} in the first layer) again.": _shared,
    "A kernel that skips empty blocks computes {share} of the {tokens} × {tokens} scores; {masked} of these are masked afterwards.": _cost,
    "The number of tokens, {tokens}, is rounded up to {whole}, in whole blocks.": _padded,
    "Verified in one call, every node of the tree (nodes: {nodes}) has the logits of its own branch run alone up to rounding: the largest difference is {difference}.": lambda said, facts: (
        _branches(said, facts, equal=True)
    ),
    "Verified in one call, nodes of the tree (nodes: {nodes}) have other logits than their own branch run alone: the largest difference is {difference}.": lambda said, facts: (
        _branches(said, facts, equal=False)
    ),
    "Greedy verification accepts {count} tokens: “{path}”.": _accepts,
    "Greedy verification accepts no token.": lambda said, facts: not facts.accepted(),
    "Documents packed into one row have the logits of each document alone with: {names}.": _apart,
    "Largest difference with the others: {names}.": _mixed,
    "Document {documents} has one token, and so no loss.": _of_one_token,
    "Documents {documents} have one token each, and so no loss.": _of_one_token,
    "{done} of {count} tokens have been read, and no key has been dropped: the cache can store {size}.": _none_dropped,
    "{done} tokens were read with a cache of {size} tokens (sinks: {sinks}), at most {held} MiB. From position {size} on, the mean loss is {with_sinks} nats with sinks and {without} with the last {size} tokens alone.": _streamed,
    "{done} tokens were read with a cache of the last tokens (size: {size}), at most {held} MiB. From position {size} on, the mean loss is {without} nats.": _streamed,
    "Tokens keep their positions in the text: this model's positions are absolute, and part of cached keys.": lambda said, facts: (
        facts.absolute and facts.done <= facts.context
    ),
    "This model's positions are absolute, and part of cached keys: tokens keep their positions in the text, and after the first {context} numbering restarts after the sinks.": lambda said, facts: (
        facts.absolute and facts.sinks and facts.done > facts.context == _count(said["context"])
    ),
    "This model's positions are absolute, and part of cached keys: tokens keep their positions in the text, and after the first {context} numbering restarts from 0.": lambda said, facts: (
        facts.absolute and not facts.sinks and facts.done > facts.context == _count(said["context"])
    ),
    "The loss of {done} tokens, what the cache takes, and the newest token's attention to {kept} keys.": lambda said, facts: (
        _count(said["done"]) == facts.done and _count(said["kept"]) == facts.allowed(facts.sinks)[-1].sum()
    ),
}  # fmt: skip
