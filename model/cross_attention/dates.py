"""The dates model: a built-in encoder-decoder, from a date in everyday notation to ISO 8601, character by character.

Sizes: B rows, S source characters, T target characters from the start token on, V vocabulary.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path

import torch
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as as_safetensors
from tokenizers import Regex, Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from torch import Tensor

from i18n import N_, msg
from model.base import CHECKPOINTS, Description, HeadEdit, Model
from model.blocks import positions_under
from model.cross_attention.written_dates import CHARACTERS, examples, held_out_days
from model.errors import CheckpointError, NotSupported
from model.files import write
from model.masks import MASK_NAMES, MaskContext, MaskSpec, TextSplit, allowed_by_layer
from model.text import BatchTokenizer, TokenBatch, check_targets
from model.trace import Attention, LayerRecord, Trace, records_of
from model.transformer import EncoderDecoder, EncoderDecoderConfig

FOLDER = CHECKPOINTS / "dates"
PAD, START, END, UNKNOWN = range(4)
SPECIAL = ("<pad>", "<start>", "<end>", "<unknown>")
MODEL_TYPE = "unmask_encoder_decoder"
MAX_WRITTEN = 12  # most characters of a target; a date has 10
PARTS = ("encoder", "decoder", "cross")
AVAILABLE = {  # the masks that a user can switch; a source and cross-attention have no causal mask
    "encoder": frozenset(MASK_NAMES) - {"causal"},
    "decoder": frozenset(MASK_NAMES),
    "cross": frozenset({"padding"}),
}


@dataclass(frozen=True, eq=False)
class Written:
    """Greedily generated targets of a batch. texts [B]: the characters up to the end token. probabilities [B]: of each
    of them, and of the end token if it was generated; each is that of the most likely character at its step, 0 to 1."""

    texts: tuple[str, ...]
    probabilities: tuple[tuple[float, ...], ...]
    ids: tuple[tuple[int, ...], ...]


class DatesModel(Model):
    """An encoder-decoder as a read-only Model, which threads may share. A target begins with a start token."""

    standard = MaskSpec()  # the masks used in training: causal in the decoder, padding everywhere
    kind = "encoder-decoder"
    attentions = PARTS
    predicts = True
    network: EncoderDecoder

    def __init__(self, name: str, network: EncoderDecoder, tokenizer: Tokenizer) -> None:
        config = network.config
        super().__init__(
            name,
            num_layers=config.decoder_layers,
            num_heads=config.heads,
            context=config.context,
            bytes_per_token=24 * config.width * (3 * config.decoder_layers + 1),
        )
        self.network = network
        tokenizer.decoder = Fuse()  # each token is a character
        self._sources = BatchTokenizer(tokenizer, config.context, pad=PAD)
        self._targets = BatchTokenizer(tokenizer, config.context, pad=PAD, start=[START])

    def encode(self, texts: list[str], pad_side: str = "right", targets: list[str] | None = None) -> TokenBatch:
        """Encode one row per text: its target, with the texts as source. Without targets the model generates them.
        Raises ValueError unless there is one target per text, and as BatchTokenizer.encode does."""
        source = self._sources.encode(texts, pad_side)
        if targets is None:
            rows = [*map(_until_end, self.write(source).ids)]
            return replace(self._targets.written(rows, pad_side), source=source)
        check_targets(targets, texts)
        return replace(self._targets.encode(targets, pad_side), source=source)

    def encode_source(self, texts: list[str]) -> TokenBatch:
        """Encode the texts alone, one row each, for `write`."""
        return self._sources.encode(texts)

    def label(self, token: int) -> str:
        return self._targets.label(token)

    def describe(self) -> Description:
        config = self.network.config
        return self.described(
            architecture=msg("character-level Transformer"),
            layers={"encoder": config.encoder_layers, "decoder": config.decoder_layers, "cross": config.decoder_layers},
            heads_by_part=dict.fromkeys(PARTS, (config.heads, config.heads)),
            masks=("causal", "padding"),
        )

    @torch.inference_mode()
    def run(self, batch: TokenBatch, spec: MaskSpec | None = None, edit: HeadEdit | None = None) -> Trace:
        """See Model.run; the decoder runs on batch as it is. Raises ValueError for a batch without a source."""
        spec = spec or self.standard
        if edit is not None:
            template = N_("{model}: the outputs of its heads cannot be changed here. Choose another model")
            raise NotSupported(msg(template, model=self.name))
        if batch.source is None:
            raise ValueError(
                f"{self.name} is an encoder-decoder: expected a batch with a source"  # not shown
            )
        spec.check_scope(max(self.describe().layers.values()), self.num_heads)
        source = batch.source
        memory, encoder = self._read(source, spec)
        states, decoder, cross = self._decoded(batch, memory, source, spec, batch.split)
        parts = {
            "encoder": Attention(encoder, source, source),
            "decoder": Attention(decoder, batch, batch),
            "cross": Attention(cross, batch, source),
        }
        return Trace(batch, spec, parts["decoder"].layers, states, self.readout, "decoder", parts)

    def readout(self, states: Tensor) -> Tensor:
        return self.network.logits(states)

    @torch.inference_mode()
    def write(self, source: TokenBatch, spec: MaskSpec | None = None) -> Written:
        """Generate a target for each row of source, greedily, under the masks of spec.

        Every step recomputes all characters so far: without a causal mask, earlier characters attend to later ones."""
        spec = spec or self.standard
        rows = torch.full((len(source.ids), 1), START)
        memory, _ = self._read(source, spec)
        chances, ended = [], torch.zeros(len(rows), dtype=torch.bool)
        for _ in range(MAX_WRITTEN):
            so_far = TokenBatch(rows, torch.ones_like(rows, dtype=torch.bool), ())
            states, _, _ = self._decoded(so_far, memory, source, spec.replace(positions="counted"))
            chance, token = self.readout(states[:, -1]).softmax(-1).max(-1)
            rows = torch.cat([rows, token[:, None]], dim=-1)
            chances.append(chance)
            ended |= token == END
            if ended.all():
                break
        ids = [tuple(row[: row.index(END) + 1] if END in row else row) for row in rows[:, 1:].tolist()]
        texts = ("".join(self._targets.label(token) for token in _until_end(row)) for row in ids)
        pairs = zip(torch.stack(chances, dim=-1).tolist(), ids, strict=True)
        return Written(tuple(texts), tuple(tuple(chance[: len(row)]) for chance, row in pairs), tuple(ids))

    def _decoded(
        self, batch: TokenBatch, memory: Tensor, source: TokenBatch, spec: MaskSpec, split: TextSplit | None = None
    ) -> tuple[Tensor, tuple[LayerRecord, ...], tuple[LayerRecord, ...]]:
        """Return the decoder's states [B,T,W], and the records of its attentions. split: see MaskContext."""
        own = self._contexts("decoder", batch.keep, batch.ids.shape[1], split)
        across = self._contexts("cross", source.keep, batch.ids.shape[1])
        masks = allowed_by_layer(own, spec), allowed_by_layer(across, spec)
        states, qkvs, cross = self.network.decoder.states(batch.ids, positions_under(spec, batch), memory, *masks)
        return states, records_of(qkvs, own), records_of(cross, across)

    def _read(self, source: TokenBatch, spec: MaskSpec) -> tuple[Tensor, tuple[LayerRecord, ...]]:
        """Return the encoder's output [B,S,W], and its records."""
        contexts = self._contexts("encoder", source.keep, source.ids.shape[1], source.split)
        memory, qkvs = self.network.encoder.states(
            source.ids, positions_under(spec, source), allowed_by_layer(contexts, spec)
        )
        return memory, records_of(qkvs, contexts)

    def _contexts(self, part: str, keep: Tensor, queries: int, split: TextSplit | None = None) -> list[MaskContext]:
        """Return one mask context for each layer of a part; keep [B,K]."""
        config = self.network.config
        layers = config.encoder_layers if part == "encoder" else config.decoder_layers
        one = MaskContext(keep, queries, config.heads, available=AVAILABLE[part], standard=self.standard, split=split)
        return [replace(one, layer=layer) for layer in range(layers)]


def load(folder: Path = FOLDER, name: str = "dates") -> DatesModel:
    """Load the model from a folder that `save` wrote. Raises CheckpointError naming the file that cannot be used."""
    config_path, weights_path, tokenizer_path = (
        folder / file for file in ("config.json", "model.safetensors", "tokenizer.json")
    )
    config = _read_config(config_path)
    network = EncoderDecoder(config)
    try:
        network.load_state_dict({name: tensor.float() for name, tensor in load_file(weights_path).items()})
    except (SafetensorError, OSError, RuntimeError) as error:
        template = N_("{path}: expected the weights of {config}, found {error}")
        raise CheckpointError(msg(template, path=weights_path, config=config_path.name, error=error)) from None
    try:
        tokenizer = Tokenizer.from_file(str(tokenizer_path))
    except Exception as error:  # noqa: BLE001 - the library raises plain Exception
        template = N_("{path}: expected a tokenizer, found none ({error})")
        raise CheckpointError(msg(template, path=tokenizer_path, error=error)) from None
    return DatesModel(name, network.eval().requires_grad_(False), tokenizer)


def save(network: EncoderDecoder, folder: Path, dtype: torch.dtype = torch.float16) -> None:
    """Write config.json, model.safetensors and tokenizer.json."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.to(dtype).contiguous() for name, tensor in network.state_dict().items()}
    write(folder / "model.safetensors", as_safetensors(tensors, metadata={"format": "pt"}))
    fields = {"model_type": MODEL_TYPE, **asdict(network.config)}
    write(folder / "config.json", (json.dumps(fields, indent=2) + "\n").encode())
    write(folder / "tokenizer.json", new_tokenizer().to_str(pretty=True).encode())


def new_tokenizer() -> Tokenizer:
    """Return a tokenizer with one token per character."""
    vocabulary = {entry: number for number, entry in enumerate((*SPECIAL, *CHARACTERS))}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=SPECIAL[UNKNOWN]))
    tokenizer.pre_tokenizer = Split(Regex(r"[\s\S]"), "isolated")
    return tokenizer


def _read_config(path: Path) -> EncoderDecoderConfig:
    try:
        fields = json.loads(path.read_bytes())
        if not isinstance(fields, dict) or fields.pop("model_type", None) != MODEL_TYPE:
            template = N_("{path}: expected model_type {kind!r}, found another")
            raise CheckpointError(msg(template, path=path, kind=MODEL_TYPE))
        return TypeAdapter(EncoderDecoderConfig).validate_python(fields)
    except FileNotFoundError:
        raise CheckpointError(msg("{path}: expected a model's config.json, found no such file", path=path)) from None
    except (json.JSONDecodeError, ValidationError) as error:
        template = N_("{path}: expected the sizes of an encoder-decoder, found {error}")
        raise CheckpointError(msg(template, path=path, error=error)) from None


def _until_end(row: Sequence[int]) -> list[int]:
    return list(row[: row.index(END)]) if END in row else list(row)


BATCH = 250  # strings per batch
Pairs = list[tuple[str, str]]  # (date as written, ISO 8601)


@dataclass(frozen=True)
class DateAccuracy:
    """Shares, 0 to 1, over `count` held-out strings. exact: the model generated the whole date correctly. characters:
    given the correct date up to each character, that character was the most likely; probability: its mean probability.
    """

    count: int
    exact: float
    characters: float
    probability: float


@lru_cache(maxsize=4)
def held_out_sample(count: int) -> tuple[tuple[str, str], ...]:
    """Return a fixed sample of strings for days that never occur in training."""
    return tuple(examples(held_out_days(), count, random.Random("page")))


def measure(model: DatesModel, spec: MaskSpec, count: int) -> DateAccuracy:
    """Measure accuracy on a held-out sample of this size."""
    some = list(held_out_sample(count))
    exact = exact_match(model, some, spec)
    return DateAccuracy(count, exact, *teacher_forced_accuracy(model, some, spec))


def exact_match(model: DatesModel, some: Pairs, spec: MaskSpec | None = None) -> float:
    """Return the share, 0 to 1, of pairs whose whole target the model generates, in batches of BATCH."""
    right = 0
    for begin in range(0, len(some), BATCH):
        sources, targets = zip(*some[begin : begin + BATCH], strict=True)
        written = model.write(model.encode_source(list(sources)), spec).texts
        right += sum(one == other for one, other in zip(written, targets, strict=True))
    return right / len(some)


def teacher_forced_accuracy(model: DatesModel, some: Pairs, spec: MaskSpec | None = None) -> tuple[float, float]:
    """Return the share of target characters most likely at their step (teacher forcing), and their mean probability."""
    right, chances = [], []
    for begin in range(0, len(some), BATCH):
        sources, targets = zip(*some[begin : begin + BATCH], strict=True)
        trace = model.run(model.encode(list(sources), targets=list(targets)), spec)
        probabilities = trace.logits[:, :-1].softmax(-1)  # [B,T-1,V]
        wanted, real = trace.batch.ids[:, 1:], trace.batch.keep[:, 1:]
        right.append((probabilities.argmax(-1) == wanted)[real])
        chances.append(probabilities.gather(-1, wanted[..., None])[..., 0][real])
    return float(torch.cat(right).float().mean()), float(torch.cat(chances).mean())


def answer_chances(model: DatesModel, text: str, answers: tuple[str, ...]) -> tuple[float, ...]:
    """Return the probability, 0 to 1, of each answer, with its end, as the text's whole target (teacher forcing)."""
    trace = model.run(model.encode([text] * len(answers), targets=list(answers)))
    wanted = trace.batch.ids.roll(-1, dims=-1)  # [B,T]
    wanted[torch.arange(len(answers)), trace.batch.keep.sum(-1) - 1] = END
    each = trace.logits.log_softmax(-1).gather(-1, wanted[..., None])[..., 0]
    return tuple(each.where(trace.batch.keep, 0).sum(-1).exp().tolist())
