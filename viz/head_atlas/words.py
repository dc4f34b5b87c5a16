"""The sentences of the page Head atlas: each is computed from the atlas that is shown."""

from markupsafe import Markup

from model.heads.atlas_names import MEASURES, NAMES
from model.heads.atlas_result import LEAST_SEEN, NAMED, TIMES_EVEN, Atlas
from viz.html import join, tag
from viz.numbers import percent

MOST_LISTED = 8  # heads of a kind
NO_INDUCTION = " None is called induction on these texts; try Random, where all tokens come twice."


def amount(name: str, value: float) -> str:
    """A measure's value with its unit: "41.3 %", "3.2 tokens", "1.5 bits"."""
    unit = MEASURES[name].unit
    if unit == "share":
        return percent(value)
    return "–" if value != value else f"{value:.1f} {unit}"


def kinds(atlas: Atlas) -> dict[str, list[tuple[int, int]]]:
    """The heads that are called something, by what, the clearest first."""
    found: dict[str, list[tuple[int, int]]] = {}
    for layer in range(atlas.layers):
        for head in range(atlas.heads):
            for name in atlas.named(layer, head):
                found.setdefault(name, []).append((layer, head))
    order = {name: atlas.measure(name) for name in found}
    return {name: sorted(found[name], key=lambda place: -order[name][place]) for name in MEASURES if name in found}


def summary(atlas: Atlas, *, random: bool) -> Markup:
    """What heads there are. random: whether the texts were random tokens."""
    total = atlas.layers * atlas.heads
    found = kinds(atlas)
    if not found:
        words = f"None of these {total} heads puts half of its attention on one kind of token, by any of the measures."
        return tag("p", words, class_="sentence")
    parts = []
    for name, heads in found.items():
        listed = ", ".join(atlas.name(place) for place in heads[:MOST_LISTED])
        more = f" and {len(heads) - MOST_LISTED} more" if len(heads) > MOST_LISTED else ""
        parts.append(tag("b", MEASURES[name].names) + f" {listed}{more}")
    said = Markup("Of {} heads, these have a name: {}.").format(total, join(parts, "; "))
    return tag("p", said + ("" if random or "induction" in found else NO_INDUCTION), class_="sentence")


def naming() -> str:
    """When a head is called something."""
    return (
        f"A head has a name where it puts at least {NAMED:.0%} of its attention on that kind of token, over the "
        f"queries that have one, and at least {TIMES_EVEN:g} times what an even head would."
    )


def head_sentence(atlas: Atlas, layer: int, head: int) -> Markup:
    """What the chosen head does, beside a head that looks evenly."""
    called = atlas.named(layer, head)
    name = tag("b", atlas.name((layer, head)))
    if called:
        titles = " and ".join(MEASURES[one].names for one in called)
        said = Markup("{} is called {}: {}.").format(
            name, titles, join((_against(atlas, one, layer, head) for one in called), "; ")
        )
        return tag("p", said, class_="sentence")
    shares = [one for one in NAMES if MEASURES[one].names and atlas.measure(one)[layer, head] > 0]
    if not shares:
        return tag("p", Markup("{} was measured nowhere in these texts.").format(name), class_="sentence")
    best = max(shares, key=lambda one: atlas.measure(one)[layer, head])
    said = Markup("{} has no name here. Most of what is measured goes to: {}.").format(
        name, _against(atlas, best, layer, head)
    )
    return tag("p", said, class_="sentence")


TOKENS = (
    "Left: the tokens that get most of the head's attention, in shares of all of it. Right: the tokens as which it "
    "looks most sharply: the largest weight on one token, the row's first left out, in the mean; tokens that came up "
    f"{LEAST_SEEN} times at least."
)


def _against(atlas: Atlas, name: str, layer: int, head: int) -> str:
    mean, even = atlas.measure(name)[layer, head], atlas.even[NAMES.index(name), layer]
    return f"{MEASURES[name].title} {amount(name, float(mean))}, an even head {amount(name, float(even))}"
