"""Messages with roles, for models with a chat template: typed in the text box, rendered by the template, and shown."""

import streamlit as st
from markupsafe import escape

from i18n import N_, say
from model.base import Model, TokenizedText
from model.huggingface.chat import messages_of, render
from model.text import TokenBatch
from serving.job import digest
from ui import explain, results
from ui.guard import guarded
from ui.sidebar import models
from viz.html import join, tag

STYLE = "white-space: pre-wrap; overflow-wrap: anywhere; font-size: .875rem"  # not shown
MARKED = "background: light-dark(#FFE9A8, #5C4A00); color: inherit"  # not shown
HELP = N_(
    "The text is read as messages: a line that begins with system:, user: or assistant: begins one. The model's own "
    "chat template makes one text of them, with its special tokens and the beginning of the assistant's answer."
)
AS_IT_IS = ("Generation", "Padding", "Bug clinic", "Mask check")  # not shown: pages that read no messages
NOTE = N_("This page reads the text as it is, without the chat template.")


def note(model: Model) -> None:
    """Say so on a page that reads no messages, where the text is messages on others."""
    if model.chats and st.session_state.get("chat") and st.session_state.page in AS_IT_IS:
        st.caption(say(NOTE))


def choose(model: Model) -> bool:
    """Whether the text is messages; asked for a model with a chat template alone."""
    if not model.chats:
        return False
    with st.sidebar:
        return st.toggle(say("Chat messages"), key="chat", help=say(HELP))


def open_messages(model: Model, text: str) -> TokenizedText:
    """The messages as the model reads them: one row. Ends the page where the template does not take them."""
    with guarded(say("Tokenizing with {model} …", model=explain.title_of(model))):
        messages = messages_of(text)
        key = ("chat", model.key, digest(messages))
        rendered = results.kept(key, lambda: models.inspected(render, model.name, messages))
        batch, special = results.kept((*key, "tokens"), lambda: model.encode_rendered(rendered))
    with st.sidebar, st.expander(say("Rendered template"), key="rendered"):
        st.html(_marked(batch, special))
        ids = batch.ids[0].tolist()
        count = sum(token in special for token in ids)
        st.caption(say("Marked: special tokens, {count} of {all}", count=count, all=len(ids)))
    return TokenizedText([rendered], batch, 0)


def _marked(batch: TokenBatch, special: frozenset[int]) -> str:
    """The text that was read, each special token in it marked."""
    text, parts, begin = batch.read(0), [], 0
    for token, end in zip(batch.ids[0].tolist(), batch.ends[0], strict=True):
        piece = text[begin:end]
        parts.append(tag("mark", piece, style=MARKED) if token in special else escape(piece))
        begin = max(begin, end)
    return tag("div", join(parts), style=STYLE)
