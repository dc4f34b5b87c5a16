"""The words that a page uses, each with a small picture: the lessons' glossary, where the words stand."""

import streamlit as st
from markupsafe import Markup

from i18n import say
from lessons.glossary import glossary
from viz.html import join, tag
from viz.lessons.glossary import card

STYLE = Markup("""<style>
  .glossary { display: grid; gap: .9rem; max-width: 26rem; font-size: .875rem; line-height: 1.4; }
  .glossary > div { display: grid; grid-template-columns: 104px 1fr; gap: .9rem; align-items: start; }
  .glossary p { margin: .15em 0 0; font-size: inherit; }
</style>""")


def show() -> None:
    """A quiet button; the words are drawn when it is opened."""
    place = st.popover(
        say("Glossary"), icon=":material/dictionary:", type="tertiary", key="glossary", on_change="rerun"
    )
    if place.open:
        cards = join(tag("div", card(word, term)) for word, term in glossary().items())
        place.html(STYLE + tag("div", cards, class_="glossary"))
