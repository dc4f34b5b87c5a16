"""A run as one HTML file that needs no network: unmask.report(run).save("report.html")."""

from collections.abc import Sequence
from dataclasses import dataclass

from model.text import cut_words
from model.version import versions
from unmask.runs import Run
from unmask.shown import Shown
from viz.heads.every import MOST_CELLS
from viz.report import MOST_TOKENS, Numbers, ReportView, report_page


def report(run: Run, heads: Sequence[tuple[int, int]] = (), *, link: str = "") -> "RunReport":
    """All heads of a run, masks, numbers and text in one file. heads: (layer, head) of those to choose first.

    link: to the same view in a running app. Raises ValueError for a head that is not there.
    """
    return RunReport(run, tuple(heads) or (run.first_head(),), link)


@dataclass(frozen=True, eq=False, repr=False)
class RunReport(Shown):
    """One HTML file of at most 8 MB."""

    run: Run
    heads: tuple[tuple[int, int], ...]
    link: str

    def page(self) -> str:
        """The file's text."""
        run, standard = self.run, self.standard()
        found = run.model.describe()
        trained = "" if standard is None else f"; it was trained with {', '.join(standard.mask_names) or 'none'}"
        view = ReportView(
            model=run.model.name,
            network=f"{found.architecture}, {found.kind}",
            attention=run.trace.name,
            tokens=int(run.trace.queries.keep[run.row].sum()),
            masks=(", ".join(run.mask_names) or "none") + trained,
            spec="" if standard is None else run.masks.to_json(),
            versions=versions(),
            text=run.text,
            cut=cut_words(run.cut, run.model.context),
            labels=run.trace.batch.pieces[run.row],
            heads=run.all_heads(self.heads, MOST_CELLS, MOST_TOKENS),
            now=_numbers(run),
            standard=None if standard is None else _numbers(standard),
            link=self.link,
        )
        return report_page(view)

    def standard(self) -> Run | None:
        """The same text under the masks that the model was trained with; None where the run is that."""
        run = self.run
        if run.masks == run.model.standard:
            return None
        return run.under(run.model.standard)

    def __repr__(self) -> str:
        return f"{self.run!r}: report"


def _numbers(run: Run) -> Numbers:
    shares = run.survey.future, run.survey.padding
    return Numbers(*shares, run.next_token().candidates, run.losses) if run.predicts else Numbers(*shares)
