"""A run as one HTML file that needs no network: unmask.report(run).save("report.html")."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from unmask.runs import Run
from unmask.shown import Shown
from viz.heads.every import MOST_CELLS
from viz.report import Numbers, ReportView, report_page

MOST_TOKENS = 1024  # of each side of a head in full
VERSIONS = ("unmask", "torch", "transformers")


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
        drawn = run.all_heads(self.heads, MOST_CELLS, MOST_TOKENS)
        view = ReportView(
            title=f"{run.model.name}: what every head looks at",
            about=_about(run, standard),
            text=run.text,
            labels=run.trace.batch.pieces[run.row],
            heads=drawn,
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
        return replace(run, trace=run.model.run(run.trace.batch).select(run.trace.name))

    def __repr__(self) -> str:
        return f"{self.run!r}: report"


def _about(run: Run, standard: Run | None) -> list[tuple[str, str]]:
    found = run.model.describe()
    layers, heads = run.survey.future.shape
    shown = "" if run.trace.name == "self" else f", its {run.trace.name} attention"
    trained = "" if standard is None else f"; it was trained with {', '.join(standard.mask_names) or 'none'}"
    rows = [
        ("model", f"{run.model.name} ({found.architecture}, {found.kind}){shown}: {layers} layers × {heads} heads"),
        ("tokens", f"{int(run.trace.queries.keep[run.row].sum()):,}"),
        ("masks", (", ".join(run.mask_names) or "none") + trained),
    ]
    if standard is not None:
        rows.append(("masks, in full", run.masks.to_json()))
    return [*rows, ("made with", _versions())]


def _numbers(run: Run) -> Numbers:
    predicts = run.predicts
    return Numbers(
        candidates=run.next_token().candidates if predicts else [],
        losses=run.losses if predicts else np.zeros(0, np.float32),
        future=run.survey.future,
        padding=run.survey.padding,
    )


def _versions() -> str:
    """Those of VERSIONS that are installed: a checkout of unmask has none."""
    said = []
    for name in VERSIONS:
        try:
            said.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(said)
