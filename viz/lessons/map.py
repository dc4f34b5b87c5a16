"""Which lesson builds on which: a column for each length of the way to it, as HTML."""

from typing import TYPE_CHECKING

from markupsafe import Markup

from i18n import say
from viz.html import join, tag

if TYPE_CHECKING:
    from lessons.reading import Shelved


def lesson_map(found: "list[Shelved]") -> Markup:
    """Nothing where no lesson names another that it builds on."""
    lessons = {one.name: one.lesson for one in found if one.lesson}
    numbers = {one.name: number for number, one in enumerate(found, 1)}
    depths: dict[str, int] = {}
    for name, lesson in lessons.items():  # in their order: what one builds on comes before it
        depths[name] = max((depths[one] + 1 for one in lesson.after if one in depths), default=0)
    if not any(depths.values()):
        return Markup()
    columns = []
    for depth in range(max(depths.values()) + 1):
        items = []
        for name in (one for one, own in depths.items() if own == depth):
            before = " ".join(f"{numbers[one]}" for one in lessons[name].after if one in depths)
            needed = tag("small", say("after {numbers}", numbers=before)) if before else ""
            items.append(tag("li", join([tag("b", numbers[name]), " ", lessons[name].title, " ", needed])))
        columns.append(tag("ul", join(items)))
    return tag("div", join(columns), class_="lesson_map", role="group", aria_label=say("Which lesson builds on which"))
