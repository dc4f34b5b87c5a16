"""GPT-2's checkpoint layout (config.json and model.safetensors), converted to and from our own Transformer.

The story model is stored in the same layout, so one loader serves both, and Hugging Face can load ours too.
GPT-2 keeps its linear layers as [in, out] and query, key and value side by side in one matrix.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from i18n import N_, msg
from model.errors import CheckpointError
from model.files import write
from model.spec import MaskSpec
from model.text import BatchTokenizer
from model.transformer import Network, Transformer, TransformerConfig

MAX_IN_BROWSER = 30_000_000  # parameters: 60 MB of float16, 80 MB as text in the page
MAX_TOKENS_IN_BROWSER = 256
SUPPORTED_CONFIG = {  # how our Transformer computes; other values mean other models
    "model_type": "gpt2",
    "activation_function": "gelu_new",
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
}


FIELDS = {  # our own config's fields: GPT-2's
    "vocabulary": "vocab_size",
    "context": "n_positions",
    "layers": "n_layer",
    "heads": "n_head",
    "width": "n_embd",
    "mlp_width": "n_inner",
    "epsilon": "layer_norm_epsilon",
    "tied": "tie_word_embeddings",
}


class GPT2Config(BaseModel):
    """The fields of GPT-2's config.json that shape the network."""

    model_config = ConfigDict(extra="ignore", strict=True)

    model_type: str
    vocab_size: int = Field(gt=0, le=1_000_000)
    n_positions: int = Field(gt=0, le=1_000_000)
    n_layer: int = Field(gt=0, le=1_000)
    n_head: int = Field(gt=0, le=1_000)
    n_embd: int = Field(gt=0, le=100_000)
    n_inner: int | None = Field(default=None, gt=0, le=1_000_000)
    layer_norm_epsilon: float = 1e-5
    activation_function: str = "gelu_new"
    tie_word_embeddings: bool = True
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False


def read_config(folder: Path) -> TransformerConfig:
    """Read config.json as our own config. Raises CheckpointError for anything but a GPT-2 that computes as ours."""
    path = folder / "config.json"
    try:
        config = GPT2Config.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise CheckpointError(msg("{path}: expected a model's config.json, found no such file", path=path)) from None
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or msg("the file")
        template = N_("{path}: expected {field} as GPT-2 writes it ({problem}), found {found!r}")
        found = {"problem": first["msg"], "found": str(first["input"])[:60]}
        raise CheckpointError(msg(template, path=path, field=field, **found)) from None
    for name, value in SUPPORTED_CONFIG.items():
        if getattr(config, name) != value:
            got = getattr(config, name)
            template = N_("{path}: expected {name} {value!r}, found {got!r}")
            raise CheckpointError(msg(template, path=path, name=name, value=value, got=got))
    if config.n_embd % config.n_head:
        template = N_(
            "{path}: expected a width (n_embd) that is a multiple of the heads (n_head), found {width} and {heads}"
        )
        raise CheckpointError(msg(template, path=path, width=config.n_embd, heads=config.n_head))
    return TransformerConfig(**{ours: getattr(config, theirs) for ours, theirs in FIELDS.items()})


def load_transformer(folder: Path) -> Transformer:
    """Load our Transformer with the weights in folder, as `load_network`."""
    return load_network(Transformer, folder)


def load_network(network: type[Network], folder: Path) -> Network:
    """Load a Transformer of this class with the weights in folder, float32, in evaluation mode; as in transformers, its
    head is not tied to its token embedding if the file has both and they differ. Raises CheckpointError naming the file
    if it is missing, damaged, truncated, or of other shapes than config.json says."""
    config = read_config(folder)
    path = folder / "model.safetensors"
    try:
        with safe_open(path, framework="pt") as file:
            names = [name for name in set(file.keys()) if name.endswith(("wte.weight", "lm_head.weight"))]
            pair = [file.get_tensor(name) for name in names]
            if len(pair) == 2 and not torch.equal(*pair):
                config = replace(config, tied=False)
            with torch.device("meta"):  # no memory and no random numbers for weights about to be replaced
                model = network(config)
            state = dict(_read(file, path, model))
    except FileNotFoundError:
        raise CheckpointError(msg("{path}: expected the weights, found no such file", path=path)) from None
    except (SafetensorError, OSError) as error:
        template = N_("{path}: expected a safetensors file, found a damaged or truncated one ({error})")
        raise CheckpointError(msg(template, path=path, error=error)) from None
    if config.tied:
        state["unembedding.weight"] = state["token_embedding.weight"]
    model.load_state_dict(state, assign=True)
    if config.tied:
        model.unembedding.weight = model.token_embedding.weight  # tie again: assigning made it two parameters
    return model.eval().requires_grad_(False)


def save_transformer(model: Transformer, folder: Path, dtype: torch.dtype = torch.float32) -> None:
    """Write config.json and model.safetensors in GPT-2's layout."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, Tensor] = {}
    state = model.state_dict()
    for theirs, ours in _names(model.config, model.more):
        tensor = torch.cat([state[name] for name in ours])
        if _transposed(theirs):
            tensor = tensor.T
        tensors[theirs] = tensor.to(dtype).contiguous()
    write(folder / "model.safetensors", save(tensors, metadata={"format": "pt"}))
    sizes = {theirs: getattr(model.config, ours) for ours, theirs in FIELDS.items()}
    # otherwise transformers would use GPT-2's <|endoftext|>, 50256, and warn that there is no such token
    fields = {"architectures": ["GPT2LMHeadModel"], "bos_token_id": None, "eos_token_id": None}
    fields |= GPT2Config(model_type="gpt2", **sizes).model_dump()
    write(folder / "config.json", (json.dumps(fields, indent=2) + "\n").encode())


def _names(config: TransformerConfig, more: Sequence[str] = ()) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield GPT-2's name of each tensor, and ours: several where GPT-2 keeps them side by side. more: not in GPT-2."""
    yield from ((name, (name,)) for name in more)
    yield "transformer.wte.weight", ("token_embedding.weight",)
    yield "transformer.wpe.weight", ("position_embedding.weight",)
    for layer in range(config.layers):
        theirs, ours = f"transformer.h.{layer}", f"blocks.{layer}"
        for kind in ("weight", "bias"):
            yield f"{theirs}.ln_1.{kind}", (f"{ours}.attention_norm.{kind}",)
            yield (
                f"{theirs}.attn.c_attn.{kind}",
                tuple(f"{ours}.attention.{part}.{kind}" for part in ("query", "key", "value")),
            )
            yield f"{theirs}.attn.c_proj.{kind}", (f"{ours}.attention.output.{kind}",)
            yield f"{theirs}.ln_2.{kind}", (f"{ours}.mlp_norm.{kind}",)
            yield f"{theirs}.mlp.c_fc.{kind}", (f"{ours}.mlp_in.{kind}",)
            yield f"{theirs}.mlp.c_proj.{kind}", (f"{ours}.mlp_out.{kind}",)
    yield "transformer.ln_f.weight", ("norm.weight",)
    yield "transformer.ln_f.bias", ("norm.bias",)
    if not config.tied:
        yield "lm_head.weight", ("unembedding.weight",)


def _transposed(theirs: str) -> bool:
    return theirs.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight"))


def _read(file: safe_open, path: Path, model: Transformer) -> Iterator[tuple[str, Tensor]]:
    stored = set(file.keys())
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    for theirs, ours in _names(model.config, model.more):
        # files converted from OpenAI's weights omit the prefix
        name = theirs if theirs in stored else theirs.removeprefix("transformer.")
        if name == "wte.weight" and name not in stored and model.config.tied:
            name = "lm_head.weight"  # safetensors' save_model stores tied weights once
        if name not in stored:
            template = N_("{path}: expected a tensor {name}, found none ({count} others)")
            raise CheckpointError(msg(template, path=path, name=theirs, count=len(stored)))
        rows = sum(shapes[our][0] for our in ours)
        expected = (rows, *shapes[ours[0]][1:])
        if _transposed(theirs):
            expected = expected[::-1]
        found = tuple(file.get_slice(name).get_shape())
        if found != expected:
            sizes = {"value": list(expected), "got": list(found)}
            template = N_("{path}: expected {name} {value!r}, found {got!r}")
            raise CheckpointError(msg(template, path=path, name=name, **sizes))
        tensor = file.get_tensor(name).to(torch.float32)
        if _transposed(theirs):
            tensor = tensor.T
        # views of the memory-mapped file: processes that read the same one share its memory
        yield from zip(ours, tensor.chunk(len(ours)), strict=True)


@dataclass(frozen=True, eq=False)
class BrowserModel:
    """A model for a page that runs it in the browser (viz/saved/live.py). config: sizes, for components/gpt2.js.
    parameters: float16, little-endian, in the order of `_names`. tokenizer: for components/bpe.js. labels: of each id.
    first_head: (layer, head) to show first. standard: the masks that it was trained with."""

    name: str
    config: dict[str, Any]
    parameters: bytes
    tokenizer: dict[str, Any]
    labels: list[str]
    first_head: tuple[int, int]
    standard: MaskSpec


def browser_model(model: Any, first_head: tuple[int, int]) -> BrowserModel:
    """Convert a decoder (model/decoder.py). Raises CheckpointError for another model, a tokenizer other than byte-level
    BPE, too many parameters, and numbers that float16 cannot represent."""
    name, network = model.name, getattr(model, "network", None)
    tokenizer = getattr(model, "tokenizer", None)
    if not isinstance(network, Transformer) or not isinstance(tokenizer, BatchTokenizer):
        own = getattr(network, "config", None)
        odd = next((field for field, value in SUPPORTED_CONFIG.items() if getattr(own, field, value) != value), "")
        ours = SUPPORTED_CONFIG.get(odd)
        how = f" with {odd} {ours!r}, got {getattr(own, odd)!r}" if odd else ", got another"  # not shown
        raise CheckpointError(f"{name}: expected a model in GPT-2's layout{how}")  # not shown
    parameters = sum(parameter.numel() for parameter in network.parameters())
    if parameters > MAX_IN_BROWSER:
        most = f"at most {MAX_IN_BROWSER / 1e6:.0f} million parameters"  # not shown
        raise CheckpointError(f"{name}: expected {most}, got {parameters / 1e6:.1f}")
    config, state = network.config, network.state_dict()
    numbers = torch.cat([state[one].flatten().cpu() for _, ours in _names(config) for one in ours])
    if numbers.abs().max() > torch.finfo(torch.float16).max:
        raise CheckpointError(f"{name}: expected weights that float16 can represent")  # not shown
    tables = tokenizer.byte_level_tables()
    if tables is None:
        raise CheckpointError(f"{name}: expected a tokenizer like GPT-2's, byte-level BPE")  # not shown
    tokens = [tokenizer.label(token) for token in range(config.vocabulary)]
    sizes = asdict(config) | {"mlpWidth": config.mlp_width or 4 * config.width}
    tables |= {"context": min(tokenizer.context, MAX_TOKENS_IN_BROWSER)}
    half = numbers.to(torch.float16).numpy().astype("<f2").tobytes()
    return BrowserModel(Path(name).name, sizes, half, tables, tokens, first_head, model.standard)
