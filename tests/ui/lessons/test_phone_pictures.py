"""What phones of a class get of a step on an image, before its question is answered and after."""

from lessons.reading import FOLDER, shelf
from ui.lessons import classroom, steps


def test_a_training_is_sent_at_the_checkpoint_of_the_step() -> None:
    (lesson,) = [one.lesson for one in shelf(FOLDER, "en") if one.name == "induction_head"]
    assert "Step 375: loss" in classroom.drawn(lesson.steps[3], *steps.pair(lesson.steps[3]), hidden=False).html


def test_an_image_is_sent_plain_and_then_as_the_token_attends() -> None:
    (lesson,) = [one.lesson for one in shelf(FOLDER, "en") if one.name == "words_and_images"]
    now, beside = steps.pair(lesson.steps[1])
    before, after = (classroom.drawn(lesson.steps[1], now, beside, hidden=hidden) for hidden in (True, False))
    assert before.html.count('class="scene"') == after.html.count('class="scene"') == 1
    assert '<li class="query"><span>small</span>' in before.html
    assert "of its attention to the image, most to r1 c3" in after.html
    assert "r1 c3" not in before.html
