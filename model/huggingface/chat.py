"""Messages with roles rendered to text by a model's chat template.

A template is a Jinja program from the model's files. transformers runs it in a sandbox without access to Python
attributes or files; the process that calls `render` (serving.backends.inspector) limits its time and memory.
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
    """Parse a text into messages: one for each line that begins with a role ("user: …"), with the lines below it; text
    before the first is the user's. Raises ValueError for no messages, or too many."""
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
    """Check (role, content) pairs. Raises ValueError for an unknown role, no messages, or too many."""
    made = tuple(messages)
    wrong = next((role for role, _ in made if role not in ROLES), None)
    if wrong is not None:
        template = N_("expected a role out of {roles}, got {role}")
        raise ValueError(msg(template, roles=", ".join(ROLES), role=repr(wrong)[:40]))
    if not 1 <= len(made) <= MAX_MESSAGES:
        raise ValueError(msg("expected 1 to {most} messages, got {count}", most=MAX_MESSAGES, count=len(made)))
    return made


def render(name: str, settings: Settings, messages: Messages) -> str:
    """Render messages with the chat template in a model's files, up to the beginning of the assistant's answer.

    The files must be on this machine. Raises CheckpointError if there is no template or it fails.
    """
    from transformers import AutoTokenizer  # takes seconds to import

    from model.huggingface import checkpoint_files, fetching
    from model.huggingface.described import SAFE, gguf_option

    folder = fetching.fetch(name, None, settings)
    where = checkpoint_files.tokenizer_folder(name, folder)
    checkpoint_files.check_limits(name, folder, settings)
    try:
        tokenizer = AutoTokenizer.from_pretrained(where, **gguf_option(name, where), **SAFE)
    except Exception as error:  # noqa: BLE001 - a damaged file may make the library raise anything
        raise CheckpointError(msg(REFUSES, model=name, why=first_line(error))) from None
    return rendered(name, tokenizer, messages)


def rendered(name: str, tokenizer: Any, messages: Messages) -> str:
    """Render messages with a transformers tokenizer, as `render` does. Raises CheckpointError."""
    if not getattr(tokenizer, "chat_template", None):
        raise CheckpointError(msg("{model} has no chat template. Type a text instead of messages.", model=name))
    given = [{"role": role, "content": content} for role, content in messages]
    try:
        text = tokenizer.apply_chat_template(given, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # noqa: BLE001 - a template may raise anything
        words = FAILS if type(error).__name__ in BROKEN_TEMPLATE else REFUSES
        raise CheckpointError(msg(words, model=name, why=first_line(error))) from None
    if not text.strip():
        raise CheckpointError(msg(EMPTY, model=name))
    if len(text) > MAX_RENDERED:
        raise CheckpointError(msg(TOO_LONG, model=name, count=len(text), most=MAX_RENDERED))
    return str(text)
