"""A page's choices as a URL: every choice but the text, which is there only in a link that was asked for with it.

Each page's link is a model of its own, a subclass of Link: its fields are the keys of choices, with their defaults. In
the URL a field goes by its alias where it has one: a page's own choices carry its name in the session alone.
"""

import math
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import urlencode

import streamlit as st
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError, create_model

from i18n import N_, say
from model.mask_kinds import KINDS
from ui import widgets
from ui.sidebar import speech

LONGEST_LINK = 8_000  # characters of all that follows the "?": servers answer far longer ones with a bare 400
ZOOM = r"^(\d{1,6})-(\d{1,6}),(\d{1,6})-(\d{1,6})$"  # rows and columns, each from its first position to its last
PINS = r"^\d{1,6}(,\d{1,6}){0,7}$"  # positions, or heads
SPAN = r"^\d{1,6}(-\d{1,6})?(,\d{1,6}(-\d{1,6})?){0,31}$"  # positions, or ranges from first to last
LONGEST_MASKS = 4_000  # most characters of a MaskSpec as JSON, before URL encoding


def at_most(length: int) -> BeforeValidator:
    return BeforeValidator(lambda value: None if value is None else str(value)[:length])


def _whole(value: Any) -> int:
    """The nearest number from 0 to 10,000. Raises ValueError for what is no finite number."""
    number = float(str(value)[:20])
    if not math.isfinite(number):
        raise ValueError("expected a finite number")  # not shown
    return round(min(max(number, 0), 10_000))


Whole = Annotated[int, BeforeValidator(_whole)]


class Link(BaseModel):
    """What every page's link holds; a field that makes no sense gets its default."""

    model_config = ConfigDict(extra="ignore", validate_by_name=True, validate_by_alias=True)
    TEXT: ClassVar[str] = ""  # the name of the field of the user's text, whose value may be None; "" for no such field
    FIRST_TEXT: ClassVar[str] = ""  # the first text of a page with a text of its own
    TYPED: ClassVar[tuple[str, ...]] = ()  # the names of the fields of other texts
    LEFT_OUT: ClassVar[tuple[str, ...]] = ()  # the names of the fields of View that this page's link leaves out

    @classmethod
    def read(cls) -> Self:
        """The choices that the page's URL asks for."""
        return cls._of(st.query_params.to_dict())

    @classmethod
    def _of(cls, given: dict[str, Any]) -> Self:
        while True:  # a field that has an alias may be there by both names, and pydantic names one of them at a time
            try:
                return cls.model_validate(given)
            except ValidationError as error:
                wrong = {str(problem["loc"][0]) for problem in error.errors()}
                given = {name: value for name, value in given.items() if name not in wrong}

    @classmethod
    def of_choices(cls, **others: Any) -> Self:
        """The link of the current choices; others: values to use instead."""
        state = st.session_state.to_dict()  # copied at once: reading key by key costs more
        chosen = {name: state[name] for name in cls.model_fields if name in state and name not in cls.LEFT_OUT}
        return cls._of(chosen | {name: value for name, value in others.items() if name in cls.model_fields})

    @classmethod
    def own(cls) -> set[str]:
        """The names of the fields that only this page has."""
        return set(cls.model_fields) - set(View.model_fields)

    @classmethod
    def untyped(cls) -> dict[str, Any]:
        """The defaults of the texts in TYPED."""
        return {name: cls.model_fields[name].default for name in cls.TYPED}

    @classmethod
    def first(cls) -> dict[str, Any]:
        """The page's own choices as it is first opened; texts that were typed stay where the link has none."""
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
        """Put the page's own choices where their widgets find them."""
        own = cls.own()
        widgets.restore(f"kept_{cls.__name__}", cls.first, [name for name in (cls.TEXT, *cls.TYPED) if name in own])

    @classmethod
    def keep(cls) -> None:
        """Do the same in a fragment, which runs again without the rest of the page."""
        widgets.keep(f"kept_{cls.__name__}")

    def parameters(self) -> dict[str, str]:
        """The URL's parameters: what differs from the defaults, and the language if it was chosen."""
        chosen = {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in self.model_dump(exclude_defaults=True, by_alias=True).items()
            if value is not None
        }
        return chosen | speech.in_links()

    def write(self) -> None:
        """Put the choices into the URL."""
        wanted = self.parameters()
        widgets.record_link(wanted)
        st.query_params.from_dict(wanted)  # always: a link to the same page leaves the URL as it was

    def address(self) -> str:
        base = (st.context.url or "").split("?")[0]
        return f"{base}?{urlencode(self.parameters())}".rstrip("?")

    def fits(self) -> bool:
        """Whether browsers and servers take a link this long."""
        return len(urlencode(self.parameters())) <= LONGEST_LINK

    def with_text(self, text: str | None) -> Self:
        return self.model_copy(update={self.TEXT: text}) if self.TEXT else self


def texts_of(name: str, linked: dict[str, str] | None, now: dict[str, str] | None) -> dict[str, str] | None:
    """The texts to show once a link was read, by their keys; None for a page that is first opened without linked texts.
    linked: the link's texts, None without any; now: the current texts, None at first. name: of this group of texts.

    Typed texts are in no link. Where Back goes past them, to a link with texts, Forward brings them again.
    """
    state = st.session_state
    before, state[f"linked_{name}"] = state.get(f"linked_{name}"), linked
    if linked is not None:
        if now not in (None, linked):
            state[f"typed_{name}"] = now
        return linked
    return state.get(f"typed_{name}", now) if now is not None and now == before else now


class TextLink(Link):
    """The link of a page that shows a model and a text. target: an encoder-decoder's."""

    TEXT: ClassVar[str] = "text"
    TYPED: ClassVar[tuple[str, ...]] = ("target",)
    model: Annotated[str, at_most(300)] = "story"
    target: Annotated[str, at_most(100_000)] = ""
    text: Annotated[str | None, at_most(100_000)] = None
    chat: bool = False  # whether the text is messages with roles
    training_step: Annotated[int, Field(ge=0, lt=10**9)] | None = None  # of a folder of checkpoints; None: the last

    def parameters(self) -> dict[str, str]:
        """The URL's parameters, which hold all of the texts or none."""
        shared = self if self.text is not None else self.model_copy(update=self.untyped())
        return super(TextLink, shared).parameters()


def with_masks(base: type[TextLink], but: str = "") -> Any:
    """The link's class with a choice for each mask, but one, that models are trained with; None: as this model was."""
    own: dict[str, Any] = {name: (bool | None, None) for name, kind in KINDS.items() if kind.own and name != but}
    return create_model(base.__name__, __base__=base, **own)


_Masked: Any = with_masks(TextLink)


class View(_Masked):
    """The link of Explore and of the Mask Lab. Layers and heads count from 0, rows from 1."""

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("masks",)
    layer: Whole | None = None
    head: Whole | None = None
    row: Whole = 1
    begin: Whole | None = None  # the positions shown large: from begin up to, without, end
    end: Whole | None = None
    pad: Literal["left", "right"] = "left"
    attention: str | None = None
    scope: Literal["model", "layer"] = "model"
    masks: Annotated[str | None, at_most(LONGEST_MASKS)] = None  # a MaskSpec as JSON
    by: Literal["tokens", "words", "sentences"] = "tokens"  # also the unit of positions, except in the Mask Lab
    span: Annotated[str, StringConstraints(pattern=SPAN)] | None = None  # queries looked at together: "3-7,12"
    pooled: Literal["mean", "sum"] = "mean"  # how the queries of span are combined
    show_padding: bool | None = None  # None: unless there is much of it
    zoom: Annotated[str, StringConstraints(pattern=ZOOM)] | None = None  # rows and columns shown large: "5-12,0-9"
    section: str | None = None  # of the Mask Lab
    query: Whole | None = None  # the query that is looked at
    key: Whole | None = None  # the key that is looked at, with the query a cell
    view: Literal["tokens", "arcs", "bars", "carried", "why", "numbers", "span"] = "tokens"  # of the head
    picture: Literal["head", "every", "arcs", "tokens", "bars", "carried", "why", "span"] = "head"  # of Export
    pins: Annotated[str, StringConstraints(pattern=PINS)] | None = None  # tokens that stay lit
    towards: Literal["at", "by"] = "at"  # what lights a token: the query looks at it, or is looked at by it
    heads: Annotated[str, StringConstraints(pattern=PINS)] | None = None  # of the same layer, beside the head
    sorted: bool = False  # whether bars stand the largest first
    token_values: bool = Field(False, alias="values")  # whether every lit token has its weight
    least: Annotated[float, Field(gt=0, le=1)] | None = None  # the smallest weight that arcs are drawn for
    hide_first: bool = False  # whether arcs leave the first token out
    over_steps: bool = False  # whether all checkpoints of a training are measured
    dim: Annotated[str, StringConstraints(pattern=r"^[a-z]{1,20}$")] | None = None  # the measure that dims heads
    dim_sorted: bool = False  # whether the strongest in it stand first
    palette: Literal["viridis", "cividis", "magma", "inferno"] = "viridis"
    colours_to: Literal["largest", "one", "percentile"] = "largest"
    brightness: Literal["root", "linear"] = "root"


def shortened(page: str) -> ConfigDict:
    """For a page's own link: its fields, named page…, go in the URL without that, but for those that would then be read
    as the choices that all pages share."""

    def short(name: str) -> str:
        own = name.removeprefix(page)
        return name if own in View.model_fields else own

    return ConfigDict(alias_generator=short)


def write(view: Link) -> None:
    """Update the URL to the view; it holds texts only if a link brought all of them or they are the page's own."""
    bare, whole = _with_and_without(view)
    state, linked = st.session_state, view.untyped()
    for name in (view.TEXT, *view.TYPED):
        linked |= state.get(f"linked_{name}") or {}
    unchanged = view.TEXT in linked and all(state.get(name, text) == text for name, text in linked.items())
    (whole if unchanged and whole.fits() else bare).write()


def share(view: Link) -> None:
    """Call at the end of a page: update the URL to the view, and offer links (a popover would have no room below)."""
    write(view)
    slot = st.expander(say("Link to this view"), icon=":material/link:", key="link", on_change="rerun")
    if slot.open:
        bare, whole = _with_and_without(view)
        with slot:
            without = N_("All settings of this page, without the text.")
            st.caption(say(without) if view.TEXT else say("All settings of this page."))
            st.code(bare.address(), language=None, wrap_lines=True)
            if view.TEXT:
                show_address(whole, say("With the text, readable by anyone who has the link."))
    widgets.end_page()


def show_address(view: Link, about: str) -> None:
    """The address of a view with its text, under the sentence `about`; or that the text is too long for a link."""
    if view.fits():
        st.caption(about)
        st.code(view.address(), language=None, wrap_lines=True)
    else:
        words = N_(
            "A link can have at most {most:,} characters; with this text, URL-encoded, it would have {length:,}. "
            "Shorten the text to share it."
        )
        st.caption(say(words, most=LONGEST_LINK, length=len(urlencode(view.parameters()))))


def _with_and_without(view: Link) -> tuple[Link, Link]:
    text = st.session_state[view.TEXT] if view.TEXT else None
    return view.with_text(None), view.with_text(text)
