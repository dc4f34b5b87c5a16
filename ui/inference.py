"""The sections of the Serving page: calls with a cache, draft trees, packed documents, streams, and costs of masks."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from html import unescape
from operator import call
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import streamlit as st
from pydantic import Field

from i18n import N_, Message, say, together
from model.atlas.unit import units_of_sample
from model.base import Model, TokenizedText
from model.huggingface.chat import messages_of
from model.inference import calls
from model.inference.calls import PackedLosses, pack
from model.inference.cost import MAX_TOKENS, MaskCost, cost
from model.inference.draft_tree import ORDERS, POSITIONS, DraftTree, typed_tree, uniform_tree, verify_tree
from model.inference.streaming import MAX_STREAMED, StreamedText, has_chunks, ids_of, stream
from model.mask_kinds import KINDS
from model.masks import ON_TEXT, MaskSpec
from model.text import TokenBatch
from serving.job import Job, ModelRef
from ui import controls, link, page, results, run_view
from ui.guard import error_from_running, guarded, show_error
from ui.heads.head import callbacks
from ui.results import cached_figure
from ui.widgets import bound, download, one_of, whole_number, whole_numbers
from viz import inference
from viz.mask_styles import STYLES

SECTIONS = {
    "calls": N_("Calls"), "tree": N_("Draft tree"), "packing": N_("Packing"), "streaming": N_("Streaming"),
    "cost": N_("Cost of a mask"),
}  # fmt: skip
ALIGN = {"bottom-right": N_("bottom right"), "top-left": N_("top left (wrong)"), "none": N_("no mask (wrong)")}
ORDER = {"depth": N_("depth first"), "breadth": N_("breadth first")}
POSITION = {"depth": N_("by depth"), "row": N_("by row (wrong)")}
DOCUMENTS = {"separator": N_("by separator"), "lengths": N_("by length")}
REST = N_("Separated by commas; the rest of the text is one more document.")
SOURCES = {"sample": N_("Sample"), "text": N_("Text on the left")}
BLOCK_SIZES = ("16", "32", "64", "128", "256")
HEAD_SIZE = 64  # the width of the head whose operations are counted
MAX_SLIDERS = 6
NO_MASKS = '{"causal": true}'  # the causal mask only
POLL_SECONDS = 0.3  # seconds between two parts of a stream
PART_SECONDS = 0.7  # seconds of reading in each part


class ServingLink(link.View):
    """The link of the Serving page. chunks: comma-separated sizes of calls, or one for all; cached: the prefix.
    branching: nodes after each one, by level; node: the chosen one. lengths: of documents. cost_masks: a MaskSpec."""

    TYPED = ("target", "second", "drafts")
    LEFT_OUT = ("masks", "section", "scope", "head")
    serving: Literal[*SECTIONS] = "calls"  # type: ignore[valid-type]
    chunks: Annotated[str, link.at_most(400)] = "8"
    cached: link.Whole = 0
    align: Literal[*calls.ALIGNMENTS] = "bottom-right"  # type: ignore[valid-type]
    second: Annotated[str, link.at_most(400)] = ""
    branching: Annotated[str, link.at_most(40)] = "2, 2, 1"
    drafts: Annotated[str, link.at_most(2_000)] = ""
    node: link.Whole = 0
    order: Literal[*ORDERS] = "depth"  # type: ignore[valid-type]
    stand: Literal[*POSITIONS] = "depth"  # type: ignore[valid-type]
    documents_by: Literal[*DOCUMENTS] = "separator"  # type: ignore[valid-type]
    separator: Annotated[str, link.at_most(40)] = ","
    lengths: Annotated[str, link.at_most(400)] = ""
    stream_text: Literal[*SOURCES] = "sample"  # type: ignore[valid-type]
    stream_tokens: link.Whole = 512
    stream_window: link.Whole = 60
    stream_sinks: link.Whole = 4
    stream_step: link.Whole = 8
    tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)] = 4096
    block: Literal[*BLOCK_SIZES] = "128"  # type: ignore[valid-type]
    cost_masks: Annotated[str, link.at_most(link.LONGEST_MASKS)] = NO_MASKS
    cost_documents: Annotated[str, link.at_most(400)] = ""


class SectionView(NamedTuple):
    """What a section shows. sentence, figures (by title): made in the caller's language. code: the same in Python."""

    sentence: Callable[[], str]
    figures: dict[str, Any]
    code: str


@dataclass(frozen=True, eq=False)
class Row:
    """The row of the text that is run, without padding."""

    model: Model
    batch: TokenBatch

    @classmethod
    def of(cls, model: Model, reading: TokenizedText, row: int) -> "Row":
        """Return the row of a text. Raises what check_predicts raises."""
        calls.check_predicts(model)
        return cls(model, reading.batch.without_padding(row))

    def with_other_layers(self, sentence: str) -> str:
        """Return the sentence, followed by which layers carry a state past every mask, if any."""
        others = self.model.describe().other_layers()
        return together([sentence, say(others)]) if others else sentence

    @property
    def labels(self) -> tuple[str, ...]:
        return self.batch.pieces[0]

    def code(self, call: str, given: str = "") -> str:
        """Return Python code for a method call on the run. given: arguments of `run`, if not the row's text."""
        run = f"run({given or repr(self.batch.texts[0])})"
        if self.batch.rendered and not given:
            messages = [{"role": role, "content": content} for role, content in messages_of(st.session_state.text)]
            run = f"chat({messages})"
        return f"import unmask\n\nrun = unmask.load({self.model.name!r}).{run}\nrun.{call}"

    def ask(self, function: Any, *arguments: Any, **options: Any) -> Any:
        """Return the cached result of function(model, *arguments), of model/."""
        return results.ask(function, ModelRef.of(self.model), *arguments, **options)


def open_cost(masks: MaskSpec) -> None:
    """Open the Serving page at its section on costs, for these masks."""
    choices = st.session_state.get("kept_ServingLink", ServingLink().model_dump(include=ServingLink.own()))
    st.session_state.kept_ServingLink = choices | {"serving": "cost", "cost_masks": masks.to_json()}
    st.switch_page("pages/serving.py")


def share(model: Model) -> None:
    """Write the page's choices to the URL, and offer links."""
    own = {"cost_masks": NO_MASKS} if len(st.session_state.cost_masks) > link.LONGEST_MASKS else {}
    if own and st.session_state.serving == "cost":
        st.caption(say("The masks are too long for a link, so it leaves them out: save their JSON as a file."))
    controls.share(ServingLink, model, **own)


def offer(shown: SectionView) -> None:
    """Offer the section's figures as files, and Python code for its numbers."""
    slot = st.popover(say("Files and code"), icon=":material/download:", key="serving_files", on_change="rerun")
    if not slot.open:
        return
    from ui.export import printed  # matplotlib takes a second, and nothing else here needs it
    from viz.export.chart import as_csv, chart_picture

    with slot, guarded(say("Drawing …")):
        title = st.selectbox(say("Figure"), list(shown.figures), format_func=say, key="serving_figure")
        if title:
            make, about = shown.figures[title], lambda: unescape(shown.sentence())
            picture = printed.PrintedPicture(chart_picture, (make,), lambda: say(title), about, [])
            printed.offer(picture, st.session_state.serving)
            printed.note_missing_fonts(picture)
            download("CSV", as_csv(make()), f"{st.session_state.serving}.csv", "text/csv", key="serving_csv")
        st.code(shown.code, "python")


def _chart(title: str, key: str, make: Any, sentence: str, draw: Any = cached_figure, **look: Any) -> dict[str, Any]:
    """Draw a figure below its title, marked by N_. Returns {title: make}."""
    st.markdown("#### " + say(title))
    page.chart(draw(make.func, *make.args), key, unescape(sentence), **look)
    return {title: make}


def show_calls(row: Row) -> SectionView:
    """Draw which call computed each cell."""
    state, count = st.session_state, row.batch.ids.shape[1]
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.text_input(say("Chunk sizes"), key="chunks", width=150,
                      help=say("One number for all chunks, or several separated by commas, in order."))  # fmt: skip
        whole_number(say("Cached prefix"), "cached", 0, count - 1, width=130)
        st.text_input(say("Second continuation of the prefix"), key="second", width=220, max_chars=400)
        align = one_of(say("Alignment of a call's mask"), ALIGN, "align", width="content",
                       help=say("No mask: calls after the first one have none."))  # fmt: skip
    sliders = st.container(horizontal=True, vertical_alignment="bottom")
    sizes = whole_numbers(state.chunks)
    chunks: Any = sizes[0] if len(sizes) == 1 else sizes
    ends = calls.ends_of(count, chunks, state.cached)
    with sliders:
        _drag(ends, count, len(sizes) == 1)
    if state.second and not state.cached:
        raise ValueError(say("expected a cached prefix of at least 1 token for a second continuation"))
    second = tuple(calls.continuation_ids(row.model, state.second)[0]) if state.second else ()
    found = row.ask(calls.compare_calls, row.batch, row.model.standard, tuple(ends), align, state.second)
    sentence = partial(inference.calls_sentence, found, bool(second))
    labels = [*row.labels, *(f"→ {row.model.label(token)}" for token in second)]
    left, right = st.columns([1.3, 1], gap="small")
    with left:
        cells = partial(inference.calls_figure, found, labels)
        figures = _chart(N_("Which call computes which cell"), "calls_cells", cells, sentence())
    with right:
        kernel = partial(inference.kernel_figure, found)
        figures |= _chart(N_("Each call as its kernel sees it"), "calls_kernel", kernel, sentence())
    with st.expander(say("Calls as a table")):
        st.html(cached_figure(inference.calls_table, found))
    more = f", second={state.second!r}" if second else ""
    code = row.code(f"served(chunks={chunks}, prefix={state.cached}, align={align!r}{more})")
    return SectionView(sentence, figures, code)


def _drag(ends: list[int], count: int, alike: bool) -> None:
    """Draw a slider for the size of all chunks, or one for the end of each call but the last."""
    start = st.session_state.cached

    def take(new: list[int]) -> None:
        sizes = [end - begin for begin, end in zip([start, *new], new, strict=False)]
        st.session_state.chunks = ", ".join(map(str, sizes))

    def take_end(number: int, end: int) -> None:
        take([*free[:number], min(max(end, [start, *free][number] + 1), free[number + 1] - 1), *free[number + 1 :]])

    free, left = [end for end in ends if end > start], count - start
    if left < 2:
        return
    if alike:
        size = min(max(whole_numbers(st.session_state.chunks)[0], 1), left)
        st.slider(say("Size of all chunks"), 1, left, width=260,
                  **bound("all_chunks", size, lambda size: st.session_state.update(chunks=str(size))))  # fmt: skip
        few = left > 2 and 2 <= len(free) <= MAX_SLIDERS + 1
        st.button(say("Set each one"), on_click=take, args=(free,), disabled=not few,
                  help=say("One slider for the end of each of 2 to {most} chunks.", most=MAX_SLIDERS + 1))  # fmt: skip
    elif left > 2 and len(free) <= MAX_SLIDERS + 1:
        for number, end in enumerate(free[:-1]):
            st.slider(say("End of call {number}", number=number + 1 + (start > 0)), start + 1, count - 1, width=170,
                      **bound(f"end_{number}", end, partial(take_end, number)))  # fmt: skip


def show_tree(row: Row) -> SectionView:
    """Draw a tree of draft tokens and its mask."""
    state = st.session_state
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.text_input(say("Branches at each depth"), key="branching", width=180, disabled=bool(state.drafts.strip()),
                      help=say("How many of the model's most likely tokens to draft after each node."))  # fmt: skip
        order = one_of(say("Order of nodes"), ORDER, "order", width="content")
        stand = one_of(say("Position ids"), POSITION, "stand", width="content")
    st.text_area(say("Or type the branches, one per line"), key="drafts", height=80, max_chars=2_000,
                 help=say("Each line continues the text: begin it with a space where a new word begins."))  # fmt: skip
    texts = [line for line in state.drafts.splitlines() if line.strip()]
    parents, tokens = typed_tree(row.model, texts) if texts else (uniform_tree(whole_numbers(state.branching)), None)
    room = max(row.model.context - len(parents), 1)  # tokens that can precede the tree
    ids, nodes = tuple(row.batch.ids[0, :room].tolist()), tokens and tuple(tokens)
    labels, given = row.labels[:room], ""
    if len(labels) < len(row.labels):
        given = f"ids={list(ids)}"
        st.caption(say("The tree follows the first {count:,} tokens, which leave room for it.", count=len(labels)))
    both = {by: row.ask(verify_tree, ids, tuple(parents), nodes, order=order, positions=by) for by in POSITIONS}
    found: DraftTree = both[stand]
    sentence = lambda: row.with_other_layers(inference.tree_sentence(found))  # noqa: E731
    state.node = min(state.node, len(found.parents) - 1)
    left, right = st.columns([1, 1.1], gap="small")
    with left:
        tree = partial(inference.tree_figure, found, labels[-1], state.node)
        title = N_("The tree, and the path that greedy verification accepts")
        clicks = callbacks("tree", on_pick=lambda node, _: state.update(node=node))
        figures = _chart(title, "tree", tree, sentence(), callbacks=clicks)
        names = [f"{number}: {label}" for number, label in enumerate(found.labels, 1)]
        st.selectbox(say("Show what a draft token sees"), range(len(names)), format_func=names.__getitem__,
                     **bound("node", state.node))  # fmt: skip
        other = both[next(by for by in POSITIONS if by != stand)]
        st.html(cached_figure(inference.tree_table, found, other))
    with right:
        mask = partial(inference.tree_mask_figure, found, labels, state.node)
        figures |= _chart(N_("Its mask"), "tree_mask", mask, sentence())
    code = row.code(f"tree({texts or parents}, order={order!r}, positions={stand!r})", given)
    return SectionView(sentence, figures, code)


def show_packing(row: Row) -> SectionView:
    """Draw the losses of documents packed into one row, and of each alone."""
    state = st.session_state
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        if one_of(say("Documents"), DOCUMENTS, "documents_by", width="content") == "separator":
            documents: Any = st.text_input(say("Documents end at"), key="separator", width=180)
        else:
            half = str(len(row.labels) // 2 or 1)
            st.text_input(say("Tokens of each document"), key="lengths", width=260, placeholder=half, help=say(REST))
            documents = tuple(whole_numbers(state.lengths.strip() or half))
    found: PackedLosses = row.ask(pack, row.batch, documents)
    sentence = lambda: row.with_other_layers(inference.packing_sentence(found))  # noqa: E731
    figures = _chart(N_("Loss of each document"), "packing", partial(inference.packing_figure, found), sentence())
    return SectionView(sentence, figures, row.code(f"packed({documents!r})"))


def show_streaming(row: Row) -> SectionView:
    """Read a text longer than the cache part by part, and draw what was read."""
    state = st.session_state
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        source = one_of(say("Text"), SOURCES, "stream_text", width="content",
                        help=say("A text with fewer tokens is repeated."))  # fmt: skip
        whole_number(say("Tokens"), "stream_tokens", 2, MAX_STREAMED, width=120)
        whole_number(say("Sinks"), "stream_sinks", 0, min(row.model.context - 1, 64), width=120)
        whole_number(say("Window"), "stream_window", 1, min(row.model.context - state.stream_sinks, 2_048), width=120)
        whole_number(say("Tokens per call"), "stream_step", 1, min(state.stream_window, 256), width=120)
    sample, own = "\n".join(text for unit in units_of_sample() for text in unit.texts), source == "text"
    text = row.batch.texts[0] if own else sample
    ids = ids_of(row.model, text, state.stream_tokens, own and row.batch.rendered)
    sizes = {"window": state.stream_window, "sinks": state.stream_sinks, "step": state.stream_step}
    now: StreamingState | None = state.get("stream_now")
    if now is None or (now.model.key, now.ids, now.sizes) != (row.model.key, ids, sizes):
        state.stream_now = None  # free its memory first
        attention, labels = row.model.attentions[0], tuple(map(row.model.label, ids))
        heads = [run_view.name_of(row.model, attention, *at) for at in np.ndindex(run_view.shape(row.model, attention))]
        now = StreamingState(ModelRef.of(row.model), ids, labels, heads, sizes)
        now.read(0.0)
        state.stream_now, state.stream_begun = now, True
    figures: dict[str, Any] = st.fragment(_read_next_part, run_every=POLL_SECONDS if now.running else None)(now.running)
    arguments = ", ".join(f"{name}={value}" for name, value in ({"tokens": len(ids)} | sizes).items())
    said = partial(inference.stream_sentence, now.found, row.model.context, chunked=has_chunks(row.model))
    sentence = str if now.running else said  # empty while parts are read: only they are drawn again
    return SectionView(sentence, figures, row.code(f"streamed({arguments})", "" if own else repr(text)))


@dataclass
class StreamingState:
    """A user's stream. labels: of its tokens. heads: their names. found: the results so far. problem: what ended it."""

    model: ModelRef
    ids: tuple[int, ...]
    labels: tuple[str, ...]
    heads: list[str]
    sizes: dict[str, int]
    found: Any = None
    running: bool = True
    problem: Message | None = None

    def read(self, seconds: float) -> None:
        """Read the next part, in turn with other users' jobs."""
        job = Job(stream, (self.model, self.ids), {**self.sizes, "so_far": self.found, "seconds": seconds})
        self.found = results.scheduler().ask(job, results.session(), results.raise_if_cancelled)


def _read_next_part(running: bool) -> dict[str, Any]:
    """Read a part of the stream, and draw all results so far; reruns by itself while the stream continues."""
    if (now := st.session_state.stream_now) is None:  # the run that begins another stream was interrupted or refused
        return {}
    if now.running and not st.session_state.pop("stream_begun", False):
        now.problem = error_from_running(partial(now.read, PART_SECONDS))
    found: StreamedText = now.found
    now.running &= not (found.over or now.problem)
    if now.running != running:
        st.rerun()  # rerun the whole page once, to update its sentence and to start or end the polling
    if now.problem:
        show_error(now.problem)
    if not found.over:
        with st.container(horizontal=True, vertical_alignment="center"):
            done = say("{done:,} of {count:,} tokens read", done=found.done, count=len(now.ids))
            st.progress(found.done / len(now.ids), done)
            label, icon = (say("Stop"), "stop") if running else (say("Continue"), "resume")
            look: Any = {"key": f"stream_{icon}", "icon": f":material/{icon}:"}
            st.button(label, on_click=setattr, args=(now, "running", not running), **look)
    alt = inference.stream_alt(found)
    figures = _chart(N_("Loss and cache"), "stream_loss", partial(inference.stream_figure, found), alt, call)
    sinks = partial(inference.sinks_figure, found, [now.labels[token] for token in found.kept], now.heads)
    return figures | _chart(N_("Attention of the newest token to the cache"), "stream_weights", sinks, alt, call)


def show_cost() -> SectionView:
    """Draw what the chosen mask costs a kernel that works on blocks."""
    state, top, spec = st.session_state, st.container(), None
    with suppress(ValueError):
        spec = MaskSpec.from_json(state.cost_masks)
    with st.expander(say("Any masks, as JSON"), expanded=spec is None):
        about = say("A mask saved by the Mask Lab (Export the mask); it may include a drawing.")
        st.text_area(say("Masks"), key="cost_masks", height=120, max_chars=100_000, help=about)
    spec = spec or MaskSpec.from_json(state.cost_masks)

    def take(name: str, value: Any) -> None:
        with suppress(ValueError):  # the masks may have changed since they were drawn
            state.cost_masks = MaskSpec.from_json(state.cost_masks).replace(**{name: value}).to_json()

    with top, st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        whole_number(say("Tokens"), "tokens", 1, MAX_TOKENS, width=140)
        st.selectbox(say("Block size"), BLOCK_SIZES, key="block", width=110)
        for name in ON_TEXT:  # a control for each kind of mask
            label, help_text, value = say(STYLES[name].label), say(STYLES[name].help), getattr(spec, name)
            if KINDS[name].first is None:
                st.toggle(label, help=help_text, **bound(f"cost_{name}", value, partial(take, name)))
            else:  # a size beyond the longest text is the same mask
                bind = bound(f"cost_{name}", min(value, MAX_TOKENS), partial(take, name))
                st.number_input(label, 0, MAX_TOKENS, help=help_text, width=120, **bind)
        st.text_input(say("Tokens of each document"), key="cost_documents", width=200, help=say(REST))
    documents = tuple(whole_numbers(state.cost_documents)) if state.cost_documents.strip() else ()
    if spec.documents and not documents:
        st.caption(say("The mask's documents depend on a text. To include them, type how many tokens each has."))
    found: MaskCost = results.ask(cost, spec, state.tokens, int(state.block), documents)
    sentence = partial(inference.cost_sentence, found)
    left, right = st.columns([1.3, 1], gap="small")
    with left:
        figures = _chart(N_("Blocks"), "cost_blocks", partial(inference.blocks_figure, found), sentence())
        st.html(inference.blocks_key())
    right.html(cached_figure(inference.cost_table, found, HEAD_SIZE))
    sizes = f"tokens={found.tokens}, block={found.block}, documents={list(documents)}"
    return SectionView(sentence, figures, f"import unmask\n\nunmask.cost({json.loads(spec.to_json())}, {sizes})")


SHOWN = {"calls": show_calls, "tree": show_tree, "packing": show_packing, "streaming": show_streaming}
