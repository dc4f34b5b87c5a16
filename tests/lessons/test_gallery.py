"""The gallery of lessons: one for each page of the app, in both languages, and every step of it runs."""

import re
from pathlib import Path

import pytest

from i18n import LANGUAGES, spoken
from lessons.reading import GALLERY, shelf
from model.cross_attention import dates
from ui.page import PAGES
from unmask.course import CourseModels

DOCS = Path(__file__).parents[2] / "docs" / "lessons.md"


@pytest.fixture(scope="module")
def models() -> CourseModels:
    return CourseModels(download=False)


@pytest.mark.parametrize("language", LANGUAGES)
def test_there_is_one_for_every_page_which_links_to_it_and_runs(language: str, models: CourseModels) -> None:
    with spoken(language):
        found = {one.name: one for one in shelf(GALLERY, language)}
        assert set(found) == {"explore" if path == "app.py" else Path(path).stem for path in PAGES}
        for name, one in found.items():
            assert one.lesson, one.problem
            steps = [models.step(step) for step in one.lesson.steps]
            assert any(step.answer for step in steps), f"{name} asks nothing"
            words = "\n".join(step.prose for step in one.lesson.steps)
            assert ("](./)" if name == "explore" else f"]({name})") in words, f"{name} does not link to its page"


def test_the_languages_ask_the_same_of_the_same_runs() -> None:
    for path in sorted((GALLERY / "en").glob("*.md")):
        runs = [
            re.sub(r"notice: .*", "", block) for block in re.findall(r"```run\n(.*?)```", path.read_text(), re.DOTALL)
        ]
        other = (GALLERY / "zh" / path.name).read_text(encoding="utf-8")
        assert runs == [re.sub(r"notice: .*", "", block) for block in re.findall(r"```run\n(.*?)```", other, re.DOTALL)]


def test_the_row_of_a_written_character_says_where_the_next_one_is_read(models: CourseModels) -> None:
    """In the head that the lesson on cross-attention shows; its notice says so in both languages."""
    for language, says in (("en", "the next character"), ("zh", "下一个字符")):
        step = next(one.lesson for one in shelf(GALLERY, language) if one.name == "cross_attention").steps[1]
        assert says in step.notice
    model = dates.load()
    written_out = model.write(model.encode_source([step.text])).texts
    trace = model.run(model.encode([step.text], targets=list(written_out))).select("cross")
    (layer, head), query = step.head, step.query
    source, written = trace.keys.pieces[0], trace.queries.pieces[0]
    assert source[int(trace.weights(layer, head)[query].argmax())] == written[query + 1] != written[query]


def test_the_documentation_lists_them_all() -> None:
    listed = re.findall(r"\(\.\./lessons/gallery/en/(\w+)\.md\)", DOCS.read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(path.stem for path in (GALLERY / "en").glob("*.md"))
