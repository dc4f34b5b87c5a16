"""Chat messages for models with a chat template: read from the text box, rendered by the template, and shown."""

import streamlit as st
from markupsafe import escape

from i18n import N_, say
from model.base import Model, TokenizedText
from model.huggingface.chat import messages_of, render
from serving.job import digest
from ui import explain, results
from ui.guard import guarded
from ui.sidebar import models
from viz.html import join, tag

STYLE = "white-space: pre-wrap; overflow-wrap: anywhere; font-size: .875rem"  # not shown
MARKED = "background: light-dark(#FFE9A8, #5C4A00); color: inherit"  # not shown
HELP = N_(
    "The text is read as messages: a line that begins with system:, user: or assistant: begins one. The model's own "
    "chat template turns them into one text, with its special tokens and the beginning of the assistant's answer."
)
# pages that read no messages
PAGES_WITHOUT_CHAT = ("Generation", "Padding", "Bug clinic", "Mask check", "Head atlas", "Circuits")  # not shown
NOTE = N_("This page reads the text as it is, without the chat template.")


def tokenize(model: Model, text: str) -> tuple[TokenizedText, frozenset[int]]:
    """Tokenize the messages as one row. Returns it and the ids of its special tokens. Raises ValueError for no message
    or too many, and what a template raises that rejects them."""
    messages = messages_of(text)
    key = ("chat", model.key, digest(messages))
    rendered = results.cached(key, lambda: models.inspected(render, model.name, messages))
    batch, special = results.cached((*key, "tokens"), lambda: model.encode_rendered(rendered))
    return TokenizedText([rendered], batch, 0), special


def open_messages(model: Model, text: str) -> TokenizedText:
    """Tokenize the page's messages, and show them in the sidebar; ends the page if the template rejects them."""
    with guarded(say("Tokenizing with {model} …", model=explain.title_of(model))):
        reading, special = tokenize(model, text)
    batch = reading.batch
    with st.sidebar, st.expander(say("Rendered template"), key="rendered"):
        ids, read, parts, begin = batch.ids[0].tolist(), batch.read(0), [], 0
        for token, end in zip(ids, batch.ends[0], strict=True):
            piece = read[begin:end]
            parts.append(tag("mark", piece, style=MARKED) if token in special else escape(piece))
            begin = max(begin, end)
        st.html(tag("div", join(parts), style=STYLE))
        count = sum(token in special for token in ids)
        st.caption(say("Marked: special tokens, {count} of {all}", count=count, all=len(ids)))
    return reading
