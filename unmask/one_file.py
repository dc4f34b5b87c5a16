"""A run as one HTML file that needs no network: unmask.report(run).save("report.html")."""

from collections.abc import Sequence
from dataclasses import dataclass

from model.errors import items
from model.text import cut_words
from unmask.runs import Run
from unmask.shown import Shown
from viz.export.versions import versions
from viz.heads.every import MOST_CELLS
from viz.saved.report import MOST_TOKENS, Numbers, ReportView, report_page


def report(run: Run, heads: Sequence[tuple[int, int]] = (), *, link: str = "") -> "RunReport":
    """All heads of a run, masks, numbers and text in one file. heads: (layer, head) of those to choose first.

    link: to the same view in a running app. Raises ValueError for a head that is not there.
    """
    if not isinstance(run, Run):
        raise ValueError(f"expected a run, as unmask.load(…).run(text) gives, got {type(run).__name__}")
    pairs = items("heads as pairs (layer, head)", heads)
    if not all(isinstance(one, Sequence) and len(one) == 2 for one in pairs):
        raise ValueError(f"expected heads as pairs (layer, head), got {heads!r:.80}")
    for layer, head in pairs:
        run.view(layer, head)
    chosen = tuple((int(layer), int(head)) for layer, head in pairs)
    return RunReport(run, chosen or (run.first_head(),), link)


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
            spec="" if run.masks == run.model.standard else run.masks.to_json(),
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
        """The same text under the masks that the model was trained with; None where they let the same cells through."""
        if self.run.masks == self.run.model.standard:
            return None
        standard = self.run.under(self.run.model.standard)
        return None if _alike(self.run, standard) else standard

    def __repr__(self) -> str:
        return f"{self.run!r}: report"


def _alike(one: Run, other: Run) -> bool:
    """Whether the masks of two runs of a text let the same cells through, so that their numbers are the same."""
    heads = one.masks.heads or (0,)
    return all(
        one.trace.allowed(layer, one.row, head=head).equal(other.trace.allowed(layer, other.row, head=head))
        for layer in range(one.trace.num_layers)
        for head in heads
    )


def _numbers(run: Run) -> Numbers:
    shares = run.survey.future, run.survey.padding
    return Numbers(*shares, run.next_token().candidates, run.losses) if run.predicts else Numbers(*shares)
