"""Tests of MaskSpec as plain data: what it refuses, and its forms as JSON and in a URL."""

import dataclasses
import json
import random
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlencode

import pytest

from model import spec as specs
from model.spec import STANDARD, MaskSpec, Stroke
from tests.model.random_specs import random_spec

NO_SWITCH = [None, 0, 1, 1.0, "true", b"true", [], [True], {}, float("nan")]
NO_COUNT = [None, True, False, -1, 2.0, 2.5, float("nan"), float("inf"), 10**6 + 1, 10**30, "3", b"3", [3], {}, 3j]
NO_SEPARATOR = [None, True, 0, 1.5, b".", ["."], {}, "." * 41, "\ud800"]
NO_POSITIONS = [None, True, 0, "", "Counted", "cell", b"cells", ["cells"], {}]
NO_NUMBERS = [None, 0, "0", b"\x00", [0], {0}, (True,), (-1,), (0.0,), ("0",), (None,), ((0,),), (0, 0), (10**6 + 1,)]
NO_NUMBERS += [tuple(range(200_000))]
NO_DRAWING = [None, 0, "block", Stroke("block", 0, 0, 0, 0), [Stroke("block", 0, 0, 0, 0)], ("block",), (None,)]
NO_DRAWING += [((Stroke("block", 0, 0, 0, 0),),), (("block", 0, 0, 0, 0),), (["block", 0, 0, 0, 0],)]
NONSENSE = [
    *[(name, value) for name in ("causal", "padding", "window", "padding_queries") for value in NO_SWITCH],
    *[(name, value) for name in ("sliding", "stride", "prefix", "sinks") for value in NO_COUNT],
    *[("documents", value) for value in NO_SEPARATOR],
    *[("positions", value) for value in NO_POSITIONS],
    *[(name, value) for name in ("layers", "heads") for value in NO_NUMBERS],
    *[("drawn", value) for value in NO_DRAWING],
]
NONSENSE_AS_JSON = [
    *[(name, value) for name, value in NONSENSE if isinstance(value, bool | int | float | str | None)],
    *[(name, [value]) for name in ("layers", "heads") for value in (True, -1, 0.0, "0", None, [0], {}, 10**6 + 1)],
    *[(name, value) for name in ("layers", "heads") for value in ([0, 0], {"0": 0})],
    *[("drawn", value) for value in (["block"], [None], {}, [{}], [[["block", 0, 0, 0, 0]]])],
]
NO_STROKE = [
    *[(kind, 0, 0, 0, 0) for kind in (None, "", "Block", b"block", 1, True, ["block"])],
    *[("block", *[wrong if at == index else 5 for index in range(4)]) for at in range(4) for wrong in NO_COUNT],
    ("block", 3, 0, 2, 0),
    ("block", 0, 3, 0, 2),
]
NO_JSON = ["", "{", "{'causal': true}", "causal", '{"causal": True}', "\x00", b"\xff", b"\x00\x00", "{}}", "[" * 10**5]
NO_MASK = ["null", "true", "3", "NaN", '"causal"', "[]", '[{"causal": true}]']
SEPARATORS = [
    "",
    ".",
    "\n\n",
    "|",
    "(",
    "\\",
    '"',
    "'",
    "😀",
    "中文",
    "\u2028",
    "\x00",
    "<|endoftext|>",
    "&=#%+ ?",
    "." * 40,
]


def refuses(make: Any) -> str:
    """Return the message of the ValueError, which must state what was expected and what was got."""
    with pytest.raises(ValueError, match=r"(?s)expected .*\bgot ") as error:
        make()
    assert len(str(error.value)) < 400
    return str(error.value)


def anything(chance: random.Random) -> MaskSpec:
    sizes = (0, 1, *range(2, 300, 7), 10**6)
    return random_spec(chance, sizes, SEPARATORS, layers=(0, 1, 47), heads=(24, 0))


class TestFields:
    def test_nonsense_in_a_field_is_refused_by_its_name(self) -> None:
        for field, value in NONSENSE:
            assert refuses(partial(MaskSpec, **{field: value})).startswith((f"{field}: ", "a stroke: ")), (field, value)

    def test_nonsense_in_a_stroke_is_refused(self) -> None:
        for fields in NO_STROKE:
            assert refuses(partial(Stroke, *fields)).startswith("a stroke: "), fields
            refuses(partial(MaskSpec.from_json, json.dumps({"drawn": [[str(part) for part in fields]]})))

    def test_the_message_holds_no_more_than_a_little_of_what_was_got(self) -> None:
        assert len(refuses(lambda: MaskSpec(documents="x" * 10**6))) < 200
        assert len(refuses(lambda: MaskSpec(layers=(-1,) * 10**5))) < 200
        assert "at most 20,000 strokes, got 20001" in refuses(
            lambda: MaskSpec(drawn=(Stroke("block", 0, 0, 0, 0),) * 20_001)
        )

    @pytest.mark.parametrize("what", ["long", "deep"])
    def test_what_python_itself_cannot_write_is_refused_like_all_else(self, what: str) -> None:
        deep: Any = ()
        for _ in range(10**4):
            deep = (deep,)
        refuses(lambda: MaskSpec(sliding=10**5000) if what == "long" else MaskSpec(layers=deep))

    def test_the_most_and_the_least_of_everything_is_taken(self) -> None:
        MaskSpec(sliding=10**6, stride=1, prefix=0, sinks=10**6, documents="." * 40, layers=(10**6, 0), heads=(0,))
        MaskSpec(drawn=(Stroke("open", 0, 0, 10**6, 10**6),) * 20_000)
        Stroke("erase", 10**6, 10**6, 10**6, 10**6)

    def test_equal_specs_are_one_key_and_different_ones_are_not(self) -> None:
        chance = random.Random(7)
        some = {anything(chance) for _ in range(200)}
        assert len(some) > 190
        assert {dataclasses.replace(one) for one in some} == some


class TestJson:
    @pytest.mark.parametrize("seed", range(5))
    def test_there_and_back_through_json_and_a_url(self, seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(40):
            spec = anything(chance)
            text = spec.to_json()
            assert MaskSpec.from_json(text) == MaskSpec.from_json(text.encode()) == spec
            assert MaskSpec.from_json(parse_qs(urlencode({"masks": text}))["masks"][0]) == spec
            assert MaskSpec.from_json(json.dumps(json.loads(text), indent=3)) == spec

    def test_every_field_is_there_by_its_name_as_plain_json(self) -> None:
        spec = MaskSpec(drawn=(Stroke("open", 2, 3, 5, 7),), layers=(1, 0), documents="é")
        data = json.loads(spec.to_json())
        assert list(data) == [field.name for field in dataclasses.fields(MaskSpec)]
        assert data["drawn"] == [["open", 2, 3, 5, 7]]
        assert (data["layers"], data["heads"], data["documents"]) == ([1, 0], [], "é")
        assert (data["causal"], data["sliding"], data["positions"]) == (True, 0, "counted")

    def test_fields_that_are_not_there_get_their_defaults(self) -> None:
        assert MaskSpec.from_json("{}") == STANDARD
        assert MaskSpec.from_json(b' {"causal": false, "sinks": 3}\n') == MaskSpec(causal=False, sinks=3)

    def test_the_largest_drawing_fits(self) -> None:
        spec = MaskSpec(drawn=(Stroke("block", 10**6, 10**6, 10**6, 10**6),) * 20_000, documents="😀" * 40)
        assert MaskSpec.from_json(spec.to_json().encode()) == spec

    def test_nonsense_in_a_field_is_refused_by_its_name(self) -> None:
        for field, value in NONSENSE_AS_JSON:
            message = refuses(partial(MaskSpec.from_json, json.dumps({field: value})))
            assert message.startswith((f"{field}: ", "a stroke: ")), (field, value)

    @pytest.mark.parametrize("stroke", [[], ["block", 0, 0, 0], ["block", 0, 0, 0, 0, 0], {}, "block", None])
    def test_a_stroke_of_another_length_is_refused(self, stroke: Any) -> None:
        message = refuses(lambda: MaskSpec.from_json(json.dumps({"drawn": [["open", 0, 0, 1, 1], stroke]})))
        assert message.startswith("a stroke: expected a list of a kind and four positions, got ")

    def test_what_is_no_json_object_is_refused(self) -> None:
        for text in NO_JSON:
            assert refuses(partial(MaskSpec.from_json, text)).startswith("expected a mask as JSON, got invalid JSON")
        for text in NO_MASK:
            assert refuses(partial(MaskSpec.from_json, text)).startswith("a mask: expected a JSON object, got ")

    @pytest.mark.parametrize("text", [None, 3, ["{}"], {}])
    def test_what_is_no_text_is_refused(self, text: Any) -> None:
        with pytest.raises((ValueError, TypeError)):
            MaskSpec.from_json(text)

    def test_a_field_that_no_mask_has_is_refused_by_its_name(self) -> None:
        message = refuses(lambda: MaskSpec.from_json('{"causal": true, "Sinks": 3, "__class__": 1}'))
        assert message.startswith("expected one of block_causal, causal, ")
        assert message.endswith("got 'Sinks', '__class__'")

    def test_more_than_the_most_is_refused_before_it_is_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(specs.json, "loads", lambda _: pytest.fail("was read"))
        refuses(lambda: MaskSpec.from_json("{}" + " " * 10**6))
        refuses(lambda: MaskSpec.from_json(b"{}" + b" " * 10**6))

    def test_more_strokes_than_the_most_are_refused(self) -> None:
        text = json.dumps({"drawn": [["open", 0, 0, 0, 0]] * 20_001})
        assert "expected at most 20,000 strokes, got 20001" in refuses(lambda: MaskSpec.from_json(text))

    def test_nesting_is_refused_however_deep(self) -> None:
        for field in ("drawn", "layers", "sliding", "documents", "causal", "nobody"):
            for depth in (2, 50, 500, 5_000, 100_000):
                refuses(partial(MaskSpec.from_json, f'{{"{field}": {"[" * depth}{"]" * depth}}}'))
        for depth in range(2, 1_100):
            refuses(partial(MaskSpec.from_json, f'{{"layers": {"[" * depth}{"]" * depth}}}'))


class TestWhere:
    SCOPED = MaskSpec(causal=False, sinks=3, positions="cells", layers=(2, 5), heads=(1,))
    USUAL = MaskSpec(sliding=7)

    def test_inside_its_layers_and_heads_it_holds_itself(self) -> None:
        expected = MaskSpec(causal=False, sinks=3, positions="cells")
        assert self.SCOPED.at(2, 1, self.USUAL) == self.SCOPED.at(5, 1, self.USUAL) == expected

    def test_outside_the_standard_masks_hold_at_the_same_positions(self) -> None:
        for layer, head in ((2, 0), (3, 1), (0, 0)):
            assert self.SCOPED.at(layer, head, self.USUAL) == MaskSpec(sliding=7, positions="cells")

    def test_no_layers_or_no_heads_are_all_of_them(self) -> None:
        here = MaskSpec(causal=False, sinks=3)
        for layer, head in ((0, 0), (11, 13)):
            assert here.at(layer, head, self.USUAL) == here
            assert dataclasses.replace(here, layers=(layer,)).at(layer, 17, self.USUAL) == here
            assert dataclasses.replace(here, heads=(head,)).at(19, head, self.USUAL) == here
