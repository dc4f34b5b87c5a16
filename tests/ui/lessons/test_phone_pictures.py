"""The pictures of lesson steps that the phones of a class get, before and after the question is answered."""

import re
from typing import Any

from lessons.reading import FOLDER, read, shelf
from tests.viz.packet import unpacked
from ui.lessons import classroom, steps
from viz.head import head_range
from viz.lessons.phone import Drawn


def test_a_training_is_sent_at_the_checkpoint_of_the_step() -> None:
    (lesson,) = [one.lesson for one in shelf(FOLDER, "en") if one.name == "induction_head"]
    assert "Step 375: loss" in classroom.drawn(lesson.steps[3], *steps.pair(lesson.steps[3]), hidden=False).html


def test_a_picture_with_blocked_cells_is_known_as_hatched() -> None:
    (lesson,) = [one.lesson for one in shelf(FOLDER, "en") if one.name == "causal_mask"]
    for index, hatched in ((0, True), (1, True), (4, False)):  # masked now; masked before; not masked
        step = lesson.steps[index]
        assert classroom.drawn(step, *steps.pair(step), hidden=False).hatched is hatched


def test_an_image_is_sent_plain_and_then_as_the_token_attends() -> None:
    (lesson,) = [one.lesson for one in shelf(FOLDER, "en") if one.name == "words_and_images"]
    now, beside = steps.pair(lesson.steps[1])
    before, after = (classroom.drawn(lesson.steps[1], now, beside, hidden=hidden) for hidden in (True, False))
    assert before.html.count('class="scene"') == after.html.count('class="scene"') == 1
    assert '<li class="query"><span>small</span>' in before.html
    assert "of its attention to the image, most to r1 c3: 54.7%." in after.html
    assert "r1 c3" not in before.html


def test_the_keys_of_a_cross_attention_are_named_by_the_source() -> None:
    settings = 'model: dates\ntext: "3 May 2021"\nattention: cross\nshow: norms'
    step = read(f"---\ntitle: T\naim: A\nminutes: 1\n---\n## One\n\n```run\n{settings}\n```\nprose\n").steps[0]
    html = classroom.drawn(step, *steps.pair(step), hidden=False).html
    assert re.findall(r'<th class="token">(.*?)</th>', html) == ["3", "·", "M", "a", "y", "·", "2", "0", "2", "1"]


def test_losses_say_before_the_answer_and_after_it_whose_they_are() -> None:
    (lesson,) = [one.lesson for one in shelf(FOLDER, "en") if one.name == "attention_sinks"]
    for step in (lesson.steps[2], lesson.steps[4]):  # losses of tokens, losses of texts
        now, beside = steps.pair(step)
        before, after = (classroom.drawn(step, now, beside, hidden=hidden).html for hidden in (True, False))
        assert re.findall(r'<th class="number">(.*?)</th>', before) == ["before"]
        assert re.findall(r'<th class="number">(.*?)</th>', after) == ["now", "before"]


def headers(drawn: Drawn) -> list[dict[str, Any]]:
    return [unpacked(canvas.packet)[0] for _, canvas in drawn.canvases]


def test_a_pair_has_one_scale_and_its_difference_as_on_the_screen() -> None:
    (lesson,) = [one.lesson for one in shelf(FOLDER, "en") if one.name == "causal_mask"]
    for step in (lesson.steps[1], lesson.steps[4]):  # one text; two texts that differ in a token
        now, beside = steps.pair(step)
        one, other, change = headers(classroom.drawn(step, now, beside, hidden=False))
        assert one["most"] == other["most"] == head_range(*(view.head(*step.head) for view in (now, beside)))
        assert (one["what"], change["what"]) == ("weight", "change")
        assert [cells["query"] for cells in (one, other, change)] == [-1 if step.query is None else step.query] * 3
    assert one["keys"] != other["keys"]
    assert sum(" / " in key for key in change["keys"]) == 1


def test_the_heads_of_an_overview_have_their_patterns() -> None:
    (lesson,) = [one.lesson for one in shelf(FOLDER, "en") if one.name == "what_attention_is"]
    step = next(one for one in lesson.steps if one.show == "overview")
    (heads,) = headers(classroom.drawn(step, *steps.pair(step), hidden=False))
    assert "P" in [one["tag"] for one in heads["measures"]]
