"""The lessons' part of the sidebar, and the list of all lessons."""

from contextlib import nullcontext

import streamlit as st

from model.lessons.lesson import Lesson
from model.lessons.reading import MOST_BYTES, read
from model.lessons.shelf import LANGUAGES, Shelved
from model.lessons.words import words
from ui.lessons import choices, shelves
from ui.lessons.choices import say
from ui.markdown import escaped
from viz.html import join, tag
from viz.lessons.prose import card

NAMES = {"en": "English", "zh": "中文"}
PAGE = "pages/lessons.py"


def show(found: list[Shelved], opened: shelves.Open | None) -> None:
    """The lessons in their order, how they are read, and a teacher's own."""
    with st.container(key="lesson_list", gap=None):
        for number, one in enumerate(found, 1):
            if one.lesson:
                _link(number, one.name, one.lesson, here=opened is not None and opened.key == one.name)
    st.segmented_control(say("language"), LANGUAGES, default=choices.language(), format_func=NAMES.__getitem__,
                         key="lesson_language", required=True, on_change=_take_language)  # fmt: skip
    st.toggle(say("asks"), key="lesson_asks")
    with st.expander(say("own")):
        st.file_uploader(say("own"), type=["md"], key="lesson_file", max_upload_size=1, on_change=_take_file,
                         label_visibility="collapsed")  # fmt: skip
        st.caption(escaped(say("own_help")))
    if opened and opened.own:
        fits = shelves.packed(opened.own)
        length = len(opened.own)
        st.caption(escaped(say("link_own") if fits else say("link_long", length=length, most=shelves.LONGEST_LINK)))


def show_list(found: list[Shelved]) -> None:
    """Every lesson with its aim, what it needs, how long it takes and what follows."""
    titles = {one.name: one.lesson.title for one in found if one.lesson}
    st.markdown(f"### {escaped(say('lessons'))}")
    st.html(f'<p class="aim">{say("intro")}</p>')
    rows = [st.columns(3, gap="medium") for _ in range(0, len(found), 3)]
    for number, one in enumerate(found):
        with rows[number // 3][number % 3], st.container(border=True, height="stretch", gap="small"):
            if one.lesson is None:
                st.warning(escaped(say("unreadable", problem=one.problem)))
                continue
            st.markdown(f"#### {number + 1} · {escaped(one.lesson.title)}")
            st.markdown(escaped(one.lesson.aim))
            facts = [say("minutes", minutes=one.lesson.minutes)]
            facts += [say("needs", needs=one.lesson.needs)] if one.lesson.needs else []
            facts += [say("then", title=titles[one.lesson.next])] if one.lesson.next in titles else []
            st.caption(" · ".join(map(escaped, facts)))
            st.button(say("open"), key=f"open_{one.name}", icon=":material/play_arrow:", on_click=choices.go,
                      args=(1, one.name), shortcut=str(number + 1) if number < 9 else None)  # fmt: skip

    with st.expander(say("words"), icon=":material/dictionary:"):
        glossary = words(choices.language()).glossary
        st.html(tag("div", join(tag("div", card(word, term)) for word, term in glossary.items()), class_="words"))


def _link(number: int, name: str, lesson: Lesson, *, here: bool) -> None:
    with st.container(key="lesson_here") if here else nullcontext():
        st.page_link(PAGE, label=f"{number} · {escaped(lesson.title)}", query_params=_to(name),
                     help=escaped(f"{lesson.aim} {say('minutes', minutes=lesson.minutes)}"))  # fmt: skip


def _to(name: str) -> dict[str, str]:
    return {"lesson": name} | ({"lang": st.session_state.lang} if st.session_state.lang else {})


def _take_language() -> None:
    st.session_state.lang = st.session_state.lesson_language


def _take_file() -> None:
    """Open what was uploaded, where it is a lesson; else keep what was wrong with it, for the page to say."""
    file = st.session_state.lesson_file
    if file is None:
        return
    st.session_state.pop("lesson_wrong", None)
    try:
        data = file.getvalue()[: MOST_BYTES + 1]
        read(data)
    except ValueError as error:
        st.session_state.lesson_wrong = str(error)
        return
    text = data.decode("utf-8-sig")
    st.session_state.update(lesson="", lesson_own=text, lesson_packed=shelves.packed(text), lesson_step=1)
