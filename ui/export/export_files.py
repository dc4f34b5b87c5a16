"""The page's parts: the numbers, the report, and an export opened again."""

from collections.abc import Callable

import streamlit as st

from i18n import N_, say, together
from model.heads.view import HeadView
from ui import explain, link, page
from ui.export.subject import ExportSubject
from ui.guard import problem_in
from ui.markdown import escaped
from ui.widgets import deferred, download, one_of, uploaded, uploader
from viz.export import data
from viz.export.data import Export
from viz.head import head_figure
from viz.mask_styles import mask_name

OPENED = "opened_export"
Write = Callable[[Export], bytes | str]
KINDS: tuple[tuple[str, str, Write, str], ...] = (
    ("NPZ", "npz", data.as_npz, N_("numpy.load: weights, scores, one array for each mask, and about.json.")),
    ("safetensors", "safetensors", data.as_safetensors, N_("The same arrays; about.json is in the file's metadata.")),
    ("CSV", "csv", data.as_csv, N_("One line per cell: weight, scaled score and what blocks it.")),
    ("JSON", "json", data.as_json, N_("Metadata: model, masks, tokens, hash of the text, versions.")),
)
SECTIONS = (N_("Picture"), N_("Numbers"), N_("Report"), N_("Open an export"))


def choose() -> str:
    if st.session_state.get("section") not in SECTIONS:  # the Mask Lab's sections have the same name in a link
        st.session_state.section = SECTIONS[0]
    return one_of(say("Export"), dict(zip(SECTIONS, SECTIONS, strict=True)), "section", label_visibility="collapsed")


def numbers(subject: ExportSubject) -> None:
    view, every = subject.views()[0], subject.every()
    kinds = KINDS if data.fits(view) else KINDS[-1:]
    _files(subject, [subject.chosen], kinds, "take", "{kind}", subject.file_name("head"))
    if every:
        _files(subject, every, KINDS[:2], "take_all", N_("All heads, {kind}"), subject.file_name("all-heads"))
    if limits := _limits(view, len(every)):
        st.caption(together(limits))


def _limits(view: HeadView, every: int) -> list[str]:
    """A sentence for each thing that is not offered, or that cannot be opened again. every: of how many heads there is
    a file too, 0 for none."""
    said, most = [], data.MOST_BYTES / 2**20
    if not every:
        one = say("one head of this text") if not data.fits(view) else say("all heads of this text together")
        said.append(say("More than the file limit of {most:.0f} MB: {what}.", most=most, what=one))
    largest = data.size_of(view, every or 1)
    if largest > most_opened() and data.fits(view):
        words = N_(
            "Files of up to {most:.0f} MB can be opened again here; these numbers take up to {size:.0f} MB, less as "
            "NPZ."
        )
        said.append(say(words, most=most_opened() / 2**20, size=largest / 2**20))
    return said


def most_opened() -> int:
    """The bytes of a file that this server takes from a user."""
    return min(data.MOST_BYTES, st.get_option("server.maxUploadSize") * 2**20)


def _files(subject: ExportSubject, which: list[tuple[int, int]], kinds: tuple, key: str, words: str, name: str) -> None:
    def file(write: Write) -> Callable[[], bytes | str]:
        return lambda: write(subject.export(which))

    with st.container(horizontal=True):
        for kind, ending, write, help_text in kinds:
            label, key_of_file = say(words, kind=kind), f"{key}_{ending}"
            download(label, file(write), f"{name}.{ending}", key=key_of_file, help=say(help_text))


def report(make: Callable[[], str]) -> None:
    about = say(
        "One HTML file that opens offline with a double click: all heads, the chosen one enlarged, masks, predictions, "
        "losses and **the text itself**. At most 8 MB; the file says so if heads are left out."
    )
    st.markdown(about)
    download(say("Report"), deferred(make), "unmask-report.html", "text/html", key="take_report")


def link_to_explore() -> str:
    address, _, choices = link.View.of_choices(masks=None, text=None).address().partition("?")
    return f"{address.removesuffix('export')}?{choices}"


def opened() -> None:
    """An uploader, and what the file holds: the same head, without its model."""

    def taken() -> None:
        file = uploaded("take_export")
        if file is None:
            st.session_state[OPENED] = None
            return
        try:
            st.session_state[OPENED] = data.read(file.getvalue())
        except ValueError as error:
            problem, words = escaped(problem_in(error) or ""), N_("{file} was not opened: {problem}.")
            st.session_state[OPENED] = say(words, file=escaped(file.name), problem=problem)

    label, most = say("An NPZ or safetensors file saved by this page"), most_opened() // 2**20
    uploader(label, ["npz", "safetensors"], key="take_export", on_change=taken, max_upload_size=most)
    found = st.session_state.get(OPENED)
    if isinstance(found, str):
        st.error(found, icon=":material/error:")
    elif found is not None:
        _show(found)


def _show(export: Export) -> None:
    about = export.about
    names = {head: about.name(*head) for head in export.heads}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        first, name = list(names).index((about.layer, about.head)), names.__getitem__
        chosen = st.selectbox(say("Head"), list(names), first, name, "opened_head", width=140)
        shown = export.heads[chosen]
        blocks = say(", ").join(mask_name(name) for name, mask in shown.blocked.items() if mask.any())
        size = "{} × {}".format(*shown.weights.shape)
        facts = {"model": escaped(about.model), "size": size, "masks": blocks or say("no mask")}
        st.markdown(say("{model} · {size} cells · blocked by: {masks}", **facts))
    figure, alt = head_figure(shown, dark=page.is_dark()), explain.head_alt(names[chosen], shown, False)
    with st.container(key="one_opened"):
        page.chart(figure, "opened_figure", alt)
