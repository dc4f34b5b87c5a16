"""Self-contained HTML pages, which need no server, no network and no other files.

Only our scripts can run: the page's Content-Security-Policy lists their hashes and allows no requests.
"""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from i18n import language
from viz.components import VIEWS, source, style
from viz.html import join, tag

POLICY = (
    "default-src 'none'; script-src {}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
)
PAGE = Markup("""<!doctype html>
<html lang="{}"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{}">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{}</title>{}<style>{}</style></head>
<body>{}
{}</body></html>
""")
FRAME = 'width="100%" height="{}" style="border:0" title="{}" srcdoc="{}"'


@dataclass(frozen=True, eq=False)
class Canvas:
    """A view to draw: its name in VIEWS, and its packet."""

    view: str
    packet: bytes


def page(title: str, parts: Iterable[Canvas | str]) -> str:
    """Return an HTML document of the parts, one below the other. Strings are escaped unless they are Markup."""
    body, views = [], []
    for number, part in enumerate(parts):
        if isinstance(part, Canvas):
            name = f"packet{number}"
            element = tag("div", class_=f"view {part.view}", data_view=part.view, data_packet=name)
            body += [element, inlined(name, part.packet)]
            views.append(part.view)
        else:
            body.append(escape(part))
    return document(title, join(body), views)


def document(
    title: str,
    body: Markup,
    views: Sequence[str],
    *,
    script: Sequence[str] = ("page.js",),
    styles: Sequence[str] = (),
    code: str = "",
    sources: str = "",
    head: str = "",
) -> str:
    """Return an HTML document: the body, a module for each view in it, and last the script that draws the views.

    script, styles: files of components/ for the script, and styles besides the views'. code: JavaScript before the
    script. sources: further directives of the page's policy. head: HTML for its head.
    """
    used = list(dict.fromkeys(views))
    modules = [f"{source(*VIEWS[view])}\n(globalThis.canvases ??= {{}}).{view} = draw;\n" for view in used]
    modules.append(code + source(*script))
    policy = "; ".join(filter(None, (POLICY.format(" ".join(map(_hash, modules))), sources)))
    css = "\n".join((source("page.css"), style(*used), source(*styles)))
    scripts = join(Markup('<script type="module">{}</script>').format(Markup(module)) for module in modules)
    return str(PAGE.format(language(), policy, title, Markup(head), Markup(css), body, scripts))


def inlined(name: str, packet: bytes) -> Markup:
    """Return bytes as a data block of a page, which components/page.js reads."""
    return tag("script", base64.b64encode(packet).decode(), type="text/plain", id=name)


def frame(html: str, title: str, height: int) -> str:
    """Return an iframe of a document for a notebook. height: in pixels, until the document's script has measured it."""
    return f"<iframe {FRAME.format(height, escape(title), escape(html))}></iframe>"


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
