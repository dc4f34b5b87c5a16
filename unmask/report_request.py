"""`unmask report` and `unmask page`: command-line arguments as a run or a page, and the link to a view in the app."""

import argparse
import json
from collections.abc import Sequence
from urllib.parse import urlencode

import torch

from i18n import LANGUAGES, spoken, together
from model import catalog
from model.blocks import positions_under
from model.errors import NotAvailable
from model.gpt2 import browser_model
from model.masks import NATIVE
from model.spec import OFF, MaskSpec
from model.text import truncation_message
from unmask.masks import spec_of
from unmask.notebook import load
from unmask.pictures import Picture
from unmask.runs import Run
from unmask.sources import pairs_of
from viz.export.words import versions
from viz.heads.cells import MAX_CELLS, merged_words
from viz.saved.explorer import MAX_TOKENS, ReportNumbers, ReportView, report_page
from viz.saved.live import MAX_CHARACTERS, live_page

APP = "http://127.0.0.1:8501/"  # where `unmask` serves it
LONGEST_LINK = 8_000  # characters, as ui/link.py has it


def report(run: Run, heads: Sequence[tuple[int, int]] = (), *, link: str = "") -> Picture:
    """Show all heads of a run, masks, numbers and text in one file of at most 8 MB. heads: (layer, head) of those to
    select first. link: to the same view in a running app. Raises ValueError for a head that does not exist."""
    if not isinstance(run, Run):
        raise ValueError(f"expected a run, as unmask.load(…).run(text) gives, got {type(run).__name__}")
    if not isinstance(link, str):
        raise ValueError(f"expected a link as a text, got {link!r:.80}")
    pairs = pairs_of(heads)
    for layer, head in pairs:
        run.shown_view(layer, head)
    chosen = [(int(layer), int(head)) for layer, head in pairs] or [run.first_head()]

    standard, found = _standard(run), run.model.describe()  # now, because a network in memory may be trained later
    now, then = _numbers(run), _numbers(standard) if standard else None

    def html() -> str:
        masks, trained = (
            "; ".join(f"{', '.join(names) or 'none'}{where}" for where, names in one.masks_by_scope.items())
            for one in (run, standard or run)
        )
        view = ReportView(
            model=run.model.name,
            network=f"{found.architecture}, {found.kind}",
            attention=run.trace.name,
            tokens=int(run.trace.queries.keep[run.row].sum()),
            masks=masks if masks == trained else f"{masks}; it was trained with {trained}",
            spec="" if run.masks == run.model.standard else run.masks.to_json(),
            versions=versions(),
            text=run.text if run.trace.batch.texts or run.trace.batch.source else "".join(run.labels),
            cut=together(filter(None, [truncation_message(run.cut, run.model.context), merged_words(run.by)])),
            labels=run.trace.batch.pieces[run.row],
            heads=run.all_heads(chosen, MAX_CELLS, MAX_TOKENS),
            now=now,
            standard=then,
            link=link,
            pictures=run.pictures(chosen),
        )
        return report_page(view)

    numbers = run.survey.thumbnails
    return Picture(f"{run!r}: report", run, numbers, html, axes=run.axes_of(numbers))


def _standard(run: Run) -> Run | None:
    """Run the same text under the masks of the model's training; None if they allow the same cells at the same
    positions."""
    if run.masks == run.model.standard:
        return None
    run._expect_same_weights()  # else a difference of weights would be attributed to the masks
    standard, heads = run.under(run.model.standard), run.masks.heads or (0,)
    batches, row = [batch for batch in (run.trace.batch.source, run.trace.batch) if batch], run.row
    ours, theirs = (
        [positions_under(one.masks, batch)[row, batch.keep[row]] for batch in batches] for one in (run, standard)
    )
    same = all(map(torch.equal, ours, theirs)) and all(
        one.allowed(layer, row, head=head).equal(other.allowed(layer, row, head=head))
        for one, other in ((run.trace.select(name), standard.trace.select(name)) for name in run.trace.attentions)
        for layer in range(one.num_layers)
        for head in heads
        if head < one.num_heads
    )
    return None if same else standard


def _numbers(run: Run) -> ReportNumbers:
    shares = run.survey.future, run.survey.padding
    if not run.predicts:
        return ReportNumbers(*shares)
    run = run.attention(run.trace.attentions[-1])  # an encoder's has no predictions
    return ReportNumbers(*shares, run.next_token().candidates, run.losses)


def run_of(args: argparse.Namespace) -> tuple[Run, list[tuple[int, int]]]:
    """Return the run, and the heads to select first. Raises ValueError and OSError with a sentence."""
    check_on_this_machine(args.model, args.download)
    heads, loaded = [head_of(head) for head in args.head], load(args.model)
    masks = masks_of(args.masks)
    return loaded.run(args.text, masks=masks, target=args.target, image=args.image).merged(args.by), heads


def live_page_of(args: argparse.Namespace, text: str) -> str:
    """Return the page that contains the model. Raises ValueError and OSError with a sentence."""
    if args.lang not in LANGUAGES:
        raise ValueError(f"expected a language out of {', '.join(LANGUAGES)}, got {args.lang!r}")
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"expected a text of at most {MAX_CHARACTERS:,} characters, got {len(text):,}")
    check_on_this_machine(args.model, args.download)
    loaded = load(args.model)
    spec = spec_of(loaded.model.standard, masks_of(args.masks))
    if spec.layers or spec.heads or spec.positions != "counted":
        raise ValueError("expected masks for all layers, heads and counted positions: a page has no others")
    with spoken(args.lang):
        return live_page(browser_model(loaded.model, catalog.first_head(loaded.model)), text, spec)


def check_on_this_machine(name: str, download: bool) -> None:
    """Check that a model is on this machine. Raises NotAvailable if not, unless `download` is set."""
    size = 0 if download else catalog.download_size(name)
    if size:
        why = "is not on this machine, and nothing is downloaded unasked"
        raise NotAvailable(f"{name} {why}: {size / 1e6:,.0f} MB; --download fetches them")


def masks_of(text: str | None) -> dict | None:
    """Parse the fields of a MaskSpec: "causal,padding" turns these on and others off; "none" turns all off; JSON sets
    some fields, with the others as in training."""
    if text is None:
        return None
    if text.lstrip().startswith("{"):
        MaskSpec.from_json(text)  # raises for anything else
        fields: dict = json.loads(text)
        return fields
    names = [] if text.strip() == "none" else [name.strip() for name in text.split(",")]
    if not set(names) <= {*NATIVE}:
        kinds = f'{", ".join(NATIVE)}, none alone, or JSON such as {{"sliding": 4}}'
        raise ValueError(f"expected masks out of {kinds}, got {text!r:.80}")
    return json.loads(OFF.to_json()) | dict.fromkeys(names, True)


def head_of(text: str) -> tuple[int, int]:
    """Parse a head: "4,0" is layer 4, head 0."""
    try:
        layer, head = map(int, text.split(","))
    except ValueError:
        raise ValueError(f"expected a head as L,H, 4,0 for example, got {text!r}") from None
    return layer, head


def link_to(run: Run, head: tuple[int, int]) -> str:
    """Return the link to the app on this machine, with the text; "" if no link that ui/link.py reads can hold it."""
    plain = {name: getattr(run.masks, name) for name in NATIVE}
    spec = {name: value for name, value in plain.items() if value != getattr(run.model.standard, name)}
    same = json.loads(run.masks.to_json()) == json.loads(run.model.standard.to_json()) | plain
    if not same or run.trace.batch.source or run.pictures([]):
        return ""
    where = {"model": run.model.name, "layer": head[0], "head": head[1]}
    masks = {name: str(on).lower() for name, on in spec.items()} | ({} if run.by == "tokens" else {"by": run.by})
    try:
        link = APP + "?" + urlencode({**where, **masks, "text": run.text + run.cut})
    except UnicodeEncodeError:  # half a character, which no URL can contain
        return ""
    return link if len(link) <= LONGEST_LINK else ""
