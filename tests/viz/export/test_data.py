"""Tests of exports: what is written is read back bit for bit, and no other files are read."""

import csv
import io
import json
import tracemalloc
import zipfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from safetensors import numpy as safetensors

from tests.viz.views import causal, padded, view_of
from viz.export import data
from viz.export.data import About, Export

WRITERS = {"npz": data.as_npz, "safetensors": data.as_safetensors}


def export_of(tokens: int = 7) -> Export:
    """Return an export of three heads, two of which have another mask beside the causal one."""
    heads = {
        (2, 0): view_of((tokens, tokens), 1, causal=causal(tokens), padding=padded(tokens, 2)),
        (3, 1): view_of((tokens, tokens), 2, causal=causal(tokens)),
        (3, 5): view_of((tokens, tokens), 3, causal=causal(tokens), padding=padded(tokens, 3)),
    }
    labels = tuple(f"t{index}·ä中" for index in range(tokens))
    about = About(
        unmask="0.1", model="story", layer=3, head=1, text_sha256=data.hash_of("a text"),
        masks={"causal": True}, queries=labels, keys=labels,
        query_ids=tuple(range(tokens)), key_ids=tuple(range(10, 10 + tokens)),
    )  # fmt: skip
    return Export(about, {head: replace(view, queries=list(labels), keys=list(labels)) for head, view in heads.items()})


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_what_is_written_is_read_back(write: Callable[[Export], bytes]) -> None:
    one = export_of()
    other = data.read(write(one))
    assert other.about == one.about
    assert list(other.heads) == list(one.heads)
    for head, view in one.heads.items():
        found = other.heads[head]
        assert (found.weights == view.weights).all()
        assert (found.scaled == view.scaled).all()
        assert found.queries == view.queries
        assert {name for name, mask in found.blocked.items() if mask.any()} == set(view.blocked)
        for name, mask in view.blocked.items():
            assert (found.blocked[name] == mask).all()
    assert (other.chosen.weights == one.heads[3, 1].weights).all()


def test_numpy_and_safetensors_read_them_without_us() -> None:
    one = export_of()
    with np.load(io.BytesIO(data.as_npz(one)), allow_pickle=False) as file:
        assert file["weights"].shape == (3, 7, 7)
        assert file["heads"].tolist() == [0, 1, 5]
        assert json.loads(file["about.json"])["model"] == "story"
        assert file["query_ids"].tolist() == json.loads(data.as_json(one))["query_ids"] == [0, 1, 2, 3, 4, 5, 6]
        assert file["key_ids"].tolist() == [10, 11, 12, 13, 14, 15, 16]
    assert safetensors.load(data.as_safetensors(one))["mask:causal"].dtype == bool


def test_a_line_of_the_csv_is_a_cell() -> None:
    one = export_of()
    view = replace(one.chosen, queries=["=1+1", "-", *"abcde"])
    one = replace(one, heads=one.heads | {(3, 1): view})
    text = data.as_csv(one)
    assert text.startswith("\ufeffquery,"), "spreadsheets take a file without the mark for another encoding"
    lines = list(csv.DictReader(io.StringIO(text[1:])))
    assert len(lines) == 49
    for line in lines:
        query, key = int(line["query"]), int(line["key"])
        assert float(line["weight"]) == pytest.approx(float(view.weights[query, key]), abs=1e-8)
        blockers = [name for name, mask in view.blocked.items() if mask[query, key]]
        assert line["blocked by"] == " and ".join(blockers)
    assert lines[0]["query token"] == "'=1+1"  # a spreadsheet would compute it
    assert lines[7]["query token"] == "-"


def test_a_file_that_gives_no_scope_is_of_a_run_under_its_masks() -> None:
    about = json.loads(data.as_json(export_of()))
    del about["scope"]
    assert About.model_validate(about).scope == "model"


def changed(**arrays: np.ndarray) -> bytes:
    """Return an export's file with other arrays."""
    one = export_of()
    with np.load(io.BytesIO(data.as_npz(one))) as file:
        kept = {name: file[name] for name in file.files if name != data.ABOUT}
    file = io.BytesIO()
    np.savez(file, **(kept | arrays))
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr(data.ABOUT, data.as_json(one))
    return file.getvalue()


def renamed(**about: object) -> bytes:
    """Return an export's file with other metadata."""
    one = export_of()
    about_text = json.dumps(json.loads(data.as_json(one)) | about)
    arrays = {"weights": np.zeros((1, 7, 7), np.float32)}
    return safetensors.save(arrays, metadata={"about": about_text})


def other_npz() -> bytes:
    """Return an NPZ file that is not an export."""
    file = io.BytesIO()
    np.savez(file, a=np.zeros(3))
    return file.getvalue()


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (b"", "got neither"),
        (b"PK\x03\x04 and no more", "cannot be read"),
        (data.as_npz(export_of())[:-40], "cannot be read"),
        (safetensors.save({"weights": np.zeros(3, np.float32)}), "got neither"),
        (other_npz(), r"\(it has no about.json\)"),
        (renamed(model="x" * 301), "model"),
        (renamed(query_ids=[1, 2]), "2 ids of 7 tokens"),
        (renamed(key_ids=[-1] * 7), "key_ids"),
        (renamed(format=2), "format"),
        (renamed(text_sha256="no hash"), "text_sha256"),
        (renamed(), "no heads, layers or scores"),
        (changed(weights=np.zeros((3, 7, 5), np.float32)), "expected weights as float32 \\[3, 7, 7\\]"),
        (changed(weights=np.full((3, 7, 7), 1.5, np.float32)), "from 0 to 1"),
        (changed(weights=np.full((3, 7, 7), np.nan, np.float32)), "from 0 to 1"),
        (changed(scores=np.zeros((3, 7, 7), np.float64)), "expected scores as float32"),
        (changed(heads=np.array([0, 1, 1])), "3 different heads"),
        (changed(heads=np.array([0, 1, -7])), "3 different heads, counted from 0"),
        (changed(layers=np.array([2, 4, 3])), "layer 3, head 1 among them"),
        (changed(layers=np.array([[2], [4], [3]])), "expected layers as int64 \\[3\\], got int64 \\[3, 1\\]"),
        (changed(heads=np.array(1)), "expected heads as int64 \\[3\\], got int64 \\[\\]"),
        (changed(**{"mask:magic": np.zeros((3, 7, 7), bool)}), "magic"),
        (changed(weights=np.array([{}, {}, {}], object)), "cannot be read"),
    ],
    ids=lambda some: some if isinstance(some, str) else "file",  # a ZIP's bytes contain the time
)
def test_what_is_no_export_is_refused_in_a_sentence(file: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        data.read(file)


def test_what_is_too_large_is_not_unpacked() -> None:
    file = data.as_npz(export_of())
    with pytest.raises(ValueError, match="expected at most"):
        data.read(file, len(file) - 1)
    bomb = changed(more=np.zeros(8 * len(file), np.uint8))
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(bomb)) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    assert len(packed.getvalue()) < 2 * len(file)
    with pytest.raises(ValueError, match="unpacked"):
        data.read(packed.getvalue(), 2 * len(file))


def recompressed(method: int, *, more: int, stated_size: int | None = None) -> bytes:
    """Return a whole export and another array of `more` zero bytes, whose stated size is `said`."""
    file = io.BytesIO()
    with np.load(io.BytesIO(data.as_npz(export_of()))) as old, zipfile.ZipFile(file, "w", method) as new:
        for name in old.files:
            new.writestr(name, bytes(old[name]))
        new.writestr("more.npy", bytes(more))
    packed, real = bytearray(file.getvalue()), more.to_bytes(4, "little")
    if stated_size is not None:
        packed = packed.replace(real, stated_size.to_bytes(4, "little"))
        assert packed != file.getvalue()
    return bytes(packed)


def entries(count: int) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for number in range(count):
            archive.writestr(f"{number}", b"")
    return file.getvalue()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (partial(recompressed, zipfile.ZIP_BZIP2, more=60_000_000, stated_size=8), "a compression other than Deflate"),
        (partial(recompressed, zipfile.ZIP_LZMA, more=60_000_000, stated_size=8), "a compression other than Deflate"),
        (partial(recompressed, zipfile.ZIP_DEFLATED, more=60_000_000), "more than 1 MB unpacked"),
        (partial(recompressed, zipfile.ZIP_DEFLATED, more=60_000_000, stated_size=8), "cannot be read"),
        (partial(entries, 2_000), "an archive of 2,000 files"),
    ],
    ids=["bzip2", "lzma", "honest", "deflate", "entries"],
)
def test_an_archive_unpacks_no_more_than_its_limit(make: Callable[[], bytes], words: str) -> None:
    file = make()
    tracemalloc.start()
    with pytest.raises(ValueError, match=words):
        data.read(file, 2**18)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 16e6


def lying_npz(entry: str, shape: str) -> bytes:
    """Return a small file whose array has a huge stated size."""
    header = f"{{'descr': '{entry}', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("weights.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
        archive.writestr(data.ABOUT, data.as_json(export_of()))
    return file.getvalue()


def lying_safetensors(header: str) -> bytes:
    return len(header).to_bytes(8, "little") + header.encode()


@pytest.mark.parametrize(
    "file",
    [
        lying_npz("<f4", "(100000, 100000, 100000)"),
        lying_npz("<f4", "(-1,)"),
        lying_npz("|O", "(3, 7, 7)"),
        lying_npz("<U99999999", "(9,)"),
        lying_safetensors('{"weights":{"dtype":"F32","shape":[99999999,99999,9],"data_offsets":[0,4]}}'),
        lying_safetensors("[" * 100_000),
        lying_safetensors('{"__metadata__":' + '{"about":' * 50_000),
        (2**63).to_bytes(8, "little") + b"{}",
        renamed(masks={"causal": [[[0]] * 9] * 9}, queries=["x" * 10_000] * 5_000),
        renamed(layer=10**30),
        renamed(layer="9" * 5_000),
    ],
    ids=range(11),
)
def test_a_lie_about_its_size_is_a_sentence_and_takes_no_memory(file: bytes) -> None:
    tracemalloc.start()
    with pytest.raises(ValueError, match="expected") as refused:
        data.read(file)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 64e6
    assert len(str(refused.value)) < 500


def error_of(file: bytes) -> str:
    """Return the error message for a file that is not an export, "" for one that is."""
    try:
        assert data.read(file).chosen.weights.shape == (7, 7)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_damaged_file_opens_as_an_export_or_is_a_sentence(write: Callable[[Export], bytes]) -> None:
    """The file is cut, has bytes changed or has bytes inserted: 300 of each kind, always the same ones."""
    whole, random = write(export_of()), np.random.default_rng(7)
    refused = 0
    for _ in range(300):
        file, at = bytearray(whole), int(random.integers(len(whole)))
        for damaged in (
            file[:at],
            file[:at] + random.bytes(5) + file[at + 5 :],
            file[:at] + random.bytes(9) + file[at:],
        ):
            error = error_of(bytes(damaged))
            refused += bool(error)
            assert not error or ("expected" in error and len(error) < 500)
    assert refused > 300
