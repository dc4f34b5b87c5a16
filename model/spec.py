"""MaskSpec: which masks are requested, in which layers and heads, at which positions. Plain data, strictly typed."""

import json
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, make_dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from i18n import N_, msg
from model.errors import last_of
from model.mask_kinds import KINDS

MAX_POSITIONS = 1_000_000  # more than any text here has
MAX_STROKES = 20_000  # most strokes of a drawing
MAX_IN_SCOPE = 1_000  # most layers, or heads
LONGEST_SEPARATOR = 40  # most characters of a separator
MAX_BYTES = 1_000_000  # most bytes of JSON

StrokeKind = Literal["block", "open", "erase"]
POSITIONS = ("counted", "cells", *(name for name, kind in KINDS.items() if kind.splits))


@dataclass(frozen=True)
class Stroke:
    """A hand-drawn rectangle, first and last query and key inclusive, in positions that count a row's real tokens.
    "block" blocks its cells, "open" opens them whatever blocks them, "erase" leaves them to the other masks."""

    kind: StrokeKind
    query: int
    key: int
    last_query: int
    last_key: int

    def __post_init__(self) -> None:
        _expect(self.kind in get_args(StrokeKind), N_("a stroke"), N_("block, open or erase"), self.kind)
        for first, last in ((self.query, self.last_query), (self.key, self.last_key)):
            _expect(_is_count(first) and _is_count(last) and first <= last, N_("a stroke"),
                    N_("a first and a last position from 0 to {most}"), (first, last), MAX_POSITIONS)  # fmt: skip


Setting = bool | int | str  # a kind's setting: whether it is on, or its parameter, 0 or "" for off

if TYPE_CHECKING:

    class _Kinds:
        """A stand-in for type checkers, which cannot run the table: any name may be a kind's field."""

        def __getattr__(self, name: str) -> Setting: ...

else:
    _Kinds = make_dataclass(
        "_Kinds", [(name, Setting, kind.own or kind.off) for name, kind in KINDS.items()], frozen=True
    )


@dataclass(frozen=True)
class MaskSpec(_Kinds):
    """The masks that are on. A mask that a model does not have (such as a native window) stays off in any case.

    causal, padding, window … (docs/masks.md): whether each is on, or its size, 0 or "" for off. drawn: strokes, of
    which the last one on a cell counts. positions: "counted" over real tokens, "cells": padding is counted too, or the
    name of a kind that splits the text: from 0 in each part. layers, heads: where all these masks apply; () =
    everywhere. Elsewhere the model's standard masks apply. Raises ValueError for other values.
    """

    drawn: tuple[Stroke, ...] = ()
    positions: str = "counted"
    layers: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()

    if TYPE_CHECKING:  # the generated __init__ takes the kinds' fields too

        def __init__(
            self,
            *,
            drawn: tuple[Stroke, ...] = (),
            positions: str = "counted",
            layers: tuple[int, ...] = (),
            heads: tuple[int, ...] = (),
            **kinds: Setting,
        ) -> None: ...

    def __post_init__(self) -> None:
        number = N_("a whole number from 0 (off) to {most}")
        separator = N_("a separator of at most {most} characters")
        for name, kind in KINDS.items():
            value = getattr(self, name)
            if kind.first is None:
                _expect(isinstance(value, bool), name, N_("true or false"), value)
            elif kind.splits:
                _expect(_is_separator(value), name, separator, value, LONGEST_SEPARATOR)
            else:
                _expect(_is_count(value), name, number, value, MAX_POSITIONS)
        _expect(self.positions in POSITIONS, "positions", N_("one of {most}"), self.positions, ", ".join(POSITIONS))
        drawn = isinstance(self.drawn, tuple) and all(type(stroke) is Stroke for stroke in self.drawn)
        _expect(drawn, "drawn", N_("a tuple of strokes"), self.drawn)
        _expect(len(self.drawn) <= MAX_STROKES, "drawn", N_("at most {most:,} strokes"), len(self.drawn), MAX_STROKES)
        for name in ("layers", "heads"):
            some = getattr(self, name)
            few = isinstance(some, tuple) and len(some) <= MAX_IN_SCOPE
            numbers = few and all(map(_is_count, some)) and len(set(some)) == len(some)
            scope = N_("a tuple of at most {most} different whole numbers from 0")
            _expect(numbers, name, scope, some, MAX_IN_SCOPE)

    def replace(self, **changes: Any) -> "MaskSpec":
        """Return a copy with these fields changed. Raises ValueError as the constructor does."""
        return replace(self, **changes)

    def on(self) -> dict[str, Setting]:
        """Return the kinds that are on, in the order of KINDS, each with its field's value."""
        values = {name: getattr(self, name) for name in KINDS}
        return {name: values[name] for name, kind in KINDS.items()
                if kind.is_on(values[name]) and values.get(kind.joins, True)}  # fmt: skip

    def at(self, layer: int, head: int, standard: "MaskSpec") -> "MaskSpec":
        """Return the masks that apply in a layer and head: these, or outside their scope the standard ones."""
        if not self.layers and not self.heads:
            return self  # called for every head, and a copy would be checked again
        here = self.holds_in(layer, head)
        return replace(self, layers=(), heads=()) if here else replace(standard, positions=self.positions)

    def holds_in(self, layer: int, head: int) -> bool:
        """Whether the layer and head are in its scope."""
        return (not self.layers or layer in self.layers) and (not self.heads or head in self.heads)

    def check_scope(self, layers: int, heads: int, numbers: Sequence[int] = ()) -> None:
        """Raise ValueError for a layer or head that a model of this size does not have. numbers: the layers' numbers in
        the network, if they are not 0, 1, 2 …"""
        for name, some, count in (("layers", self.layers, layers), ("heads", self.heads, heads)):
            most = last_of(count, numbers if name == "layers" else ())
            _expect(all(one < count for one in some), name, N_("numbers from 0 to {most}"), some, most)

    def to_json(self) -> str:
        """Return every field by its name as JSON; a stroke is a list [kind, query, key, last_query, last_key]."""
        data = {field.name: getattr(self, field.name) for field in fields(self)}
        return json.dumps(data | {"drawn": [tuple(vars(stroke).values()) for stroke in self.drawn]}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> "MaskSpec":
        """Create a spec from the result of to_json; missing fields get their defaults. Raises ValueError, saying what
        was expected, for anything else and for more than MAX_BYTES of it."""
        _expect(isinstance(text, str | bytes), N_("a mask"), "JSON", text)
        _expect(len(text) <= MAX_BYTES, N_("a mask"), N_("at most {most:,} bytes of JSON"), len(text), MAX_BYTES)
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            why = str(error)[:100]
            raise ValueError(msg("expected a mask as JSON, got invalid JSON ({why})", why=why)) from None
        _expect(isinstance(data, dict), N_("a mask"), N_("a JSON object"), data)
        names = sorted(field.name for field in fields(cls))
        if unknown := ", ".join(map(repr, sorted(set(data).difference(names)))):
            raise ValueError(msg("expected one of {names}, got {got}", names=", ".join(names), got=unknown[:80]))
        for name in {"layers", "heads", "drawn"} & set(data):
            _expect(isinstance(data[name], list), name, N_("a list"), data[name])
            data[name] = tuple(data[name])
        if "drawn" in data:
            count = len(data["drawn"])
            _expect(count <= MAX_STROKES, "drawn", N_("at most {most:,} strokes"), count, MAX_STROKES)
            data["drawn"] = tuple(map(stroke_of, data["drawn"]))
        return cls(**data)

    @classmethod
    def from_fields(cls, given: Mapping[str, Any]) -> "MaskSpec":
        """Create a spec from fields by name, as in JSON; NumPy numbers, ranges … work too. Raises as from_json."""
        try:
            text = json.dumps(dict(given), default=_plain)
        except TypeError as error:  # a value that JSON cannot represent
            raise ValueError(f"expected masks as plain numbers, texts and lists ({error})") from None  # not shown
        return cls.from_json(text)


def stroke_of(data: Any) -> Stroke:
    _expect(isinstance(data, list) and len(data) == 5, N_("a stroke"), N_("a list of a kind and four positions"), data)
    return Stroke(*data)


def _plain(value: Any) -> Any:
    """Convert an integer, a NumPy or torch scalar, or an iterable, for JSON. Raises TypeError for anything else."""
    if getattr(value, "shape", None) == ():
        return value.item()
    try:
        return operator.index(value)
    except TypeError:
        return list(value)


def _is_separator(value: Any) -> bool:
    if not isinstance(value, str) or len(value) > LONGEST_SEPARATOR:
        return False
    return not any("\ud800" <= character <= "\udfff" for character in value)  # a lone surrogate: no file can hold it


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_POSITIONS


def _expect(right: bool, name: str, expected: str, got: Any, most: int | str = "") -> None:
    """Raise ValueError unless right. name: a field's, or marked for translation. expected: marked, may name {most}."""
    if right:
        return
    try:
        shown = repr(got)
        shown = shown if len(shown) <= 80 else shown[:80] + "…"
    except (ValueError, RecursionError):  # a number or nesting that Python refuses to write
        shown = msg("a {kind} too large to show", kind=type(got).__name__)
    name = name if name.isidentifier() else msg(name)  # field names are not translated
    wanted = msg(expected, most=most)
    raise ValueError(msg("{name}: expected {wanted}, got {got}", name=name, wanted=wanted, got=shown))


STANDARD = MaskSpec()  # of most models; an encoder's has no causal mask
OFF = STANDARD.replace(**{name: kind.off for name, kind in KINDS.items()})  # nothing is blocked
