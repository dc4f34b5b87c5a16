"""Messages with roles as the text that a model's chat template makes of them.

A template is a program in Jinja from the model's files. transformers runs it in a sandbox that cannot reach Python's
attributes or files; time and memory are limited by the process that calls `render` (serving.backends.inspector).
"""

import re
from collections.abc import Iterable
from typing import Any

from i18n import N_, msg
from model.errors import CheckpointError, first_line
from model.text import lines_of
from serving.settings import Settings

ROLES = ("system", "user", "assistant")
BEGINS = re.compile(rf"^({'|'.join(ROLES)}):[ \t]?", re.IGNORECASE)
MAX_MESSAGES, MAX_RENDERED = 200, 1_000_000  # messages; characters
REFUSES = N_("{model}: its chat template does not take these messages ({why}). Change the roles or their order.")
BROKEN_TEMPLATE = ("TemplateSyntaxError", "TemplateAssertionError", "SecurityError", "OverflowError")  # jinja2's
FAILS = N_("{model}: its chat template cannot be used ({why}). Turn Chat messages off and type a text.")
EMPTY = N_("{model}: its chat template gives no text for these messages. Turn Chat messages off and type a text.")
TOO_LONG = N_(
    "{model}: its chat template turns these messages into {count:,} characters, and at most {most:,} are read. Shorten "
    "them."
)

Messages = tuple[tuple[str, str], ...]  # (role, content)


def messages_of(text: str) -> Messages:
    """A message for each line that begins with a role ("user: …"), with the lines below it; what comes before the first
    is the user's. Raises ValueError for none, or too many."""
    found: list[tuple[str, list[str]]] = []
    for line in lines_of(text):
        begins = BEGINS.match(line)
        if begins:
            found.append((begins[1].lower(), [line[begins.end() :]]))
        elif found:
            found[-1][1].append(line)
        elif line.strip():
            found.append(("user", [line]))
    return checked((role, "\n".join(lines).strip()) for role, lines in found)


def checked(messages: Iterable[tuple[str, str]]) -> Messages:
    """Pairs of a role and a content. Raises ValueError for another role, none, or too many."""
    made = tuple(messages)
    wrong = next((role for role, _ in made if role not in ROLES), None)
    if wrong is not None:
        words = N_("expected a role out of {roles}, got {role}")
        raise ValueError(msg(words, roles=", ".join(ROLES), role=repr(wrong)[:40]))
    if not 1 <= len(made) <= MAX_MESSAGES:
        raise ValueError(msg("expected 1 to {most} messages, got {count}", most=MAX_MESSAGES, count=len(made)))
    return made


def render(name: str, settings: Settings, messages: Messages) -> str:
    """What the chat template in a model's files makes of messages, with the beginning of the assistant's answer.

    The files are on this machine. Raises CheckpointError for none, or one that fails.
    """
    from transformers import AutoTokenizer  # takes seconds to import

    from model.huggingface import checkpoint_files, fetching
    from model.huggingface.described import SAFE, gguf_option

    folder = fetching.fetch(name, None, settings)
    where = checkpoint_files.tokenizer_folder(name, folder)
    checkpoint_files.check_limits(name, folder, settings)
    try:
        tokenizer = AutoTokenizer.from_pretrained(where, **gguf_option(name, where), **SAFE)
    except Exception as error:  # noqa: BLE001 - the library raises whatever a damaged file makes it raise
        raise CheckpointError(msg(REFUSES, model=name, why=first_line(error))) from None
    return rendered(name, tokenizer, messages)


def rendered(name: str, tokenizer: Any, messages: Messages) -> str:
    """As `render`, with a tokenizer of transformers. Raises CheckpointError."""
    if not getattr(tokenizer, "chat_template", None):
        raise CheckpointError(msg("{model} has no chat template. Type a text instead of messages.", model=name))
    given = [{"role": role, "content": content} for role, content in messages]
    try:
        text = tokenizer.apply_chat_template(given, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # noqa: BLE001 - a template raises what it likes
        words = FAILS if type(error).__name__ in BROKEN_TEMPLATE else REFUSES
        raise CheckpointError(msg(words, model=name, why=first_line(error))) from None
    if not text.strip():
        raise CheckpointError(msg(EMPTY, model=name))
    if len(text) > MAX_RENDERED:
        raise CheckpointError(msg(TOO_LONG, model=name, count=len(text), most=MAX_RENDERED))
    return str(text)
