"""The sections of the Serving page: a text in several calls, a draft tree, packed documents, and what a mask costs."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import streamlit as st

from i18n import N_, say
from model.base import Model, TokenizedText
from model.inference.calls import ALIGNMENTS, ROUNDING, CallsComparison, compare_calls, ends_of
from model.inference.cost import COSTED, MOST_TOKENS, MaskCost, cost
from model.inference.draft_tree import MOST_NODES, ORDERS, POSITIONS, DraftTree, verify_tree
from model.inference.packing import PackedLosses, pack
from model.mask_kinds import KINDS
from model.masks import MaskSpec
from model.text import TokenBatch
from serving.job import ModelRef
from ui import controls, link, page, results
from ui.results import cached_figure
from ui.widgets.choices import bound, one_of
from viz import inference as pictures
from viz.mask_styles import STYLES

SECTIONS = {"calls": N_("Calls"), "tree": N_("Draft tree"), "packing": N_("Packing"), "cost": N_("Cost of a mask")}
ALIGN = {"bottom-right": N_("bottom right"), "top-left": N_("top left (wrong)")}
ORDER = {"depth": N_("depth first"), "breadth": N_("breadth first")}
POSITION = {"depth": N_("by depth"), "row": N_("by row (wrong)")}
BLOCK_SIZES = ("16", "32", "64", "128", "256")
HEAD_SIZE = 64  # of the head whose operations are counted


class ServingLink(link.View):
    """This page's link. chunks: sizes of calls, with commas, or one for all; cached: the prefix. branching: how many
    nodes follow each one, level by level. stand: where nodes stand. cost_masks: a MaskSpec as JSON."""

    serving: Literal[*SECTIONS] = "calls"  # type: ignore[valid-type]
    chunks: Annotated[str, link.at_most(400)] = "8"
    cached: link.Whole = 0
    align: Literal[*ALIGNMENTS] = "bottom-right"  # type: ignore[valid-type]
    branching: Annotated[str, link.at_most(40)] = "2, 2, 1"
    order: Literal[*ORDERS] = "depth"  # type: ignore[valid-type]
    stand: Literal[*POSITIONS] = "depth"  # type: ignore[valid-type]
    separator: Annotated[str, link.at_most(40)] = ","
    tokens: link.Whole = 4096
    block: Literal[*BLOCK_SIZES] = "128"  # type: ignore[valid-type]
    cost_masks: Annotated[str, link.at_most(link.LONGEST_MASKS)] = '{"causal": true}'


@dataclass(frozen=True, eq=False)
class Row:
    """The row of the text that is run, without padding."""

    model: Model
    batch: TokenBatch

    @classmethod
    def of(cls, model: Model, reading: TokenizedText, row: int) -> "Row":
        """Raises ValueError for a model that predicts no next token from what comes before it."""
        if model.kind != "decoder" or not model.predicts:
            raise ValueError(say("{model} does not predict the next token from earlier ones: choose a decoder.",
                                 model=model.name))  # fmt: skip
        return cls(model, reading.batch.without_padding(row))

    @property
    def labels(self) -> tuple[str, ...]:
        return self.batch.pieces[0]

    def ask(self, function: Any, *arguments: Any, **options: Any) -> Any:
        """function(model, *arguments) of model/, remembered."""
        return results.ask(function, ModelRef.of(self.model), *arguments, **options)


def choose_section() -> str:
    """Which of the page's parts."""
    return one_of(say("Shown"), SECTIONS, "serving", label_visibility="collapsed")


def share(model: Model) -> None:
    """Keep the URL true to the page, and offer links."""
    controls.share(ServingLink, model, masks=None, section=None, scope="model", head=None)


def show_calls(row: Row) -> str:
    """The cells by the call that computed them; gives the sentence."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.text_input(say("Chunk sizes"), key="chunks", width=180,
                      help=say("One number for all chunks, or several with commas, in order."))  # fmt: skip
        st.number_input(say("Cached prefix"), 0, 10_000, key="cached", width=140)
        align = one_of(say("Alignment of a call's mask"), ALIGN, "align", width="content")
    count = row.batch.ids.shape[1]
    sizes = whole_numbers(st.session_state.chunks)
    chunks: Any = sizes[0] if len(sizes) == 1 else sizes
    ends = ends_of(count, chunks, st.session_state.cached)
    found: CallsComparison = row.ask(compare_calls, row.batch, row.model.standard, tuple(ends), align)
    sentence = pictures.calls_sentence(found, align)
    left, right = st.columns([1.3, 1], gap="small")
    with left:
        st.markdown("#### " + say("Which call computes which cell"))
        page.chart(cached_figure(pictures.calls_figure, found, row.labels), "calls_cells", sentence)
    with right:
        st.markdown("#### " + say("Each call as its kernel sees it"))
        page.chart(cached_figure(pictures.kernel_figure, found), "calls_kernel", sentence)
    with st.expander(say("Calls as a table")):
        st.html(cached_figure(pictures.calls_table, found))
    return sentence


def show_tree(row: Row) -> str:
    """A tree of draft tokens and its mask; gives the sentence."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.text_input(say("Branches at each depth"), key="branching", width=180,
                      help=say("The model's most likely tokens, so many after each node."))  # fmt: skip
        order = one_of(say("Order of nodes"), ORDER, "order", width="content")
        stand = one_of(say("Position ids"), POSITION, "stand", width="content")
    parents = tree_of(whole_numbers(st.session_state.branching))
    ids = tuple(row.batch.ids[0].tolist())
    found: DraftTree = row.ask(verify_tree, ids, tuple(parents), order=order, positions=stand)
    sentence = pictures.tree_sentence(found, ROUNDING * found.size)
    left, right = st.columns([1, 1.1], gap="small")
    with left:
        st.markdown("#### " + say("The tree, and the path that greedy verification accepts"))
        page.chart(cached_figure(pictures.tree_figure, found, row.labels[-1]), "tree", sentence)
    with right:
        st.markdown("#### " + say("Its mask"))
        page.chart(
            cached_figure(pictures.mask_figure, found.allowed, [*row.labels, *found.labels]), "tree_mask", sentence
        )
    return sentence


def show_packing(row: Row) -> str:
    """Losses of documents packed and alone; gives the sentence."""
    st.text_input(say("Documents end at"), key="separator", width=180)
    found: PackedLosses = row.ask(pack, row.batch, st.session_state.separator)
    sentence = pictures.packing_sentence(found, ROUNDING * found.size)
    page.chart(cached_figure(pictures.packing_figure, found), "packing", sentence)
    return sentence


def show_cost() -> str:
    """What the chosen mask costs a kernel that works on blocks; gives the sentence."""
    state = st.session_state
    spec = MaskSpec.from_json(state.cost_masks)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.number_input(say("Tokens"), 1, MOST_TOKENS, key="tokens", width=140)
        st.selectbox(say("Block size"), BLOCK_SIZES, key="block", width=110)
        for name in COSTED:
            _choose_kind(name, spec)
    found: MaskCost = results.ask(cost, spec, state.tokens, int(state.block))
    sentence = pictures.cost_sentence(found)
    left, right = st.columns([1.3, 1], gap="small")
    with left:
        page.chart(cached_figure(pictures.blocks_figure, found), "cost_blocks", sentence)
        st.html(pictures.blocks_key())
    right.html(cached_figure(pictures.cost_table, found, HEAD_SIZE))
    return sentence


def _choose_kind(name: str, spec: MaskSpec) -> None:
    """A control for a kind of the mask whose cost is shown."""

    def take(value: Any) -> None:
        st.session_state.cost_masks = spec.replace(**{name: value}).to_json()

    label, words, bind = (
        say(STYLES[name].label),
        say(STYLES[name].help),
        bound(f"cost_{name}", getattr(spec, name), take),
    )
    if KINDS[name].first is None:
        st.toggle(label, help=words, **bind)
    else:
        st.number_input(label, 0, MOST_TOKENS, help=words, width=120, **bind)


def whole_numbers(text: str) -> list[int]:
    """Those of a text with commas between them. Raises ValueError for anything else."""
    try:
        return [int(one) for one in text.replace("，", ",").split(",")]
    except ValueError:
        raise ValueError(say("expected whole numbers with commas, got “{text}”", text=text[:40])) from None


def tree_of(branches: list[int]) -> list[int]:
    """The parents of a tree whose nodes all have so many children, depth by depth. Raises ValueError for too many."""
    parents: list[int] = []
    level = [-1]
    for count in branches:
        if not 1 <= count <= MOST_NODES or len(parents) + count * len(level) > MOST_NODES:
            raise ValueError(say("expected 1 to {most} nodes in the tree, got more or none", most=MOST_NODES))
        start = len(parents)
        parents += [parent for parent in level for _ in range(count)]
        level = list(range(start, len(parents)))
    return parents


SHOWN = {"calls": show_calls, "tree": show_tree, "packing": show_packing}
