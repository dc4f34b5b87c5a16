"""Controls: widgets with a value of the page's, what components send, files, work that can be stopped; and choices that
outlive the page they were made on, and come from its link: the one way there is.

Streamlit forgets a widget's value once a page has not drawn it, and then an older value of the same key may come back.
So every page keeps a copy of its choices under a name of its own, which holds when the user comes back to it. A
choice is read from, and set in, st.session_state under its own key: before its widget is drawn, or in a callback.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import Any, TypeVar

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from i18n import language, say, spoken
from ui import streamlit_internals

Made = TypeVar("Made")
MAX_WHOLE = 10**6  # more than any position, layer or number of a picture's part


def bound(choice: str, value: Any, take: Callable[[Any], object] | None = None) -> dict[str, Any]:
    """Keyword arguments for a widget that shows this value in this run: st.slider(…, **bound(…)).

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


def one_of(label: str, words: Mapping[Any, str], key: str, **look: Any) -> Any:
    """Draw a row of choices. Returns the name of the chosen one, which is in st.session_state[key] too. words: a label
    for each name, marked by N_, in order. look: options of st.segmented_control."""
    st.segmented_control(
        label, list(words), format_func=lambda name: plain(say(words[name])), key=key, required=True, **look
    )
    return st.session_state[key]


def select(label: str, words: Mapping[Any, str], key: str, **look: Any) -> Any:
    """As `one_of`, with a select box."""
    st.selectbox(label, list(words), format_func=lambda name: say(words[name]), key=key, **look)
    return st.session_state[key]


def whole_numbers(text: str) -> list[int]:
    """The whole numbers in a comma-separated text. Raises ValueError for anything else."""
    try:
        return [int(one) for one in text.replace("，", ",").split(",")]
    except ValueError:
        raise ValueError(say("expected whole numbers separated by commas, got “{text}”", text=text[:40])) from None


def whole_number(label: str, key: str, least: int, most: int, **look: Any) -> None:
    """Draw a field for a whole number, kept in st.session_state[key]; one that is out of bounds is clipped."""
    st.session_state[key] = min(max(st.session_state[key], least), max(most, least))
    st.number_input(label, least, max(most, least), key=key, **look)


def plain(word: str) -> str:
    """A label for these rows that Streamlit does not search for an emoji.

    Streamlit looks for an emoji at the start of a label that is not ASCII, with a regular expression of all emoji,
    which takes each process 0.14 s to compile. After a space, which nobody sees, it does not look.
    """
    return word if word.isascii() else f" {word}"


def deferred(make: Callable[[], Made]) -> Callable[[], Made]:
    """Wrap make, so that whenever it is called, it speaks the language of this page's user."""
    spoken_here = language()

    def made() -> Made:
        with spoken(spoken_here):
            return make()

    return made


def show_notes(sentences: Sequence[str]) -> None:
    """Markdown sentences; one alone stands there as it is, several open from a line that says how many. None: nothing.

    What comes from outside has to be escaped.
    """
    if len(sentences) == 1:
        st.caption(f":material/info: {sentences[0]}")
    elif sentences:
        with st.expander(say("{count} notes on what is shown", count=len(sentences)), icon=":material/info:"):
            st.markdown("\n".join(f"- {sentence}" for sentence in sentences))


def component_value(key: str) -> Mapping[str, Any]:
    """For a component's callback: what the one under this key sent; nothing where another page was chosen meanwhile."""
    return st.session_state.get(key) or {}


def whole(sent: Any) -> int | None:
    """The value as an int if it is a whole number from 0 to MAX_WHOLE, else None: a browser may send anything."""
    return int(sent) if isinstance(sent, int | float) and 0 <= sent <= MAX_WHOLE and sent == int(sent) else None


def wholes(sent: Any, count: int) -> list[int] | None:
    """A list of `count` such numbers that a component sent; None for anything else."""
    found = list(map(whole, sent)) if isinstance(sent, list) and len(sent) == count else []
    return [one for one in found if one is not None] if found and None not in found else None


def download(label: str, data: Any, name: str, kind: str | None = None, **look: Any) -> None:
    """Draw a download button, without a rerun. data: the file, or a function that makes it. kind: MIME type."""
    st.download_button(label, data, name, kind, on_click="ignore", icon=":material/download:", **look)


def uploader(*arguments: Any, **options: Any) -> Any:
    """st.file_uploader, under a sentence where an upload would be refused (403): without an XSRF cookie, as in a frame
    elsewhere. How to allow it: deploy/README.md."""
    asks = st.get_option("server.enableXsrfProtection")
    if asks and "Host" in st.context.headers and streamlit_internals.XSRF_COOKIE not in st.context.cookies:
        words = say(
            "Uploads do not work here: the browser blocks the cookie that they need, as it does for pages embedded in "
            "another site. Open this page in its own tab to upload a file."
        )
        st.caption(f":material/info: {words}")
    return st.file_uploader(*arguments, **options)


def uploaded(key: str) -> Any:
    """For an uploader's callback: its file; None where there is none, or none any more, as after a restart."""
    file = st.session_state.get(key)
    return file if isinstance(file, BytesIO) else None  # Streamlit gives a DeletedFile for one that it has lost


@contextmanager
def stoppable(name: str, again: str) -> Iterator[DeltaGenerator | None]:
    """Yield a line for the progress of the work, beside a stop button; None while the work of this name is stopped,
    with a button labelled `again`. When the stop button is pressed, Streamlit leaves the script that does the work."""
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
    """The result of measure(number) for each layer; meanwhile the line shows the progress. names: of the layers."""
    slot, found = line or st.empty(), []
    for number, name in enumerate(names):
        slot.progress(
            number / len(names), say("{layer}: {done} of {all} layers done", layer=name, done=number, all=len(names))
        )
        found.append(measure(number))
    slot.empty()
    return found


def restore(name: str, first: Callable[[], dict[str, Any]], typed: Sequence[str] = ()) -> None:
    """Call before any widget is drawn: put every choice of the copy `name` where its widget will find it.

    first: the choices, by their keys, where there is no copy yet, and where Back, Forward or a lesson brought a link.
    typed: the keys of those that are texts. One that is left by a click on another page comes with that click, or after
    it, from the page that was left.
    """
    state = st.session_state
    visits = state.setdefault("visit_of_copy", {})
    newly = visits.get(name) != state.visit
    if name not in state or name in state.to_reread or (newly and state.linked):
        kept = first()
    elif newly:
        sent = streamlit_internals.sent_widgets()
        kept = state[name] | {key: _take_text(sent, key, state[name][key]) for key in typed}
    else:
        kept = {key: state.get(key, value) for key, value in state[name].items()}
    state.to_reread.discard(name)
    state.update(kept)
    state[name], visits[name] = kept, state.visit
    state.restored.add(name)


def keep(name: str) -> None:
    """Call in a part of a page that runs again alone (st.fragment) and has choices of the copy `name`: restore does not
    run there, and Streamlit forgets what one run of it has not drawn."""
    state = st.session_state
    if name in state.restored:  # the whole page runs
        state.restored.discard(name)
        return
    state[name] = {key: state.get(key, value) for key, value in state[name].items()}
    state.update(state[name])


def begin_page(title: str) -> None:
    """Call at the start of every run: notes a page newly come to, and a link that Back or Forward brought.

    A rerun that brings a link other than the last one written, and neither a click nor a changed choice, is the
    browser's. One that brings either only left the browser before that last link arrived there. Between two pages the
    browser's history has the link that the second was come to with, from a sidebar without choices: it stands for the
    one written first.
    """
    state = st.session_state
    state.setdefault("to_reread", set())
    state.restored = set()  # the copies that this run has restored
    if "page" not in state or state.brought:  # or again: a click ended the first run before all was drawn
        _store_lost_session_state()
    if state.get("page") != title:
        given = st.query_params.to_dict()
        linked = "text" in given and given != state.get("last_link")  # a sidebar's link has no text: choices stay
        visit = state.get("visit", 0) + 1
        state.update(
            page=title, visit=visit, opened_with_link=given, first_written_link=None, linked=linked, written_link=None
        )
        return
    if state.first_written_link and state.opened_with_link == st.query_params.to_dict():
        st.query_params.from_dict(state.first_written_link)
    if state.get("written_link") in (None, st.query_params.to_dict()) or streamlit_internals.is_clicked():
        return
    if not any(state.get(key, value) != value for key, value in state.choices_of_link.items()):
        state.to_reread = {name for name, visit in state.get("visit_of_copy", {}).items() if visit == state.visit}


def record_link(written: dict[str, str]) -> None:
    """Call when the page is drawn and its link is written: later changes are told by comparison with the choices now.

    Not what they were when a run began: a run that was interrupted has written no link.
    """
    state = st.session_state
    here = [name for name, visit in state.get("visit_of_copy", {}).items() if visit == state.visit]
    keys, now = [key for name in here for key in state[name]], state.to_dict()  # at once: key by key costs more
    state.update(written_link=written, last_link=written)  # of this visit, and of any page
    state.choices_of_link = {key: now[key] for key in keys if key in now}
    state.to_reread = set()  # copies that this part of the page does without are not read from a later link
    if state.first_written_link is None or written == state.opened_with_link:
        state.first_written_link = {} if written == state.opened_with_link else written


def _store_lost_session_state() -> None:
    """A session that begins with states of widgets follows one that was lost: the server was started anew, or the
    browser was away for longer than server.disconnectedSessionTTL. They hold what the link does not: the text, and the
    click that brought them. What they mean is known only once the page has drawn its widgets.
    """
    state = st.session_state
    state.brought = streamlit_internals.sent_widgets()
    # bound widgets go on under the keys they had (see bound)
    state.bound_keys = {
        key.rpartition("_")[0]: key
        for key in map(streamlit_internals.key_of, state.brought)
        if key.rpartition("_")[2].isdecimal()
    }


def text_of_lost_session(key: str, otherwise: str) -> str:
    """What the browser brought of a lost session as the text under a key; else `otherwise`. To be drawn from the first:
    a browser takes for its own what it is shown, and brings that with the next click."""
    return _take_text(st.session_state.brought, key, otherwise)


def _take_text(sent: Sequence[Any], key: str, otherwise: str) -> str:
    """The text that was sent for the widget of this key, noted as typed; else `otherwise`. sent: states of widgets."""
    text = next((one.string_value for one in sent if streamlit_internals.key_of(one) == key), otherwise)
    if text != otherwise:
        st.session_state[f"written_{key}"] = text  # no callback is called for it
    return text


def end_page() -> None:
    """Call when all of the page is drawn. Of a session that follows a lost one: the browser's message again, which now
    finds its widgets and their callbacks.
    """
    brought = st.session_state.get("brought")
    if brought:
        st.session_state.brought = []
        streamlit_internals.rerun_with(brought)
