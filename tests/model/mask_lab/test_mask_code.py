"""Tests that the code shown for a mask gives the same mask in a fresh interpreter.

The programs run in one interpreter that finds neither a GPU nor a compiler, each in a namespace of its own. Tracing a
mask for flex_attention takes 0.4 s, so only every fifteenth is traced.
"""

import dataclasses
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from model.base import Model
from model.huggingface import adapter
from model.mask_lab import mask_code
from model.masks import MaskContext, MaskSpec, Stroke
from model.spec import OFF
from model.trace import Trace
from serving.settings import Settings
from tests.model.huggingface import families
from tests.model.random_specs import random_spec

SDPA, MULTIHEAD, FLEX = mask_code.KINDS
BLOCK, OPEN, ERASE = Stroke("block", 1, 0, 4, 3), Stroke("open", 2, 2, 5, 1_000_000), Stroke("erase", 3, 0, 3, 6)
SEPARATORS = ("", ".", "a", "sat on", "\n", "'\"\\", '"""', "\r", "\u2028", "#", "日本", "{}%s", "\x00\x1b")
CHECKERBOARD = tuple(Stroke("block", q, k, q, k) for q in range(9) for k in range(q % 2, 9, 2))
SPECS = {
    "nothing": OFF,
    "causal": MaskSpec(padding=False),
    "padding": dataclasses.replace(OFF, padding=True),
    "padding queries": dataclasses.replace(OFF, padding=True, padding_queries=True),
    "padding queries without padding": dataclasses.replace(OFF, padding_queries=True),
    "window": dataclasses.replace(OFF, window=True),
    "sliding": dataclasses.replace(OFF, sliding=3),
    "causal, sliding": MaskSpec(sliding=4),
    "longer than the text": MaskSpec(sliding=500, prefix=500, sinks=500),
    "stride": dataclasses.replace(OFF, stride=3),
    "stride of one": dataclasses.replace(OFF, stride=1),
    "documents": dataclasses.replace(OFF, documents="."),
    "prefix": MaskSpec(prefix=3),
    "prefix alone": dataclasses.replace(OFF, prefix=3),
    "sinks": MaskSpec(sliding=2, sinks=2),
    "sinks alone": dataclasses.replace(OFF, sinks=2),
    "block": MaskSpec(drawn=(BLOCK,)),
    "open": MaskSpec(drawn=(OPEN,)),
    "erase": MaskSpec(drawn=(ERASE,)),
    "block, open, erase": MaskSpec(drawn=(BLOCK, OPEN, ERASE)),
    "erase, open, block": MaskSpec(drawn=(ERASE, OPEN, BLOCK)),
    "open over block": dataclasses.replace(OFF, drawn=(BLOCK, OPEN)),
    "drawn beyond the text": MaskSpec(drawn=(Stroke("block", 900, 0, 1_000_000, 3),)),
    "everything blocked": dataclasses.replace(OFF, drawn=(Stroke("block", 0, 0, 1_000_000, 1_000_000),)),
    "a checkerboard": MaskSpec(drawn=CHECKERBOARD),
    "many strokes": MaskSpec(drawn=tuple(Stroke("block", 2, k, 7, k + 1) for k in range(7)) * 3),
    "all of them": MaskSpec(
        padding_queries=True, sliding=6, stride=2, documents=".", prefix=3, sinks=2, drawn=(BLOCK, OPEN, ERASE)
    ),
    "in this layer": MaskSpec(sliding=2, layers=(1,)),
    "in this head": MaskSpec(sliding=2, heads=(2,)),
    "in another layer": MaskSpec(causal=False, sliding=2, drawn=(BLOCK,), layers=(0,)),
    "in another head": MaskSpec(causal=False, sliding=2, heads=(0, 1)),
    **{f"separator {text!r}": MaskSpec(documents=text) for text in SEPARATORS},
}
LAYER, HEAD = 1, 2  # for which the code is made
TEXTS = ["the cat sat on. the mat. and", "a cat. sat"]

RUNNER = """
import json, sys, torch
from torch.nn.attention import flex_attention as flex
found, flexes = [], 0
for source in json.load(open(sys.argv[1])):
    names = {}
    flexes += "flex_attention" in source
    flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = flexes % 15 > 0  # the same operations, as they are
    exec(compile(source, "<pasted>", "exec"), names)
    allowed, output = names["allowed"], names["output"]
    rows = output.movedim(-2, 0).flatten(1)  # [T, all the rest]
    found.append({
        "allowed": allowed.tolist(), "dtype": str(allowed.dtype),
        "zero": (rows == 0).all(1).tolist(), "nan": rows.isnan().any(1).tolist(),
    })
    if "flex_attention" in names:
        same = torch.nn.functional.scaled_dot_product_attention(names["q"], names["k"], names["v"], attn_mask=allowed)
        assert (same - output).abs().max() < 1e-5, source
json.dump(found, open(sys.argv[2], "w"))
"""


@dataclasses.dataclass(frozen=True)
class Case:
    """One program, and the mask that it must give."""

    name: str
    kind: str
    source: str
    allowed: Tensor


def run(programs: list[str], folder: Path) -> list[dict]:
    """Return each program's results, all from one fresh interpreter."""
    given, found = folder / "programs.json", folder / "found.json"
    given.write_text(json.dumps(programs), encoding="utf-8")
    bare = {"PATH": "", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "HOME": str(folder), "TMPDIR": str(folder)}
    command = [sys.executable, "-W", "ignore", "-c", RUNNER, str(given), str(found)]
    ran = subprocess.run(command, cwd=folder, env=bare, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(found.read_text(encoding="utf-8"))


def program(kind: str, trace: Trace, spec: MaskSpec, row: int, layer: int = LAYER, head: int = HEAD) -> str:
    return mask_code.code(kind, trace.layers[layer].context, spec, row=row, head=head, width=7)


def case(name: str, kind: str, trace: Trace, spec: MaskSpec, row: int, layer: int = LAYER, head: int = HEAD) -> Case:
    allowed = trace.allowed(layer, row, spec, head=head)
    return Case(f"{name}, row {row}", kind, program(kind, trace, spec, row, layer, head), allowed)


@pytest.fixture(scope="module")
def traces(tiny: Model, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trace]:
    """Return runs without padding, with padding on either side, and of a model with a window of its own."""
    mistral = adapter.load(str(families.save("mistral", tmp_path_factory.mktemp("mistral"))), settings=Settings())
    words = ["the cat sat on a mat and then it", "then it saw"]
    found = {side: tiny.run(tiny.encode(TEXTS, side), MaskSpec()) for side in ("left", "right")}
    found["one text"] = tiny.run(tiny.encode(TEXTS[:1]), MaskSpec())
    return found | {"mistral": mistral.run(mistral.encode(words, "left"), MaskSpec())}


@pytest.fixture(scope="module")
def cases(traces: dict[str, Trace]) -> list[Case]:
    made = []
    for number, (name, spec) in enumerate(SPECS.items()):
        padded = ("left", "right", "mistral")
        for where in ("one text",) if name.startswith("separator") else ("one text", *padded):
            # flex_attention runs on one text and a padded run in turn, the others take turns on the other runs
            here = where in ("one text", padded[number % 3])
            kinds = mask_code.KINDS if here else mask_code.KINDS[number % 2 : number % 2 + 1]
            made += [case(f"{name}, {where}", kind, traces[where], spec, int(where in padded)) for kind in kinds]
    for seed in range(20):
        chance = random.Random(seed)
        where, layer, head = chance.choice(list(traces)), chance.randrange(2), chance.randrange(3)
        row = chance.randrange(len(traces[where].batch.ids))
        spec = random_spec(chance, separators=SEPARATORS, layers=range(2), heads=range(3)).replace(
            block_causal=chance.choice((0, 0, 2, 5))
        )
        made += [case(f"seed {seed}, {where}", kind, traces[where], spec, row, layer, head) for kind in mask_code.KINDS]
    return made


@pytest.fixture(scope="module")
def left_behind(cases: list[Case], tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    return run([one.source for one in cases], tmp_path_factory.mktemp("pasted"))


class TestCode:
    @pytest.mark.slow
    def test_gives_the_same_mask_in_a_fresh_interpreter(self, cases: list[Case], left_behind: list[dict]) -> None:
        assert len(cases) == len(left_behind) > 250
        for one, found in zip(cases, left_behind, strict=True):
            assert found["dtype"] == "torch.bool", one
            assert torch.equal(torch.tensor(found["allowed"]), one.allowed), f"{one.name}\n{one.source}"

    @pytest.mark.slow
    def test_says_what_becomes_of_an_empty_row(self, cases: list[Case], left_behind: list[dict]) -> None:
        seen = set()
        for one, found in zip(cases, left_behind, strict=True):
            empty = (~one.allowed.any(1)).tolist()
            seen.add((one.kind, any(empty)))
            nothing = [False] * len(empty)
            expected = (nothing, empty) if one.kind == MULTIHEAD else (empty, nothing)
            assert (found["zero"], found["nan"]) == expected, f"{one.name}\n{one.source}"
            assert ("nothing to attend to" in one.source) == any(empty), one.source
            assert ("gives NaN" in one.source) == (any(empty) and one.kind == MULTIHEAD), one.source
        assert len(seen) == 6

    @pytest.mark.slow
    def test_can_be_pasted_at_a_prompt_line_by_line(self, traces: dict[str, Trace]) -> None:
        spec = dataclasses.replace(SPECS["all of them"], drawn=CHECKERBOARD)
        # what a program leaves behind must not help the next
        forgotten = ["for name in [name for name in dir() if name[0] != '_']:", "    del globals()[name]", "", ""]
        lines = []
        for kind in mask_code.KINDS:
            lines += [program(kind, traces["left"], spec, 1), "print(output.shape, allowed.int().sum().item())"]
            lines += forgotten
        typed = subprocess.run(
            [sys.executable, "-W", "ignore", "-i", "-q"],
            input="\n".join(lines),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert "Error" not in typed.stderr, typed.stderr[-2000:]
        allowed = traces["left"].allowed(LAYER, 1, spec, head=HEAD)
        shapes = [line for line in typed.stdout.splitlines() if "torch.Size" in line]
        assert [line.split()[-1] for line in shapes] == [str(int(allowed.sum()))] * len(mask_code.KINDS)

    @pytest.mark.parametrize("separator", SEPARATORS)
    @pytest.mark.parametrize("kind", mask_code.KINDS)
    def test_holds_typed_text_in_a_comment(self, separator: str, kind: str, tiny: Model) -> None:
        trace = tiny.run(tiny.encode([f"a cat{separator} sat"]), MaskSpec())
        without = program(kind, trace, MaskSpec(documents="cat"), 0).splitlines()
        with_it = program(kind, trace, MaskSpec(documents=separator), 0).splitlines()
        if not separator:
            return
        assert len(with_it) == len(without)
        different = [line for line, other in zip(with_it, without, strict=True) if line != other]
        assert all(line.startswith(("#", "document = ")) for line in different)
        assert repr(separator) in next(line for line in with_it if line.startswith("# document"))

    def test_holds_only_what_is_on(self, traces: dict[str, Trace]) -> None:
        plain = program(SDPA, traces["one text"], MaskSpec(), 0)
        for name in ("keep", "place", "document", "drawn", "window", "sinks", "prefix"):
            assert name not in plain
        assert "allowed = k_idx <= q_idx" in plain
        assert "allowed = allowed & (q_idx - k_idx < 4)" in program(SDPA, traces["one text"], MaskSpec(sliding=4), 0)
        assert "(q_idx - k_idx).abs() < 3  # window" in program(SDPA, traces["mistral"], SPECS["window"], 1)
        assert "keep" not in program(SDPA, traces["left"], MaskSpec(drawn=(BLOCK,)), 0)  # the row without padding

    def test_says_where_the_standard_masks_hold_instead(self, traces: dict[str, Trace]) -> None:
        assert "standard" in program(SDPA, traces["one text"], SPECS["in another head"], 0)
        assert "standard" not in program(SDPA, traces["one text"], SPECS["in this head"], 0)

    def test_inverts_the_mask_where_true_means_blocked(self, traces: dict[str, Trace]) -> None:
        found = [program(kind, traces["one text"], MaskSpec(), 0) for kind in mask_code.KINDS]
        assert ["attn_mask=~allowed" in source for source in found] == [False, True, False]

    def test_stays_short_however_much_was_drawn(self) -> None:
        context = MaskContext(torch.ones(1, 1021, dtype=torch.bool), 1021, 3)
        cells = tuple(Stroke("block", q, k, q, k) for q in range(100, 200) for k in range(100, 200))
        assert len(mask_code.code(SDPA, context, MaskSpec(drawn=cells))) < 2_000
        assert len(mask_code.code(FLEX, context, MaskSpec(documents="."))) < 2_000

    def test_no_line_is_long(self, cases: list[Case]) -> None:
        for case in cases:
            longest = max((line for line in case.source.splitlines() if not line.startswith("# document:")), key=len)
            assert len(longest) <= mask_code.LINE, longest

    def test_refuses_what_it_cannot_write(self) -> None:
        context = MaskContext(torch.ones(1, 5, dtype=torch.bool), 5, 3)
        with pytest.raises(
            ValueError, match=r"expected a kind of code out of scaled_dot_product_attention, .* got 'jax'"
        ):
            mask_code.code("jax", context, MaskSpec())
        with pytest.raises(ValueError, match="of a text to itself, got 3 queries on 5 keys"):
            mask_code.code(SDPA, dataclasses.replace(context, queries=3), MaskSpec())
