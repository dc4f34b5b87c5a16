"""What the sentences of the Serving page claim, judged by runs of the model and by masks counted cell by cell."""

# ruff: noqa: E501 - each sentence stands in one piece, to be found by a search

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from model.base import Model
from model.masks import MaskSpec, Stroke
from model.text import TokenBatch
from tests.ui.sentences.claims import Said


@dataclass(frozen=True, eq=False)
class CallsFacts:
    """A text read in calls that end at `ends`, aligned at the bottom right or at the top left."""

    model: Model
    batch: TokenBatch
    ends: tuple[int, ...]
    align: str

    @property
    def open(self) -> np.ndarray:
        size = self.batch.ids.shape[1]
        return np.tril(np.ones((size, size), bool))

    @property
    def computed(self) -> np.ndarray:
        """bool [T,T]: of each call the cells that its rectangle's triangle covers, in the corner that it is aligned at."""
        cells, start = np.zeros_like(self.open), 0
        for end in self.ends:
            shift = start if self.align == "bottom-right" else 0
            cells[start:end, :end] = np.tril(np.ones((end - start, end), bool), shift)
            start = end
        return cells

    def difference(self) -> float:
        """The largest one between the logits of one call and those of a run under the mask that the calls compute."""
        lost = self.open & ~self.computed
        rows = [(int(row), np.flatnonzero(lost[row]).tolist()) for row in np.flatnonzero(lost.any(1))]
        strokes = tuple(Stroke("block", row, keys[0], row, keys[-1]) for row, keys in rows)
        plain, other = (
            self.model.run(self.batch, spec).logits[0]
            for spec in (self.model.standard, replace(self.model.standard, drawn=strokes))
        )
        return float((plain - other).abs().max())


def _number(said: str, value: float) -> bool:
    return abs(float(said) - value) <= 0.02 * max(float(said), value) or max(float(said), value) < 1e-3


def _equal(said: Said, facts: CallsFacts) -> bool:
    cells = int(said["cells"].replace(",", ""))
    counted = cells == facts.open.sum() == facts.computed.sum() and int(said["count"]) == len(facts.ends)
    return counted and (facts.computed == facts.open).all() and float(said["difference"]) < 1e-2


def _left_out(said: Said, facts: CallsFacts) -> bool:
    missed = int(said["missed"].replace(",", ""))
    right = missed == (facts.open & ~facts.computed).sum() > 0 and int(said["count"]) == len(facts.ends)
    return right and _number(said["difference"], facts.difference())


@dataclass(frozen=True)
class CostFacts:
    """A mask of T tokens, whose blocks are of so many positions."""

    spec: MaskSpec
    tokens: int
    block: int

    @property
    def open(self) -> np.ndarray:
        """bool [T,T]."""
        at = np.arange(self.tokens)
        open_cells = at[:, None] >= at if self.spec.causal else np.ones((self.tokens, self.tokens), bool)
        return open_cells & (np.abs(at[:, None] - at) < self.spec.sliding) if self.spec.sliding else open_cells


def _cost(said: Said, facts: CostFacts) -> bool:
    side = -(-facts.tokens // facts.block)
    padded = np.zeros((side * facts.block, side * facts.block), bool)
    padded[: facts.tokens, : facts.tokens] = facts.open
    any_open = padded.reshape(side, facts.block, side, facts.block).any((1, 3))
    return said["share"] == f"{any_open.mean():.1%}" and int(said["tokens"].replace(",", "")) == facts.tokens


@dataclass(frozen=True)
class TreeFacts:
    """A tree of draft tokens after a text. tokens: ids of the nodes. positions: "depth" or "row"."""

    model: Model
    ids: tuple[int, ...]
    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    positions: str

    def likeliest(self, path: list[int]) -> int:
        """The id after the text and some nodes."""
        ids = torch.tensor([[*self.ids, *(self.tokens[node] for node in path)]])
        batch = TokenBatch(ids, torch.ones_like(ids, dtype=torch.bool), (("",) * ids.shape[1],))
        return int(self.model.run(batch, self.model.standard).logits[0, -1].argmax())

    def accepted(self) -> list[int]:
        path: list[int] = []
        while True:
            wanted, above = self.likeliest(path), path[-1] if path else -1
            children = [node for node, parent in enumerate(self.parents) if parent == above]
            fitting = [node for node in children if self.tokens[node] == wanted]
            if not fitting:
                return path
            path.append(fitting[0])

    @property
    def stands_by_depth(self) -> bool:
        """Whether each node's place in the row is that in its branch, or positions are told by depth."""
        depth = []
        for parent in self.parents:
            depth.append(0 if parent < 0 else depth[parent] + 1)
        return self.positions == "depth" or depth == list(range(len(depth)))


def _accepts(said: Said, facts: TreeFacts) -> bool:
    path = facts.accepted()
    return int(said["count"]) == len(path) and said["path"] == "".join(
        facts.model.label(facts.tokens[node]) for node in path
    )


@dataclass(frozen=True, eq=False)
class PackingFacts:
    """A text as documents of these sizes."""

    model: Model
    batch: TokenBatch
    sizes: tuple[int, ...]

    def mixed(self) -> float:
        """The largest difference of logits between the plain row and each document alone."""
        row, found, start = self.model.run(self.batch, self.model.standard).logits[0], 0.0, 0
        for size in self.sizes:
            ids = self.batch.ids[:, start : start + size]
            alone = TokenBatch(ids, torch.ones_like(ids, dtype=torch.bool), (("",) * size,))
            logits = self.model.run(alone, self.model.standard).logits[0]
            found = max(found, float((row[start : start + size] - logits).abs().max()))
            start += size
        return found


def _others(said: Said, facts: PackingFacts) -> bool:
    neither = next(one for one in said["names"].split("; ") if one.startswith("neither "))
    return _number(neither.removeprefix("neither "), facts.mixed())


SERVING_CLAIMS: dict[str, Callable[..., bool]] = {
    "{count} calls compute {cells} cells, each once, and give the logits of one call: the largest difference is {difference}, which is rounding.": _equal,
    "Aligned at the top left, {count} calls leave out {missed} of the cells that one call computes: the largest difference between logits is {difference}.": _left_out,
    "A kernel that skips empty blocks computes {share} of the {tokens} × {tokens} scores; {masked} of these are masked afterwards.": _cost,
    "One call verifies {nodes} tokens, and each has the logits of its own branch run alone: the largest difference is {difference}, which is rounding.": lambda said, facts: (
        int(said["nodes"]) == len(facts.parents) and facts.stands_by_depth and float(said["difference"]) < 1e-2
    ),
    "One call verifies {nodes} tokens, but with other logits than each branch run alone: the largest difference is {difference}.": lambda said, facts: (
        int(said["nodes"]) == len(facts.parents) and not facts.stands_by_depth
    ),
    "Greedy verification accepts {count} tokens: “{path}”.": _accepts,
    "Documents packed into one row have the logits of each document alone with: {names}.": lambda said, facts: (
        said["names"].split("; ")[0] == "mask and position ids"
    ),
    "Largest difference with the others: {names}.": _others,
}  # fmt: skip
