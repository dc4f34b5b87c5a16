"""The lessons' part of the sidebar, and the list of all lessons."""

from contextlib import nullcontext
from functools import partial
from typing import Any

import streamlit as st

from i18n import N_, say, say_count, together
from lessons.glossary import glossary
from lessons.lesson import Lesson
from lessons.reading import MAX_BYTES, ListedLesson, read
from ui.lessons import choices, editor, shelves
from ui.markdown import escaped
from ui.sidebar import speech
from ui.widgets import uploaded, uploader
from viz.html import join, tag
from viz.lessons.glossary import card
from viz.lessons.screen import lesson_map

INTRO = N_(
    "Twelve lessons, from one head to images and the masks of a serving system. Each runs real models and asks you a "
    "question before it shows the answer."
)
OWN = N_("Markdown with front matter, at most 1 MB. Nothing in it is executed. docs/lessons.md describes the format.")
TOO_LONG = N_(
    "This lesson is too long for a link. A reload loses it: save it, or put it into the folder set by UNMASK_LESSONS."
)


def show(found: list[ListedLesson], opened: shelves.Open | None) -> None:
    with st.container(key="lesson_list", gap=None):
        for number, item in enumerate(found, 1):
            if item.lesson is None:
                continue
            here = opened is not None and opened.key == item.name
            label, to = f"{number} · {escaped(item.lesson.title)}", speech.in_links() | {"lesson": item.name}
            about = escaped(together([item.lesson.aim, _minutes(item.lesson)]))
            with st.container(key="lesson_here") if here else nullcontext():
                st.page_link("pages/lessons.py", label=label, query_params=to, help=about)
    st.toggle(say("Ask before showing the answer"), key="lesson_asks")
    choices.offer_to_forget()
    with st.expander(say("Your own lesson")):
        look = {"max_upload_size": 1, "label_visibility": "collapsed"}
        uploader(say("Your own lesson"), ["md"], key="lesson_file", on_change=_take_file, **look)
        st.caption(escaped(say(OWN)))
        if not st.session_state.lesson_edit:
            editor.offer(opened)
    own = st.session_state.get("lesson_draft", "") if st.session_state.lesson_edit else opened.own if opened else ""
    if own:
        template = N_("The link contains the whole lesson.") if shelves.packed(own) else TOO_LONG
        st.caption(escaped(say(template)))


def show_list(found: list[ListedLesson]) -> None:
    st.markdown("### " + say("Lessons"))
    st.html(f'<p class="aim">{say(INTRO)}</p>')
    st.html(lesson_map(found))
    rows = [st.columns(3, gap="medium") for _ in range(0, len(found), 3)]
    for number, one in enumerate(found):
        with rows[number // 3][number % 3], st.container(border=True, height="stretch", gap="small"):
            if one.lesson is None:
                problem = say("This lesson cannot be read: {problem}", problem=one.problem)
                st.warning(escaped(problem if one.file else one.problem))  # without a file, it is the folder's problem
                continue
            st.markdown(f"#### {number + 1} · {escaped(one.lesson.title)}")
            st.markdown(escaped(one.lesson.aim))
            facts = [_minutes(one.lesson)]
            facts += [say("Needs: {needs}", needs=one.lesson.needs.rstrip(".。"))] if one.lesson.needs else []
            facts += filter(None, [choices.answered(one.name, one.lesson)])
            st.caption(" · ".join(map(escaped, facts)))
            look: Any = {"icon": ":material/play_arrow:", "shortcut": str(number + 1) if number < 9 else None}
            go = partial(choices.open_shelved, one.name)
            st.button(say("Open the lesson"), key=f"open_{one.name}", on_click=go, **look)

    with st.expander(say("Glossary"), icon=":material/dictionary:"):
        st.html(tag("div", join(tag("div", card(word, term)) for word, term in glossary().items()), class_="words"))


def _minutes(lesson: Lesson) -> str:
    return say_count("{count} minute", "{count} minutes", lesson.minutes)


def _take_file() -> None:
    """Open the uploaded file if it is a lesson; else keep the error for the page to show. For use in a callback."""
    file = uploaded("lesson_file")
    if file is None:
        return
    st.session_state.pop("lesson_wrong", None)
    data = file.getvalue()[: MAX_BYTES + 1]
    if st.session_state.lesson_edit:  # the editor shows where the mistakes are
        editor.open_with(data.decode("utf-8-sig", "replace")[:MAX_BYTES], own=False)
        return
    try:
        read(data, [item.name for item in shelves.shelved()])
    except ValueError as error:
        st.session_state.lesson_wrong = str(error)
        return
    text = data.decode("utf-8-sig")
    st.session_state.update(lesson="", lesson_own=text, lesson_packed=shelves.packed(text), lesson_step=1)
