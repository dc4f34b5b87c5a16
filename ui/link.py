"""The view as a URL: every choice but the text, which is there only in a link that was asked for with it."""

from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import streamlit as st
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

LONGEST_TEXT = 2_000  # characters of a link; browsers and chat programs cut longer ones
LONGEST_TARGET = 10_000
LONGEST_MASKS = 4_000


def _whole(value: Any) -> int:
    """The nearest number from 0 on; what is no number at all counts as 0."""
    try:
        return min(max(round(float(str(value)[:20])), 0), 10_000)
    except (ValueError, OverflowError):
        return 0


Whole = Annotated[int, BeforeValidator(_whole)]


class View(BaseModel):
    """What a link holds. Layers and heads count from 0, rows from 1."""

    model_config = ConfigDict(extra="ignore")

    model: Annotated[str, BeforeValidator(lambda value: str(value)[:300])] = "story"
    layer: Whole | None = None
    head: Whole | None = None
    row: Whole = 1
    begin: Whole | None = None  # the positions shown large: from begin up to, without, end
    end: Whole | None = None
    pad: Literal["left", "right"] = "left"
    attention: str | None = None
    causal: bool | None = None  # None: as the model was trained
    padding: bool | None = None
    window: bool | None = None
    scope: Literal["model", "layer"] = "model"
    masks: Annotated[str, BeforeValidator(lambda value: str(value)[:LONGEST_MASKS])] | None = None  # a MaskSpec as JSON
    section: str | None = None  # of the Mask Lab, and the query that its sections look at
    query: Whole | None = None
    target: Annotated[str, BeforeValidator(lambda value: str(value)[:LONGEST_TARGET])] = ""
    text: Annotated[str, BeforeValidator(lambda value: str(value)[:100_000])] | None = None


def read() -> View:
    """The view that the page's URL asks for; a field that makes no sense gets its default."""
    given = {name: value for name, value in st.query_params.to_dict().items() if name in View.model_fields}
    try:
        return View.model_validate(given)
    except ValidationError as error:
        wrong = {str(problem["loc"][0]) for problem in error.errors()}
        return View.model_validate({name: value for name, value in given.items() if name not in wrong})


def write(view: View) -> None:
    """Put the view into the URL, defaults and texts that nobody asked to share left out."""
    st.query_params.from_dict(_parameters(view))


def address(view: View) -> str:
    """A whole link to the view."""
    base = (st.context.url or "").split("?")[0]
    return f"{base}?{urlencode(_parameters(view))}"


def _parameters(view: View) -> dict[str, str]:
    """What differs from the defaults; of the texts both or neither."""
    shared = view if view.text is not None else view.model_copy(update={"target": ""})
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in shared.model_dump(exclude_defaults=True).items()
        if value is not None
    }
