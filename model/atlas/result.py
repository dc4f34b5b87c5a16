"""The results of an atlas for every head: plain arrays computed from a tally, and lookups in them.

Sizes: M measures, L layers, H heads, C the longest row, S sampled queries, N the most tokens that are named for a head.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from i18n import N_
from model.atlas.tally import Sample, Tally
from model.heads.view import head_name


@dataclass(frozen=True)
class Measure:
    """A measure of queries. words: a sentence on what a query's number is. unit: "share" (0 to 1), "tokens", "bits" or
    "", a plain number. names_heads: whether a head with more than half of its attention there is called by the title.
    All texts are translated where shown."""

    title: str
    words: str
    unit: str = "share"
    names_heads: bool = False


TOKENS, BITS = N_("tokens"), N_("bits")
MEASURES = {
    "previous": Measure(
        N_("previous token"),
        N_("Weight on the token just before, over queries from the row's third token on that may attend to it."),
        names_heads=True,
    ),
    "first": Measure(
        N_("first token"),
        N_("Weight on the row's first token, over later queries that may attend to it."),
        names_heads=True,
    ),
    "same": Measure(
        N_("itself"),
        N_("Weight on the query's own position, over queries that can attend to others too."),
        names_heads=True,
    ),
    "duplicate": Measure(
        N_("duplicate token"),
        N_("Weight on earlier occurrences of the same token, if there are any."),
        names_heads=True,
    ),
    "induction": Measure(
        N_("induction"),
        N_(
            "Weight on the token after the last earlier occurrence of the same token, if there is one (Olsson et al. "
            "2022)."
        ),
        names_heads=True,
    ),
    "punctuation": Measure(N_("punctuation"), N_("Weight on punctuation, if any is visible.")),
    "leak": Measure(N_("later tokens"), N_("Weight on later tokens: the leak, 0 under a causal mask.")),
    "peak": Measure(N_("sharpness"), N_("The largest weight on one token, excluding the first of the row.")),
    "distance": Measure(N_("mean distance"), N_("Mean distance of the keys, weighted by attention."), TOKENS),
    "entropy": Measure(N_("entropy"), N_("Entropy of the weights: 0 is a single token, 3 is uniform over 8."), BITS),
}
NAMES = tuple(MEASURES)
COPYING = N_("From weights: near 1, the head raises the logits of the tokens it attends to (Elhage et al. 2021).")
READS = N_(
    "From weights: the largest K-composition with an earlier head, minus that of random matrices (Elhage et al. 2021)."
)
OF_WEIGHTS = {  # computed without text; by the names of the functions in model/circuits/
    "copying_scores": Measure(N_("OV copying score"), COPYING, ""),
    "strongest_reads": Measure(N_("K-composition"), READS, ""),
}
EVERY_MEASURE = MEASURES | OF_WEIGHTS
NAMED, MIN_UNIFORM_RATIO = 0.5, 2.0  # a name needs at least this mean, and this many times that of uniform weights
MIN_QUERIES = 20  # required for a name
MAX_TOKENS = 15  # listed for each head
MIN_SEEN = 3  # occurrences that a query token needs
FARTHEST = 10**9
BINS = ((1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (17, 32), (33, 64), (65, 128), (129, FARTHEST))  # tokens back


@dataclass(frozen=True)
class TokenShare:
    """A token and a number: for keys the share of all the head's attention, for queries the mean sharpness. count: how
    often it occurred."""

    token: str
    share: float
    count: int


@dataclass(frozen=True)
class Example:
    """One sampled query: the measure's value, its row as labels, the query's position in it, and its heaviest keys as
    (position, weight), the heaviest first. source, number: of its text, both from 0."""

    value: float
    text: str
    pieces: tuple[str, ...]
    query: int
    keys: tuple[tuple[int, float], ...]
    source: int
    number: int


@dataclass(frozen=True)
class Decile:
    """A tenth of the sampled queries by a measure: number 10 is the strongest. low, high: the measure's range in it."""

    number: int
    low: float
    high: float
    queries: int
    examples: tuple[Example, ...]


@dataclass(frozen=True, eq=False)
class Atlas:
    """The measures of all heads. means [M,L,H], NaN where a measure counts nowhere; counts int64 [M,L]: the queries
    where it does; even [M,L]: the mean of a head with uniform weights on all allowed keys.

    at_offset [L,H,2C-1]: the mean weight of the cells at each key - query, from -(C-1) on, NaN where none is allowed.
    spread [L,H,2+bins], even_spread [L,2+bins]: shares of attention on later tokens, on itself, and BINS back.
    top_keys, top_queries int64 [L,H,N], ids, -1 if there are fewer; their numbers float [L,H,N] and counts.
    labels: of every id that is named. numbers: of each layer in the network. sample: see Sample. of_weights: those of
    OF_WEIGHTS that were computed, [L,H].
    """

    texts: int
    rows: int
    read: int
    means: np.ndarray
    counts: np.ndarray
    even: np.ndarray
    at_offset: np.ndarray
    spread: np.ndarray
    even_spread: np.ndarray
    top_keys: np.ndarray
    key_shares: np.ndarray
    key_counts: np.ndarray
    top_queries: np.ndarray
    query_peaks: np.ndarray
    query_counts: np.ndarray
    labels: dict[int, str]
    numbers: tuple[int, ...]
    sample: Sample
    of_weights: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def layers(self) -> int:
        return int(self.means.shape[1])

    @property
    def heads(self) -> int:
        return int(self.means.shape[2])

    def name(self, head: tuple[int, ...]) -> str:
        """Return the name of a layer and head: "L3 H2", the layer numbered as in the network."""
        return head_name(self.numbers[head[0]], head[1])

    def measure(self, name: str) -> np.ndarray:
        """Return the values of a measure, [L,H]."""
        return self.of_weights[name] if name in OF_WEIGHTS else self.means[NAMES.index(name)]

    def named(self, layer: int, head: int) -> tuple[str, ...]:
        """Return the head's names, the clearest first: see NAMED, MIN_UNIFORM_RATIO and MIN_QUERIES; () for most
        heads."""
        found = []
        for index, (name, measure) in enumerate(MEASURES.items()):
            mean, even = self.means[index, layer, head], self.even[index, layer]
            enough = self.counts[index, layer] >= MIN_QUERIES
            if measure.names_heads and enough and mean >= max(NAMED, MIN_UNIFORM_RATIO * even):
                found.append((mean, name))
        return tuple(name for _, name in sorted(found, reverse=True))

    def back(self, distance: int) -> np.ndarray:
        """Return the mean weight on the token at this distance back (negative: ahead), [L,H]. NaN where no such cell is
        allowed. Raises ValueError for more than the longest row has."""
        middle = self.at_offset.shape[-1] // 2
        if abs(distance) > middle:
            raise ValueError(f"expected at most {middle} tokens back, got {distance}")  # not shown
        return self.at_offset[..., middle - distance]

    def key_tokens(self, layer: int, head: int) -> list[TokenShare]:
        """Return the tokens that got most of the head's attention."""
        return self._tokens(self.top_keys, self.key_shares, self.key_counts, layer, head)

    def query_tokens(self, layer: int, head: int) -> list[TokenShare]:
        """Return the tokens, of those that occurred MIN_SEEN times, whose queries put most weight on one token."""
        return self._tokens(self.top_queries, self.query_peaks, self.query_counts, layer, head)

    def deciles(self, name: str, layer: int, head: int, each: int = 3) -> list[Decile]:
        """Return the sampled queries where the measure counts, in tenths, the strongest first; `each` of a tenth as
        random examples. A tenth without a query is left out."""
        values = self.sample.values[:, NAMES.index(name), layer, head]
        measured = np.flatnonzero(~np.isnan(values))
        order = measured[np.argsort(values[measured], kind="stable")]
        edges = [number * len(order) // 10 for number in range(11)]
        found = []
        for number in range(10, 0, -1):
            some = order[edges[number - 1] : edges[number]]
            if len(some):
                examples = tuple(self._example(int(one), values, layer, head) for one in sorted(some)[:each])
                found.append(Decile(number, float(values[some[0]]), float(values[some[-1]]), len(some), examples))
        return found

    def _example(self, index: int, values: np.ndarray, layer: int, head: int) -> Example:
        sample = self.sample
        pieces = tuple(self.labels[token] for token in sample.ids[index])
        pairs = zip(sample.keys[index, layer, head].tolist(), sample.weights[index, layer, head].tolist(), strict=True)
        keys = tuple((key, weight) for key, weight in pairs if key >= 0)
        source, number, query = sample.place[index].tolist()
        return Example(float(values[index]), sample.texts[index], pieces, query, keys, source, number)

    def _tokens(
        self, ids: np.ndarray, shares: np.ndarray, counts: np.ndarray, layer: int, head: int
    ) -> list[TokenShare]:
        here = zip(ids[layer, head].tolist(), shares[layer, head].tolist(), counts[layer, head].tolist(), strict=True)
        return [TokenShare(self.labels[token], share, count) for token, share, count in here if token >= 0]


def atlas_of(tally: Tally, label: Callable[[int], str], numbers: tuple[int, ...] = ()) -> Atlas:
    """Compute an atlas. label: a model's, for its tokens. numbers: of its layers in the network, if not 0, 1, 2 …"""
    with np.errstate(divide="ignore", invalid="ignore"):
        means = tally.sums / tally.counts[..., None]
        even = tally.uniform / tally.counts
        at_offset = tally.offsets / tally.cells[:, None]
        spread, even_spread = _spread(tally.offsets), _spread(tally.even)
        shares = tally.key_weight / tally.key_weight.sum(-1, keepdims=True)
        peaks = tally.query_peak / tally.query_count[:, None]
    peaks = np.where(tally.query_count[:, None] >= MIN_SEEN, peaks, -1.0)
    # stable: the first of equals
    keys, queries = (np.argsort(-one, -1, "stable")[..., :MAX_TOKENS] for one in (np.nan_to_num(shares), peaks))
    top_keys, key_shares = _take(tally.tokens, keys), np.take_along_axis(np.nan_to_num(shares), keys, -1)
    top_queries, query_peaks = _take(tally.tokens, queries), np.take_along_axis(peaks, queries, -1)
    top_keys = np.where(key_shares > 0, top_keys, -1)
    top_queries = np.where(query_peaks >= 0, top_queries, -1)
    named = {*top_keys.ravel().tolist(), *top_queries.ravel().tolist()} - {-1}
    named |= {token for ids in tally.sample.ids for token in ids}
    return Atlas(
        texts=tally.texts,
        rows=tally.rows,
        read=tally.read,
        means=means,
        counts=tally.counts.copy(),  # a tally that grows changes its own
        even=even,
        at_offset=at_offset,
        spread=spread,
        even_spread=even_spread,
        top_keys=top_keys,
        key_shares=key_shares,
        key_counts=_take(tally.key_count, keys),
        top_queries=top_queries,
        query_peaks=query_peaks,
        query_counts=np.take_along_axis(np.broadcast_to(tally.query_count[:, None], peaks.shape), queries, -1),
        labels={token: label(token) for token in sorted(named)},
        numbers=numbers or tuple(range(len(tally.counts[0]))),
        sample=tally.sample,
    )


def _spread(offsets: np.ndarray) -> np.ndarray:
    """Convert sums, offsets [..,2C-1], to shares [..,2+bins]: later tokens, itself, and each of BINS."""
    middle = offsets.shape[-1] // 2
    back = offsets[..., :middle][..., ::-1]  # back[0]: one token back
    parts = [offsets[..., middle + 1 :].sum(-1), offsets[..., middle]]
    parts += [back[..., low - 1 : high].sum(-1) for low, high in BINS]
    return np.asarray(np.stack(parts, -1) / offsets.sum(-1, keepdims=True))


def _take(values: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Return values [n] at indices [.., N]."""
    return values[indices] if len(values) else np.zeros(indices.shape, np.int64)
