"""The kinds of masks, one entry each: the source of MaskSpec's fields, a run's masks, and the exported code.

A new kind is one entry here and one in viz/mask_styles.py; nothing else names the kinds. Their order is that of
MaskSpec's fields and of every list of masks. Imports no torch: a page's style is built from it before torch is loaded.
Sizes: B batch rows, Q queries, K keys.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from i18n import N_

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of one attention, as tensors that broadcast to [B,1,Q,K].

    query, key: positions, padding counted: int64 [1,1,Q,1] and [1,1,1,K]. query_token, key_token: the index among the
    row's real tokens, from 0, -1 at padding: [B,1,Q,1] and [B,1,1,K]. span: the number of positions from 0 to the last.
    split: maps a separator to the part of the text that each position is in, int64 [B,K]; None without a text. groups:
    of tokens that a network lets attend to each other, those of an image: int64 [B,K], -1 outside; None if none.
    """

    query: "Tensor"
    key: "Tensor"
    query_token: "Tensor"
    key_token: "Tensor"
    span: int
    split: Callable[[str], "Tensor"] | None = None
    groups: "Tensor | None" = None


@dataclass(frozen=True)
class Names:
    """The names of a cell's parts in exported code. padded: whether some tokens are padding. query, key: the index
    among the real tokens, -1 at padding. distance: how many positions are between them."""

    padded: bool
    query: str
    key: str
    distance: str


@dataclass(frozen=True)
class Kind:
    """A kind of mask. Its parameter is a whole number from `least` (less is off), a text ("" is off), or None for none.

    cells: maps the cells and the parameter to the cells that it leaves allowed, or, if it opens cells, those that it
    opens: bool, broadcastable to [B,1,Q,K]; None if it changes nothing. code: the same as a condition in PyTorch on
    q_idx and k_idx, for whole tensors of indices (SDPA) and for single ones (FlexAttention); "" if it changes nothing.
    comment: the comment next to that. phrase: its name in an answer, with a placeholder {size}; marked for translation.
    first: the initial parameter. opens: it opens cells that other masks block, instead of blocking any.
    own: models are trained with it; sized: with a size of the model's own in positions, which is then the parameter.
    joins: the kind that it is part of: it applies where that one does, and its cells count as that one's.
    borders: maps the parameter and the number of positions T to the positions, from 0 to T, in any order, where it
    changes along the queries or the keys of a text without padding; None if only the distance from query to key counts.
    once: along each query and each key it changes at one of them at most.
    arguments: of the fused kernels, those that have an argument for it: "is_causal" of SDPA, "varlen" of FlashAttention
    (causal, a window, sequences packed into one row).
    """

    cells: Callable[[Cells, Any], "Tensor | None"]
    code: Callable[[Names, Any], str]
    comment: str
    phrase: str
    first: int | str | None = None
    least: int = 1
    opens: bool = False
    own: bool = False
    sized: bool = False
    joins: str = ""
    borders: Callable[[Any, int], Iterable[int]] | None = lambda parameter, tokens: range(tokens)
    once: bool = False
    arguments: tuple[str, ...] = ()

    @property
    def off(self) -> bool | int | str:
        """The value of MaskSpec's field that turns it off."""
        return False if self.first is None else type(self.first)()

    @property
    def splits(self) -> bool:
        """Whether its parameter is a separator that splits the text: positions may then restart at 0 in each part."""
        return isinstance(self.first, str)

    def is_on(self, value: bool | int | str) -> bool:
        """Whether this value of MaskSpec's field turns it on."""
        return bool(value) and (type(value) is not int or value >= self.least)


def _near(cells: Cells, size: int) -> "Tensor | None":
    return (cells.query - cells.key).abs() < size if size < cells.span else None


def _multiples(size: int, tokens: int) -> Iterable[int]:
    return range(0, tokens, size)


def _once(size: int, tokens: int) -> Iterable[int]:
    return (min(size, tokens),)


def _same_part(cells: Cells, separator: str) -> "Tensor | None":
    if cells.split is None:
        return None
    part = cells.split(separator).to(cells.key.device)
    if bool((part == part[:, :1]).all()):
        return None
    return part[:, None, cells.query[0, 0, :, 0], None] == part[:, None, None, :]


def _same_group(cells: Cells, size: int) -> "Tensor | None":
    if cells.groups is None:
        return None
    query, key = cells.groups[:, None, cells.query[0, 0, :, 0], None], cells.groups[:, None, None, :]
    same = (query == key) & (query >= 0)
    return same if size >= cells.span else same & (cells.query - cells.key < size)  # a window limits distances back


def _first(token: "Tensor", size: int) -> "Tensor":
    return (token >= 0) & (token < size)


def _prefix_code(names: Names, size: int) -> str:
    first = f"({names.query} < {size}) & ({names.key} < {size})"
    return f"keep[q_idx] & keep[k_idx] & {first}" if names.padded else first


def _sinks_code(names: Names, size: int) -> str:
    first = f"{names.key} < {size}"
    return f"keep[q_idx] & keep[k_idx] & ({first})" if names.padded else first


KINDS: dict[str, Kind] = {
    "causal": Kind(
        lambda cells, _: cells.key <= cells.query,
        lambda names, _: "k_idx <= q_idx", "causal: no token sees a later one",
        N_("causal mask"), own=True, borders=None, arguments=("is_causal", "varlen"),
    ),
    "padding": Kind(
        lambda cells, _: None if bool((cells.key_token >= 0).all()) else cells.key_token >= 0,
        lambda names, _: "keep[k_idx]" if names.padded else "", "padding: nobody looks at it",
        N_("padding mask"), own=True,
    ),
    "window": Kind(  # Mistral's sliding window, arXiv:2310.06825
        _near, lambda names, size: f"{names.distance} < {size}", "window: the model's own sliding window",
        N_("the model's own window of {size}"), own=True, sized=True, borders=None, arguments=("varlen",),
    ),
    "chunk": Kind(  # Llama 4; counted over real tokens
        lambda cells, size: cells.query_token // size == cells.key_token // size if size < cells.span else None,
        lambda names, size: f"{names.query} // {size} == {names.key} // {size}",
        "chunk: the model attends within chunks of its own",
        N_("the model's own chunks of {size}"), own=True, sized=True, borders=_multiples, arguments=("varlen",),
    ),
    "image_block": Kind(  # Gemma 3's, arXiv:2503.19786, within the window of a layer that has one; PaliGemma's prefix
        _same_group, lambda names, size: "(group[q_idx] >= 0) & (group[q_idx] == group[k_idx])",
        "image: its tokens see each other",
        N_("image tokens see each other"), own=True, sized=True, opens=True,
    ),
    "padding_queries": Kind(
        lambda cells, _: cells.query_token >= 0,
        lambda names, _: "keep[q_idx]" if names.padded else "", "and it looks at nobody",
        N_("padding attends to nothing"), joins="padding",
    ),
    "sliding": Kind(  # a window chosen by the user
        _near, lambda names, size: f"{names.distance} < {size}", "sliding window: near tokens only",
        N_("window of {size}"), first=4, borders=None, arguments=("varlen",),
    ),
    "stride": Kind(  # Child et al. 2019, arXiv:1904.10509; with a window, dilated
        lambda cells, step: (cells.query - cells.key) % step == 0,
        lambda names, step: f"(q_idx - k_idx) % {step} == 0", "stride: only so many positions apart",
        N_("stride of {size}"), first=2, least=2, borders=None,
    ),
    "block_causal": Kind(  # block diffusion, arXiv:2503.09573
        lambda cells, size: cells.query_token // size >= cells.key_token // size if size < cells.span else None,
        lambda names, size: f"{names.query} // {size} >= {names.key} // {size}",
        "block-causal: a token sees its own block and the blocks before it",
        N_("block-causal mask of {size}"), first=4, borders=_multiples, once=True,
    ),
    "prefix_lm": Kind(  # replaces the causal mask: PaliGemma, arXiv:2407.07726; with a window, Gemma 3's images
        lambda cells, size: (cells.key <= cells.query)
        | (_first(cells.query_token, size) & _first(cells.key_token, size)),
        lambda names, size: f"(k_idx <= q_idx) | ({_prefix_code(names, size)})",
        "prefix LM: causal, but the first tokens see each other", N_("prefix-LM mask of {size}"), first=4,
    ),
    "documents": Kind(  # the documents of a packed row
        _same_part, lambda names, _: "document[q_idx] == document[k_idx]", "documents: nobody looks across",
        N_("documents split at “{size}”"), first=".", arguments=("varlen",),
    ),
    "prefix": Kind(  # T5's prefix language model, arXiv:1910.10683
        lambda cells, size: _first(cells.query_token, size) & _first(cells.key_token, size),
        _prefix_code, "prefix: the first tokens see each other",
        N_("prefix of {size}"), first=4, opens=True, borders=_once, once=True,
    ),
    "sinks": Kind(  # StreamingLLM, arXiv:2309.17453
        lambda cells, size: (cells.query_token >= 0) & _first(cells.key_token, size),
        _sinks_code, "sinks: every token sees the first",
        N_("sinks of {size}"), first=1, opens=True, borders=_once, once=True,
    ),
}  # fmt: skip
OF_IMAGES = "image_block"  # native: the tokens of an image attend to each other
LOCAL = tuple(name for name, kind in KINDS.items() if kind.own and kind.sized and not kind.opens)  # native, with a size
NEAR = "sliding"  # chosen by the user: a token attends to itself and to nearby tokens
