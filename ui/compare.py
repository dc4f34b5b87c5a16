"""What B has of its own: other masks, another text or another model; all else is A's. And the page's link."""

from dataclasses import replace
from typing import Annotated, Any, Literal

import streamlit as st

from i18n import N_, say
from model import catalog
from model.base import Model, TokenizedText
from model.masks import NATIVE, MaskSpec
from model.text import first_line
from ui import controls, link, run_view
from ui.circuits.patching import INTO, METRICS, PATCHED
from ui.explain import title_of
from ui.heads import query
from ui.run_view import RunView
from ui.sidebar import models
from ui.widgets.choices import bound
from viz.mask_styles import mask_name

DIFFERS = {"masks": N_("masks"), "head": N_("head"), "text": N_("text"), "model": N_("model")}
OTHER_TEXT = (
    "Peter blew his silver whistle twice, and Peter lost his silver whistle twice, "  # not shown: a model's to read
    "and Peter blew his silver"
)


class CompareLink(link.View):
    """This page's link. differs: in what B is another than A. b_off: B's masks that are switched, with commas.
    b_layer, b_head: of B where it may have another head; None: those that follow A's."""

    differs: Literal[*DIFFERS] = "masks"  # type: ignore[valid-type]
    b_layer: link.Whole | None = None
    b_head: link.Whole | None = None
    b_off: Annotated[str, link.at_most(60)] = "causal"
    b_text: Annotated[str, link.at_most(4_000)] = OTHER_TEXT
    b_model: Annotated[str, link.at_most(300)] = "story"
    patching: bool = False
    patch_of: Literal[*PATCHED] = "heads"  # type: ignore[valid-type]
    patch_into: Literal[*INTO] = "b"  # type: ignore[valid-type]
    patch_metric: Literal[*METRICS] = "difference"  # type: ignore[valid-type]
    patch_answer: Annotated[str, link.at_most(40)] = ""  # "": what each run finds likeliest
    patch_instead: Annotated[str, link.at_most(40)] = ""
    patches: Annotated[str, link.at_most(600)] = ""  # "h3.2,a4.0,p1.17": a head, a layer, a layer's position

    @classmethod
    def first(cls) -> dict[str, Any]:
        """A text that was typed stays where the link has none."""
        chosen = super().first()
        if "b_text" not in st.query_params:
            chosen["b_text"] = st.session_state.get("kept_CompareLink", chosen)["b_text"]
        return chosen

    def parameters(self) -> dict[str, str]:
        """What differs from the defaults; of the texts all or none."""
        shared = self if self.text is not None else self.model_copy(update={"b_text": OTHER_TEXT})
        return link.View.parameters(shared)


def choose_model() -> Model:
    """B's model: one of those offered, or named by a hub id or a folder.

    Raises what catalog.load raises; asks for one that has to be downloaded first.
    """
    settings = models.settings()
    offered = list(catalog.offered(settings))
    name = st.session_state.b_model
    if not settings.models and name not in offered:
        offered.append(name)
    state = st.session_state
    state.b_chosen = name if name in offered else offered[0]
    take = lambda: state.update(b_model=state.b_chosen or "story")  # noqa: E731
    st.selectbox(say("B's model"), offered, key="b_chosen", accept_new_options=not settings.models, on_change=take)
    if settings.models and name not in (*offered, CompareLink.model_fields["b_model"].default):
        st.warning(models.not_offered(name))
    return models.get(state.b_chosen or offered[0])


def choose_head(b: Model, attention: str, layer: int, head: int) -> tuple[int, int]:
    """B's layer and head. layer, head: A's, which they follow until others are chosen; B has the next head where
    nothing else is another. All numbered as the run counts them."""
    state = st.session_state
    if state.differs not in ("head", "model"):
        return layer, head
    counts = run_view.shape(b, attention)
    following, found = (layer, head), []
    if state.differs == "head" and counts[1] > 1:
        following = layer, head + 1 if head + 1 < counts[1] else head - 1
    layer_number = b.describe().layer_number
    names = [str(layer_number(attention, number)) for number in range(counts[0])], list(map(str, range(counts[1])))
    labels = say("B's layer"), say("B's head")
    for name, label, count, follows, shown in zip(("b_layer", "b_head"), labels, counts, following, names, strict=True):
        own = min(follows if state[name] is None else state[name], count - 1)
        found.append(st.selectbox(label, range(count), **bound(name, own), format_func=shown.__getitem__, width=110))
    return found[0], found[1]


def choose_text(model: Model) -> TokenizedText:
    """B's text, one row. Raises ValueError for none."""
    st.text_area(say("B's text"), key="b_text", height=68)
    line = first_line(controls.read(st.session_state.b_text))
    if not line:
        raise ValueError(say("expected a text for B, got none"))
    return run_view.tokenize(model, line, "left", None)


def choose_masks(model: Model) -> MaskSpec:
    names = controls.switches(model)
    switched = set(st.session_state.b_off.split(","))
    standard: dict[str, bool] = {name: getattr(model.standard, name) for name in names}
    for name in names:
        st.session_state[f"b_{name}"] = standard[name] != (name in switched)
        st.toggle(
            say("B: {mask}", mask=mask_name(name)), key=f"b_{name}", on_change=_take, args=(standard,), width="content"
        )
    chosen: dict[str, Any] = {name: st.session_state[f"b_{name}"] for name in names}
    return replace(model.standard, **chosen)


def like(spec: MaskSpec, one: Model, other: Model) -> MaskSpec:
    """A's masks for B's model: those that A switched are as in A, all else is as B was trained."""
    switched: dict[str, Any] = {
        name: on for name in NATIVE if (on := getattr(spec, name)) != getattr(one.standard, name)
    }
    return replace(other.standard, **switched)


def query_of_b(a: RunView, b: RunView, position: int) -> int:
    """The token of B whose next one is predicted: its last until the user picks one of A, then that of the same
    number, or the nearest that there is. position: A's."""
    ours, theirs = (side.real for side in (a, b))
    if query.picked() is None:
        return theirs.stop - 1
    return min(max(theirs.start + position - ours.start, theirs.start), theirs.stop - 1)


def titles(models: tuple[Model, Model], heads: tuple[str, str]) -> list[str]:
    """ "A" and "B", with what differs of their models' and their heads' names."""
    differ = [tuple(map(title_of, models))] if models[0] is not models[1] else []
    differ += [heads] if heads[0] != heads[1] else []
    own = [" · ".join(names[side] for names in differ) for side in (0, 1)]
    return [f"{side}: {name}" if name else side for side, name in zip("AB", own, strict=True)]


def _take(standard: dict[str, bool]) -> None:
    switched = [name for name, on in standard.items() if st.session_state[f"b_{name}"] != on]
    st.session_state.b_off = ",".join(switched)
