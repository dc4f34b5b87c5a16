"""`unmask report`: what was asked for on the command line, as a run; and the link to the same view in the app."""

import argparse
import json
from urllib.parse import urlencode

from model import catalog
from model.errors import NotAvailable
from model.masks import NATIVE
from model.spec import OFF, MaskSpec
from unmask.notebook import LoadedModel, load
from unmask.runs import Run

APP = "http://127.0.0.1:8501/"  # where `unmask` serves it
LONGEST_LINK = 8_000  # characters, as ui/link.py has it


def run_of(asked: argparse.Namespace) -> tuple[Run, list[tuple[int, int]]]:
    """The run, and the heads to choose first. Raises ValueError and OSError with a sentence."""
    size = 0 if asked.download else catalog.download_size(asked.model)
    if size:
        raise NotAvailable(f"{asked.model} is not on this machine, and nothing is downloaded unasked: "
                           f"{size / 1e6:,.0f} MB; --download fetches them")  # fmt: skip
    heads = [head_of(said) for said in asked.head]
    loaded = load(asked.model)
    return loaded.run(asked.text, masks=masks_of(asked.masks, loaded), target=asked.target), heads


def masks_of(said: str | None, loaded: LoadedModel) -> MaskSpec | dict | None:
    """ "causal,padding": these are on, those that a model may have besides are off; "none"; a MaskSpec's JSON."""
    if said is None:
        return None
    if said.lstrip().startswith("{"):
        return MaskSpec.from_json(said)
    names = [] if said.strip() == "none" else [name.strip() for name in said.split(",")]
    wrong = [name for name in names if name not in NATIVE]
    if wrong:
        raise ValueError(f"expected masks out of {', '.join(NATIVE)}, none, or JSON, got {wrong[0]!r}")
    return json.loads(OFF.to_json()) | dict.fromkeys(names, True)


def head_of(said: str) -> tuple[int, int]:
    """ "4,0" is layer 4, head 0."""
    try:
        layer, head = map(int, said.split(","))
    except ValueError:
        raise ValueError(f"expected a head as L,H, 4,0 for example, got {said!r}") from None
    return layer, head


def link_to(run: Run, head: tuple[int, int]) -> str:
    """To the app on this machine, with the text; "" where no link can say it, as ui/link.py reads them."""
    plain = {name: getattr(run.masks, name) for name in NATIVE}
    spec = {name: value for name, value in plain.items() if value != getattr(run.model.standard, name)}
    if json.loads(run.masks.to_json()) != json.loads(run.model.standard.to_json()) | plain or run.trace.batch.source:
        return ""
    where = {"model": run.model.name, "layer": head[0], "head": head[1]}
    masks = {name: str(on).lower() for name, on in spec.items()}
    try:
        link = APP + "?" + urlencode({**where, **masks, "text": run.text + run.cut})
    except UnicodeEncodeError:  # half a character, which no address can hold
        return ""
    return link if len(link) <= LONGEST_LINK else ""
