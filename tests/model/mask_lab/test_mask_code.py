"""A mask taken away and brought back: the code shown gives the same mask in a fresh interpreter, files survive the
way there and back, and a file that is none is refused in a sentence.

    python -m pytest tests/model/mask_lab/test_mask_code.py

The programs run in one interpreter that finds neither a GPU nor a compiler, each in a namespace of its own.
"""

import dataclasses
import io
import json
import pickle
import random
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from model import masks
from model.base import Model
from model.huggingface import adapter
from model.mask_lab import mask_code, mask_files
from model.masks import MaskContext, MaskSpec, Stroke
from model.settings import Settings
from model.spec import MOST_BYTES, MOST_STROKES, OFF
from model.trace import Trace
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
LAYER, HEAD = 1, 2  # that the code is made for
TEXTS = ["the cat sat on. the mat. and", "a cat. sat"]

RUNNER = """
import json, sys, torch
found = []
for source in json.load(open(sys.argv[1])):
    names = {}
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
    """One program, and the mask that it has to give."""

    name: str
    kind: str
    source: str
    allowed: Tensor


def run(programs: list[str], folder: Path) -> list[dict]:
    """What each leaves behind, from one fresh interpreter."""
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
    """No padding, padding on either side, and a model with a window of its own."""
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
            # flex_attention is traced anew for every mask, so it takes a place in turn
            kinds = mask_code.KINDS if where in ("one text", padded[number % 3]) else mask_code.KINDS[:2]
            made += [case(f"{name}, {where}", kind, traces[where], spec, int(where in padded)) for kind in kinds]
    for seed in range(30):
        chance = random.Random(seed)
        where, layer, head = chance.choice(list(traces)), chance.randrange(2), chance.randrange(3)
        row = chance.randrange(len(traces[where].batch.ids))
        spec = random_spec(chance, separators=SEPARATORS, layers=range(2), heads=range(3))
        made += [case(f"seed {seed}, {where}", kind, traces[where], spec, row, layer, head) for kind in mask_code.KINDS]
    return made


@pytest.fixture(scope="module")
def left_behind(cases: list[Case], tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    return run([one.source for one in cases], tmp_path_factory.mktemp("pasted"))


class TestCode:
    def test_gives_the_same_mask_in_a_fresh_interpreter(self, cases: list[Case], left_behind: list[dict]) -> None:
        assert len(cases) == len(left_behind) > 250
        for one, found in zip(cases, left_behind, strict=True):
            assert found["dtype"] == "torch.bool", one
            assert torch.equal(torch.tensor(found["allowed"]), one.allowed), f"{one.name}\n{one.source}"

    def test_says_what_pytorch_makes_of_a_row_with_nothing_to_attend_to(
        self, cases: list[Case], left_behind: list[dict]
    ) -> None:
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

    def test_can_be_pasted_at_a_prompt_line_by_line(self, traces: dict[str, Trace]) -> None:
        for kind in mask_code.KINDS:
            spec = dataclasses.replace(SPECS["all of them"], drawn=CHECKERBOARD)
            source = program(kind, traces["left"], spec, 1)
            typed = subprocess.run(
                [sys.executable, "-W", "ignore", "-i", "-q"],
                input=f"{source}\nprint(output.shape, allowed.int().sum().item())\n",
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert "Error" not in typed.stderr, typed.stderr[-2000:]
            allowed = traces["left"].allowed(LAYER, 1, spec, head=HEAD)
            assert typed.stdout.split()[-1] == str(int(allowed.sum()))

    @pytest.mark.parametrize("separator", SEPARATORS)
    @pytest.mark.parametrize("kind", mask_code.KINDS)
    def test_holds_what_was_typed_only_in_a_comment_of_one_line(
        self, separator: str, kind: str, traces: dict[str, Trace]
    ) -> None:
        without = program(kind, traces["one text"], MaskSpec(documents="zzz"), 0).splitlines()
        with_it = program(kind, traces["one text"], MaskSpec(documents=separator), 0).splitlines()
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
        place = MaskContext(torch.ones(1, 1021, dtype=torch.bool), 1021, 3)
        cells = tuple(Stroke("block", q, k, q, k) for q in range(100, 200) for k in range(100, 200))
        assert len(mask_code.code(SDPA, place, MaskSpec(drawn=cells))) < 2_000
        assert len(mask_code.code(FLEX, place, MaskSpec(documents="."))) < 2_000

    def test_no_line_is_long(self, cases: list[Case]) -> None:
        for one in cases:
            longest = max((line for line in one.source.splitlines() if not line.startswith("# document:")), key=len)
            assert len(longest) <= mask_code.LINE, longest

    def test_refuses_what_it_cannot_write(self) -> None:
        place = MaskContext(torch.ones(1, 5, dtype=torch.bool), 5, 3)
        with pytest.raises(
            ValueError, match=r"expected a kind of code out of scaled_dot_product_attention, .* got 'jax'"
        ):
            mask_code.code("jax", place, MaskSpec())
        with pytest.raises(ValueError, match="of a text to itself, got 3 queries on 5 keys"):
            mask_code.code(SDPA, dataclasses.replace(place, queries=3), MaskSpec())


def allowed_by(spec: MaskSpec, keep: Tensor) -> np.ndarray:
    """bool [T,T] of a row with these real tokens."""
    on = masks.combine(masks.build(spec, keep[None], len(keep)))
    size = (1, 1, len(keep), len(keep))
    return (torch.ones(size) > 0 if on is None else on.expand(size))[0, 0].numpy()


def saved(array: np.ndarray, *, pickled: bool = False) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=pickled)
    return file.getvalue()


FULL, LEFT, RIGHT = (torch.tensor([cell == "x" for cell in line]) for line in ("xxxxxxx", "..xxxxx", "xxxxx.."))


class TestNpy:
    def test_is_a_bool_matrix_that_numpy_reads(self) -> None:
        allowed = torch.rand(5, 7) < 0.5
        read = np.load(io.BytesIO(mask_files.to_npy(allowed)), allow_pickle=False)
        assert read.dtype == np.bool_
        assert np.array_equal(read, allowed.numpy())

    @pytest.mark.parametrize("seed", range(30))
    def test_comes_back_as_a_drawing_of_the_same_mask(self, seed: int) -> None:
        chance = random.Random(seed)
        size = chance.choice([1, 2, 7, 31])
        allowed = torch.tensor(
            [[chance.random() < chance.choice([0.1, 0.9]) for _ in range(size)] for _ in range(size)]
        )
        spec = mask_files.from_npy(mask_files.to_npy(allowed), torch.ones(size, dtype=torch.bool))
        assert dataclasses.replace(spec, drawn=()) == OFF
        assert np.array_equal(allowed_by(spec, torch.ones(size, dtype=torch.bool)), allowed.numpy())

    @pytest.mark.parametrize("keep", [LEFT, RIGHT], ids=["left", "right"])
    @pytest.mark.parametrize("seed", range(20))
    def test_of_the_real_tokens_alone_leaves_padding_masked(self, keep: Tensor, seed: int) -> None:
        allowed = np.random.default_rng(seed).random((5, 5)) < 0.5
        spec = mask_files.from_npy(saved(allowed), keep)
        found = allowed_by(spec, keep)
        assert np.array_equal(found[np.ix_(keep, keep)], allowed)
        assert not found[np.ix_(keep, ~keep)].any()
        assert dataclasses.replace(spec, drawn=()) == dataclasses.replace(OFF, padding=True)

    @pytest.mark.parametrize("keep", [LEFT, RIGHT], ids=["left", "right"])
    @pytest.mark.parametrize(
        "spec", [MaskSpec(), OFF, MaskSpec(padding_queries=True, sliding=3), MaskSpec(causal=False, drawn=(BLOCK,))]
    )
    def test_of_a_padded_row_comes_back_whole(self, keep: Tensor, spec: MaskSpec) -> None:
        allowed = allowed_by(spec, keep)
        back = mask_files.from_npy(saved(allowed), keep)
        assert np.array_equal(allowed_by(back, keep), allowed)
        assert mask_files.differing(back, allowed, keep) == 0

    def test_counts_the_cells_of_padding_that_no_mask_gives(self) -> None:
        allowed = allowed_by(MaskSpec(), RIGHT).copy()
        allowed[6, 0] = allowed[5, 1] = False
        back = mask_files.from_npy(saved(allowed), RIGHT)
        assert mask_files.differing(back, allowed, RIGHT) == 2
        assert back.padding

    @pytest.mark.parametrize("order", ["C", "F"])
    def test_in_either_order(self, order: str) -> None:
        allowed = np.asarray(np.tri(7, dtype=bool), order=order)  # type: ignore[call-overload]
        assert np.array_equal(allowed_by(mask_files.from_npy(saved(allowed), FULL), FULL), allowed)

    def test_takes_few_rectangles(self) -> None:
        cells = np.zeros((11, 13), dtype=bool)
        cells[2:7, 3:5] = cells[2:7, 8:] = cells[9, 3:5] = True
        assert mask_files.rectangles(cells) == [(2, 3, 6, 4), (2, 8, 6, 12), (9, 3, 9, 4)]
        assert mask_files.rectangles(np.ones((3, 5), dtype=bool)) == [(0, 0, 2, 4)]
        assert mask_files.rectangles(np.zeros((3, 5), dtype=bool)) == []


class TestRefused:
    """Every refusal says what was expected, what came, and what to do."""

    MASK = np.tri(7, dtype=bool)

    @pytest.mark.parametrize(
        ("data", "sentence"),
        [
            (b"", "expected an NPY file, got an empty one: save it again"),
            (b"hello", "expected an NPY file, got something else: save the matrix with numpy.save"),
            (pickle.dumps(np.tri(7)), "got a pickle, which is never opened"),
            (saved(np.array([{}, 1], dtype=object), pickled=True), "got one of Python objects, which are pickled"),
            (saved(MASK.astype(np.float32)), "expected an array of bool, True = may attend, got float32"),
            (saved(MASK.astype(np.uint8)), "expected an array of bool, True = may attend, got uint8"),
            (saved(np.zeros(7, dtype=[("a", bool)])), "expected an array of bool, True = may attend, got .*'a'"),
            (saved(MASK[None]), r"expected a matrix, queries by keys, got the shape \(1, 7, 7\)"),
            (saved(MASK[0]), r"expected a matrix, queries by keys, got the shape \(7,\)"),
            (saved(MASK[:, :0]), r"expected a matrix, queries by keys, got the shape \(7, 0\)"),
            (saved(MASK[:5]), "expected a square mask, as many queries as keys, got 5 × 7"),
            (saved(MASK[:6, :6]), "expected a mask of 7 × 7 cells, for the tokens of this row, got 6 × 6"),
            (saved(MASK)[:-3], "expected 49 bytes of cells after the header, got 46: the file is not whole"),
            (saved(MASK) + b"\x01", "expected 49 bytes of cells after the header, got 50"),
            (saved(MASK)[:-1] + b"\x07", "expected cells that are 0 or 1, got a 7"),
            (saved(MASK)[:40], "expected the header of an NPY file, got one that cannot be read"),
            (saved(MASK)[:7], "expected the header of an NPY file, got one that cannot be read"),
            (saved(MASK).replace(b"(7, 7)", b"(7, -7"), "expected the header of an NPY file"),
            (saved(MASK).replace(b"(7, 7), }", b"(-7, -7)}"), r"queries by keys, got the shape \(-7, -7\)"),
            (saved(MASK).replace(b"(7, 7), }    ", b"(99999,99999)}"), "expected 9,999,800,001 bytes of cells"),
            (b"\x93NUMPY\x03\x00" + saved(MASK)[8:], "expected an NPY file of version 1.0 or 2.0, got 3.0"),
            (saved(np.ones((1001, 1001), dtype=bool)), "of at most 1,000,000 bytes, got 1,002,129: cut the mask"),
        ],
    )
    def test_in_a_sentence(self, data: bytes, sentence: str) -> None:
        with pytest.raises(ValueError, match=sentence):
            mask_files.from_npy(data, FULL)

    def test_an_archive(self) -> None:
        file = io.BytesIO()
        np.savez(file, mask=self.MASK)
        assert zipfile.is_zipfile(file)
        with pytest.raises(ValueError, match="got a zip archive: save one matrix"):
            mask_files.from_npy(file.getvalue(), FULL)

    def test_a_pickle_is_not_opened(self) -> None:
        class Opened:
            def __reduce__(self) -> tuple[Callable, tuple]:
                return pytest.fail, ("unpickled",)

        for data in (pickle.dumps(Opened()), saved(np.array([Opened()], dtype=object), pickled=True)):
            with pytest.raises(ValueError, match="never opened"):
                mask_files.from_npy(data, FULL)

    def test_another_length_on_a_padded_row_names_both_that_fit(self) -> None:
        with pytest.raises(ValueError, match=r"of 5 × 5 cells, .* or 7 × 7 with its padding, got 6 × 6"):
            mask_files.from_npy(saved(self.MASK[:6, :6]), LEFT)

    def test_more_pieces_than_a_drawing_has(self) -> None:
        size = 301
        chess = np.indices((size, size)).sum(0) % 2 == 0
        assert (~chess).sum() > MOST_STROKES
        with pytest.raises(
            ValueError, match="that 20,000 rectangles can cover, got 45,300 of them: load a mask of fewer"
        ):
            mask_files.from_npy(saved(chess), torch.ones(size, dtype=torch.bool))

    @pytest.mark.filterwarnings("ignore:invalid escape sequence")  # Python's, about a header that is not ours
    def test_nothing_but_a_sentence_whatever_the_bytes(self) -> None:
        whole = bytearray(saved(self.MASK))
        chance = random.Random(5)
        said = set()
        for _ in range(2000):
            data = bytearray(whole)
            for _ in range(chance.randrange(1, 4)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            try:
                spec = mask_files.from_npy(bytes(data[: chance.choice([len(data), chance.randrange(len(data))])]), FULL)
            except ValueError as error:
                said.add(str(error).split()[0])
            else:
                assert dataclasses.replace(spec, drawn=()) == OFF
        assert said == {"expected"}


@pytest.mark.parametrize("seed", range(20))
def test_json_comes_back_the_same(seed: int) -> None:
    spec = random_spec(random.Random(seed), separators=SEPARATORS, layers=range(3), heads=range(5))
    assert MaskSpec.from_json(spec.to_json()) == spec
    assert len(spec.to_json()) < MOST_BYTES
