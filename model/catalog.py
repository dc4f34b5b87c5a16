"""Which models there are, loading them, what each can do, and its limits."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import torch
from tokenizers import Tokenizer
from tokenizers.implementations import ByteLevelBPETokenizer
from torch import Tensor

from model.base import Description
from model.gpt2 import AS_WE_DO, CheckpointError, load_transformer
from model.masks import MaskSpec, Place
from model.settings import Settings
from model.text import Encoder, TokenBatch, rows_of
from model.trace import LayerRecord, Trace
from model.transformer import Transformer, positions_under

if TYPE_CHECKING:
    from model.huggingface.hub import Progress

CHECKPOINTS = Path(__file__).parent / "checkpoints"
MOST_ROWS = 16
TRACE_BYTES = 256 * 2**20  # what one run may keep, but that one full row is always allowed


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A model the catalog knows by name."""

    name: str
    title: str
    repo: str | None = None  # on the Hugging Face hub; None for a model that ships
    megabytes: int = 0  # to download
    first_head: tuple[int, int] | None = None  # layer and head worth seeing first


ENTRIES = {
    entry.name: entry
    for entry in (
        Entry(name="story", title="story (built in)", first_head=(4, 0)),
        Entry(name="dates", title="dates (built in)", first_head=(0, 1)),
        Entry(name="distilgpt2", title="DistilGPT-2", repo="distilbert/distilgpt2", megabytes=353),
        Entry(name="gpt2", title="GPT-2", repo="openai-community/gpt2", megabytes=548, first_head=(5, 1)),
        Entry(name="gpt2-medium", title="GPT-2 medium", repo="openai-community/gpt2-medium", megabytes=1520),
        Entry(name="gpt2-large", title="GPT-2 large", repo="openai-community/gpt2-large", megabytes=3247),
        Entry(name="gpt2-xl", title="GPT-2 XL", repo="openai-community/gpt2-xl", megabytes=6431),
    )
}
FILES = ("config.json", "tokenizer.json", "model.safetensors")


class Model:
    """A decoder with its tokenizer. Read-only: a run leaves nothing in it, so many threads may share one.

    kind: "decoder", "encoder" or "encoder-decoder". attentions: the names that Trace.select takes. predicts: whether it
    has logits. key_value_heads: for each query head of a layer, the key-value head it reads.
    """

    standard = MaskSpec()  # the masks it was trained with
    kind = "decoder"
    attentions: tuple[str, ...] = ("self",)
    predicts = True

    def __init__(self, name: str, network: Transformer, encoder: Encoder) -> None:
        self.name = name
        self.key = uuid4().hex  # of these weights as loaded: what a cache of runs tells models apart by
        self._network = network
        self._encoder = encoder
        config = network.config
        self.num_layers, self.num_heads, self.context = config.layers, config.heads, config.context
        self.key_value_heads: tuple[int, ...] = tuple(range(self.num_heads))
        per_token = 4 * config.width * (3 * config.layers + 1)  # q, k, v of every layer and the last states, float32
        self.most_cells = max(config.context, TRACE_BYTES // per_token)

    def encode(self, texts: list[str], pad_side: str = "right", targets: list[str] | None = None) -> TokenBatch:
        """One row a text, padded on pad_side; adds a start token where the model was trained with one.

        Raises ValueError for targets: only an encoder-decoder has them.
        """
        if targets is not None:
            raise ValueError(f"{self.name} is no encoder-decoder: it takes texts, no targets")
        return self._encoder.encode(texts, pad_side)

    def label(self, token: int) -> str:
        """What to show for an id."""
        return self._encoder.label(token)

    def describe(self) -> Description:
        """What a page says of it."""
        return Description(
            architecture="GPT-2",
            kind=self.kind,
            layers={"self": self.num_layers},
            heads=self.num_heads,
            key_value_heads=self.num_heads,
            context=self.context,
            masks=("causal", "padding"),
            parameters=sum(parameter.numel() for parameter in self._network.parameters()),
        )

    @torch.inference_mode()
    def run(self, batch: TokenBatch, spec: MaskSpec | None = None) -> Trace:
        """One forward pass under the masks of spec, the standard ones unless given.

        Raises ValueError for a spec of layers or heads that are not there.
        """
        spec = spec or self.standard
        spec.check_scope(self.num_layers, self.num_heads)
        length = batch.ids.shape[1]
        places = [
            Place(batch.keep, length, self.num_heads, layer, standard=self.standard, documents=batch.documents)
            for layer in range(self.num_layers)
        ]
        made: dict = {}  # layers under the same masks share them
        allowed = [place.allowed(spec, made) for place in places]
        states, qkvs = self._network(batch.ids, positions_under(spec, batch), allowed)
        layers = tuple(LayerRecord(q, k, v, place) for (q, k, v), place in zip(qkvs, places, strict=True))
        return Trace(batch, spec, layers, states, self.readout)

    def readout(self, states: Tensor) -> Tensor:
        """Final states [.., W] -> logits [.., V]."""
        return self._network.logits(states)


def offered(settings: Settings | None = None) -> tuple[str, ...]:
    """The names to choose from: the catalog's, or those that a hosted demo is set to."""
    return (settings or Settings.from_environment()).models or tuple(ENTRIES)


def fetch(name: str, progress: "Progress | None" = None, settings: Settings | None = None) -> Path:
    """The folder with the model's files, downloaded first where they are not on this machine.

    Raises hub.NotAvailable when they cannot be had; CheckpointError (a ValueError) for a name that means nothing or is
    not offered here, or for files that make no model; folders.TooLarge, a kind of it, for more weights than allowed.
    """
    settings = settings or Settings.from_environment()
    entry = _entry(name)
    ships = entry is not None and entry.repo is None
    if settings.models and name not in settings.models and not ships:
        raise CheckpointError(f"{name} is not offered here. Choose one of {', '.join(settings.models)}.")
    if ships:
        return CHECKPOINTS / name
    from model.huggingface import (
        checkpoint_files,
        hub,  # the hub's client takes a while to import, and the first page does without
    )

    if entry is None or entry.repo is None:
        return checkpoint_files.fetch(name, progress, settings)
    checkpoint_files.check_memory(
        name, entry.megabytes * 1e6
    )  # chosen here by name, so the limit for others is not theirs
    return hub.cached(entry.name, FILES) or hub.download(entry.repo, FILES, progress)  # "gpt2" was its id for years


def load(name: str, progress: "Progress | None" = None, settings: Settings | None = None) -> Model:
    """A model by its catalog name, by its id on the hub, or from a folder.

    Raises what fetch raises, and CheckpointError when the files cannot be used.
    """
    settings = settings or Settings.from_environment()
    folder = fetch(name, progress, settings)
    if _entry(name) is None:
        from model.huggingface import checkpoint_files

        if not (checkpoint_files.is_path(name) and _is_ours(folder)):
            from model.huggingface import adapter  # takes seconds to import, so only when such a model is chosen

            return adapter.from_folder(name, folder, settings)
        checkpoint_files.check_limits(name, folder, settings)
    return _from_folder(name, folder)


def first_head(model: Model) -> tuple[int, int]:
    """The layer and head to show before anybody has chosen one."""
    entry = ENTRIES.get(model.name)
    return (entry and entry.first_head) or (model.num_layers // 2, 0)


@dataclass(frozen=True)
class Reading:
    """What of a text a model reads: the rows, their batch, and how many rows were left out for want of room."""

    rows: list[str]
    batch: TokenBatch
    rows_left_out: int

    def nbytes(self) -> int:
        """The memory it takes, in bytes, about."""
        characters = sum(map(len, self.rows)) + sum(map(len, self.batch.cut))
        return 4 * characters + 100 * self.batch.ids.numel()


def read(model: Model, text: str, pad_side: str, targets: list[str] | None = None) -> Reading:
    """A text, one row for each line that is not blank; for an encoder-decoder with its targets, one for each row.

    At most MOST_ROWS rows, and no more than a run may keep (model.most_cells tokens, padding included). Raises
    ValueError where no line holds anything.
    """
    rows, left_out = rows_of(text, MOST_ROWS)
    batch = model.encode(rows, pad_side, targets and targets[: len(rows)])
    room = max(model.most_cells // batch.ids.shape[1], 1)
    if room < len(rows):
        left_out += len(rows) - room
        rows = rows[:room]
        batch = model.encode(rows, pad_side, targets and targets[:room])
    return Reading(rows, batch, left_out)


def _entry(name: str) -> Entry | None:
    """The catalog's entry under its name or its id on the hub."""
    return ENTRIES.get(name) or next((entry for entry in ENTRIES.values() if entry.repo == name), None)


def _is_ours(folder: Path) -> bool:
    """Whether it holds a GPT-2 that our own Transformer computes as it should be."""
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        return False
    return (
        isinstance(config, dict)
        and "model_type" in config
        and all(config.get(name, value) == value for name, value in AS_WE_DO.items())
    )


def _from_folder(name: str, folder: Path) -> Model:
    if name == "dates":
        from model.cross_attention import dates  # which imports this module

        return dates.load(folder, name)
    tokenizer = _tokenizer(folder)
    network = load_transformer(folder)
    entries, known = tokenizer.get_vocab_size(), network.config.vocabulary
    if entries > known:
        raise CheckpointError(
            f"{folder}: expected a tokenizer of at most {known} entries (the model's vocabulary), found {entries}"
        )
    start = tokenizer.token_to_id("<start>")
    pad = tokenizer.token_to_id("<pad>")
    encoder = Encoder(tokenizer, network.config.context, pad=known - 1 if pad is None else pad, start=start)
    return Model(name, network, encoder)


def _tokenizer(folder: Path) -> Tokenizer:
    """tokenizer.json, or GPT-2's two files under either of their names."""
    whole = folder / "tokenizer.json"
    try:
        if whole.exists():
            return Tokenizer.from_file(str(whole))
        for vocabulary, merges in (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")):
            if (folder / vocabulary).exists() and (folder / merges).exists():
                pair = ByteLevelBPETokenizer(str(folder / vocabulary), str(folder / merges))
                return Tokenizer.from_str(pair.to_str())
    except Exception as error:  # noqa: BLE001 - the library raises plain Exception
        raise CheckpointError(f"{folder}: expected a tokenizer, found a damaged one ({error})") from None
    raise CheckpointError(f"{folder}: expected tokenizer.json (or vocab.json and merges.txt), found none")
