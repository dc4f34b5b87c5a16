"""The Export page's parts: numbers, a report, and an export opened again; and their subject, one head of one run."""

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import streamlit as st

from i18n import N_, say, together
from model.heads.view import HeadView
from model.spec import MaskSpec
from model.text import truncation_message
from ui import controls, explain, link, page
from ui.guard import message_for
from ui.heads import head as head_picture
from ui.markdown import escaped
from ui.run_view import RunView, shape_of
from ui.widgets import deferred, download, uploaded, uploader
from viz.export import data
from viz.export.data import About, Export, fits, hash_of
from viz.export.words import caption, masks_sentence, version, versions
from viz.head import head_figure
from viz.heads.cells import merged_words
from viz.mask_styles import mask_name
from viz.numbers import leak_notes
from viz.saved.explorer import MAX_TOKENS, ReportNumbers, ReportView, all_heads, report_page
from viz.sentence import LAYER_ONLY

OPENED = "opened_export"
ABOVE = 375  # pixels above an opened head on page load
Write = Callable[[Export], bytes | str]
FileKind = tuple[str, str, Write, str]  # name, file extension, function that writes it, help
KINDS: tuple[FileKind, ...] = (
    ("NPZ", "npz", data.as_npz, N_("numpy.load: weights, scores, one array for each mask, and about.json.")),
    ("safetensors", "safetensors", data.as_safetensors, N_("The same arrays; about.json is in the file's metadata.")),
    ("CSV", "csv", data.as_csv, N_("One line per cell: weight, scaled score and what blocks it.")),
    ("JSON", "json", data.as_json, N_("Metadata: model, masks, tokens, hash of the text, versions.")),
)
SECTIONS = (N_("Picture"), N_("Numbers"), N_("Report"), N_("Open an export"))


class ExportLink(link.View):
    """The link of the Export page."""

    NOT_INCLUDED = link.NO_FILES


@dataclass(frozen=True, eq=False)
class ExportSubject:
    """One head of one run. standard: the run under the masks that the model was trained with; None if `now` is that.
    layer, head: as the run counts them. text: the row's."""

    now: RunView
    standard: RunView | None
    layer: int
    head: int
    text: str

    @property
    def model(self) -> str:
        return explain.plain_title(self.now.model)

    @property
    def model_and_attention(self) -> str:
        """The model, and which attention it is where it has several."""
        name = self.now.run.attention
        return self.model if name == "self" else f"{self.model} ({say(explain.ATTENTIONS[name])})"

    @property
    def name(self) -> str:
        return self.now.name(*self.chosen)

    @property
    def target(self) -> str:
        """An encoder-decoder's target text, "" for all other models."""
        batch = self.now.run.batch
        return batch.texts[self.now.row] if batch.source else ""

    def file_name(self, what: str) -> str:
        """Return the name of a file, without extension: the model, the attention if it has several, the head, the
        lifted masks, whether in its layer only, and what the file contains."""
        model = re.sub(r"[^\w.-]+", "-", Path(self.now.model.name).name)
        _, masks = self._held_and_lifted(self.now.masks)
        lifted = (f"no-{mask}" for mask in masks)
        attention = [name for name in [self.now.run.attention] if name != "self"]
        only = ["layer-only"] if self.layer_only else []
        return "-".join(["unmask", model, *attention, self.name.replace(" ", ""), *lifted, *only, what])

    @property
    def chosen(self) -> tuple[int, int]:
        return self.layer, self.head

    @property
    def masks(self) -> str:
        now, run = (self._held_and_lifted(spec) for spec in (self.now.masks, self.now.run.spec))
        held, lifted = now
        return masks_sentence(held, lifted, "" if now == run else self.layer_only)

    @property
    def layer_only(self) -> str:
        """The name of the head's layer, "L3", if its weights alone are recomputed under these masks, else ""."""
        return self.now.name(self.layer) if self.standard and self.now.masks != self.now.run.spec else ""

    def _held_and_lifted(self, spec: MaskSpec) -> tuple[list[str], list[str]]:
        """Return the masks of spec that are on, of those that this attention can have, and those that are lifted; for
        the cross-attention of a model that was re-run, those lifted in the decoder, too, which makes its queries."""
        held, lifted = controls.masks_on_and_lifted(self.now.model, spec)
        available = self.now.head(*self.chosen).available
        rerun = self.now.run.attention == "cross" and self.now.masks == self.now.run.spec
        return [name for name in held if name in available], [name for name in lifted if rerun or name in available]

    def views(self) -> list[HeadView]:
        """Return the whole head now and, if that differs, under the standard masks."""
        return [view.head(*self.chosen) for view in (self.now, self.standard) if view]

    def caption(self, what: str, how: Sequence[str]) -> str:
        """Return a picture's caption, with all that reproduces it. what: its content; how: how to read it."""
        hashes = hash_of(self.text), self.target and hash_of(self.target)
        return caption(what, [merged_words(self.now.by), *how], masks=self.masks, hashes=hashes, version=version())

    def every(self) -> list[tuple[int, int]]:
        """Return all heads, or an empty list if they are too many for one file."""
        every = list(np.ndindex(*shape_of(self.now)))
        return every if fits(self.now.head(*self.chosen), len(every)) else []

    def export(self, which: Sequence[tuple[int, int]]) -> Export:
        """Return the numbers of these heads, the chosen one among them."""
        row, batches = self.now.row, (self.now.run.queries, self.now.run.keys)
        queries, keys = self.now.tokens, self.now.key_tokens
        of_tokens = self.now.by == "tokens"  # merged tokens have no id
        query_ids, key_ids = (tuple(batch.ids[row].tolist()) if of_tokens else None for batch in batches)
        attention = self.now.run.attention
        about = About(
            unmask=version(), model=self.model, attention=attention, layer=self.layer, head=self.head,
            text_sha256=hash_of(self.text), masks=asdict(self.now.masks), scope="layer" if self.layer_only else "model",
            queries=queries, keys=keys, query_ids=query_ids, key_ids=key_ids, by=self.now.by,
            target_sha256=self.target and hash_of(self.target),
            layer_numbers=self.now.layer_numbers,
        )  # fmt: skip
        return Export(about, {chosen: self.now.head(*chosen) for chosen in which})


def report_of(subject: ExportSubject, link: str) -> str:
    """Return HTML that needs no network: all heads of a view, this one first. link: to the same view in this app."""
    now = subject.now
    found, survey = now.model.describe(), now.survey()
    batches = [one for one in (now.run.batch.source, now.run.batch) if one]
    heads = all_heads(
        now.head,
        survey.thumbnails,
        survey.blocked,
        [subject.chosen],
        now.real.stop - 1,
        tokens=MAX_TOKENS,
        numbers=now.layer_numbers,
        notes=leak_notes(survey.future, survey.padding),
        measures=survey.marked,
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
        text="\n→ ".join(filter(None, [one.read(now.row) for one in batches])),  # as in unmask.report
        cut=together(
            filter(
                None,
                [*(truncation_message(one.cut[now.row], now.model.context) for one in batches), merged_words(now.by)],
            )
        ),
        labels=now.run.batch.pieces[now.row],
        heads=heads,
        now=_numbers(now),
        standard=_numbers(subject.standard) if subject.standard else None,
        link=link,
        layer_only=subject.layer_only,
    )
    return report_page(view)


def _numbers(view: RunView) -> ReportNumbers:
    found, predicted = view.survey(), view.predictions()
    shares = found.future, found.padding
    return ReportNumbers(*shares, predicted.candidates, predicted.losses) if predicted else ReportNumbers(*shares)


def numbers(subject: ExportSubject) -> None:
    view, every = subject.views()[0], subject.every()

    def made(write: Write, which: list[tuple[int, int]]) -> bytes | str:
        return write(subject.export(which))

    def offer(which: list[tuple[int, int]], kinds: Sequence[FileKind], key: str, template: str, name: str) -> None:
        with st.container(horizontal=True):
            for kind, ending, write, about in kinds:
                look = {"key": f"{key}_{ending}", "help": say(about)}
                make, file = partial(made, write, which), f"{subject.file_name(name)}.{ending}"
                download(say(template, kind=kind), make, file, **look)

    offer([subject.chosen], KINDS if fits(view) else KINDS[-1:], "take", "{kind}", "head")
    if every:
        offer(every, KINDS[:2], "take_all", N_("All heads, {kind}"), "all-heads")
    notes, limit = [], data.MAX_BYTES / 2**20
    if not every:
        excess = say("one head of this text") if not fits(view) else say("all heads of this text together")
        notes.append(say("More than the file limit of {most:.0f} MB: {what}.", most=limit, what=excess))
    largest = data.size_of(view, len(every) or 1)
    if largest > max_opened_bytes() and fits(view):
        template = N_(
            "Files of up to {most:.0f} MB, as NPZ of up to {unpacked:.0f} MB unpacked, can be opened again here; these "
            "numbers take up to {size:.0f} MB unpacked."
        )
        limit = max_opened_bytes() / 2**20
        notes.append(say(template, most=limit, unpacked=data.UNPACKED * limit, size=largest / 2**20))
    if notes:
        st.caption(together(notes))


def max_opened_bytes() -> int:
    """Return the maximum number of bytes of a file that a user can open here."""
    return min(data.MAX_BYTES, st.get_option("server.maxUploadSize") * 2**20)


def report(subject: ExportSubject) -> None:
    view = link.View.of_choices(section=None, model=controls.chosen_model() or "story")
    address, _, choices = view.address().partition("?")
    make = deferred(partial(report_of, subject, f"{address.removesuffix('export')}?{choices}" if view.fits() else ""))
    about = say(
        "One HTML file that opens offline with a double click: all heads, the chosen one enlarged, masks, predictions, "
        "losses and **the text itself**. At most 8 MB; the file says so if heads are left out."
    )
    st.markdown(about)
    download(say("Report"), make, "unmask-report.html", "text/html", key="take_report")


def opened() -> None:
    """Draw an uploader, and the head in the uploaded file, which needs no model."""

    def taken() -> None:
        file = uploaded("take_export")  # kept packed, which the limit of uploads bounds
        st.session_state[OPENED] = (file.name, file.getvalue()) if file else None

    label, limit = say("An NPZ or safetensors file saved by this page"), max_opened_bytes() // 2**20
    uploader(label, ["npz", "safetensors"], key="take_export", on_change=taken, max_upload_size=limit)
    if not st.session_state.get(OPENED):
        return
    file_name, file = st.session_state[OPENED]
    try:
        found = data.read(file, max_opened_bytes())
    except ValueError as error:
        problem, template = escaped(message_for(error)), N_("{file} was not opened: {problem}.")
        st.error(say(template, file=escaped(file_name), problem=problem), icon=":material/error:")
        return
    about = found.about
    names = {head: about.name(*head) for head in found.heads}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        first, name = list(names).index((about.layer, about.head)), names.__getitem__
        chosen = st.selectbox(say("Head"), list(names), first, name, "opened_head", width=140)
        shown = found.heads[chosen]
        blocks = say(", ").join(mask_name(name) for name, mask in shown.blocked.items() if mask.any())
        size = "{} × {}".format(*shown.weights.shape)
        facts = {"model": escaped(about.model), "size": size, "masks": blocks or say("no mask")}
        st.markdown(say("{model} · {size} cells · blocked by: {masks}", **facts))
    if about.scope == "layer":
        st.caption(say(LAYER_ONLY, layer=about.name(about.layer)))
    tall = min(shown.weights.shape[0] / shown.weights.shape[1], 1)
    figure = head_figure(shown, dark=page.is_dark(), tall=tall)
    alt = explain.head_alt(names[chosen], shown, False)
    head_picture.show(figure, alt, room="one", key="opened_figure", above=ABOVE, tall=tall, on_pick=None)
