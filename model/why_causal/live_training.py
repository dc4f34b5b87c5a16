"""The training of a two-layer model on the characters of a text, reporting its progress."""

import inspect
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model import masks
from model.attention import attention_stages
from model.sampling import Sampling, choose
from model.transformer import Network, Transformer, TransformerConfig


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Learning rates. Muon optimizes the blocks' matrices, AdamW embeddings, norms and biases."""

    matrix_rate: float = 5e-3  # Muon's
    other_rate: float = 4e-3  # AdamW's
    matrix_decay: float = 0.05
    warmup: float = 0.02  # as a share of the training


class _Untraced:
    """Optimizer methods without torch.optim's decorators that exclude them from torch.compile: these import the
    compiler, which adds a second to the start of every training."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)


class _Muon(_Untraced, torch.optim.Muon): ...


class _AdamW(_Untraced, torch.optim.AdamW):
    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))


def new_transformer(config: TransformerConfig) -> Transformer:
    return initialised(Transformer(config))


def initialised(model: Network) -> Network:
    """Set GPT-2's initial weights, except for positions: sines and cosines (Vaswani et al. 2017, section 3.5), in which
    "one position back" is a rotation that a head learns in minutes; from random vectors it takes hours."""
    config = model.config
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(weight)
        elif weight.ndim == 2:
            into_stream = name.endswith(("attention.output.weight", "mlp_out.weight"))
            nn.init.normal_(weight, std=0.02 / math.sqrt(2 * config.layers) if into_stream else 0.02)
    model.position_embedding.weight.data.copy_(rotations(config.context, config.width) * 0.02 * math.sqrt(2))
    return model


def rotations(positions: int, width: int) -> Tensor:
    """Return sines and cosines with wavelengths from 2π to 2π·positions/4: [positions, width]."""
    wavelengths = torch.logspace(0, math.log10(positions / 4), width // 2)
    angles = torch.arange(positions)[:, None] / wavelengths
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


def token_losses(model: Transformer, ids: Tensor, targets: Tensor, causal: bool) -> Tensor:
    """Return the nats of every target, [B,T], from ids [B,T], with or without causal mask; 0 for targets of -100."""
    states, _ = model(ids, torch.arange(ids.shape[1]), _mask(ids, causal))
    return F.cross_entropy(model.logits(states).transpose(1, 2), targets, reduction="none")


def every_weight(model: Transformer, ids: Tensor, causal: bool) -> Tensor:
    """Return the weights of every head, [L,B,H,T,T], on ids [B,T], with or without the causal mask."""
    allowed = _mask(ids, causal)
    _, qkvs = model(ids, torch.arange(ids.shape[1]), allowed)
    return torch.stack([attention_stages(q, k, v, allowed).weights for q, k, v in qkvs])


def _mask(ids: Tensor, causal: bool) -> Tensor | None:
    """Return the causal mask [1,1,T,T], or None."""
    length = ids.shape[1]
    return masks.causal(length, length)[None, None] if causal else None


def new_optimizers(model: nn.Module, rates: Rates) -> list[torch.optim.Optimizer]:
    """Return Muon (Jordan et al. 2024) for the blocks' matrices and AdamW for the rest."""
    named = [(parameter.ndim == 2 and "blocks." in name, parameter) for name, parameter in model.named_parameters()]
    matrices = [parameter for is_matrix, parameter in named if is_matrix]
    others = [parameter for is_matrix, parameter in named if not is_matrix]
    return [
        _Muon(matrices, lr=rates.matrix_rate, weight_decay=rates.matrix_decay, adjust_lr_fn="match_rms_adamw"),
        _AdamW(others, lr=rates.other_rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True),
    ]


def rate_at(done: float, warmup: float) -> float:
    """Return the share of the full rate at a share of the training: linear warmup, then a cosine decay to 2%."""
    if done < warmup:
        return (done + 1e-3) / (warmup + 1e-3)
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (done - warmup) / (1 - warmup)))


def update(model: nn.Module, optimizers: list[torch.optim.Optimizer], rate: float) -> None:
    """Take one step of every optimizer at this share of its full learning rate."""
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group.setdefault("full_rate", group["lr"])
            group["lr"] = group["full_rate"] * rate
        optimizer.step()
        optimizer.zero_grad()


CONTEXT, ROWS = 64, 16  # characters per row, and rows per step
MAX_DIFFERENT = 120  # characters in the vocabulary; further, rarer ones share one id
OTHER = "□"
LAYERS, HEADS, WIDTH = 2, 4, 64  # small enough for hundreds of steps in seconds
RATES = Rates(matrix_rate=1e-2, other_rate=6e-3)
LOUDER = 5.0  # scale of the initial positions: "the next position" is learned in tens of steps, not thousands
REPORT_EVERY, WRITE_EVERY = 5, 100  # steps
PROMPT, WRITTEN = 20, 120  # characters of the prompt, and characters generated after it
WARMTH = Sampling(temperature=0.8)  # how the text is sampled


class Alphabet:
    """The mapping of a text's characters to ids, the most common first."""

    def __init__(self, text: str) -> None:
        self.characters = [character for character, _ in Counter(text).most_common(MAX_DIFFERENT)] + [OTHER]
        self._id_of = {character: number for number, character in enumerate(self.characters)}

    def encode(self, text: str) -> Tensor:
        """Return the ids of a text: int64 [T]."""
        other = len(self.characters) - 1
        return torch.tensor([self._id_of.get(character, other) for character in text])

    def decode(self, ids: list[int]) -> str:
        return "".join(self.characters[number] for number in ids)


def train(text: str, causal: bool, steps: int, seed: int) -> Iterator[dict[str, Any]]:
    """Train on rows of the text, longer than CONTEXT, and yield progress. After every REPORT_EVERY steps {"step",
    "loss", "last"}: the mean training loss since the last report, over all targets and over each row's last one, in
    nats per character; every WRITE_EVERY steps {"step", "text"}: generated text. At the end {"step", "with", "without",
    "copy"}: the loss with and without the mask, and each head's mean weight on the next character."""
    torch.manual_seed(seed)
    alphabet = Alphabet(text)
    ids = alphabet.encode(text)
    vocabulary = len(alphabet.characters)
    model = new_transformer(
        TransformerConfig(vocabulary=vocabulary, context=CONTEXT, layers=LAYERS, heads=HEADS, width=WIDTH)
    )
    model.position_embedding.weight.data.mul_(LOUDER)
    optimizers = new_optimizers(model, RATES)
    generator = torch.Generator().manual_seed(seed)
    losses: list[tuple[float, float]] = []
    for step in range(1, steps + 1):
        each = token_losses(model, *batch(ids, generator), causal)  # [ROWS, CONTEXT]
        each.mean().backward()
        update(model, optimizers, rate_at(step / steps, RATES.warmup))
        losses.append((float(each.detach().mean()), float(each.detach()[:, -1].mean())))
        if step % REPORT_EVERY == 0 or step == steps:
            loss, last = (sum(some) / len(losses) for some in zip(*losses, strict=True))
            yield {"step": step, "loss": loss, "last": last}
            losses.clear()
        if step % WRITE_EVERY == 0 or step == steps:
            yield {"step": step, "text": alphabet.decode(write(model, ids[:PROMPT].tolist(), causal, generator))}
    yield {"step": steps} | measured(model, *batch(ids, generator), causal)


def batch(ids: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return inputs and targets [ROWS, CONTEXT], the next character of each, from random positions in ids."""
    begins = torch.randint(0, len(ids) - CONTEXT, (ROWS, 1), generator=generator)
    windows = ids[begins + torch.arange(CONTEXT + 1)]
    return windows[:, :-1], windows[:, 1:]


@torch.inference_mode()
def measured(model: Transformer, ids: Tensor, targets: Tensor, causal: bool) -> dict[str, Any]:
    """Return the loss with and without the mask, and each head's copy score [L][H] under its training mask."""
    copied = every_weight(model, ids, causal).diagonal(1, dim1=-2, dim2=-1).mean((1, 3))  # [L,H]
    losses = {name: float(token_losses(model, ids, targets, way).mean()) for name, way in WAYS.items()}
    return losses | {"copy": copied.tolist()}


WAYS = {"with": True, "without": False}


@torch.inference_mode()
def write(model: Transformer, ids: list[int], causal: bool, generator: torch.Generator) -> list[int]:
    """Return ids followed by WRITTEN sampled ones, each given at most a context of earlier ids."""
    written = list(ids)
    for _ in range(WRITTEN):
        seen = torch.tensor([written[-CONTEXT:]])
        states, _ = model(seen, torch.arange(seen.shape[1]), _mask(seen, causal))
        written.append(choose(model.logits(states[0, -1]), WARMTH, generator).token)
    return written
