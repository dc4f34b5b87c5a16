"""What the page takes away: one head of one run, and the run around it."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from i18n import say, together
from model.heads.view import HeadView
from model.text import cut_words
from ui import controls, explain
from ui.run_view import RunView, shape_of
from viz.export.data import About, Export, fits, hash_of
from viz.export.words import caption, masks_said, version, versions
from viz.heads.cells import merged_words
from viz.numbers import leak_notes
from viz.saved.explorer import MOST_TOKENS, ReportNumbers, ReportView, all_heads, report_page


@dataclass(frozen=True, eq=False)
class ExportSubject:
    """standard: under the masks that the model was trained with; None where `now` is. layer, head: as the run counts
    them. text: the row's."""

    now: RunView
    standard: RunView | None
    layer: int
    head: int
    text: str

    @property
    def model(self) -> str:
        return explain.plain_title(self.now.model)

    @property
    def name(self) -> str:
        return self.now.name(*self.chosen)

    def file_name(self, what: str) -> str:
        """Of a file of it, without an ending: the model, the head, the masks that are lifted and what it holds."""
        model = re.sub(r"[^\w.-]+", "-", Path(self.now.model.name).name)
        lifted = (f"no-{mask}" for mask in self._held_and_lifted()[1])
        return "-".join(["unmask", model, self.name.replace(" ", ""), *lifted, what])

    @property
    def chosen(self) -> tuple[int, int]:
        return self.layer, self.head

    @property
    def masks(self) -> str:
        return masks_said(*self._held_and_lifted(), only_layer=bool(self.now.masks.layers))

    def _held_and_lifted(self) -> tuple[list[str], list[str]]:
        return controls.held_and_lifted(self.now.model, self.now.masks)

    def views(self) -> list[HeadView]:
        """The whole head now and, where that is another, under the standard masks."""
        return [view.head(*self.chosen) for view in (self.now, self.standard) if view]

    def caption(self, what: str, how: Sequence[str]) -> str:
        """Below a picture, in words that make it possible to make it again. what: is on it; how: to read it."""
        return caption(
            what, [merged_words(self.now.by), *how], masks=self.masks, sha256=hash_of(self.text), version=version()
        )

    def every(self) -> list[tuple[int, int]]:
        """All heads, where they are not too many for one file; else none."""
        every = list(np.ndindex(*shape_of(self.now)))
        return every if fits(self.now.head(*self.chosen), len(every)) else []

    def export(self, which: Sequence[tuple[int, int]]) -> Export:
        """The numbers of these heads, the chosen one among them."""
        row, batches = self.now.row, (self.now.run.queries, self.now.run.keys)
        queries, keys = self.now.tokens, self.now.key_tokens
        of_tokens = self.now.by == "tokens"  # a word has no id
        query_ids, key_ids = (tuple(batch.ids[row].tolist()) if of_tokens else None for batch in batches)
        attention = self.now.run.attention
        about = About(
            unmask=version(), model=self.model, attention=attention, layer=self.layer, head=self.head,
            text_sha256=hash_of(self.text), masks=asdict(self.now.masks), queries=queries, keys=keys,
            query_ids=query_ids, key_ids=key_ids, by=self.now.by,
            layer_numbers=self.now.model.describe().layer_numbers.get(attention, ()),
        )  # fmt: skip
        return Export(about, {chosen: self.now.head(*chosen) for chosen in which})


def report(subject: ExportSubject, link: str) -> str:
    """HTML that needs no network: all heads of a view, this one first. link: to the same view in this app."""
    now = subject.now
    found, survey = now.model.describe(), now.survey()
    cut = (now.run.batch.source or now.run.batch).cut[now.row]
    heads = all_heads(
        now.head,
        survey.thumbnails,
        survey.blocked,
        [subject.chosen],
        now.real.stop - 1,
        tokens=MOST_TOKENS,
        numbers=found.layer_numbers.get(now.run.attention, ()),
        notes=leak_notes(survey.future, survey.padding),
        measures=survey.shares,
        across=now.run.attention == "cross",
    )
    view = ReportView(
        model=subject.model,
        network=f"{say(found.architecture)}, {found.kind}",
        attention=now.run.attention,
        tokens=int(now.run.queries.keep[now.row].sum()),
        masks=subject.masks,
        spec=now.masks.to_json() if subject.standard else "",
        versions=versions(),
        text=subject.text.removesuffix(cut),
        cut=together(filter(None, [cut_words(cut, now.model.context), merged_words(now.by)])),
        labels=now.run.batch.pieces[now.row],
        heads=heads,
        now=_numbers(now),
        standard=_numbers(subject.standard) if subject.standard else None,
        link=link,
    )
    return report_page(view)


def _numbers(view: RunView) -> ReportNumbers:
    found, predicted = view.survey(), view.predictions()
    shares = found.future, found.padding
    return ReportNumbers(*shares, predicted.candidates, predicted.losses) if predicted else ReportNumbers(*shares)
