"""Export of one text's numbers: NPZ and safetensors, which can be read back, CSV for spreadsheets, JSON metadata.

A file holds N heads of one text, Q queries by K keys: `weights` and `scores` (scaled, before the masks), float32
[N,Q,K]; `mask:NAME`, bool [N,Q,K], True = blocked by it; `layers` and `heads`, int64 [N]; `query_ids`, int64 [Q], and
`key_ids`, int64 [K]: the tokens; `about`: what the numbers describe.
"""

import csv
import hashlib
import io
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from i18n import N_, say, say_all
from model import files as uploads
from model.errors import first_line
from model.heads.view import HeadView, head_name
from viz.hatch import LINES, blocking

FORMAT = 1
MAX_BYTES = 64 * 2**20  # of a file, and of the numbers in it
MAX_ABOUT = 4 * 2**20  # of `about` in a file
UNPACKED = 4  # times the largest file: most bytes that an NPZ unpacks to. Zeros would unpack to a thousand times theirs
MAX_SIDE = 4096
ABOUT = "about.json"
MASK = "mask:"
FORMULA_SIGNS = "=+-@\t\r"  # a spreadsheet parses a cell that begins with one of these as a formula

Id = Annotated[int, Field(ge=0, lt=2**63)]
Heads = dict[tuple[int, int], HeadView]


class About(BaseModel):
    """Metadata of exported numbers. Layers and heads count from 0; masks: a MaskSpec as plain data. scope: "model" if
    the model ran under these masks; "layer" if it ran under its standard ones, and the weights of the layer in
    masks["layers"] were recomputed from that run's queries and keys: run.trace.weights(layer, head, masks=these).
    queries, keys: a label for each token; query_ids, key_ids: its id, None in files of an earlier version, and if
    tokens are merged into units, given by `by`."""

    model_config = ConfigDict(frozen=True, extra="ignore")  # a later version may have more fields

    format: int = Field(default=FORMAT, ge=1, le=FORMAT)
    unmask: str = Field(default="", max_length=100)
    model: str = Field(max_length=300)
    attention: str = Field(default="self", max_length=20)
    layer: int = Field(ge=0)  # the chosen head
    layer_numbers: tuple[Id, ...] = ()  # of each layer in the network, where these are not 0, 1, 2 …
    head: int = Field(ge=0)
    text_sha256: str = Field(pattern="^[0-9a-f]{64}$")
    target_sha256: str = Field(default="", pattern="^([0-9a-f]{64})?$")  # of an encoder-decoder's target
    masks: dict[str, Any]
    scope: Literal["model", "layer"] = "model"  # absent in files of an earlier version
    queries: tuple[str, ...] = Field(min_length=1, max_length=MAX_SIDE)
    keys: tuple[str, ...] = Field(min_length=1, max_length=MAX_SIDE)
    query_ids: tuple[Id, ...] | None = None
    key_ids: tuple[Id, ...] | None = None
    by: Literal["tokens", "words", "sentences"] = "tokens"

    def name(self, layer: int, head: int | None = None) -> str:
        """Return the name of a head, or of its layer, numbered as in the network."""
        return head_name(self.layer_numbers[layer] if layer < len(self.layer_numbers) else layer, head)

    @model_validator(mode="after")
    def _an_id_for_each_token(self) -> "About":
        for ids, labels in ((self.query_ids, self.queries), (self.key_ids, self.keys)):
            if ids is not None and len(ids) != len(labels):
                raise ValueError(f"{len(ids)} ids of {len(labels)} tokens")  # not shown
        return self


@dataclass(frozen=True, eq=False)
class Export:
    """Contents of a file: whole heads, by layer and head, and their metadata."""

    about: About
    heads: Heads

    @property
    def chosen(self) -> HeadView:
        """The head that was shown when the file was saved."""
        return self.heads[self.about.layer, self.about.head]


def hash_of(text: str) -> str:
    """Return the SHA-256 that identifies a text in a file that does not contain it."""
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


def size_of(view: HeadView, heads: int) -> int:
    """Return the uncompressed size of `heads` heads like this one in bytes: two numbers and a mask for each cell."""
    return heads * view.weights.size * 9


def fits(view: HeadView, heads: int = 1) -> bool:
    """Whether `heads` heads like this one fit into a file."""
    return size_of(view, heads) <= MAX_BYTES


def as_json(export: Export) -> bytes:
    """Write `about` as JSON, to accompany files that contain only numbers."""
    return json.dumps(export.about.model_dump(), ensure_ascii=False, indent=1).encode("utf-8", "backslashreplace")


def as_npz(export: Export) -> bytes:
    """Write a file for numpy.load: the arrays, and about.json as bytes."""
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **_arrays(export))
    with zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(ABOUT, as_json(export))
    return file.getvalue()


def as_safetensors(export: Export) -> bytes:
    """Write a safetensors file: the arrays, and `about` in its metadata."""
    arrays = {name: np.ascontiguousarray(array) for name, array in _arrays(export).items()}
    return safetensors.save(arrays, metadata={"about": as_json(export).decode()})


def as_csv(export: Export) -> str:
    """Write the chosen head as CSV, a line for each cell: query, key, weight, scaled score, and masks that block it."""
    return csv_text(_lines(export.chosen))


def _lines(view: HeadView) -> Iterator[tuple[object, ...]]:
    yield "query", "query token", "key", "key token", "weight", "scaled score", "blocked by"  # not shown
    blockers = np.full(view.weights.shape, "", object)
    for names, blocked in blocking(view):
        blockers[blocked] = " and ".join(names)
    keys, number = [*map(cell, view.keys)], "{:.9g}".format
    for query, label in enumerate(map(cell, view.queries)):  # row by row: a long text has millions of cells
        weights, scores = (map(number, some[query].tolist()) for some in (view.weights, view.scaled))
        every = zip(range(len(keys)), keys, weights, scores, blockers[query].tolist(), strict=True)
        yield from ((query, label, *cell) for cell in every)


def read(data: bytes, most: int = MAX_BYTES) -> Export:
    """Read a file of at most `most` bytes, written by as_npz or as_safetensors. Nothing in it is trusted, nothing is
    executed.

    Raises ValueError with what was expected and found.
    """
    if len(data) > most:
        words = N_("expected at most {most:.0f} MB, got {found:.0f}")
        raise ValueError(say(words, most=most / 2**20, found=len(data) / 2**20))
    about, arrays = _read_npz(data, UNPACKED * most) if data.startswith(b"PK") else _read_safetensors(data)
    if len(about) > MAX_ABOUT:
        words = N_("expected at most {most:.0f} MB of {file}, got {found:.0f}")
        raise ValueError(say(words, most=MAX_ABOUT / 2**20, file=ABOUT, found=len(about) / 2**20))
    try:
        known = About.model_validate_json(about)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "it"
        words = N_("expected an export of Unmask, but its {file} does not fit ({where}: {problem})")
        raise ValueError(say(words, file=ABOUT, where=where, problem=first["msg"])) from None
    return Export(known, _heads(known, arrays))


def _problem(error: Exception) -> str:
    return say("it has no {missing}", missing=error.args[0]) if isinstance(error, KeyError) else first_line(error)


def _arrays(export: Export) -> dict[str, np.ndarray]:
    views = list(export.heads.values())
    names = dict.fromkeys(name for view in views for name in view.blocked)
    masks = {
        MASK + name: np.stack([view.blocked.get(name, np.zeros(view.weights.shape, bool)) for view in views])
        for name in names
    }
    heads = np.array(list(export.heads), np.int64)
    ids = {"query_ids": export.about.query_ids, "key_ids": export.about.key_ids}
    tokens = {name: np.array(some, np.int64) for name, some in ids.items() if some is not None}
    numbers = {
        "weights": np.stack([view.weights for view in views]).astype(np.float32),
        "scores": np.stack([view.scaled for view in views]).astype(np.float32),
    }
    return masks | tokens | numbers | {"layers": heads[:, 0], "heads": heads[:, 1]}


def _heads(about: About, arrays: Mapping[str, np.ndarray]) -> Heads:
    missing = {"weights", "scores", "layers", "heads"} - set(arrays)
    if missing:
        words = N_("expected the arrays weights, scores, layers and heads, found no {missing}")
        raise ValueError(say(words, missing=say_all(sorted(missing), last="or")))
    masks = {name.removeprefix(MASK): array for name, array in arrays.items() if name.startswith(MASK)}
    if unknown := set(masks) - set(LINES):
        found = ", ".join(sorted(unknown))[:80]
        raise ValueError(say("expected masks of {known}, got {found}", known=", ".join(LINES), found=found))
    weights, scores = arrays["weights"], arrays["scores"]
    shape = (*weights.shape[:1], len(about.queries), len(about.keys))
    kinds = {"weights": "f4", "scores": "f4", "layers": "i8", "heads": "i8"} | {MASK + name: "?" for name in masks}
    for name, kind in kinds.items():
        array, wanted = arrays[name], shape[:1] if kind == "i8" else shape
        if array.dtype != kind or array.shape != wanted:
            expected, found = f"{np.dtype(kind)} {list(wanted)}", f"{array.dtype} {list(array.shape)}"
            words = N_("expected {name} as {expected}, got {found}")
            raise ValueError(say(words, name=name, expected=expected, found=found))
    if not ((weights >= 0) & (weights <= 1 + 1e-5)).all() or np.isnan(scores).any():
        raise ValueError(say("expected weights from 0 to 1, and scores that are numbers"))
    heads = list(zip(arrays["layers"].tolist(), arrays["heads"].tolist(), strict=True))
    if len(set(heads)) != shape[0] or (about.layer, about.head) not in heads or min(map(min, heads)) < 0:
        words = N_("expected {count} different heads, counted from 0, with layer {layer}, head {head} among them")
        raise ValueError(say(words, count=shape[0], layer=about.layer, head=about.head))
    labels = list(about.queries), list(about.keys)
    blocked = ({name: mask[at] for name, mask in masks.items()} for at in range(len(heads)))
    return {
        head: HeadView(weight, score, masks_of, *labels, merged=about.by != "tokens")
        for head, weight, score, masks_of in zip(heads, weights, scores, blocked, strict=True)
    }


def _read_npz(data: bytes, unpacked: int) -> tuple[str | bytes, dict[str, np.ndarray]]:
    try:
        files = uploads.unzip(data, unpacked)
        about = files.pop(ABOUT)
        arrays = {name.removesuffix(".npy"): _array(file) for name, file in files.items()}
    except Exception as error:  # noqa: BLE001 - zipfile and numpy may raise anything for a hostile file
        words = N_("expected an NPZ that Unmask saved, got one that cannot be read ({problem})")
        raise ValueError(say(words, problem=_problem(error))) from None
    return about, arrays


def _array(file: bytes) -> np.ndarray:
    """Read an .npy file from the bytes present; numpy.load would first allocate whatever its header claims."""
    shape, fortran, dtype, offset = uploads.npy_header(file)
    if dtype.hasobject or fortran:
        raise ValueError(say("expected plain numbers, row by row"))
    return np.frombuffer(file, dtype, offset=offset).reshape(shape)


def _read_safetensors(data: bytes) -> tuple[str | bytes, dict[str, np.ndarray]]:
    length = int.from_bytes(data[:8], "little")
    try:
        if length > 2 * MAX_ABOUT:  # in the header, `about` is a JSON string with escapes
            raise ValueError(say("a header of {length:,} bytes", length=length))
        arrays = safetensors.load(data)
        about = json.loads(data[8 : 8 + length])["__metadata__"]["about"]
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        words = N_("expected an NPZ or a safetensors file that Unmask saved, got neither ({problem})")
        raise ValueError(say(words, problem=_problem(error))) from None
    return about, arrays


def csv_text(lines: Iterable[Sequence[object]]) -> str:
    """Return lines of cells as CSV, with the mark at the beginning by which spreadsheets read it as UTF-8."""
    file = io.StringIO()
    file.write("\ufeff")
    csv.writer(file).writerows(lines)
    return file.getvalue()


def cell(label: str) -> str:
    """Escape a label so that no spreadsheet parses it as a formula."""
    return f"'{label}" if len(label) > 1 and label[0] in FORMULA_SIGNS else label
