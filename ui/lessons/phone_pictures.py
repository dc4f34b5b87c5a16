"""What phones of a class show of a step's run: pictures that a small script draws, without Plotly's 5 MB."""

from i18n import N_, say
from lessons.image_steps import pictured
from lessons.lesson import Step
from lessons.questions import ABOUT_A_QUERY, BEFORE, mean_losses
from model.heads.view import HeadView
from ui import results
from ui.lessons import step_pictures
from ui.results import cached_figure
from ui.run_view import RunView
from viz.heads.cells import changed, difference_packet, picture_packet
from viz.heads.overview import overview_packet
from viz.html import tag
from viz.lessons import pictures
from viz.lessons.phone import Drawn, losses_table
from viz.lessons.pictures import image_and_words, lit_picture, scene_image
from viz.lessons.screen import row_tokens
from viz.saved.standalone import Canvas

ELSEWHERE = N_("The picture is on the teacher's screen.")


def drawn(step: Step, now: RunView, beside: RunView, *, hidden: bool) -> Drawn:
    """As the screen shows the step: while hidden, nothing that answers its question."""
    query = now.real.stop - 1 if step.query is None else step.query
    if not hidden:
        return _shown(step, now, beside if step.compares else None, query)
    if step.numbers is not None:
        return Drawn(pictures.numbers(step.numbers.plain, None))
    kind = step.ask.kind if step.ask else ""
    if BEFORE.get(kind) == "beside" and now.run.key != beside.run.key:
        return _shown(step, beside, None, query)
    if BEFORE.get(kind) == "now":  # its masks are asked for
        return Drawn(tag("p", say(ELSEWHERE), class_="note"))
    return _tokens(step, now, query if kind in ABOUT_A_QUERY else None)


def _shown(step: Step, now: RunView, beside: RunView | None, query: int) -> Drawn:
    if step.show == "overview":
        return _overview(step, now)
    if step.show == "losses":
        one, other = now.predictions(), beside.predictions() if beside else None
        fits = one and other and len(one.losses) == len(other.losses)
        compared = other.losses if fits and other else None
        title = say("loss, nats/token")
        return Drawn(losses_table(now.tokens, one.losses, compared, _names(), title)) if one else Drawn()
    if step.show == "texts":
        title, texts = say("Mean loss of each text, in nats/token"), now.run.batch.texts
        means = [results.ask(mean_losses, view.run) for view in (now, beside) if view]
        return Drawn(losses_table(texts, means[0], means[-1] if len(means) > 1 else None, _names(), title))
    if step.show == "tokens":
        return _tokens(step, now, step.query)
    if step.show == "image":
        (layer, head), image = step.head, pictured(step.image or "")
        title, uri = cached_figure(lit_picture, now.head(layer, head), now.name(layer, head), image, query)
        return Drawn(tag("p", title) + scene_image(uri, title))
    if step.show in pictures.DRAWN:
        return Drawn(step_pictures.still(step, now))
    if step.show in ("head", "pair"):
        return _head(step, now, beside if step.show == "pair" else None, query)
    return Drawn(tag("p", say(ELSEWHERE), class_="note"))


def _names() -> tuple[str, str]:
    return say("this run"), say("compared with")


def _tokens(step: Step, now: RunView, query: int | None) -> Drawn:
    if step.image:
        return Drawn(image_and_words(pictured(step.image), now.tokens, query))
    queries, keys = (batch.pieces[now.row] for batch in (now.run.queries, now.run.keys))
    return Drawn(row_tokens(queries, query, keys if now.run.attention == "cross" else ()))


def _overview(step: Step, now: RunView) -> Drawn:
    found, (layer, head) = now.survey(), step.head
    numbers = now.model.describe().layer_numbers.get(now.run.attention, ())
    packet = cached_figure(overview_packet, found.thumbnails, found.blocked, layer=layer, head=head, numbers=numbers)
    return Drawn(canvases=[(now.model.name, Canvas("overview", packet))])


def _head(step: Step, now: RunView, beside: RunView | None, query: int) -> Drawn:
    layer, head = step.head
    name, view = now.name(layer, head), now.head(layer, head)
    canvases = [(say("{head} of {model}", head=name, model=now.model.name), _packet(view, name, query))]
    other = beside.head(layer, head) if beside else None
    if other and (view.queries, view.keys) == (other.queries, other.keys):
        canvases.append((say("compared with"), _packet(other, name, query)))
        change = cached_figure(difference_packet, changed(view, other), name=name, query=query)
        canvases.append((say("difference"), Canvas("heatmap", change)))
    return Drawn(canvases=canvases)


def _packet(view: HeadView, name: str, query: int) -> Canvas:
    return Canvas("heatmap", cached_figure(picture_packet, view, name=name, query=query))
