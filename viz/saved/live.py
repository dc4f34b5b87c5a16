"""Standalone pages that contain a model and run it in the browser: text and masks can be changed without a server."""

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from i18n import N_, say
from model.heads.view import HeadView, MaskView
from model.mask_kinds import KINDS, Kind, Names
from model.spec import LONGEST_SEPARATOR, MAX_POSITIONS, MAX_STROKES, MaskSpec
from viz.components import packed, source, words
from viz.hatch import LINES, ink
from viz.heads.cells import difference_packet, picture_packet
from viz.heads.overview import TITLES, overview_packet
from viz.heads.tokens import arcs_packet, tokens_packet
from viz.html import SIGNS, join, tag
from viz.mask_lab.canvas import ALT, canvas_packet
from viz.mask_styles import STYLES
from viz.numbers import head_count, layer_count
from viz.palette import NOW, STANDARD
from viz.saved.explorer import WEIGHTS, WORST
from viz.saved.standalone import document, inlined
from viz.sentence import LAYER_ONLY, SCOPES

if TYPE_CHECKING:
    from model.gpt2 import BrowserModel

MODULES = ("packet.js", "page.js", "gpt2.js", "bpe.js", "mask_rules.js", "live_model.js", "live_views.js", "live.js")
FIRST_TEXT = "The little cat saw the big dog, and the little cat saw the big dog"  # not shown so
MAX_CHARACTERS, MAX_ROWS = 100_000, 16
SIDES = {"left": N_("left"), "right": N_("right")}
BROWSER_KINDS = {
    name: kind for name, kind in KINDS.items() if not kind.sized
}  # sized by the model, which GPT-2 does not do


def live_page(
    model: "BrowserModel",
    text: str,
    masks: MaskSpec,
    *,
    row: int = 0,
    query: int | None = None,
    side: str = "left",
    scope: str = "model",
) -> str:
    """Return the page as one HTML file. All arguments but model set its initial state. masks: their layers and heads
    are ignored. row: counts the text's lines that are not blank. query: a position in the row, None for its last real
    token. side, scope: one of SIDES, one of SCOPES."""
    about = live_words() | {"model": header(model), "head": model.first_head, "masks": written(masks)}
    about |= {"row": row, "query": query}
    config = model.config
    sizes = {"layers": layer_count(config["layers"]), "heads": head_count(config["heads"]), "model": model.name}
    words = say("{model}: {layers} × {heads}. The model runs in this page: nothing you type leaves it.", **sizes)
    body = (tag("h1", "Unmask"), tag("p", words, class_="note"), *live_body(text, masks, side, scope))
    parameters = inlined("parameters", model.parameters)
    return live_document(f"Unmask: {model.name}", join((tag("main", join(body)), parameters)), about)  # not shown


def header(model: "BrowserModel") -> dict[str, Any]:
    """Return the data of a model, besides its parameters, that components/live_model.js needs."""
    about = {"name": model.name, "config": model.config, "tokenizer": model.tokenizer, "labels": model.labels}
    return about | {"standard": written(model.standard)}


def written(masks: MaskSpec) -> dict[str, Any]:
    """Return masks in the form that components/mask_rules.js reads."""
    return {name: getattr(masks, name) for name in BROWSER_KINDS} | {"drawn": [astuple(one) for one in masks.drawn]}


def live_words() -> dict[str, Any]:
    """Return the words, in the user's language, and the settings for components/live.js."""
    return {
        "words": words("live") | {"alt": say(ALT), "layer_only": say(LAYER_ONLY)},
        "signs": {sign: say(meaning) for sign, meaning in SIGNS.items()},
        "clauses": [say("{clauses}."), say("; ")],
        "names": {name: say(style.name) for name, style in STYLES.items()} | {"unnamed": say("a mask")},
        "colours": {name: style.colour for name, style in STYLES.items()},
        "inks": {name: ink(name) for name in LINES} | {"unnamed": ink("drawn")},
        "series": [NOW, STANDARD],
        "worst": WORST,
        "mostRows": MAX_ROWS,
    }


def live_document(
    title: str,
    body: Markup,
    about: dict[str, Any],
    *,
    script: Sequence[str] = (),
    styles: Sequence[str] = (),
    **how: Any,
) -> str:
    """Return an HTML document around a body with `live_body`. about: for components/live.js. Others: see `document`."""
    blocks = [
        inlined("about", packed(about)),
        *(inlined(f"of_{view}", packet) for view, packet in _templates().items()),
    ]
    worker = tag("script", Markup(source("gpt2.js", "gpt2_worker.js")), type="text/plain", id="worker")
    views = ("overview", "heatmap", "tokens", "arcs", "mask")
    how = {"sources": "worker-src blob:", "code": kinds_script()} | how  # not shown
    styles = ("explorer.css", "report.css", "live.css", *styles)
    return document(title, join((body, *blocks, worker)), views, script=(*MODULES, *script), styles=styles, **how)


def kinds_script() -> str:
    """Return a script that defines MASK_KINDS for components/mask_rules.js: each kind's parameter, and its condition as
    a JavaScript function: whether it leaves a cell allowed, or opens it. Token indices are -1 at padding."""
    names = Names(True, "token[q_idx]", "token[k_idx]", "Math.abs(q_idx - k_idx)")
    kinds = "const MASK_KINDS = [\n"
    for name, kind in BROWSER_KINDS.items():
        about = {field: getattr(kind, field) for field in ("first", "least", "off", "opens", "joins", "splits")}
        rule = ast.unparse(_JavaScript().visit(ast.parse(kind.code(names, "size"), mode="eval")))
        about |= {"name": name, "standard": kind.own or kind.off}
        kinds += f"{{ ...{json.dumps(about)}, rule: (q_idx, k_idx, size, {{ token, keep, document }}) => {rule} }},\n"
    return f"{kinds}];\n"


class _JavaScript(ast.NodeTransformer):
    """A transformer that replaces Python's // by Math.floor; all else in the conditions is valid JavaScript."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.FloorDiv):
            return node
        return ast.Call(ast.Name("Math.floor"), [ast.BinOp(node.left, ast.Div(), node.right)], [])


def _templates() -> dict[str, bytes]:
    """Return each view's packet for a text of one token, from which the page takes what does not depend on the text."""
    label, one = "0" * 20, np.ones((1, 1), np.float32)
    where: dict[str, Any] = {"query": 0, "among": (0, 1)}
    view = HeadView(one, one, {}, [label], [label])
    masks = MaskView({}, {}, np.zeros(1, int), (), [label])
    shares = dict.fromkeys(TITLES, one)
    return {
        "overview": overview_packet(one[None, None], one[None, None] == 0, layer=0, head=0, measures=shares),
        "heatmap": picture_packet(view, name="", query=0),
        "difference": difference_packet(view, name="", query=0),
        "tokens": tokens_packet(view, name="", **where),
        "arcs": arcs_packet([view], [""], first_token=0, **where),
        "mask": canvas_packet(masks, rows=(0, 1), columns=(0, 1), epoch=0, number=0, most=MAX_STROKES, query=0),
    }


def live_body(text: str, masks: MaskSpec, side: str = "left", scope: str = "model") -> Iterator[Markup]:
    """Yield the HTML of the controls and the pictures. text, masks, side, scope: the controls' initial values."""
    chosen = written(masks)
    yield tag("form", join(_controls(text, chosen, side, scope)), id="controls", autocomplete="off")
    yield tag("p", "", id="sentence", aria_live="polite")
    yield tag("div", join(_pictures(chosen)), class_="explorer")
    tokens = tag("div", tag("h2", "", id="after") + tag("table", "", class_="numbers next", id="next"))  # not shown
    losses = tag("div", tag("h2", say("Loss of each token, in nats")) + tag("div", "", id="losses"))
    leaks = tag("div", tag("h2", say("Leak")) + tag("table", "", class_="numbers", id="leak"))
    yield tag("div", join((tokens, losses, leaks)), class_="strip", id="numbers", hidden="")


def _choice(names: Mapping[str, str], chosen: str, name: str) -> Markup:
    """Return a select element. names: each value's label."""
    options = (
        tag("option", say(words), value=value, **({"selected": ""} if value == chosen else {}))
        for value, words in names.items()
    )
    return tag("select", join(options), id=name)


def _controls(text: str, masks: dict[str, Any], side: str, scope: str) -> Iterator[Markup]:
    area = tag("textarea", "\n" + text, id="text", rows=3, maxlength=MAX_CHARACTERS, spellcheck="false")
    yield tag("label", join((say("Text, one sequence per line"), area)), class_="wide")
    run = tag("button", say("Run"), type="submit")
    cancel = tag("button", say("Cancel"), type="button", id="cancel", disabled="")
    progress = tag("progress", "", id="progress", max=1, value=0, aria_label=say("Progress"))
    status = tag("span", say("Loading the model …"), id="status", role="status")
    row = tag("label", join((say("Row"), " ", tag("select", "", id="row"))), hidden="")
    sides = tag("label", join((say("Pad side"), " ", _choice(SIDES, side, "side"))), hidden="")
    yield tag("div", join((run, cancel, progress, status, row, sides)), class_="line")
    scopes = tag("label", join((say("When a mask is off:"), " ", _choice(SCOPES, scope, "scope"))))
    own = [_switch(name, kind, masks[name]) for name, kind in BROWSER_KINDS.items() if kind.own or kind.joins]
    reset = tag("button", say("Standard masks"), type="button", id="reset")
    switches = (tag("legend", say("Masks")), *own, scopes, reset)
    yield tag("fieldset", join(switches), class_="line")


def _switch(name: str, kind: Kind, value: Any) -> Markup:
    attributes: dict[str, Any] = {"data_mask": name, "title": say(STYLES[name].help)}
    if isinstance(kind.off, bool):
        attributes |= {"type": "checkbox"} | ({"checked": ""} if value else {})
    elif kind.splits:
        attributes |= {"type": "text", "size": 3, "value": value, "maxlength": LONGEST_SEPARATOR}
    else:
        attributes |= {"type": "number", "min": 0, "max": MAX_POSITIONS, "value": value}
    return tag("label", join((tag("input", **attributes), " ", say(STYLES[name].label))))


def _view(name: str, **attributes: str) -> Markup:
    return tag("div", "", class_=f"view {name}", **attributes)


def _more(masks: dict[str, Any]) -> Markup:
    others = [
        _switch(name, kind, masks[name]) for name, kind in BROWSER_KINDS.items() if not kind.own and not kind.joins
    ]
    on = (
        {"open": ""}
        if any(masks[name] for name, kind in BROWSER_KINDS.items() if not kind.own) or masks["drawn"]
        else {}
    )
    about = tag("p", say("0 or an empty field: off. Draw on the grid to block or open cells by hand."), class_="note")
    more = (tag("summary", say("More masks, and a grid to draw on")), about, tag("div", join(others), class_="line"))
    return tag("details", join((*more, _view("mask", data_part="mask"))), id="more", **on)


def _pictures(masks: dict[str, Any]) -> Iterator[Markup]:
    caption = tag("p", say(WEIGHTS.caption), class_="note")
    yield tag("div", join((caption, _view("overview", data_part="overview"), _more(masks))))
    heatmaps = [
        tag("figure", tag("figcaption", "") + _view("heatmap"), data_part=part)
        for part in ("now", "standard", "difference")
    ]
    names = {"tokens": say("Tokens"), "arcs": say("Arcs")}
    views = []
    for view, name in names.items():
        checked = {"checked": ""} if view == "tokens" else {}
        radio = tag("input", type="radio", name_="view", value=view, **checked)
        views.append(tag("label", join((radio, " ", name))))
    choice = tag("fieldset", join((tag("legend", say("View")), *views)), class_="line")
    below = (_view(view, data_part=view, hidden="") for view in names)
    signs = tag("p", "", id="signs", class_="note")
    right = (tag("h2", "", id="name"), tag("div", join(heatmaps), class_="pictures"), choice, *below, signs)
    yield tag("div", join(right))
