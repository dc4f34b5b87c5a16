"""The page Obey: what is checked, the check itself, and the words around it."""

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Literal

import streamlit as st
import torch

from model import catalog
from model.base import Model, files_key
from model.bug_clinic.bugs import BUGS
from model.jobs.background import Background
from model.obey.check import Progress, check
from model.obey.findings import CannotCheck, Report
from model.obey.formats import amount_text
from model.obey.patients import Patient
from model.obey.ward import everyone
from model.settings import Settings
from ui import choices, controls, link, results
from ui.markdown import escaped
from viz.obey import MARK

ALL = everyone(BUGS)
WHATS = {"model": "A model", "patient": "A patient"}
TYPES = ("float32", "bfloat16")
MOST_TOKENS = 48  # of the text that is read
MOST_MEGABYTES = 600  # of weights: more would take minutes here
SECONDS = 90.0
WAITING = "Another reader has begun this very check …"
BETWEEN = 0.1  # seconds from one look at the progress to the next
HOW = """
Every token in turn is replaced by several others, and the change of every output is measured, in the module's own
forward with its own kernels. What counts as no change is measured too: the same run twice, the row beside other rows,
and one more rounding in every part of the module (Monte Carlo arithmetic, Parker 1997); twice the largest of them.
A token whose change arrives nowhere proves nothing, so each must be seen to arrive somewhere; else the verdict is
*cannot tell*. Gradients ask the same without a substitute: behind a mask they are exactly 0.

The other laws compare two ways to the same number: a row alone and in a padded batch, packed documents and each alone,
step by step through the cache and all at once, one attention kernel and another, training mode without dropout and
eval mode.
"""


@dataclass(frozen=True)
class Reading:
    """What a model reads: ids, and a label for each."""

    ids: tuple[int, ...]
    pieces: tuple[str, ...]
    cut: bool


class PatientLink(link.Link):
    """This page's link where no model is looked at. patient: the small module that is checked instead."""

    what: Literal[*WHATS] = "model"  # type: ignore[valid-type]
    patient: Literal[*ALL] = "future"  # type: ignore[valid-type]
    number_type: Literal[*TYPES] = TYPES[0]  # type: ignore[valid-type]


class ObeyLink(PatientLink, link.TextLink):
    """The same where a model reads a text."""


def restore() -> None:
    """Put the page's own choices where their widgets find them."""
    choices.restore("kept_obey", _first)


def _first() -> dict[str, Any]:
    linked = ObeyLink.read()
    return {name: getattr(linked, name) for name in ("what", "patient", "number_type")}


def share_patient() -> None:
    """Keep the URL true to the page, and offer links, where no model is looked at."""
    with st.sidebar:
        link.share(PatientLink.of_choices())


def share(model: Model) -> None:
    """The same where one is."""
    controls.share(ObeyLink, model)


def choose_what() -> str:
    """A model, or a patient."""
    st.segmented_control("Check", list(WHATS), format_func=WHATS.__getitem__, key="what", required=True)
    return st.session_state.what


def choose_patient() -> Patient:
    """One of the small modules."""
    st.selectbox("Patient", list(ALL), format_func=lambda key: ALL[key].title, key="patient")
    return ALL[st.session_state.patient]


def choose_type() -> str:
    """The number type that it is computed in."""
    st.selectbox("Number type", TYPES, key="number_type")
    return st.session_state.number_type


def read(model: Model, text: str) -> Reading:
    """The first line of a text. Raises ValueError for one that the model has no tokens for."""
    line = next(line for line in text.splitlines() if line.strip())
    batch = model.encode([line], "right", [line] if model.kind == "encoder-decoder" else None)
    many = int(batch.keep[0].sum())
    if many < 2:
        raise CannotCheck("a check needs a text of two tokens at least")
    kept = min(many, MOST_TOKENS)
    return Reading(tuple(batch.ids[0, :kept].tolist()), tuple(batch.pieces[0][:kept]), many > kept)


def of_model(name: str, reading: Reading, number_type: str) -> Report:
    """The check of a model as transformers runs it. Raises what loading and checking raise."""
    from model.huggingface import checkpoint_files  # seconds to import, which a patient does without
    from model.obey.checkpoint import check_checkpoint

    folder = catalog.fetch(name, None, Settings.from_environment())
    files = checkpoint_files.local_files(folder)
    size = sum(files[file] for file in checkpoint_files.weight_files(name, files)) / 1e6
    if size > MOST_MEGABYTES:
        raise CannotCheck(
            f"{name} has {size:,.0f} MB of weights, more than is checked here: run python -m unmask check {name}"
        )

    def make(show: Progress) -> Report:
        given = (name, folder, reading.ids, reading.pieces, number_type, SECONDS)
        going = Background(check_checkpoint, *given)  # a network of its own, and a process: no page waits for it
        return going.finish(lambda now: show(*(now.reports[-1] if now.reports else ("Loading …", 0.0))))

    return _with_progress(("obey", files_key(name, folder), reading, number_type), make)


def of_patient(patient: Patient, number_type: str) -> Report:
    """The check of a patient on random ids."""

    def make(show: Progress) -> Report:
        module = patient.make().to(getattr(torch, number_type))
        return check(module, name=patient.title, seconds=SECONDS, progress=show)

    return _with_progress(("obey", patient.key, number_type), make)


def _with_progress(key: tuple[Hashable, ...], make: Callable[[Progress], Report]) -> Report:
    """The report of this key. While it is made: how far it is, and a button that ends it before its next forward."""
    kept = results.shared().find(key)
    if kept is not None:
        return kept
    place, name = st.empty(), repr(key)
    if st.session_state.get("obey_stopped") == name:
        place.button("Stopped. Check it after all", on_click=_stop, args=("",), icon=":material/play_arrow:")
        st.stop()
    with place.container(horizontal=True, vertical_alignment="center"):
        bar = st.progress(0.0, "Loading …")
        st.button("Stop", on_click=_stop, args=(name,), icon=":material/stop:", key="stop_checking")
    shown = 0.0

    def show(law: str, share: float) -> None:
        nonlocal shown
        if time.monotonic() - shown > BETWEEN:
            bar.progress(share, law)  # where Streamlit leaves this run if the reader has asked for another
            shown = time.monotonic()

    try:
        return results.shared().get(key, lambda: make(show), lambda: show(WAITING, 0.0))
    finally:
        place.empty()


def _stop(name: str) -> None:
    st.session_state.obey_stopped = name


def of_what(patient: Patient) -> str:
    """Markdown: what a patient is, and which law should name it."""
    where = f" Seen in {escaped(patient.reported)}." if patient.reported else ""
    return f"{escaped(patient.words)}{where}"


def size(report: Report) -> str:
    """The line beside the title."""
    return escaped(
        f"{report.name} · {report.kind} · {report.dtype} · {report.kernel} · {report.length} tokens · "
        f"declared: {report.declared}"
    )


def key(report: Report) -> str:
    """HTML: what the marks mean, those that are in the picture."""
    mask = report.mask
    parts = ["hatched: declared closed"]
    if mask is not None and mask.leaks.any():
        parts.append(f'<span style="color:{MARK}">×</span> reaches, though declared closed')
    if mask is not None and mask.silent.any():
        parts.append(f'<span style="color:{MARK}">○</span> declared open, not seen to reach')
    return f'<p class="key">{" · ".join(parts)}</p>'


def numbers(report: Report) -> str:
    """The caption under the table."""
    rows, runs = amount_text(report.noise.beside), amount_text(report.noise.across)
    return (
        "Most: the largest violation, in logits (of gradients, in their own units). Tolerated: what rounding may come "
        f"to, {rows} between rows of one run and {runs} between runs of other shapes. Seed {report.seed}, "
        f"{report.forwards} forwards, {report.seconds:.1f} s."
    )


def alt(report: Report) -> str:
    """The picture in words."""
    mask = report.mask
    leaks = 0 if mask is None else int(mask.leaks.sum())
    return f"Measured and declared mask of {report.name}, {report.length} by {report.length}; {leaks} pairs leak."
