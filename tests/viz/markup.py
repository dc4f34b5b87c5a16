"""Readers of HTML as text."""

import html
import re


def plain(markup: str) -> str:
    """Return the text without its tags."""
    return html.unescape(re.sub("<.*?>", "", markup))


def cells_of(table: str) -> list[list[str]]:
    """Return the cells of each row, without header rows."""
    rows = [re.findall(r"<td.*?>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", table)]
    return [[plain(cell) for cell in row] for row in rows if any(row)]  # an empty header is a td
