"""Small pieces of HTML, escaped where they hold what somebody typed."""

from collections.abc import Iterable

from markupsafe import Markup, escape

from viz.mask_styles import STYLES, mask_name


def escaped(label: str) -> str:
    """A text for plotly, which reads labels as a little HTML: it knows &lt;, &gt; and &amp; but no quotes' names."""
    return label.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def filled(sentence: str, **places: object) -> Markup:
    """A sentence that was said, with its {places} filled: both are escaped unless they are Markup."""
    return escape(sentence).format(**places)


def swatch(colour: str) -> Markup:
    """A small square of a colour of ours."""
    return Markup('<span class="swatch" style="background:{}"></span>').format(colour)


def named(mask: str) -> Markup:
    """A mask's name after its colour."""
    return swatch(STYLES[mask].colour) + mask_name(mask)


def tag(name: str, content: object = "", **attributes: object) -> Markup:
    """An element around its content, which is escaped unless it is Markup. class_ is the attribute class."""
    written = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items()
    )
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), written, escape(content))


def join(parts: Iterable[str], between: str = "") -> Markup:
    """The parts one after another, each escaped unless it is Markup."""
    return Markup(between).join(parts)


def bar(share: float, colour: str) -> Markup:
    """A share, 0 to 1, as a bar in its table cell."""
    return tag("div", class_="bar", style=f"width:{min(max(share, 0.0), 1.0) * 100:.1f}%;background:{colour}")


def table(rows: Iterable[Iterable[Markup]], classes: str = "numbers") -> Markup:
    """Rows of finished cells (tag("td", …)) as a table."""
    return tag("table", join(tag("tr", join(row)) for row in rows), class_=classes)
