"""A head's tokens, its examples by decile and a list of ranked heads, as HTML."""

from collections.abc import Sequence

from markupsafe import Markup

from i18n import say
from model.atlas.result import Decile, Example, TokenShare
from viz.head_atlas.words import amount
from viz.heads.cells import weight_text
from viz.html import bar, join, table, tag
from viz.numbers import percent
from viz.palette import MARK, NOW

BEFORE, AFTER = 16, 5  # tokens of an example around its query
STYLE = """<style>
  .deciles { font-size: .9rem; line-height: 1.75; }
  .deciles h6 { margin: .7rem 0 .1rem; font-size: .85rem; font-weight: 600; opacity: .8; padding: 0; }
  .deciles p { margin: 0 0 .2rem; overflow-wrap: anywhere; }
  .deciles .query { outline: 2px solid MARK; border-radius: 3px; padding: 0 .1em; }
  .deciles .key { border-radius: 3px; padding: 0 .1em; }
  .deciles .value { font-variant-numeric: tabular-nums; opacity: .75; margin-right: .6em; }
  .deciles .far { opacity: .6; }
</style>""".replace("MARK", MARK)


def tokens_table(tokens: Sequence[TokenShare], what: str, none: str = "") -> Markup:
    """Tokens with a share each; what: the table's heading. none: what is said in the place of rows where there are
    none."""
    most = max((one.share for one in tokens), default=1.0) or 1.0
    head = [tag("th", what, colspan=3), tag("th", say("times"), class_="number")]
    rows = [
        [
            tag("td", one.token, class_="token"),
            tag("td", percent(one.share), class_="number"),
            tag("td", bar(one.share / most, NOW), class_="track"),
            tag("td", f"{one.count:,}", class_="number"),
        ]
        for one in tokens
    ]
    return table([head, *(rows or [[tag("td", none, colspan=4, style="white-space:normal")]])])


def ranked_table(heads: Sequence[tuple[str, float, str]], what: str) -> Markup:
    """Heads in their order: a name, a weight, what it is called."""
    head = [tag("th", say("head")), tag("th", what, colspan=2), tag("th", say("called"))]
    rows = [
        [
            tag("td", name),
            tag("td", percent(share), class_="number"),
            tag("td", bar(share, NOW), class_="track"),
            tag("td", called),
        ]
        for name, share, called in heads
    ]
    return table([head, *rows])


def deciles_html(deciles: Sequence[Decile], name: str) -> Markup:
    """Every tenth with its examples, the strongest first; name: the measure's."""
    parts = [Markup(STYLE)]
    for decile in deciles:
        low, high = amount(name, decile.low), amount(name, decile.high)
        between = low if low == high else say("{low} to {high}", low=low, high=high)
        title = say(
            "{tenth}: {between}, {count} of the sampled queries",
            tenth=_tenth(decile.number), between=between, count=decile.queries,
        )  # fmt: skip
        parts.append(tag("h6", title))
        parts += [_example(one, name) for one in decile.examples]
    return tag("div", join(parts), class_="deciles")


def _tenth(number: int) -> str:
    names = {10: say("Strongest tenth"), 1: say("Weakest tenth")}
    return names.get(number) or say("Tenth {number}", number=number)


def _example(one: Example, name: str) -> Markup:
    begin, end = max(one.query - BEFORE, 0), min(one.query + AFTER + 1, len(one.pieces))
    weights = dict(one.keys)
    far = [key for key in sorted(weights) if not begin <= key < end and weights[key] >= 0.1]
    parts = [tag("span", amount(name, one.value), class_="value")]
    for key in far:
        parts += [_piece(one, key, weights), tag("span", " … ", class_="far")]
    if begin and not far:
        parts.append(tag("span", "… ", class_="far"))
    parts += [_piece(one, place, weights) for place in range(begin, end)]
    if end < len(one.pieces):
        parts.append(tag("span", " …", class_="far"))
    return tag("p", join(parts))


def _piece(one: Example, place: int, weights: dict[int, float]) -> Markup:
    text = one.pieces[place].replace("·", " ")
    classes = ["query"] * (place == one.query) + ["key"] * (place in weights)
    if not classes:
        return Markup("{}").format(text)
    written: dict[str, object] = {"class_": " ".join(classes)}
    if place in weights:
        written["style"] = f"background:rgba(192,80,77,{min(weights[place] ** 0.5, 1) * 0.75:.2f})"
        written["title"] = say("weight {weight}", weight=weight_text(weights[place]))
    lead = " " if text.startswith(" ") else ""
    return Markup(lead) + tag("span", text.removeprefix(" ") or " ", **written)
