"""The Python code that the Serving page shows: it computes what the page shows.

python -m pytest tests/pages/test_serving_code.py
"""

from pathlib import Path
from typing import Any

import pytest

from tests.model.huggingface.families import save
from tests.pages.test_serving import Serving

CHAT = "{% for m in messages %}<s> {{ m.role }} {{ m.content }}</s>{% endfor %}<s> it"


def printed(page: Serving) -> dict[str, Any]:
    """Run the code shown; return its variables, including the run, and its result as "found"."""
    page.app.session_state["serving_files"] = True
    page.run()
    *lines, call = page.app.code[0].value.splitlines()
    names: dict[str, Any] = {}
    exec("\n".join([*lines, f"found = {call}"]), names)
    return names


@pytest.mark.filterwarnings("ignore:The model reads at most 256 tokens")  # if run as one row
@pytest.mark.parametrize("text", ["sample", "text"])
def test_the_code_of_a_stream_reads_the_text_that_is_shown(text: str) -> None:
    page = Serving(serving="streaming", stream_text=text, stream_tokens="40", stream_window="9")
    assert printed(page)["found"].ids == page.app.session_state.stream_now.found.ids


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_the_code_reads_chat_messages_where_the_page_does(tmp_path: Path) -> None:
    folder = save("llama", tmp_path / "llama")
    (folder / "chat_template.jinja").write_text(CHAT)
    stream = {"serving": "streaming", "stream_text": "text", "stream_tokens": "20"}
    page = Serving(model=str(folder), text="user: the cat sat\nassistant: on a mat", chat="true", **stream)
    names, shown = printed(page), page.app.session_state.stream_now
    assert names["run"].trace.batch.texts == ("<s> user the cat sat</s><s> assistant on a mat</s><s> it",)
    assert list(shown.labels) == (2 * names["run"].labels)[:20]
    assert names["found"].ids == shown.ids
    page.app.button_group(key="serving").set_value("calls")
    page.run()
    assert f"compute {printed(page)['found'].computed:,} cells" in page.sentence()


def test_the_code_of_a_tree_reads_the_tokens_that_leave_room_for_it() -> None:
    page = Serving(serving="tree", text="word " * 300)
    assert printed(page)["found"].allowed.shape == page.cells("tree_mask").shape
