"""Draft trees: several continuations of a text verified in one call, as in speculative decoding with a token tree.

The call's row is the text, then every node of the tree. A node may attend to the text and to its own ancestors only,
and its position is that in its branch: the text's length plus its depth (Miao et al. 2023, arXiv:2305.09781). If its
index in the row is taken as its position, a known bug, two siblings get different positions. Sizes: P positions of the
text, N nodes, T = P + N.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from operator import mul

import numpy as np
import torch
from torch import Tensor

from i18n import N_, msg
from model.base import Model
from model.errors import index
from model.hardware import rounding
from model.inference.calls import ROUNDING, continuation_ids, logits_of
from model.kv_cache import batch_of
from model.masks import AllowedCache, MaskContext, MaskSpec

ORDERS = ("depth", "breadth")
POSITIONS = ("depth", "row")
MAX_NODES = 64


@dataclass(frozen=True, eq=False)
class DraftTree:
    """A tree verified in one call, compared with each of its branches run alone. Nodes are numbered by their order in
    the row.

    tokens: ids [N]; labels: what to show for each; parents: of each node, −1 for the text's last token. by: one of
    POSITIONS; positions: of all T tokens. allowed: bool [T,T], the call's mask in layer 0. differences: float32 [N],
    for each node the largest difference between its logits and those of its branch alone; tolerance: the largest one
    that is rounding. accepted: the nodes that greedy verification accepts, from the root on; each is the most likely
    token after the one before.
    """

    tokens: list[int]
    labels: list[str]
    parents: list[int]
    by: str
    positions: list[int] = field(repr=False)
    allowed: np.ndarray = field(repr=False)
    differences: np.ndarray = field(repr=False)
    tolerance: float
    accepted: list[int]

    @property
    def start(self) -> int:
        """The number of tokens of the text, after which those of the tree begin."""
        return len(self.allowed) - len(self.parents)

    def seen(self, node: int) -> list[int]:
        """Return the nodes that a node attends to in layer 0, from the root to itself; none for −1."""
        return np.flatnonzero(self.allowed[self.start + node, self.start :]).tolist() if node >= 0 else []

    @property
    def difference(self) -> float:
        """The largest difference between two logits."""
        return float(self.differences.max())

    @property
    def tokens_per_call(self) -> int:
        """The number of tokens from the call: those accepted, and the most likely one after them."""
        return len(self.accepted) + 1

    def numpy(self) -> np.ndarray:
        """Return the mask of the call: bool [T,T], True = may attend."""
        return self.allowed


def depths(parents: Sequence[int]) -> list[int]:
    """Return the number of ancestors of each node. Raises ValueError unless each parent is −1 or an earlier node."""
    if not 1 <= len(parents) <= MAX_NODES:
        raise ValueError(msg("expected 1 to {most} nodes, got {got}", most=MAX_NODES, got=len(parents)))
    found: list[int] = []
    for node, parent in enumerate(parents):
        parent = index("parent", parent, node, first=-1)
        found.append(0 if parent < 0 else found[parent] + 1)
    return found


def branch(parents: Sequence[int], node: int) -> list[int]:
    """Return the nodes from the root to `node`, inclusive."""
    above = []
    while node >= 0:
        above.append(node)
        node = parents[node]
    return above[::-1]


def ordered(parents: Sequence[int], order: str) -> list[int]:
    """Return the nodes in the order of the row: depth-first, or breadth-first."""
    if order not in ORDERS:
        raise ValueError(msg("expected an order of {names}, got {got}", names=", ".join(ORDERS), got=order))
    paths = {node: branch(parents, node) for node in range(len(parents))}
    return sorted(paths, key=lambda node: (len(paths[node]) if order == "breadth" else 0, paths[node]))


def uniform_tree(branches: Sequence[int]) -> list[int]:
    """Return the parents of a tree with this number of children per node, by depth. Raises ValueError if too large."""
    parents: list[int] = []
    level = [-1]
    if min(branches, default=0) < 1:
        template = N_("expected at least 1 branch at each depth, got {count}")
        raise ValueError(msg(template, count=min(branches, default=0)))
    nodes = sum(accumulate(branches, mul))
    if nodes > MAX_NODES:
        template = N_("expected at most {most} nodes in the tree, got {nodes:,}: give fewer branches")
        raise ValueError(msg(template, most=MAX_NODES, nodes=nodes))
    for count in branches:
        start = len(parents)
        parents += [parent for parent in level for _ in range(count)]
        level = list(range(start, len(parents)))
    return parents


def typed_tree(model: Model, texts: Sequence[str]) -> tuple[list[int], list[int]]:
    """Return the parents and tokens of a tree whose branches are these texts; common beginnings are shared.

    Raises ValueError for more than MAX_NODES tokens, and for a text without any.
    """
    nodes: dict[tuple[int, int], int] = {}  # (parent, token) -> node
    for text in texts:
        node = -1
        for token in continuation_ids(model, text)[0][: MAX_NODES + 1]:
            node = nodes.setdefault((node, token), len(nodes))
    parents = [parent for parent, _ in nodes]
    depths(parents)
    return parents, [token for _, token in nodes]


@torch.inference_mode()
def draft(model: Model, ids: Sequence[int], parents: Sequence[int]) -> list[int]:
    """Return a token for each node: n siblings get the n most likely tokens after their parent, in order.

    Raises ValueError for more siblings than the model has tokens."""
    depth = depths(parents)
    widest = max(Counter(parents).values())
    if widest > model.num_ids:
        template = N_(
            "expected at most {most} branches at a node, as many as there are tokens, got {got}: give fewer branches"
        )
        raise ValueError(msg(template, most=model.num_ids, got=widest))
    tokens = [0] * len(parents)
    for level in range(max(depth) + 1):
        for parent in dict.fromkeys(parents[node] for node in range(len(parents)) if depth[node] == level):
            children = [node for node, above in enumerate(parents) if above == parent]
            text = [*ids, *(tokens[node] for node in branch(parents, parent))]
            likeliest = logits_of(model, batch_of(model, text), model.standard)[-1].topk(len(children)).indices.tolist()
            for node, token in zip(children, likeliest, strict=True):
                tokens[node] = token
    return tokens


@torch.inference_mode()
def verify_tree(
    model: Model,
    ids: Sequence[int],
    parents: Sequence[int],
    tokens: Sequence[int] | None = None,
    *,
    order: str = "depth",
    positions: str = "depth",
) -> DraftTree:
    """Verify the tree after a text [P] in one call. tokens: of the nodes, by default the model's own (see draft).

    Raises ValueError for parents that are no tree, and for an unknown order or positions; what Model.call raises.
    """
    if positions not in POSITIONS:
        raise ValueError(msg("expected positions of {names}, got {got}", names=", ".join(POSITIONS), got=positions))
    depths(parents)
    drafted = draft(model, ids, parents) if tokens is None else list(tokens)
    if len(drafted) != len(parents):
        template = N_("expected a token for each node (nodes: {count}), got {got}")
        raise ValueError(msg(template, count=len(parents), got=len(drafted)))
    row = ordered(parents, order)
    above = [row.index(parents[node]) if parents[node] >= 0 else -1 for node in row]
    here, start = [drafted[node] for node in row], len(ids)
    node_positions = [start + (depth if positions == "depth" else node) for node, depth in enumerate(depths(above))]
    where = torch.tensor([*range(start), *node_positions])
    batch = replace(batch_of(model, (*ids, *here)), positions=where[None])
    tree = torch.ones(len(where), len(where), dtype=torch.bool).tril()
    for node in range(len(row)):
        tree[start + node, start:] = torch.isin(torch.arange(len(row)), torch.tensor(branch(above, node)))

    def masking(context: MaskContext, spec: MaskSpec, made: AllowedCache | None = None) -> Tensor:
        """Return the tree's mask within the model's own masks, whose windows count positions, not rows of the call."""
        square, at = context.allowed(spec, made), where.to(context.keep.device)
        return tree.to(at.device) if square is None else square[..., at, :][..., at] & tree.to(at.device)

    done = model.call(batch, where[None], model.standard, None, masking)
    logits = model.readout(done.states)[0]
    texts = ([*ids, *(here[one] for one in branch(above, node))] for node in range(len(row)))
    alone = [logits_of(model, batch_of(model, text), model.standard)[-1] for text in texts]
    likeliest, accepted = logits[start - 1 :].argmax(-1).tolist(), [-1]  # after the text, then after each node
    for node, parent in enumerate(above):
        if parent == accepted[-1] and here[node] == likeliest[parent + 1]:
            accepted.append(node)
    return DraftTree(
        tokens=here,
        labels=[model.label(token) for token in here],
        parents=above,
        by=positions,
        positions=where.tolist(),
        allowed=masking(done.records[0].context, model.standard)[0, 0].cpu().numpy(),
        differences=(logits[start:] - torch.stack(alone)).abs().amax(-1).float().cpu().numpy(),
        tolerance=rounding(done.states.dtype, ROUNDING) * float(torch.stack(alone).abs().max()),
        accepted=accepted[1:],
    )
