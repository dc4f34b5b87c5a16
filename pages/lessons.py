"""Lessons: one idea per screen, with a question before the answer; can be presented with large type and arrow keys."""

from functools import partial

import streamlit as st

from i18n import N_, say
from ui import page

page.set_up(N_("Lessons"))  # first, so that the browser has something to fetch while torch is imported

from ui import link
from ui.guard import USER_FACING_ERRORS, guarded, message_for, show_error
from ui.lessons import aside, choices, classroom, editor, screen, shelves
from ui.markdown import escaped, lines
from ui.streamlit_internals.selectors import css
from viz.lessons.screen import PRESENTED, STYLE

choices.LessonLink.restore()
state = st.session_state
screen.listen()
a_lesson = state.lesson or state.lesson_own or state.lesson_packed  # else the list of all lessons
presented = state.lesson_present and a_lesson
st.html(css(STYLE + (PRESENTED if presented else "")))
problem = state.pop("lesson_wrong", None)
if problem:
    st.warning(lines([say("This lesson file has an error:"), *problem.splitlines()]))
with guarded():
    found = shelves.shelved()
with st.sidebar:
    sidebar = st.container()
opened = None
try:
    if not state.lesson_edit:
        opened = shelves.opened(found)
except USER_FACING_ERRORS as error:  # shown above the list, until a lesson is opened
    state.update(lesson="", lesson_own="", lesson_packed="", lesson_unread=message_for(error))
if opened:
    state.lesson_unread = None
    choices.take_linked(opened.key)
    classroom.begin(opened.key)
choices.listen()  # after the code that may delete answers
with sidebar:
    aside.show(found, opened)
if opened is None:
    classroom.show_without_lesson()
if state.lesson_edit:
    editor.show(found)
elif opened is None:
    if state.get("lesson_unread"):
        show_error(state.lesson_unread)
    aside.show_list(found)
else:
    lesson, last = opened.lesson, len(opened.lesson.steps) + 1
    number = state.lesson_step = min(max(state.lesson_step, 1), last)
    following = next((item for item in found if item.name == lesson.next and item.lesson), None)
    label, go = say("Next"), partial(choices.turn, 1)
    if number == last and following:
        label, go = say("Next lesson"), partial(choices.open_shelved, following.name)  # there is no room for its title
    elif number == last:
        label, go = say("All lessons"), partial(choices.open_shelved, "")
    title, buttons = st.columns([1, 1.3], gap="large", vertical_alignment="center")
    title.markdown(f"### {escaped(lesson.title)}")
    with buttons:
        row = st.container(key="lesson_nav", horizontal=True, horizontal_alignment="right", vertical_alignment="center")
    with row:
        back = partial(choices.turn, -1)
        st.button(say("Previous"), key="previous", disabled=number == 1, shortcut="Left", on_click=back)
        st.markdown(escaped(say("{step} of {steps}", step=number, steps=last)), width="content")
        st.button(label, key="next", type="primary", shortcut="Right", on_click=go)
        present = partial(state.update, lesson_present=not state.lesson_present)
        label, icon = say("Present"), ":material/open_in_full:"
        if state.lesson_present:
            label, icon = say("Exit"), ":material/close_fullscreen:"
        st.button(label, key="present", icon=icon, shortcut="P", on_click=present)
        classroom.button()
    if number < last:
        screen.show(lesson, opened.key, number)
    else:
        screen.show_end(lesson, opened.key)
    classroom.show(lesson, opened.key, number)
given = choices.answers_by_lesson().get(opened.key, "") if opened else ""
with st.sidebar:
    link.share(choices.LessonLink.of_choices(lesson_given=given))
