"""The Mask check page: what is checked, the check itself, and its report."""

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import streamlit as st
import torch

from i18n import N_, listed, msg, say, say_count
from mask_check.declared import declare
from mask_check.findings import DECISIVE, LAWS, CannotCheck, CheckReport, amount_text
from mask_check.samples import SAMPLES, SampleModule
from model import catalog
from model.base import Model, files_key
from model.text import first_line
from serving.background import Background
from serving.settings import Settings
from ui import link, page, results
from ui.heads import head as head_picture
from ui.markdown import escaped
from ui.widgets import stoppable
from viz.mask_check import MARK, declared_figure, laws_table, mask_figure, named_pairs, sentence
from viz.numbers import token_count

if TYPE_CHECKING:
    from mask_check.check import Progress

WHATS = {"model": N_("A model"), "patient": N_("A sample module")}
TYPES = ("float32", "bfloat16")
KINDS = (N_("decoder"), N_("encoder"), N_("encoder-decoder"))  # the values of report.kind
MAX_TOKENS = 48  # maximum number of tokens read
MAX_MEGABYTES = 600  # maximum megabytes of weights: more would take minutes here
SECONDS = 90.0
LOADING = N_("Loading …")
WAITING = N_("Waiting for the same check, which another user started …")
BETWEEN = 0.1  # minimum seconds between two updates of the progress bar
HOW = N_("""
Every token in turn is replaced by several others, and the change of every output is measured, in the module's own
forward with its own kernels. What counts as no change is measured too: the same run twice, the row beside other rows,
and one more rounding in every part of the module (Monte Carlo arithmetic, Parker 1997); twice the largest of them.
A token whose change affects no output proves nothing, so each must affect at least one; otherwise the verdict is
*cannot tell*. Gradients test the same without a substitute: for blocked tokens they are exactly 0. What is larger than
between two runs or rows, and no larger than one more rounding, is measured again in float64: rounding is far smaller
there, a leak is not.

The other checks compare two ways of computing the same numbers: a row alone and in a padded batch, packed documents
and each alone, step by step through the cache and in one forward pass, one attention kernel and another, training mode
without dropout and eval mode.
""")


@dataclass(frozen=True)
class CheckInput:
    """The tokens of a check: ids, and a label for each. cut: whether the text has more."""

    ids: tuple[int, ...]
    pieces: tuple[str, ...]
    cut: bool


class SampleLink(link.Link):
    """The link of the Mask check page when a sample module is checked. patient: that module."""

    what: Literal[*WHATS] = "model"  # type: ignore[valid-type]
    patient: Literal[*SAMPLES] = "future"  # type: ignore[valid-type]
    number_type: Literal[*TYPES] = TYPES[0]  # type: ignore[valid-type]


class CheckLink(SampleLink, link.TextLink):
    """The link of the Mask check page when a model is checked, which reads a text."""


def read(model: Model, text: str) -> CheckInput:
    """Tokenize the first line of a text. Raises ValueError for one that the model has no tokens for, or too few."""
    line = first_line(text)
    batch = model.encode([line], "right", [line] if model.kind == "encoder-decoder" else None)
    length = int(batch.keep[0].sum())
    if length < 2:
        raise CannotCheck(msg("a check needs a text of at least two tokens: type one more word"))
    count = min(length, MAX_TOKENS)
    return CheckInput(tuple(batch.ids[0, :count].tolist()), tuple(batch.pieces[0][:count]), length > count)


def check_model(model: Model, reading: CheckInput, number_type: str) -> CheckReport:
    """Check a model as transformers runs it, showing meanwhile what it declares. Raises as loading and checking do."""
    name = model.name
    folder = catalog.fetch(name, None, Settings.from_environment())

    def make(show: "Progress") -> CheckReport:
        from mask_check.check import check_checkpoint
        from model.huggingface import checkpoint_files  # takes seconds to import, and a sample does not need it

        files = checkpoint_files.local_files(folder)
        size = sum(files[file] for file in checkpoint_files.weight_files(name, files)) / 1e6
        if size > MAX_MEGABYTES:
            template = N_(
                "{name} has {size:,.0f} MB of weights, more than the limit here: run python -m unmask check {name}"
            )
            raise CannotCheck(msg(template, name=name, size=size))
        given = (name, folder, reading.ids, reading.pieces, number_type, SECONDS)
        worker = Background(check_checkpoint, *given)  # in its own process, with its own network: no page waits for it
        return worker.finish(lambda now: show(*(now.reports[-1] if now.reports else (now.why or LOADING, 0.0))))

    def show_declared() -> None:  # from the model's configuration: known before anything is measured
        reach = declare(model.network.config, len(reading.ids), None, model.kind).reach.numpy()
        template = N_("The mask that {name} declares, {length} by {length}; nothing is measured yet.")
        alt = say(template, name=model.name, length=len(reading.ids))
        st.markdown(page.heading(say("Mask check")))
        figure = declared_figure(list(reading.pieces), reach, dark=page.is_dark())
        head_picture.show(figure, alt, room="one", key="obey_declared", on_pick=None)

    return _with_progress(("obey", files_key(name, folder), reading, number_type), make, show_declared)


def check_sample(sample: SampleModule, number_type: str) -> CheckReport:
    def make(show: "Progress") -> CheckReport:
        from mask_check.check import check  # imports transformers, which takes seconds

        module = sample.make().to(getattr(torch, number_type))
        return check(module, name=sample.name, seconds=SECONDS, progress=show)

    return _with_progress(("obey", sample.key, number_type), make)


def _with_progress(
    key: tuple[Hashable, ...], make: "Callable[[Progress], CheckReport]", meanwhile: Callable[[], None] = lambda: None
) -> CheckReport:
    """Return the report of this key, cached for all users. While it is made, show its progress, a button that ends it
    before its next forward pass, and below them what `meanwhile` draws."""
    report = results.result_cache().find(key)
    if report is not None:
        return report
    with stoppable(repr(key), say("Stopped. Run the check again")) as line:
        if line is None:
            st.stop()
        line.progress(0.0, say(LOADING))
        below = st.empty()
        with below.container():
            meanwhile()
        shown = 0.0

        def show(law: str, share: float) -> None:
            nonlocal shown
            if time.monotonic() - shown > BETWEEN:
                line.progress(share, say(law))  # Streamlit ends this run here if the user has requested another
                shown = time.monotonic()

        try:
            return results.result_cache().get(key, lambda: make(show), lambda: show(WAITING, 0.0))
        finally:
            below.empty()


def show(report: CheckReport, notes: str) -> None:
    """Draw a report. notes: Markdown, below the sentence."""
    length, mask = token_count(report.length), report.mask
    template = N_("assumed: {mask}") if report.assumed else N_("declared: {mask}")
    declared = say(template, mask=report.declared)
    facts = listed([report.name, say(report.kind), report.dtype, report.kernel, length, declared], " · ")
    st.markdown(page.heading(say("Mask check"), escaped(facts)))
    st.html(sentence(report))
    for law, template in report.limits:
        if law == LAWS[DECISIVE]:  # the note that outputs other than logits are compared
            st.markdown(say(template))
    if notes:
        st.markdown(notes)
    leaks = 0 if mask is None else int(mask.leaks.sum())
    alt = say_count(
        "Measured and declared mask of {name}, {length} by {length}; {count} pair leaks.",
        "Measured and declared mask of {name}, {length} by {length}; {count} pairs leak.",
        leaks, name=report.name, length=report.length,
    )  # fmt: skip
    figure = mask_figure(report, dark=page.is_dark())
    head_picture.show(figure, alt, room="two", key="obey_figure", on_pick=None)
    marks = [] if mask is None or mask.declared.all() else [say("hatched: declared blocked")]
    if mask is not None and mask.leaks.any():
        marks.append(f'<span style="color:{MARK}">×</span> ' + say("leak: declared blocked, effect measured"))
    if mask is not None and mask.silent.any():
        marks.append(f'<span style="color:{MARK}">○</span> ' + say("declared open, no effect measured"))
    note = page.note(" · ".join(marks)) if marks else ""
    if key := f"{note}{named_pairs(report)}":  # an f-string: + would escape the note
        st.html(key)
    st.html(laws_table(report))
    noise = {"rows": amount_text(report.noise.beside), "runs": amount_text(report.noise.across)}
    template = N_(
        "Most: the largest violation, in the outputs' units (for gradients, in their own). Tolerated: the largest "
        "rounding error allowed, {rows} between rows of one run and {runs} between runs of other shapes. "
        "Seed {seed}, {forwards} forward passes, {seconds:.1f} s."
    )
    st.caption(say(template, **noise, seed=report.seed, forwards=report.forwards, seconds=report.seconds))
    with st.expander(say("How it is measured")):
        st.markdown(say(HOW))
