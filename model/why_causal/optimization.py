"""Training a Transformer: its first weights, its loss, Muon and AdamW, the learning rate's course, one step.

The models that ship were trained with it (training/), and one is while a reader watches (why_causal/live_training.py).
"""

import inspect
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model import masks
from model.transformer import Transformer, TransformerConfig


@dataclass(frozen=True, kw_only=True)
class Rates:
    """How fast is learned. Muon takes the blocks' matrices, AdamW embeddings, norms and biases."""

    matrix_rate: float = 5e-3  # Muon's
    other_rate: float = 4e-3  # AdamW's
    matrix_decay: float = 0.05
    warmup: float = 0.02  # share of the training


class _Untraced:
    """What torch.optim keeps from torch.compile, as it stands: to say that nothing is compiled here its decorators
    import the compiler, a second of every training's start."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)


class _Muon(_Untraced, torch.optim.Muon): ...


class _AdamW(_Untraced, torch.optim.AdamW):
    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))


def new_transformer(config: TransformerConfig) -> Transformer:
    """GPT-2's initial weights, but for positions: sines and cosines to begin with (Vaswani et al. 2017, section 3.5).

    From there "one position back" is a rotation that a head finds in minutes; from random vectors it takes hours.
    """
    model = Transformer(config)
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(weight)
        elif weight.ndim == 2:
            into_stream = name.endswith(("attention.output.weight", "mlp_out.weight"))
            nn.init.normal_(weight, std=0.02 / math.sqrt(2 * config.layers) if into_stream else 0.02)
    model.position_embedding.weight.data.copy_(rotations(config.context, config.width) * 0.02 * math.sqrt(2))
    return model


def rotations(positions: int, width: int) -> Tensor:
    """[positions, width]: sines and cosines whose wavelengths run from 2π to 2π·positions/4."""
    wavelengths = torch.logspace(0, math.log10(positions / 4), width // 2)
    angles = torch.arange(positions)[:, None] / wavelengths
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


def token_losses(model: Transformer, ids: Tensor, targets: Tensor, causal: bool) -> Tensor:
    """Nats of every target, [B,T], from ids [B,T]; with the causal mask or without any. 0 where the target is -100."""
    length = ids.shape[1]
    states, _ = model(ids, torch.arange(length), masks.causal(length, length)[None, None] if causal else None)
    return F.cross_entropy(model.logits(states).transpose(1, 2), targets, reduction="none")


def new_optimizers(model: nn.Module, rates: Rates) -> list[torch.optim.Optimizer]:
    """Muon (Jordan et al. 2024) for the blocks' matrices, AdamW for the rest."""
    named = [(parameter.ndim == 2 and "blocks." in name, parameter) for name, parameter in model.named_parameters()]
    matrices = [parameter for is_matrix, parameter in named if is_matrix]
    others = [parameter for is_matrix, parameter in named if not is_matrix]
    return [
        _Muon(matrices, lr=rates.matrix_rate, weight_decay=rates.matrix_decay, adjust_lr_fn="match_rms_adamw"),
        _AdamW(others, lr=rates.other_rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True),
    ]


def rate_at(done: float, warmup: float) -> float:
    """The share of the full rate when this share of the training is done: up in a line, then a cosine down to 2%."""
    if done < warmup:
        return (done + 1e-3) / (warmup + 1e-3)
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (done - warmup) / (1 - warmup)))


def update(model: nn.Module, optimizers: list[torch.optim.Optimizer], rate: float) -> None:
    """One step of every optimizer at this share of its full learning rate."""
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group.setdefault("full_rate", group["lr"])
            group["lr"] = group["full_rate"] * rate
        optimizer.step()
        optimizer.zero_grad()
