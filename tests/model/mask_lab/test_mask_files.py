"""Tests of masks as NPY files: a mask survives saving and loading, and other files are refused with a message."""

import dataclasses
import io
import pickle
import random
import zipfile
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from model import masks
from model.mask_lab import mask_files
from model.masks import MaskSpec, Stroke
from model.spec import MAX_STROKES, OFF
from tests.model.random_specs import built

BLOCK, OPEN, ERASE = Stroke("block", 1, 0, 4, 3), Stroke("open", 2, 2, 5, 1_000_000), Stroke("erase", 3, 0, 3, 6)
FULL, LEFT, RIGHT = (torch.tensor([cell == "x" for cell in line]) for line in ("xxxxxxx", "..xxxxx", "xxxxx.."))


def from_npy(data: bytes, keep: torch.Tensor) -> MaskSpec:
    """Read an uploaded file as the page does."""
    return mask_files.spec_from_matrix(mask_files.read_npy(data), keep)


def allowed_by(spec: MaskSpec, keep: Tensor) -> np.ndarray:
    """Return the mask, bool [T,T], of a row with these real tokens."""
    on = masks.combine(built(spec, keep[None], len(keep)))
    size = (1, 1, len(keep), len(keep))
    return (torch.ones(size) > 0 if on is None else on.expand(size))[0, 0].numpy()


def saved(array: np.ndarray, *, pickled: bool = False) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=pickled)
    return file.getvalue()


class TestNpy:
    def test_is_a_bool_matrix_that_numpy_reads(self) -> None:
        allowed = torch.rand(5, 7) < 0.5
        read = np.load(io.BytesIO(mask_files.to_npy(allowed)), allow_pickle=False)
        assert read.dtype == np.bool_
        assert np.array_equal(read, allowed.numpy())

    @pytest.mark.parametrize("seed", range(12))
    def test_comes_back_as_a_drawing_of_the_same_mask(self, seed: int) -> None:
        chance = random.Random(seed)
        size = chance.choice([1, 2, 7, 31])
        allowed = torch.tensor(
            [[chance.random() < chance.choice([0.1, 0.9]) for _ in range(size)] for _ in range(size)]
        )
        spec = from_npy(mask_files.to_npy(allowed), torch.ones(size, dtype=torch.bool))
        assert dataclasses.replace(spec, drawn=()) == OFF
        assert np.array_equal(allowed_by(spec, torch.ones(size, dtype=torch.bool)), allowed.numpy())

    @pytest.mark.parametrize("keep", [LEFT, RIGHT], ids=["left", "right"])
    @pytest.mark.parametrize("seed", range(8))
    def test_of_the_real_tokens_alone_leaves_padding_masked(self, keep: Tensor, seed: int) -> None:
        allowed = np.random.default_rng(seed).random((5, 5)) < 0.5
        spec = from_npy(saved(allowed), keep)
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
        back = from_npy(saved(allowed), keep)
        assert np.array_equal(allowed_by(back, keep), allowed)
        assert mask_files.differing(back, allowed, keep) == 0

    def test_counts_the_cells_of_padding_that_no_mask_gives(self) -> None:
        allowed = allowed_by(MaskSpec(), RIGHT).copy()
        allowed[6, 0] = allowed[5, 1] = False
        back = from_npy(saved(allowed), RIGHT)
        assert mask_files.differing(back, allowed, RIGHT) == 2
        assert back.padding

    @pytest.mark.parametrize("order", ["C", "F"])
    def test_in_either_order(self, order: str) -> None:
        allowed = np.asarray(np.tri(7, dtype=bool), order=order)  # type: ignore[call-overload]
        assert np.array_equal(allowed_by(from_npy(saved(allowed), FULL), FULL), allowed)

    def test_takes_few_rectangles(self) -> None:
        cells = np.zeros((11, 13), dtype=bool)
        cells[2:7, 3:5] = cells[2:7, 8:] = cells[9, 3:5] = True
        assert mask_files.rectangles(cells) == [(2, 3, 6, 4), (2, 8, 6, 12), (9, 3, 9, 4)]
        assert mask_files.rectangles(np.ones((3, 5), dtype=bool)) == [(0, 0, 2, 4)]
        assert mask_files.rectangles(np.zeros((3, 5), dtype=bool)) == []


class TestRefused:
    """Every refusal states what was expected, what was found, and what to do."""

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
            (saved(MASK)[:-3], "expected 49 bytes of cells after the header, got 46: the file is incomplete"),
            (saved(MASK) + b"\x01", "expected 49 bytes of cells after the header, got 50"),
            (saved(MASK)[:-1] + b"\x07", "expected cells that are 0 or 1, got a 7"),
            (saved(MASK)[:40], "expected an NPY file, got one that cannot be read"),
            (saved(MASK)[:7], "expected an NPY file, got one that cannot be read"),
            (saved(MASK).replace(b"(7, 7)", b"(7, -7"), "expected an NPY file"),
            (saved(MASK).replace(b"(7, 7), }", b"(-7, -7)}"), r"queries by keys, got the shape \(-7, -7\)"),
            (saved(MASK).replace(b"(7, 7), }    ", b"(99999,99999)}"), "expected 9,999,800,001 bytes of cells"),
            (b"\x93NUMPY\x03\x00" + saved(MASK)[8:], "expected an NPY file of version 1.0 or 2.0, got 3.0"),
            (saved(np.ones((1001, 1001), dtype=bool)), "of at most 1,000,000 bytes, got 1,002,129: cut the mask"),
        ],
    )
    def test_in_a_sentence(self, data: bytes, sentence: str) -> None:
        with pytest.raises(ValueError, match=sentence):
            from_npy(data, FULL)

    def test_an_archive(self) -> None:
        file = io.BytesIO()
        np.savez(file, mask=self.MASK)
        assert zipfile.is_zipfile(file)
        with pytest.raises(ValueError, match="got a zip archive: save one matrix"):
            from_npy(file.getvalue(), FULL)

    def test_a_pickle_is_not_opened(self) -> None:
        class Opened:
            def __reduce__(self) -> tuple[Callable, tuple]:
                return pytest.fail, ("unpickled",)

        for data in (pickle.dumps(Opened()), saved(np.array([Opened()], dtype=object), pickled=True)):
            with pytest.raises(ValueError, match="never opened"):
                from_npy(data, FULL)

    def test_another_length_on_a_padded_row_names_both_that_fit(self) -> None:
        with pytest.raises(ValueError, match=r"of 5 × 5 cells, .* or 7 × 7 with its padding, got 6 × 6"):
            from_npy(saved(self.MASK[:6, :6]), LEFT)

    def test_more_pieces_than_a_drawing_has(self) -> None:
        size = 301
        chess = np.indices((size, size)).sum(0) % 2 == 0
        assert (~chess).sum() > MAX_STROKES
        with pytest.raises(
            ValueError, match="that 20,000 rectangles can cover, got 45,300 of them: load a mask of fewer"
        ):
            from_npy(saved(chess), torch.ones(size, dtype=torch.bool))

    @pytest.mark.filterwarnings("ignore:invalid escape sequence")  # from Python, about a damaged header
    def test_nothing_but_a_sentence_whatever_the_bytes(self) -> None:
        whole = bytearray(saved(self.MASK))
        chance = random.Random(5)
        first_words = set()
        for _ in range(2000):
            data = bytearray(whole)
            for _ in range(chance.randrange(1, 4)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            try:
                spec = from_npy(bytes(data[: chance.choice([len(data), chance.randrange(len(data))])]), FULL)
            except ValueError as error:
                first_words.add(str(error).split()[0])
            else:
                assert dataclasses.replace(spec, drawn=()) == OFF
        assert first_words == {"expected"}
