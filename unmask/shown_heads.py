"""Heads of one layer, and the part of them that a picture has room for."""

from dataclasses import dataclass
from typing import Any

from model.heads.view import HeadView, cropped
from viz.heads.cells import around
from viz.heads.tokens import left_out


@dataclass(frozen=True, eq=False)
class ShownHeads:
    """names, views: of each head. query: the position whose row is framed. most: tokens of each side that are shown.

    across: the keys are another text.
    """

    names: list[str]
    views: list[HeadView]
    query: int
    most: int
    across: bool = False

    @property
    def name(self) -> str:
        return ", ".join(self.names)

    @property
    def parts(self) -> list[HeadView]:
        """Of each head what is shown: the query and the tokens around it."""
        return [around(view, (0, len(view.queries)), self.query, self.most) for view in self.views]

    @property
    def part(self) -> HeadView:
        return self.parts[0]

    @property
    def left_out(self) -> str:
        """Which tokens the picture has no room for, in a sentence; "" for none."""
        return left_out(self.views[0], self.part, self.query)

    @property
    def where(self) -> dict[str, Any]:
        """Of a packet: the query, the positions of the queries that are shown, whether the keys are another text."""
        among = self.part.first, self.part.first + len(self.part.queries)
        return {"query": self.query, "among": among, "across": self.across}

    @property
    def row(self) -> HeadView:
        """Of the first head the query's row, of the keys that are shown."""
        first, count = self.part.first_key, len(self.part.keys)
        return cropped(self.views[0], (self.query, self.query + 1), (first, first + count))
