"""An operator's limits: pages report what is cut, with its number (characters and lines of a text, tokens of a row),
and report a job that takes too long wherever it is requested."""

from unittest.mock import Mock

import pytest

from model import catalog
from serving.job import Job
from serving.scheduler import Scheduler, TooSlow
from serving.settings import Settings
from tests.pages.explore import Explore
from tests.pages.page import Page
from ui import inference


def test_characters_and_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNMASK_CHARACTERS", "107")
    monkeypatch.setenv("UNMASK_ROWS", "5")
    page = Explore(text="a cat\n" * 23)  # 138 characters; the first 107 are 18 lines
    captions = [caption.value for caption in page.app.caption]
    assert any("138 characters; this server reads at most the first 107" in words for words in captions)
    assert any("Lines shown: the first 5 of 18. The page takes at most 5" in words for words in captions)
    assert page["text"] == "a cat\n" * 23, "what was typed stays"


@pytest.mark.parametrize("tokens", [19, 4096])
def test_tokens(tokens: int) -> None:
    model = catalog.load("story", settings=Settings(tokens=tokens))
    assert model.context == min(tokens, 256)
    batch = model.encode(["a cat " * 300])
    assert batch.ids.shape[1] == model.context
    assert batch.cut[0]


@pytest.mark.parametrize(
    ("script", "link", "job"),
    [
        ("app.py", {"by": "words"}, "head_view"),
        ("pages/bug_clinic.py", {}, "head_view"),
        ("pages/mask_lab.py", {"by": "words"}, "merged_head"),
        ("pages/mask_lab.py", {"section": "reach"}, "reach_of"),
        ("pages/mask_lab.py", {"section": "steps"}, "head_steps"),
        ("pages/mask_lab.py", {"section": "fill"}, "compare_on_head"),
        ("pages/mask_lab.py", {"section": "code"}, "code_of"),
        ("pages/cross_attention.py", {}, "logits_at"),
        ("pages/cross_attention.py", {}, "head_view"),
        ("pages/cross_attention.py", {"model": "t5"}, "predictions"),
    ],
)
def test_a_job_that_takes_too_long_is_a_sentence(
    folders: dict[str, str], monkeypatch: pytest.MonkeyPatch, script: str, link: dict[str, str], job: str
) -> None:
    ask = Scheduler.ask

    def refuse(self: Scheduler, request: Job, *more: object, **named: object) -> object:
        if request.function.__name__ == job:
            raise TooSlow("This takes too long.")
        return ask(self, request, *more, **named)

    monkeypatch.setattr(Scheduler, "ask", refuse)
    texts = {"text": f"the {job} of {script}", "date_text": f"{len(job)} May 2099", "target": "on a mat"}
    models = {"model": folders[link["model"]]} if "model" in link else {}
    page = type("Opened", (Page,), {"SCRIPT": script})(**texts | link | models)
    assert page.boxes("error") == ["This takes too long."]


class Serving(Page):
    SCRIPT = "pages/serving.py"


def test_a_stream_does_not_say_that_what_it_reads_is_cut() -> None:
    """The text has more tokens than the context: the other sections read only its beginning."""
    long = {"stream_text": "text", "stream_tokens": "300", "stream_window": "20", "text": "word " * 300}
    page = Serving(serving="streaming", **long)
    assert len(page.app.session_state.stream_now.ids) == 300
    assert "are cut, from" not in page.words()
    assert "are cut, from" in Serving(serving="calls", **long).words()


def test_a_stream_that_fails_says_why_until_it_is_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error used to vanish at once: the page runs once more to end its polling."""
    page = Serving(serving="streaming", stream_tokens="200", stream_window="20")
    with monkeypatch.context() as patched:
        patched.setattr(inference.StreamingState, "read", Mock(side_effect=ValueError("no room")))
        page.run()
        page.run()
        assert page.boxes("error") == ["no room."]
        assert page.figures().keys() == {"stream_loss", "stream_weights"}
    page.app.button(key="stream_resume").click()
    page.run()
    assert page.boxes("error") == []
