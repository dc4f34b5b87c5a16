"""The one-file report of what the page shows."""

from ui import explain
from ui.run_view import RunView, shape_of
from viz.explorer import AllHeads, part_words
from viz.heads.cells import around
from viz.heads.every import MOST_CELLS, room_for
from viz.leaks import leak_notes
from viz.report import Numbers, ReportView, report_page

MOST_TOKENS = 1024  # of each side of a head in full


def report(
    now: RunView, standard: RunView | None, chosen: tuple[int, int], *, text: str, masks: str, version: str, link: str
) -> str:
    """HTML that needs no network: all heads of a view, this one first. standard: None where the view is under the
    standard masks. masks: which are on, in a sentence. link: to the same view in this app."""
    found, name = now.model.describe(), explain.plain_title(now.model)
    layers, heads = shape_of(now)
    about = [
        ("model", f"{name} ({found.architecture}, {found.kind}): {layers} layers × {heads} heads"),
        ("attention", now.run.attention),
        ("tokens", f"{int(now.run.queries.keep[now.row].sum()):,}"),
        ("masks", masks),
        ("made with", f"Unmask {version}"),
    ]
    view = ReportView(
        title=f"{name}: what every head looks at",
        about=about,
        text=text,
        labels=now.run.batch.pieces[now.row],
        heads=_heads(now, chosen),
        now=_numbers(now),
        standard=None if standard is None else _numbers(standard),
        link=link,
    )
    return report_page(view)


def _heads(now: RunView, chosen: tuple[int, int]) -> AllHeads:
    """All at a glance, and in full those for which there is room, the chosen one first."""
    found, query = now.survey(), now.run.queries.real(now.row).stop - 1
    layers, heads = shape_of(now)
    held = {}
    for place in dict.fromkeys([chosen, *((layer, head) for layer in range(layers) for head in range(heads))]):
        view = now.head(*place)
        held[place] = around(view, (0, len(view.queries)), query, MOST_TOKENS)
        if len(held) == room_for(held[place], MOST_CELLS):
            break
    return AllHeads(
        found.thumbnails,
        found.blocked,
        held,
        (chosen,),
        query,
        now.model.describe().layer_numbers.get(now.run.attention, ()),
        leak_notes(found.future, found.padding),
        found.measures(),
        now.run.attention == "cross",
        part_words(now.head(*chosen), held[chosen]),
    )


def _numbers(view: RunView) -> Numbers:
    found, predicted = view.survey(), view.predictions()
    losses = found.future[0, :0] if predicted is None else predicted.losses
    return Numbers([] if predicted is None else predicted.candidates, losses, found.future, found.padding)
