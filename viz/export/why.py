"""One cell's score for print: query, key and their products as strips, and the largest terms of the score as bars."""

from matplotlib.colors import Normalize

from i18n import say
from model.attribution.parts import ScoreSplit
from viz.export.fonts import width
from viz.export.paper import Paper, Sheet, changes, tidy
from viz.heads.score_split import STRIPS, largest_pairs, reaches
from viz.html import signed
from viz.palette import NOW, STANDARD

WIDE, STRIP, BAR = 4.6, 0.28, 0.2  # inches: of a strip, its height with what parts it from the next, and of a bar's
BETWEEN = 0.65  # from the strips to the bars


def why_picture(paper: Paper, found: ScoreSplit) -> Sheet:
    """Bars only where it is known what wrote the query and the key."""
    names = [say(name) for name, *_ in STRIPS]
    pairs = largest_pairs(found) if found.sources else []
    writers = [paper.said(f"{one} · {other}") for one, other, _ in pairs]
    left = max(map(width, [*names, *writers])) + 0.25
    below = BETWEEN + BAR * len(pairs) if pairs else 0.0
    sheet = Sheet(paper, left + WIDE + 0.6, STRIP * len(STRIPS) + below + 0.45)
    rows = zip(names, (found.q, found.k, found.by_dimension), reaches(found), strict=True)
    for number, (name, values, most) in enumerate(rows):
        panel = sheet.panel(left, STRIP * number, WIDE, STRIP - 0.04)
        panel.imshow(values[None], cmap=changes(), norm=Normalize(-most, most), aspect="auto", interpolation="none")
        panel.spines[:].set(color="#8c929e", linewidth=0.4)
        panel.set_yticks([0], [name], fontsize=8)
        panel.tick_params(length=0, labelsize=7, labelbottom=number == len(STRIPS) - 1)
    panel.set_xlabel(say("dimension of the head"), fontsize=8)
    if pairs:
        _draw_terms(sheet, left, [term for *_, term in pairs], writers)
    return sheet


def _draw_terms(sheet: Sheet, left: float, terms: list[float], writers: list[str]) -> None:
    panel = sheet.panel(left, STRIP * len(STRIPS) + BETWEEN, WIDE, BAR * len(terms))
    places, longest = range(len(terms)), max(1e-9, *map(abs, terms))
    panel.barh(places, terms, 0.7, color=[NOW if term > 0 else STANDARD for term in terms], linewidth=0)
    for place, term in zip(places, terms, strict=True):
        panel.text(max(term, 0.0) + 0.01 * longest, place, signed(term), va="center", fontsize=7)
    panel.axvline(0, color="#8c929e", linewidth=0.6)
    panel.set_yticks(places, writers)
    panel.set(ylim=(len(terms) - 0.5, -0.5), xlim=(min(0.0, *terms) - 0.02 * longest, max(0.0, *terms) + 0.2 * longest))
    tidy(panel, say("term"), token_ticks="y")
    panel.tick_params(axis="y", labelsize=8)
    panel.spines["left"].set_visible(False)
