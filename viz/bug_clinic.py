"""Figures, tables and sentences of the Bug clinic: what each law finds with a bug and in the correct version."""

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from markupsafe import Markup

from i18n import N_, say
from model.heads.view import HeadView
from viz.head import comparison_figure
from viz.heatmap import CachedFigure, figure
from viz.html import join, paragraph, swatch, table, tag, td, th
from viz.numbers import number, percent

if TYPE_CHECKING:  # these modules import torch
    from model.bug_clinic.laws import Law, Verdict
    from model.bug_clinic.spot import HeatmapDifference


WITH_BUG, RIGHT = N_("with the bug"), N_("correct version")
BROKEN, HELD = "#D55E00", "#009E73"
TWO_DIGITS = "{:.2f}".format
FEATURES: dict[str, tuple[str, Callable[[float], str]]] = {  # feature -> its sentence, and how to write numbers
    "later": (N_("of the weight on real tokens {one} goes to later ones {there}, and {other} {here}."), percent),
    "padding": (N_("the share of weight that goes to padding is {one} {there}, and {other} {here}."), percent),
    "sum": (N_("the smallest sum of a row is {one} {there}, and {other} {here}."), TWO_DIGITS),
    "itself": (N_("the weight that a token gives itself is on average {one} {there}, and {other} {here}."), TWO_DIGITS),
    "largest": (N_("the largest weight of a row is on average {one} {there}, and {other} {here}."), TWO_DIGITS),
}


def law_html(law: "Law", wrong: "Verdict", right: "Verdict", *, title: str) -> Markup:
    """Describe one law: title, words, and findings with the bug and without, but not PyTorch's own error messages."""
    sides = []
    for side, found in ((WITH_BUG, wrong), (RIGHT, right)):
        text = say("crashes") if found.error and found.broken else amount_text(found)
        sides.append(join([say(side), " ", _cell(found, law, "span", text)]))
    return join([paragraph(tag("b", title), "key"), tag("p", _named(law)), tag("p", join(sides, " · "))])


def law_table(rows: Iterable[tuple["Law", "Verdict", "Verdict"]]) -> Markup:
    """Return a table with a row for each law: its words, and what was found with the bug and without."""
    head = (th(say(words)) for words in (N_("property"), WITH_BUG, RIGHT))
    body = []
    for law, *both in rows:
        findings = [_cell(found, law, "td", amount_text(found)) for found in both]
        body.append([td(_named(law), style="white-space:normal"), *findings])
    return table([head, *body], "numbers laws")  # not shown


def amount_text(finding: "Verdict") -> str:
    """Describe a finding: "violated: 7.97", "holds: 0", "crashes: mat1 and mat2 …", "–" without a value."""
    if math.isnan(finding.amount):
        return "–"
    if finding.error:
        return say("crashes: {error}", error=finding.error)
    amount = number(finding.amount)
    return say("violated: {amount}", amount=amount) if finding.broken else say("holds: {amount}", amount=amount)


def bug_figure(wrong: HeadView, right: HeadView, *, dark: bool, nan: bool) -> CachedFigure:
    """Draw weights with the bug, without it, and the difference. nan: whether the bug makes rows without an allowed key
    NaN instead of 0."""
    drawn = comparison_figure(wrong, right, dark=dark, titles=(say(WITH_BUG), say(RIGHT), say("bug − correct")))
    plain = drawn.to_dict()
    notes = [
        note | {"text": "NaN"} if nan and note["xref"] == "x domain" else note
        for note in plain["layout"]["annotations"]
    ]
    return figure(plain["data"], plain["layout"] | {"annotations": notes})


def _named(law: "Law") -> Markup:
    return join([say(law.words), " ", tag("span", f"({say(law.of)})", style="opacity:.75")])


def _cell(finding: "Verdict", law: "Law", element: str, text: str) -> Markup:
    if math.isnan(finding.amount):
        why = say("nothing was computed") if finding.error else say("needs {what}", what=say(law.needs))
        return tag(element, text, title=why)
    content = join([swatch(BROKEN if finding.broken else HELD), tag("b", text) if finding.broken else text])
    return tag(element, content, style="white-space:normal" if finding.error else "")


def difference_sentence(
    diff: "HeatmapDifference", one: str, other: str, shown: HeadView, *, same_tokens: bool = True
) -> str:
    """Say in a sentence how two heatmaps differ; `one` and `other` name them. shown: the other one's view, for labels.
    same_tokens: whether a row stands for the same token in both."""
    if not diff.feature:
        query, key = diff.cell
        about = {"query": query, "key": key, "one": diff.one, "there": one, "other": diff.other, "here": other}
        about |= {"looker": shown.queries[query], "looked": shown.keys[key]}
        if not same_tokens:
            return say("the weight in row {query} and column {key} (“{looker}” and “{looked}” {here}) is {one:.2f} "
                       "{there}, and {other:.2f} {here}.", **about)  # fmt: skip
        return say("query {query} (“{looker}”) gives key {key} (“{looked}”) a weight of {one:.2f} {there}, and "
                   "{other:.2f} {here}.", **about)  # fmt: skip
    words, write = FEATURES[diff.feature]
    return say(words, one=write(diff.one), there=one, other=write(diff.other), here=other)
