"""The interface of all models, their descriptions, and the tokenization of a text for a model. No model in it."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

from torch import Tensor, nn

from i18n import N_, msg, msg_list
from model.attribution.linearized_run import LinearizedRun
from model.blocks import KeysValues
from model.errors import CheckpointError, NotSupported
from model.hardware import CPU, Hardware
from model.masks import MaskContext, Masking, MaskSpec
from model.text import TokenBatch, rows_of
from model.trace import LayerRecord, Trace

CHECKPOINTS = Path(__file__).parent / "checkpoints"  # the bundled models, one folder each
MAX_ROWS = 16
TRACE_BYTES = 256 * 2**20  # most bytes that one run may keep; one full row is always allowed

HeadEdit = Callable[[str, int, LayerRecord, Tensor], Tensor]
"""(which attention, layer, its record, its heads' outputs [B,H,Q,D]) -> what its output projection gets instead."""
StreamEdit = Callable[[int, Tensor], Tensor]
"""(layer, counted over all of the network's, the residual stream that enters it [B,T,W]) -> what enters instead."""


@dataclass(frozen=True, eq=False)
class Residuals:
    """The residual stream of a run. streams: [B,T,W] each, the input of the first layer and the output of each layer;
    of an encoder-decoder, the decoder's. final: maps the last of them to the run's states, which `Model.readout`
    takes."""

    streams: tuple[Tensor, ...]
    final: Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Description:
    """The properties of a model. kind: "decoder", "encoder" or "encoder-decoder". layers: the number of layers of each
    attention, by its name. heads, key_value_heads: those of the attention that is shown first; key_value_heads equals
    heads, too, if its layers differ in key-value heads. heads_by_part: both for each attention, by its name; may be
    empty for a model that has one attention. context: the number of positions it was made for. masks: its native masks.
    sizes: of native masks that have one, by name: the number of positions in the first such layer, and the number of
    such layers.

    layer_numbers: for an attention by its name, the number in the network of each of its layers, from 0; empty if they
    are 0, 1, 2 … layer_kinds: for a network whose layers are not all plain attention, the kind of each, translated
    where shown; else empty. precision: a short phrase on the device and precision of the computation.
    """

    architecture: str
    kind: str
    layers: dict[str, int]
    heads: int
    key_value_heads: int
    context: int
    masks: tuple[str, ...]
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    parameters: int = 0
    precision: str = ""
    heads_by_part: dict[str, tuple[int, int]] = field(default_factory=dict)
    layer_numbers: dict[str, tuple[int, ...]] = field(default_factory=dict)
    layer_kinds: tuple[str, ...] = ()

    def shape(self, attention: str) -> tuple[int, int]:
        """Return the number of layers and heads of an attention."""
        return self.layers[attention], self.heads_by_part.get(attention, (self.heads, self.key_value_heads))[0]

    def layer_number(self, attention: str, layer: int) -> int:
        """Return the number in the network of the layer with index `layer` in a trace of this attention."""
        numbers = self.layer_numbers.get(attention, ())
        return numbers[layer] if numbers else layer

    def other_layers(self) -> str:
        """Return a sentence: which layers besides attention mix tokens, and what a lifted mask means for them; "" if
        there are none."""
        others = [(number, kind) for number, kind in enumerate(self.layer_kinds) if kind != "attention"]
        if not others:
            return ""
        kinds = {kind: [number for number, other in others if other == kind] for _, kind in others}
        each = [msg("{kind} in {layers}", kind=msg(kind), layers=ranges(numbers)) for kind, numbers in kinds.items()]
        template = N_("Layers other than plain attention: {kinds}. Turning a mask off affects only the attention.")
        return msg(template, kinds=msg_list(each, N_("; ")))


def ranges(numbers: Sequence[int]) -> str:
    """Format increasing numbers as ranges: [0, 1, 2, 4] -> "0-2, 4"."""
    known = set(numbers)
    begins = [number for number in numbers if number - 1 not in known]
    ends = [number for number in numbers if number + 1 not in known]
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(begins, ends, strict=True))


@dataclass(frozen=True, eq=False)
class CachedCall:
    """The result of one call with a cache. states: [B,Q,W]. records: one per layer; their keys are those of all K
    positions. cache: for the next call, in the model's private format."""

    states: Tensor
    records: tuple[LayerRecord, ...]
    cache: Any


class Model(ABC):
    """A network with its tokenizer. Read-only: a run stores nothing in it, so threads may share one.

    kind: "decoder", "encoder" or "encoder-decoder". attentions: the names that Trace.select takes. predicts: whether it
    has logits. num_layers and num_heads are those of the attention that a new trace shows; key_value_heads: for each of
    its query heads, the key-value head that it uses. context: the maximum number of positions of a row; most_cells: of
    a batch. network: holds its weights. hardware: what computes it. added_after: how many tokens it adds after a text.
    given: how many tokens every target of an encoder-decoder begins with, which it does not generate itself.
    """

    network: nn.Module
    standard = MaskSpec()  # the masks it was trained with
    kind = "decoder"
    attentions: tuple[str, ...] = ("self",)
    predicts = True
    takes_positions = True  # whether it takes position ids; RoBERTa, for example, computes its own
    chats = False  # whether it is a decoder that has a chat template
    hardware: Hardware = CPU
    added_after = 0
    given = 1

    def __init__(
        self,
        name: str,
        *,
        num_layers: int,
        num_heads: int,
        context: int,
        bytes_per_token: int,
        key_value_heads: tuple[int, ...] | None = None,
        key: str | None = None,
    ) -> None:
        """bytes_per_token: memory that a run keeps for each position. key: identifies these weights in a cache of runs;
        unique to this instance unless given."""
        self.name = name
        self.key = key or uuid4().hex
        self.num_layers, self.num_heads, self.context = num_layers, num_heads, context
        self.key_value_heads = tuple(range(num_heads)) if key_value_heads is None else key_value_heads
        self.most_cells = max(context, TRACE_BYTES // bytes_per_token)

    @abstractmethod
    def encode(self, texts: list[str], pad_side: str = "right", targets: list[str] | None = None) -> TokenBatch:
        """Tokenize texts, one row each, padded on pad_side, with the tokens that the model was trained to see around
        every text. An encoder-decoder's batch is its targets, one for each text, with the texts as its source; without
        targets the model generates them. Raises ValueError for targets that are not one per text, or not supported."""

    def encode_rendered(self, text: str) -> tuple[TokenBatch, frozenset[int]]:
        """Tokenize a text that the chat template rendered, as one row; also return the ids that count as special tokens
        in it. Raises NotSupported for a model that takes no messages."""
        template = N_("{model} takes no messages: only a decoder with a chat template does. Type a text instead.")
        raise NotSupported(msg(template, model=self.name))

    @abstractmethod
    def label(self, token: int) -> str:
        """Return the label to show for an id."""

    def ranked(self, values: Tensor, count: int, *, largest: bool = True) -> tuple[tuple[str, float], ...]:
        """Return up to `count` ids with the largest or smallest of values [V]: each one's label and value."""
        found = values.topk(min(count, len(values)), largest=largest)
        return tuple(zip(map(self.label, found.indices.tolist()), found.values.tolist(), strict=True))

    def extremes(self, values: Tensor, count: int) -> tuple[tuple[tuple[str, float], ...], ...]:
        """Return `ranked` in both directions: the largest values above 0, and the smallest below 0."""
        largest, smallest = (self.ranked(values, count, largest=which) for which in (True, False))
        return tuple(one for one in largest if one[1] > 0), tuple(one for one in smallest if one[1] < 0)

    @cached_property
    def parameters(self) -> int:
        """The number of parameters."""
        return sum(weight.numel() for weight in self.network.parameters())

    @property
    def vocabulary(self) -> int:
        """The size of its tokenizer's vocabulary; 0 for a model that reads no text."""
        return 0

    @property
    def num_ids(self) -> int:
        """The number of ids it takes and predicts, from 0: its embedding may have more than its tokenizer."""
        return self.vocabulary

    @abstractmethod
    def describe(self) -> Description:
        """The model's description, for pages to show."""

    def described(self, **own: Any) -> Description:
        """Return the description of a model with one key-value head per query head. own: fields to set or override."""
        heads = {"heads": self.num_heads, "key_value_heads": self.num_heads}
        usual: dict[str, Any] = {"layers": {"self": self.num_layers}, "context": self.context, **heads}
        return Description(**usual | own, kind=self.kind, parameters=self.parameters)

    @abstractmethod
    def run(self, batch: TokenBatch, spec: MaskSpec | None = None, edit: HeadEdit | None = None) -> Trace:
        """Run one forward pass under the masks of spec (default: the standard ones), with each attention's heads
        changed by edit. Raises ValueError for a spec of layers or heads that do not exist, NotSupported if heads cannot
        be edited."""

    @abstractmethod
    def readout(self, states: Tensor) -> Tensor:
        """Map final states [.., W] to logits [.., V]."""

    def call(
        self, batch: TokenBatch, positions: Tensor, spec: MaskSpec, cache: Any, masking: Masking = MaskContext.allowed
    ) -> CachedCall:
        """Run the last Q of a batch's K tokens, at positions [B,Q]; the keys and values of the others come from the
        cache. cache: returned by the previous call, and not modified; None for the first call. masking: returns each
        layer's mask, [Q,K]. Raises NotSupported for a model without a cache."""
        raise NotSupported(msg("{model}: it cannot be run in several calls here. Choose a decoder", model=self.name))

    def keys_values(self, cache: Any) -> list[KeysValues]:
        """Return the keys and values of each layer. Raises NotSupported for a cache that also holds other states."""
        pairs: list[KeysValues] = cache
        return pairs

    def cache_of(self, pairs: list[KeysValues]) -> Any:
        """Build a cache from keys and values."""
        return pairs

    def residuals(
        self, batch: TokenBatch, spec: MaskSpec, edit: HeadEdit | None = None, entering: StreamEdit | None = None
    ) -> Residuals:
        """Return the residual stream of a run under spec, with heads changed by edit and each layer's input by
        entering. Raises NotSupported if it is not available."""
        template = N_("{model}: the states after each of its layers are not available here. Choose another model")
        raise NotSupported(msg(template, model=self.name))

    def frozen(self, trace: Trace, row: int) -> LinearizedRun:
        """Return one row of a run of this model with frozen norms. Raises NotSupported if that is not available."""
        template = N_("{model}: what its parts add to the residual stream is not available here")
        raise NotSupported(msg(template, model=self.name))


def check_finite(name: str, network: nn.Module) -> None:
    """Raise CheckpointError if a weight contains NaN or infinity."""
    for part, weight in network.named_parameters():
        if weight.numel() and not all(end.isfinite() for end in weight.aminmax()):  # makes no copy
            template = N_("{model}: its weights contain numbers that are not finite ({part}). Choose another model.")
            raise CheckpointError(msg(template, model=name, part=part))


@dataclass(frozen=True)
class TokenizedText:
    """A tokenized text: its rows, their batch, and the number of rows left out because they did not fit."""

    rows: list[str]
    batch: TokenBatch
    rows_left_out: int

    def nbytes(self) -> int:
        """Return the approximate memory it takes, in bytes."""
        characters = sum(map(len, self.rows)) + sum(map(len, self.batch.cut))
        return 4 * characters + 100 * self.batch.ids.numel()


def tokenize(
    model: Model, text: str, pad_side: str, targets: Sequence[str] | None = None, *, most_rows: int = MAX_ROWS
) -> TokenizedText:
    """Tokenize a text, one row for each line that is not blank; for an encoder-decoder with its targets, one for each
    row. At most most_rows rows, and no more than a run may keep (model.most_cells tokens, padding included). Raises
    ValueError if every line is blank."""
    rows, left_out = rows_of(text, most_rows)
    targets = None if targets is None else list(targets)
    batch = model.encode(rows, pad_side, targets and targets[: len(rows)])
    room = max(model.most_cells // batch.ids.shape[1], 1)
    if room < len(rows):
        left_out += len(rows) - room
        rows = rows[:room]
        batch = model.encode(rows, pad_side, targets and targets[:room])
    return TokenizedText(rows, batch, left_out)


def files_key(name: str, folder: Path) -> str:
    """Return a key that is equal for the same files under the same name, in every process and after every load."""
    paths = [*folder.iterdir()]
    if folder.name.startswith("checkpoint-"):  # a training checkpoint, whose tokenizer may be in the folder above
        from model.huggingface.checkpoint_files import SMALL

        paths += [folder.parent / file for file in SMALL]
    files = sorted(path for path in paths if path.is_file())
    stamps = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return f"{name}@{hashlib.sha256(repr(stamps).encode()).hexdigest()[:16]}"
