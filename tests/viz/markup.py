"""HTML as it is read."""

import html
import re


def plain(markup: str) -> str:
    """Without its tags."""
    return html.unescape(re.sub("<.*?>", "", markup))


def cells_of(table: str) -> list[list[str]]:
    """The cells of each row, without rows of titles."""
    rows = [re.findall(r"<td.*?>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", table)]
    return [[plain(cell) for cell in row] for row in rows if any(row)]  # an empty title is a td
