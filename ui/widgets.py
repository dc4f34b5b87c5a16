"""Helpers for widgets, components, files and stoppable work; and the only code that keeps the choices of a page while
others are open, and takes them from its link.

Streamlit drops a widget's value if a run does not draw it, and an older value of the same key may then return. So every
page keeps a copy of its choices, under a name of its own, for when the user returns to it. A choice is read from, and
set in, st.session_state under its own key: before its widget is drawn, or in a callback.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import Any, TypeVar

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from i18n import language, say, spoken
from ui.streamlit_internals import session
from ui.streamlit_internals.files import XSRF_COOKIE

Made = TypeVar("Made")
MAX_WHOLE = 10**6  # larger than any position, layer or number of a picture's part


def bound(choice: str, value: Any, take: Callable[[Any], object] | None = None) -> dict[str, Any]:
    """Return keyword arguments for a widget that shows this value in this run: st.slider(…, **bound(…)).

    take: called with the value that the user picks; by default, st.session_state[choice] is set to it.
    """
    state = st.session_state
    keys = state.setdefault("bound_keys", {})
    keys.setdefault(choice, f"{choice}_0")
    if state.get(keys[choice], value) != value:
        keys[choice] = f"{choice}_{int(keys[choice].rpartition('_')[2]) + 1}"
    key = keys[choice]
    state[key] = value

    def on_change() -> None:
        if key != keys[choice]:
            return
        if take is None:
            state[choice] = state[key]
        else:
            take(state[key])

    return {"key": key, "on_change": on_change}


def one_of(label: str, labels: Mapping[Any, str], key: str, **look: Any) -> Any:
    """Draw a row of options. Returns the name of the chosen one, which is also in st.session_state[key]. labels: one
    for each name, marked by N_, in order. look: arguments of st.segmented_control."""
    st.segmented_control(
        label, list(labels), format_func=lambda name: plain(say(labels[name])), key=key, required=True, **look
    )
    return st.session_state[key]


def select(label: str, labels: Mapping[Any, str], key: str, **look: Any) -> Any:
    """Draw a select box. Returns the name of the chosen option; arguments as in `one_of`."""
    st.selectbox(label, list(labels), format_func=lambda name: say(labels[name]), key=key, **look)
    return st.session_state[key]


def whole_numbers(text: str) -> list[int]:
    """Parse a comma-separated text of whole numbers. Raises ValueError for anything else."""
    try:
        return [int(part) for part in text.replace("，", ",").split(",")]
    except ValueError:
        raise ValueError(say("expected whole numbers separated by commas, got “{text}”", text=text[:40])) from None


def whole_number(label: str, key: str, minimum: int, maximum: int, **look: Any) -> None:
    """Draw a field for a whole number, kept in st.session_state[key]; a value that is out of bounds is clipped."""
    st.session_state[key] = min(max(st.session_state[key], minimum), max(maximum, minimum))
    st.number_input(label, minimum, max(maximum, minimum), key=key, **look)


def plain(word: str) -> str:
    """Return a label for st.segmented_control in which Streamlit does not search for an emoji.

    Streamlit searches the start of a label that is not ASCII with a regular expression of all emoji, which takes each
    process 0.14 s to compile. After a space, which is not visible, it does not search.
    """
    return word if word.isascii() else f" {word}"


def deferred(make: Callable[[], Made]) -> Callable[[], Made]:
    """Wrap make so that, whenever it is called, it runs in the language of this page's user."""
    spoken_here = language()

    def made() -> Made:
        with spoken(spoken_here):
            return make()

    return made


def show_notes(sentences: Sequence[str]) -> None:
    """Show Markdown sentences: one alone as a caption, several in an expander labelled with their number.

    Text from outside has to be escaped.
    """
    if len(sentences) == 1:
        st.caption(f":material/info: {sentences[0]}")
    elif sentences:
        with st.expander(say("{count} notes on what is shown", count=len(sentences)), icon=":material/info:"):
            st.markdown("\n".join(f"- {sentence}" for sentence in sentences))


def component_value(key: str) -> Mapping[str, Any]:
    """Return what the component with this key sent, for its callback; empty if another page was opened meanwhile."""
    return st.session_state.get(key) or {}


def whole(sent: Any) -> int | None:
    """Return the value as an int if it is a whole number from 0 to MAX_WHOLE, else None: browsers may send anything."""
    return int(sent) if isinstance(sent, int | float) and 0 <= sent <= MAX_WHOLE and sent == int(sent) else None


def wholes(sent: Any, count: int) -> list[int] | None:
    """Return a list of `count` whole numbers as `whole` accepts them, sent by a component; None for anything else."""
    found = list(map(whole, sent)) if isinstance(sent, list) and len(sent) == count else []
    return [one for one in found if one is not None] if found and None not in found else None


def download(label: str, data: Any, name: str, kind: str | None = None, **look: Any) -> None:
    """Draw a download button that causes no rerun. data: the file, or a function that makes it. kind: MIME type."""
    st.download_button(label, data, name, kind, on_click="ignore", icon=":material/download:", **look)


def uploader(*arguments: Any, **options: Any) -> Any:
    """Draw st.file_uploader, with a note if uploads would be rejected (403) because there is no XSRF cookie, as in a
    frame on another site. How to allow them: deploy/README.md."""
    asks = st.get_option("server.enableXsrfProtection")
    if asks and "Host" in st.context.headers and XSRF_COOKIE not in st.context.cookies:
        text = say(
            "Uploads do not work here: the browser blocks the cookie that they need, as it does for pages embedded in "
            "another site. Open this page in its own tab to upload a file."
        )
        st.caption(f":material/info: {text}")
    return st.file_uploader(*arguments, **options)


def uploaded(key: str) -> Any:
    """Return an uploader's file, for its callback; None if there is none, or none any more, as after a restart."""
    file = st.session_state.get(key)
    return file if isinstance(file, BytesIO) else None  # Streamlit gives a DeletedFile for one that it has lost


@contextmanager
def stoppable(name: str, again: str) -> Iterator[DeltaGenerator | None]:
    """Yield an element for the progress of the work, beside a stop button; None while the work of this name is stopped,
    with a button labelled `again`. When the stop button is pressed, Streamlit ends the script that does the work."""
    slot, stop = st.empty(), lambda stopped: st.session_state.update(stopped_work=stopped)
    if st.session_state.get("stopped_work") == name:
        slot.button(again, on_click=stop, args=("",), icon=":material/play_arrow:")
        yield None
        return
    with slot.container(horizontal=True, vertical_alignment="center"):
        line = st.empty()
        st.button(say("Stop"), on_click=stop, args=(name,), icon=":material/stop:", key="stop_work")
    try:
        yield line
    finally:
        slot.empty()


def by_layer(names: Sequence[str], measure: Callable[[int], Made], line: DeltaGenerator | None = None) -> list[Made]:
    """Return measure(number) for each layer, and meanwhile show the progress in `line`. names: of the layers."""
    slot, found = line or st.empty(), []
    for number, name in enumerate(names):
        slot.progress(
            number / len(names), say("{layer}: {done} of {all} layers done", layer=name, done=number, all=len(names))
        )
        found.append(measure(number))
    slot.empty()
    return found


def restore(name: str, first: Callable[[], dict[str, Any]], typed: Sequence[str] = ()) -> None:
    """Set every choice of the copy `name` in st.session_state. Call before any widget is drawn.

    first: returns the choices, by key, if there is no copy yet, or if Back, Forward or a lesson brought a link. typed:
    the keys of texts. A text that is left by a click on another page comes with that click, or after it.
    """
    state = st.session_state
    visits = state.setdefault("visit_of_copy", {})
    newly = visits.get(name) != state.visit
    if name not in state or name in state.to_reread or (newly and state.linked):
        choices = first()
    elif newly:
        sent = session.sent_widgets()
        choices = state[name] | {key: _take_text(sent, key, state[name][key]) for key in typed}
    else:
        choices = {key: state.get(key, value) for key, value in state[name].items()}
    state.to_reread.discard(name)
    state.update(choices)
    state[name], visits[name] = choices, state.visit
    state.restored.add(name)


def keep(name: str) -> None:
    """Keep the choices of the copy `name` in a rerun of a fragment: `restore` is not called there, and Streamlit drops
    what one run of it has not drawn."""
    state = st.session_state
    if name in state.restored:  # this is a run of the whole page
        state.restored.discard(name)
        return
    state[name] = {key: state.get(key, value) for key, value in state[name].items()}
    state.update(state[name])


def begin_page(title: str) -> None:
    """Detect a newly opened page, and a link from Back or Forward. Call at the start of every run.

    A rerun with another link than the last one written, and with neither a click nor a changed choice, comes from Back
    or Forward. With either, it only left the browser before that last link arrived there. Between two pages, the
    browser's history has the link that opened the second, from a sidebar without choices: it stands for the one written
    first.
    """
    state = st.session_state
    state.setdefault("to_reread", set())
    state.restored = set()  # the copies that this run has restored
    if "page" not in state or state.brought:  # again if a click ended the first run before all was drawn
        _store_lost_session_state()
    if state.get("page") != title:
        given = st.query_params.to_dict()
        linked = "text" in given and given != state.get("last_link")  # a sidebar's link has no text: choices are kept
        visit = state.get("visit", 0) + 1
        state.update(
            page=title, visit=visit, opened_with_link=given, first_written_link=None, linked=linked, written_link=None
        )
        return
    if state.first_written_link and state.opened_with_link == st.query_params.to_dict():
        st.query_params.from_dict(state.first_written_link)
    if state.get("written_link") in (None, st.query_params.to_dict()) or session.is_clicked():
        return
    if not any(state.get(key, value) != value for key, value in state.choices_of_link.items()):
        state.to_reread = {name for name, visit in state.get("visit_of_copy", {}).items() if visit == state.visit}


def record_link(written: dict[str, str]) -> None:
    """Record the written link and the current choices, to detect later changes. Call when the page is drawn.

    The choices when the run began would not do: a run that was interrupted has written no link.
    """
    state = st.session_state
    here = [name for name, visit in state.get("visit_of_copy", {}).items() if visit == state.visit]
    keys, now = [key for name in here for key in state[name]], state.to_dict()  # at once: key by key is slower
    state.update(written_link=written, last_link=written)  # the first of this visit, the second of any page
    state.choices_of_link = {key: now[key] for key in keys if key in now}
    state.to_reread = set()  # copies that this part of the page does not use are not read from a later link
    if state.first_written_link is None or written == state.opened_with_link:
        state.first_written_link = {} if written == state.opened_with_link else written


def _store_lost_session_state() -> None:
    """Store the widget states with which a new session begins; if it has any, it follows a lost one: the server was
    restarted, or the browser was away for longer than server.disconnectedSessionTTL. They have what the link does not:
    the text, and the click that brought them. They can be interpreted only after the page has drawn its widgets."""
    state = st.session_state
    state.brought = session.sent_widgets()
    # bound widgets continue under their previous keys (see bound)
    state.bound_keys = {
        key.rpartition("_")[0]: key for key in map(session.key_of, state.brought) if key.rpartition("_")[2].isdecimal()
    }


def text_of_lost_session(key: str, otherwise: str) -> str:
    """Return the text under a key that the browser sent from a lost session, else `otherwise`. It has to be drawn in
    the first run: a browser adopts the text that it is shown, and sends that with the next click."""
    return _take_text(st.session_state.brought, key, otherwise)


def _take_text(sent: Sequence[Any], key: str, otherwise: str) -> str:
    """Return the text sent for the widget of this key, noted as typed, else `otherwise`. sent: states of widgets."""
    text = next((widget.string_value for widget in sent if session.key_of(widget) == key), otherwise)
    if text != otherwise:
        st.session_state[f"written_{key}"] = text  # no callback is called for it
    return text


def end_page() -> None:
    """Replay the first message of a session that follows a lost one: its widgets now exist. Call after drawing all."""
    brought = st.session_state.get("brought")
    if brought:
        st.session_state.brought = []
        session.rerun_with(brought)
