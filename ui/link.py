"""A page's choices as a URL: all but the text, which only an explicitly requested link contains.

Each page's link is its own model, a subclass of Link: its fields are the keys of choices, with their defaults. In the
URL a field goes by its alias, if any: the prefix with the page's name is needed in the session only.
"""

import math
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import urlencode

import streamlit as st
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError, create_model

from i18n import N_, say, together
from model.mask_kinds import KINDS
from ui import widgets
from ui.sidebar import speech

LONGEST_LINK = 8_000  # characters after the "?": servers reject far longer ones with a bare 400
ZOOM = r"^(\d{1,6})-(\d{1,6}),(\d{1,6})-(\d{1,6})$"  # rows and columns, each from its first position to its last
PINS = r"^\d{1,6}(,\d{1,6}){0,7}$"  # positions, or heads
SPAN = r"^\d{1,6}(-\d{1,6})?(,\d{1,6}(-\d{1,6})?){0,31}$"  # positions, or ranges from first to last
LONGEST_MASKS = 4_000  # maximum characters of a MaskSpec as JSON, before URL encoding


def at_most(length: int) -> BeforeValidator:
    return BeforeValidator(lambda value: None if value is None else str(value)[:length])


def _whole(value: Any) -> int:
    """Return the nearest whole number from 0 to 10,000. Raises ValueError for anything but a finite number."""
    number = float(str(value)[:20])
    if not math.isfinite(number):
        raise ValueError("expected a finite number")  # not shown
    return round(min(max(number, 0), 10_000))


Whole = Annotated[int, BeforeValidator(_whole)]
NO_FILES = N_("Links do not contain uploaded files.")


class Link(BaseModel):
    """The base class of all pages' links. A field with an invalid value gets its default."""

    model_config = ConfigDict(extra="ignore", validate_by_name=True, validate_by_alias=True)
    TEXT: ClassVar[str] = ""  # the field of the user's text, whose value may be None; "" if there is none
    FIRST_TEXT: ClassVar[str] = ""  # the default text of a page with its own text
    TYPED: ClassVar[tuple[str, ...]] = ()  # the fields of other texts
    LEFT_OUT: ClassVar[tuple[str, ...]] = ()  # fields of View that this page's link leaves out
    NOT_INCLUDED: ClassVar[str] = ""  # a sentence on what no link to the page contains, if anything

    @classmethod
    def read(cls) -> Self:
        """Return the choices in the page's URL."""
        return cls._of(st.query_params.to_dict())

    @classmethod
    def _of(cls, given: dict[str, Any]) -> Self:
        while True:  # a field may be given by its name and by its alias, and pydantic reports one at a time
            try:
                return cls.model_validate(given)
            except ValidationError as error:
                wrong = {str(problem["loc"][0]) for problem in error.errors()}
                given = {name: value for name, value in given.items() if name not in wrong}

    @classmethod
    def of_choices(cls, **others: Any) -> Self:
        """Return the link of the current choices. others: values that override them."""
        state = st.session_state.to_dict()  # copied at once: reading key by key is slower
        chosen = {name: state[name] for name in cls.model_fields if name in state and name not in cls.LEFT_OUT}
        return cls._of(chosen | {name: value for name, value in others.items() if name in cls.model_fields})

    @classmethod
    def own(cls) -> set[str]:
        """Return the names of the fields that only this page has."""
        return set(cls.model_fields) - set(View.model_fields)

    @classmethod
    def untyped(cls) -> dict[str, Any]:
        """Return the defaults of the texts in TYPED."""
        return {name: cls.model_fields[name].default for name in cls.TYPED}

    @classmethod
    def first(cls) -> dict[str, Any]:
        """Return the page's own choices when it is opened or a link is read; a link without texts keeps typed ones."""
        linked, state = cls.read(), st.session_state
        chosen = {name: getattr(linked, name) for name in cls.own()}
        typed = [name for name in (cls.TEXT, *cls.TYPED) if name in chosen]
        if cls.TEXT and typed:
            copy = state.get(f"kept_{cls.__name__}")
            now = copy and {name: state.get(name, copy[name]) for name in typed}
            of_link = {name: chosen[name] for name in typed} if getattr(linked, cls.TEXT) is not None else None
            first = {cls.TEXT: widgets.text_of_lost_session(cls.TEXT, cls.FIRST_TEXT)} if cls.TEXT in typed else {}
            chosen |= texts_of(typed[0], of_link, now) or first
        return chosen

    @classmethod
    def restore(cls) -> None:
        """Set the page's own choices in st.session_state, before their widgets are drawn."""
        own = cls.own()
        widgets.restore(f"kept_{cls.__name__}", cls.first, [name for name in (cls.TEXT, *cls.TYPED) if name in own])

    @classmethod
    def keep(cls) -> None:
        """Set the page's own choices in a fragment, which reruns without the rest of the page."""
        widgets.keep(f"kept_{cls.__name__}")

    def parameters(self) -> dict[str, str]:
        """Return the URL's parameters: what differs from the defaults, and the language if it was chosen."""
        chosen = {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in self.model_dump(exclude_defaults=True, by_alias=True).items()
            if value is not None
        }
        return chosen | speech.in_links()

    def write(self) -> None:
        """Write the choices to the URL."""
        wanted = self.parameters()
        widgets.record_link(wanted)
        st.query_params.from_dict(wanted)  # always, so that a link to the same page does not change the URL

    def address(self) -> str:
        base = (st.context.url or "").split("?")[0]
        return f"{base}?{urlencode(self.parameters())}".rstrip("?")

    def fits(self) -> bool:
        """Whether browsers and servers accept a link this long."""
        return len(urlencode(self.parameters())) <= LONGEST_LINK

    def with_text(self, text: str | None) -> Self:
        return self.model_copy(update={self.TEXT: text}) if self.TEXT else self


def texts_of(name: str, linked: dict[str, str] | None, now: dict[str, str] | None) -> dict[str, str] | None:
    """Return the texts to show after a link was read, by key; None if a page is first opened without linked texts.
    linked: the link's texts, or None; now: the current texts, None at first. name: of this group of texts.

    Typed texts are in no link. If Back passes them, to a link with texts, Forward restores them.
    """
    state = st.session_state
    before, state[f"linked_{name}"] = state.get(f"linked_{name}"), linked
    if linked is not None:
        if now not in (None, linked):
            state[f"typed_{name}"] = now
        return linked
    return state.get(f"typed_{name}", now) if now is not None and now == before else now


class TextLink(Link):
    """The link of a page that shows a model and a text. target: an encoder-decoder's target text."""

    TEXT: ClassVar[str] = "text"
    TYPED: ClassVar[tuple[str, ...]] = ("target",)
    model: Annotated[str, at_most(300)] = "story"
    target: Annotated[str, at_most(100_000)] = ""
    text: Annotated[str | None, at_most(100_000)] = None
    chat: bool = False  # whether the text is messages with roles
    training_step: Annotated[int, Field(ge=0, lt=10**9)] | None = None  # of a folder of checkpoints; None: the last

    def parameters(self) -> dict[str, str]:
        """Return the URL's parameters, which have all of the texts or none."""
        shared = self if self.text is not None else self.model_copy(update=self.untyped())
        return super(TextLink, shared).parameters()


def with_masks(base: type[TextLink], but: str = "") -> Any:
    """Return the link's class with a field for each mask of models, except `but`. None: as the model was trained."""
    own: dict[str, Any] = {name: (bool | None, None) for name, kind in KINDS.items() if kind.own and name != but}
    return create_model(base.__name__, __base__=base, **own)


_Masked: Any = with_masks(TextLink)


class View(_Masked):
    """The link of Explore and Export, and the base of others. Layers and heads count from 0, rows from 1."""

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("masks",)
    layer: Whole | None = None
    head: Whole | None = None
    row: Whole = 1
    begin: Whole | None = None  # the positions shown large: [begin, end)
    end: Whole | None = None
    pad: Literal["left", "right"] = "left"
    attention: str | None = None
    scope: Literal["model", "layer"] = "model"
    masks: Annotated[str | None, at_most(LONGEST_MASKS)] = None  # a MaskSpec as JSON
    by: Literal["tokens", "words", "sentences"] = "tokens"  # also the unit of positions, except in the Mask Lab
    span: Annotated[str, StringConstraints(pattern=SPAN)] | None = None  # queries whose weights are combined: "3-7,12"
    pooled: Literal["mean", "sum"] = "mean"  # how the queries of span are combined
    show_padding: bool | None = None  # None: unless there is much of it and it is masked
    zoom: Annotated[str, StringConstraints(pattern=ZOOM)] | None = None  # rows and columns shown large: "5-12,0-9"
    section: str | None = None  # of the Mask Lab
    query: Whole | None = None  # the chosen query
    key: Whole | None = None  # the chosen key; with the query, a cell
    view: Literal["tokens", "arcs", "bars", "carried", "why", "numbers", "span"] = "tokens"  # of the head
    picture: Literal["head", "every", "arcs", "tokens", "bars", "carried", "why", "span"] = "head"  # of Export
    pins: Annotated[str, StringConstraints(pattern=PINS)] | None = None  # tokens that stay highlighted
    towards: Literal["at", "by"] = "at"  # highlighted: tokens that the query attends to, or that attend to it
    heads: Annotated[str, StringConstraints(pattern=PINS)] | None = None  # other heads of the same layer
    sorted: bool = False  # whether bars are sorted, largest first
    token_values: bool = Field(False, alias="values")  # whether highlighted tokens show their weights
    least: Annotated[float, Field(gt=0, le=1)] | None = None  # the smallest weight drawn as an arc
    hide_first: bool = False  # whether arcs leave the first token out
    over_steps: bool = False  # whether all checkpoints of a training are measured
    dim: Annotated[str, StringConstraints(pattern=r"^[a-z]{1,20}$")] | None = None  # measure that dims heads
    dim_sorted: bool = False  # whether the strongest in it are first
    palette: Literal["viridis", "cividis", "magma", "inferno"] = "viridis"
    colours_to: Literal["largest", "one", "percentile"] = "largest"
    brightness: Literal["root", "linear"] = "root"


def shortened(page: str) -> ConfigDict:
    """Return the configuration of a page's own link: its fields, named page…, are written without that prefix in the
    URL, unless they would then be read as choices that all pages share."""

    def short(name: str) -> str:
        own = name.removeprefix(page)
        return name if own in View.model_fields else own

    return ConfigDict(alias_generator=short)


def write(view: Link) -> None:
    """Write the view to the URL; it holds texts only if a link brought the text and all texts are unchanged since."""
    bare, whole = _with_and_without(view)
    state, linked = st.session_state, view.untyped()
    for name in (view.TEXT, *view.TYPED):
        linked |= state.get(f"linked_{name}") or {}
    unchanged = view.TEXT in linked and all(state.get(name, text) == text for name, text in linked.items())
    (whole if unchanged and whole.fits() else bare).write()


def share(view: Link) -> None:
    """Write the view to the URL, and offer links (a popover would have no room below). Call at the end of a page."""
    write(view)
    slot = st.expander(say("Link to this view"), icon=":material/link:", key="link", on_change="rerun")
    if slot.open:
        bare, whole = _with_and_without(view)
        with slot:
            without = N_("All settings of this page, without the text.")
            has = say(without) if view.TEXT else say("All settings of this page.")
            st.caption(together([has, say(view.NOT_INCLUDED)]) if view.NOT_INCLUDED else has)
            st.code(bare.address(), language=None, wrap_lines=True)
            if view.TEXT:
                show_address(whole, say("With the text, readable by anyone who has the link."))
    widgets.end_page()


def show_address(view: Link, about: str) -> None:
    """Show the URL of a view with its text, below the sentence `about`; or a note that the text is too long."""
    if view.fits():
        st.caption(about)
        st.code(view.address(), language=None, wrap_lines=True)
    else:
        template = N_(
            "A link can have at most {most:,} characters; with this text, URL-encoded, it would have {length:,}. "
            "Shorten the text to share it."
        )
        st.caption(say(template, most=LONGEST_LINK, length=len(urlencode(view.parameters()))))


def _with_and_without(view: Link) -> tuple[Link, Link]:
    text = st.session_state[view.TEXT] if view.TEXT else None
    return view.with_text(None), view.with_text(text)
