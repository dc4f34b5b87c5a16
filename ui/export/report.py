"""The one-file report of what the page shows."""

from model.text import cut_words
from ui.export.subject import ExportSubject
from ui.run_view import RunView
from viz.export.versions import versions
from viz.leaks import leak_notes
from viz.saved.explorer import all_heads
from viz.saved.report import MOST_TOKENS, Numbers, ReportView, report_page


def report(subject: ExportSubject, link: str) -> str:
    """HTML that needs no network: all heads of a view, this one first. link: to the same view in this app."""
    now = subject.now
    found, survey = now.model.describe(), now.survey()
    cut = (now.run.batch.source or now.run.batch).cut[now.row]
    heads = all_heads(
        now.head,
        survey.thumbnails,
        survey.blocked,
        [subject.place],
        now.run.queries.real(now.row).stop - 1,
        tokens=MOST_TOKENS,
        numbers=found.layer_numbers.get(now.run.attention, ()),
        notes=leak_notes(survey.future, survey.padding),
        measures=survey.measures(),
        across=now.run.attention == "cross",
    )
    view = ReportView(
        model=subject.model,
        network=f"{found.architecture}, {found.kind}",
        attention=now.run.attention,
        tokens=int(now.run.queries.keep[now.row].sum()),
        masks=subject.masks,
        spec=now.masks.to_json() if subject.standard else "",
        versions=versions(),
        text=subject.text.removesuffix(cut),
        cut=cut_words(cut, now.model.context),
        labels=now.run.batch.pieces[now.row],
        heads=heads,
        now=_numbers(now),
        standard=_numbers(subject.standard) if subject.standard else None,
        link=link,
    )
    return report_page(view)


def _numbers(view: RunView) -> Numbers:
    found, predicted = view.survey(), view.predictions()
    shares = found.future, found.padding
    return Numbers(*shares, predicted.candidates, predicted.losses) if predicted else Numbers(*shares)
