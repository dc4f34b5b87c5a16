"""Controls of the pages that show one head. Each choice is in st.session_state under its name in the page's link.

If a mask, layer, head or attention is None there, it gets the model's default once the model is loaded.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NoReturn

import streamlit as st

from i18n import N_, say, together
from model import catalog
from model.base import Model, TokenizedText
from model.errors import CheckpointError
from model.gpt2 import MAX_IN_BROWSER, browser_model
from model.heads.merging import By
from model.heads.view import MAX_CELLS
from model.masks import NATIVE, MaskSpec
from model.text import TokenBatch, rows_of
from model.transformer import Transformer
from serving.settings import Settings
from ui import explain, link, page, run_view, widgets
from ui.guard import guarded
from ui.sidebar import chat, models, positions, training_steps
from ui.sidebar.models import EXAMPLES, FIRST, model_found
from ui.widgets import bound, deferred, download, one_of
from viz.heads.cells import merged_words
from viz.heatmap import MAX_TICKS
from viz.mask_styles import STYLES
from viz.sentence import SCOPES

OTHER = "another"
CHOOSE_ANOTHER_MODEL = N_("{why} Choose another model on the left.")
A_LINE_EACH = N_("Type a text on the left, one sequence per line, or choose an example.")
SCOPE_HELP = N_(
    "Re-run: every layer gets the inputs that result from these masks. This layer only: the chosen layer's weights are "
    "recomputed from the standard run's queries and keys; other layers and the predictions do not change."
)
OWN_TEXT = N_("Your text")
SIDES = {"left": N_("left"), "right": N_("right")}
BY = {"tokens": N_("Tokens"), "words": N_("Words"), "sentences": N_("Sentences")}
OF_THE_MODEL = ("layer", "head", "attention", "training_step", *NATIVE)  # choices that are reset when the model changes


def open_page(*own: Callable[[], None]) -> tuple[Model, str]:
    """Begin a page about a model and a text: load the model and draw the text box. Returns both."""
    model = open_model(*own)
    with st.sidebar:
        text = choose_text()
        if model.chats and st.session_state.get("chat") and st.session_state.page in chat.PAGES_WITHOUT_CHAT:
            st.caption(say(chat.NOTE))
    return model, text


def open_model(*own: Callable[[], None]) -> Model:
    """Let the user choose a model in the sidebar, and load it; if that fails, keep the previous one and show why.

    own: called to restore the page's own choices, after those that all pages share.
    """
    widgets.restore("kept", _from_link, (*link.View.TYPED, "text", "other"))
    for restore in own:
        restore()
    positions.reset_other_units()
    with st.sidebar:
        name = choose_model()
    with st.container():  # keeps the elements below in place, with or without a warning here
        if st.session_state.get("not_offered"):
            st.warning(models.not_offered(st.session_state.not_offered))
        return models.get_or_keep(name)


def keep() -> Model:
    """Restore the shared choices in a fragment, which reruns without the rest of the page. Returns the model shown."""
    widgets.keep("kept")
    positions.reset_other_units()
    return models.last_shown()  # not passed to a fragment, which would keep the model in memory while the page is open


def open_text(model: Model, text: str, *, limits: bool = True) -> tuple[TokenizedText, int]:
    """Tokenize the page's text. Returns it and the index of the row to show; ends the page if there is no text. limits:
    whether to note what is cut; False for a page that reads more than one context."""
    ask_for_text(text)
    if model.chats and st.sidebar.toggle(say("Chat messages"), key="chat", help=say(chat.HELP)):
        reading, row = chat.open_messages(model, text), 0
    else:
        reading, row = _open_rows(model, text)
    positions.move_with_tokens(model, reading, row)
    widgets.show_notes(explain.limits(model, reading) if limits else [])
    return reading, row


def _open_rows(model: Model, text: str) -> tuple[TokenizedText, int]:
    """Tokenize the text, one row per line. Returns it and the index of the row to show."""
    with st.sidebar:
        targets, row_slot = choose_target(model, text), st.container()
        pad_side = choose_pad_side(text)
    with guarded(say("Tokenizing with {model} …", model=explain.title_of(model))):
        reading = run_view.tokenize(model, text, pad_side, targets)
    with row_slot:
        return reading, choose_row(reading.rows)


def ask_for_text(text: str, instruction: str = A_LINE_EACH) -> None:
    """End the page below its title if there is no text. instruction: what the user should do, marked by N_."""
    if not text.strip():
        _end(say(instruction))


def refuse(model: Model, kind: type[link.TextLink], why: str) -> NoReturn:
    """End a page that cannot show this model. kind: the page's link. why: the reason, and what to choose instead."""
    share(kind, model)
    _end(why)


def _end(text: str) -> NoReturn:
    st.markdown("### " + say(st.session_state.page))
    st.info(text)
    st.stop()


def _from_link() -> dict[str, Any]:
    """Return the choices in the link; if it has no text, texts that the user typed are kept."""
    view, settings = link.View.read(), models.settings()
    models.forget_failure()  # the model of another link
    known = view.model in catalog.offered(settings)
    kept = st.session_state.get("kept", {})
    named = settings.models and not known and "model" in view.model_fields_set
    st.session_state.not_offered = view.model if named else ""
    chosen = view.model_dump()
    if "kept" in st.session_state.to_reread:  # Back or Forward: keep choices that are not in this page's links
        of_another = () if view.model == chosen_model(kept) else OF_THE_MODEL
        stay = st.session_state.get("not_in_link", set()).difference(of_another)
        chosen |= {name: st.session_state.get(name, kept[name]) for name in stay}
    chosen |= {
        "model": view.model if known or settings.models else OTHER,
        "other": "" if known else view.model,
        "positions_count": positions.unit(chosen["by"]),
        "positions_of": positions.BY_BACK if "kept" in st.session_state.to_reread and view.text is None else None,
    }
    of_link = None if view.text is None else {"text": view.text, "target": view.target}
    now = {name: kept[name] for name in ("text", "target")} if kept else None
    return chosen | (link.texts_of("text", of_link, now) or {"text": widgets.text_of_lost_session("text", FIRST)})


def choose_model() -> str:
    """Let the user choose a model. Returns its name: one of those offered, a Hub id or a folder."""
    settings = models.settings()
    offered = [*catalog.offered(settings), *([] if settings.models else [OTHER])]
    if st.session_state.model not in offered:
        st.session_state.model = offered[0]

    def title(name: str) -> str:
        entry = catalog.ENTRIES.get(name)
        if entry is None:
            return say("Another model…") if name == OTHER else name
        return say(entry.title) + (f" ({entry.megabytes:,} MB)" if entry.megabytes else "")

    st.selectbox(say("Model"), offered, format_func=title, key="model", on_change=_reset_model_choices)
    if st.session_state.model == OTHER:
        st.text_input(
            say("Hub id or folder"), key="other", placeholder="Qwen/Qwen3-0.6B", on_change=_reset_model_choices
        )
    return training_steps.choose(chosen_model())


def chosen_model(copy: Mapping[str, Any] | None = None) -> str:
    """Return the name of the model chosen in the sidebar, or in a copy of choices; for checkpoints, their folder's."""
    state = st.session_state if copy is None else copy
    name: str = state["model"]
    return state["other"].strip().removeprefix("https://huggingface.co/") if name == OTHER else name


def choose_text() -> str:
    show_all = dict.fromkeys(("begin", "end", "zoom", "span"))
    anew, state = dict.fromkeys(positions.POSITIONS), st.session_state
    typed = lambda: state.update(show_all, written_text=state.text)  # noqa: E731
    st.text_area(say("Text, one sequence per line"), key="text", height=140, on_change=typed)
    choose_example(EXAMPLES, "example", "text", lambda text: state.update(anew, text=text, row=1))
    return read(state.text)


def choose_example(examples: Mapping[str, str], key: str, text: str, take: Callable[[str], object]) -> None:
    """Let the user choose an example text by its name, or the last typed text that an example, a link or a page
    replaced; take is called with it. text: the key of the text. The caller must also store what the user types in
    st.session_state[f"written_{text}"], which tells typed texts from others."""
    state = st.session_state
    written = state.setdefault(f"written_{text}", "")
    if written.strip() and written not in (state[text], *examples.values()):
        state[f"own_{text}"], state[f"written_{text}"] = written, ""
    own = state.get(f"own_{text}")
    offered = {**examples, OWN_TEXT: own} if own and own != state[text] else examples
    look: Any = {"placeholder": say("Examples"), "label_visibility": "collapsed"}

    def taken() -> None:
        if state[key] in offered:
            take(offered[state[key]])
            if state[key] == OWN_TEXT:
                state[f"own_{text}"], state[f"written_{text}"] = state[f"written_{text}"], own
            state[key] = None

    st.selectbox(say("Examples"), offered, format_func=say, index=None, key=key, on_change=taken, **look)


def read(text: str) -> str:
    """Return the part of a text that this server reads; if that is not all, a caption below its box shows how much."""
    limit = Settings.from_environment().characters
    if len(text) > limit:
        note = say("{count:,} characters; this server reads at most the first {most:,}.", count=len(text), most=limit)
        st.caption(f":material/info: {note}")
    return text[:limit]


def choose_row(rows: list[str], key: str = "row") -> int:
    """Let the user choose the row to show. Returns its index, from 0."""
    st.session_state[key] = min(max(st.session_state[key], 1), len(rows))
    if len(rows) > 1:
        numbers = range(1, len(rows) + 1)
        st.selectbox(say("Row"), numbers, format_func=lambda number: f"{number}: {rows[number - 1][:40]}", key=key)
    return st.session_state[key] - 1


def choose_pad_side(text: str) -> str:
    """Return the side on which short rows are padded, which the user can choose if the text has several rows."""
    if len(rows_of(text, 2)[0]) > 1:
        names = {side: say(name) for side, name in SIDES.items()}
        st.radio(say("Pad side"), list(SIDES), format_func=names.__getitem__, key="pad", horizontal=True)
    return st.session_state.pad


def choose_target(model: Model, text: str) -> list[str] | None:
    """Let the user type an encoder-decoder's target texts. Returns None if the model is to generate them, and for all
    other models. text: the source texts."""
    if model.kind != "encoder-decoder":
        return None
    empty = say("if empty, the model generates it")
    st.text_area(say("Target text, one per line"), key="target", height=80, placeholder=empty)
    limit = Settings.from_environment().rows
    (lines, more), (sources, _) = (rows_of(typed, limit) for typed in (read(st.session_state.target), text))
    if 0 < len(sources) < len(lines) + more:
        template = N_("Target lines read: the first {count} of {all}, one for each source line.")
        st.caption(say(template, count=len(sources), all=len(lines) + more))
    return lines or None


def choose_attention(offered: Sequence[str]) -> str:
    """Let the user choose one of the attentions offered here. A page that offers more keeps its own choice."""
    chosen = st.session_state.attention
    shown = chosen if chosen in offered else offered[min(1, len(offered) - 1)]
    if len(offered) > 1:
        one_of(say("Attention"), {name: explain.ATTENTIONS[name] for name in offered}, **bound("attention", shown))
    return shown


def choose_masks(model: Model) -> tuple[MaskSpec, str]:
    """Draw the mask switches. Returns the masks and their scope: "model" re-runs the model, "layer" only one layer."""
    with st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center", gap="medium"):
        spec = switch_masks(model, switches(model))
        look = {"width": "content", "help": say(SCOPE_HELP), "disabled": spec == model.standard}
        return spec, one_of(say("When a mask is off:"), SCOPES, "scope", **look)


def switch_masks(model: Model, names: list[str]) -> MaskSpec:
    """Draw the switches of these masks in the current container. Returns the masks."""
    for name in names:
        mask_switch(model, name)
    return replace(model.standard, **{name: st.session_state[name] for name in names})


def open_masks(title: str, model: Model, batch: TokenBatch, row: int) -> MaskSpec:
    """Draw the page's title with the model and text and, beside it, the choice of merging and the mask switches."""
    left, right = st.columns([1, 1.4], vertical_alignment="bottom")
    left.markdown(page.heading(title, explain.title_of(model), explain.size(batch, row)))
    look: Any = {"horizontal": True, "horizontal_alignment": "right", "vertical_alignment": "center", "gap": "medium"}
    with right, st.container(**look):
        if st.session_state.page in positions.MERGING:
            choose_by(width="content")
        return switch_masks(model, switches(model))


def switches(model: Model) -> list[str]:
    """Return the masks that a user can switch: those of all models and this model's own."""
    return [name for name in NATIVE if name in ("causal", "padding", *model.describe().masks)]


def masks_on_and_lifted(model: Model, spec: MaskSpec) -> tuple[list[str], list[str]]:
    """Return the switchable masks that are on, and those of the model's standard masks that are off."""
    names = switches(model)
    held = [name for name in names if getattr(spec, name)]
    return held, [name for name in names if getattr(model.standard, name) and name not in held]


def mask_switch(model: Model, name: str) -> None:
    """Draw the switch of a mask that models are trained with; by default it is as this model was trained."""
    if st.session_state[name] is None:
        st.session_state[name] = getattr(model.standard, name)
    st.toggle(say(STYLES[name].label), key=name, help=say(STYLES[name].help), width="content")


def choose_by(width: Literal["stretch", "content"] = "stretch") -> By:
    """Let the user choose what tokens are merged into; st.session_state.by has the choice even before this is drawn."""
    by: By = one_of(say("Merge tokens"), BY, "by", label_visibility="collapsed", width=width)
    return by


def explain_by(*more: str) -> None:
    """Draw a caption if tokens are merged. more: the page's own sentences to add."""
    if st.session_state.by != "tokens":
        st.caption(together([merged_words(st.session_state.by), *more]))


def choose_head(model: Model, layers: int, heads: int, attention: str = "") -> tuple[int, int]:
    nearest_head(model, layers, heads)
    found, attention = model.describe(), attention or model.attentions[0]
    others = found.other_layers()
    about = say("Numbered as in the network. {others}", others=others) if others else None
    name, shown = lambda layer: str(found.layer_number(attention, layer)), bound("layer", st.session_state.layer)
    with st.container(horizontal=True, wrap=False):
        st.selectbox(say("Layer"), range(layers), format_func=name, help=about, **shown)
        st.selectbox(say("Head"), range(heads), **bound("head", st.session_state.head))
    return st.session_state.layer, st.session_state.head


def take_head(layer: int, head: int | None) -> None:
    """Choose this head; nothing changes if it is None. For use in a widget's callback."""
    if head is not None:
        st.session_state.layer, st.session_state.head = layer, head


def nearest_head(model: Model, layers: int, heads: int) -> tuple[int, int]:
    """Return the chosen layer and head before their controls are drawn, clipped to those that exist."""
    state, first = st.session_state, catalog.first_head(model)
    state.layer = min(first[0] if state.layer is None else state.layer, layers - 1)
    state.head = min(first[1] if state.head is None else state.head, heads - 1)
    return state.layer, state.head


def choose_positions(rows: int, columns: int) -> tuple[int, int]:
    """Let the user choose the part of a long text that is shown large: positions [begin, end).

    A short text is shown whole, and so is a rectangular heatmap, whose rows and columns are different texts.
    """
    longest = max(rows, columns)
    end = min(max(st.session_state.end or longest, 2), longest)
    begin = min(st.session_state.begin or 0, max(end - 2, 0))
    if longest <= MAX_TICKS or rows != columns:
        return 0, longest
    about = N_("Up to {most} tokens get one cell each; beyond that, each cell shows the largest of several weights.")
    take = lambda part: st.session_state.update(begin=part[0], end=max(part[1], part[0] + 1))  # noqa: E731
    look = bound("positions", (begin, end), take) | {"help": say(about, most=MAX_CELLS)}
    return st.slider(say("Part of the text in the large heatmap"), 0, longest, **look)


def share(kind: type[link.TextLink], model: Model, **others: Any) -> None:
    """Write the page's choices to the URL, without the model's defaults, and offer links in the sidebar.

    kind: the page's link. others: values that override choices in the link.
    """
    instead: dict[str, Any] = {"model": chosen_model() or "story"}
    instead |= {name: None for name in NATIVE if st.session_state.get(name) == getattr(model.standard, name)}
    if (st.session_state.get("layer"), st.session_state.get("head")) == catalog.first_head(model):
        instead |= {"layer": None, "head": None}
    if len(model.attentions) == 1:
        instead["attention"] = None
    st.session_state.not_in_link = set(link.View.model_fields).difference(kind.model_fields).union(kind.LEFT_OUT)
    with st.sidebar:
        st.caption(model_found(model))
        link.share(kind.of_choices(**(instead | others)))


def offer_page(model: Model, text: str, spec: MaskSpec, head: tuple[int, int], **shown: Any) -> None:
    """If the model is one of Unmask's own decoders, offer a file that runs it in the browser with this text and these
    masks. shown: the other choices, by the names of live_page's arguments."""
    if not isinstance(getattr(model, "network", None), Transformer):
        return
    slot = st.expander(say("Offline page"), icon=":material/download:", key="offline", on_change="rerun")
    if not slot.open:
        return
    from viz.saved.live import MAX_CHARACTERS, live_page  # imported only when needed

    with slot:
        try:
            found = browser_model(model, head)
        except CheckpointError:
            template = N_("Offline pages need a model of at most {most:.0f} million parameters with GPT-2's tokenizer.")
            st.caption(say(template, most=MAX_IN_BROWSER / 1e6))
            return
        about = say(
            "One HTML file with the model, **the text** and the masks. It runs in any browser, without a network."
        )
        st.caption(about)
        make = deferred(lambda: live_page(found, text[:MAX_CHARACTERS], spec, **shown))
        download(say("Offline page"), make, "attention.html", "text/html", key="take_page")


def _reset_model_choices() -> None:
    st.session_state.not_offered = ""
    st.session_state.update(dict.fromkeys(OF_THE_MODEL))
    models.forget_failure()
