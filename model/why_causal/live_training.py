"""One live training: a model of two layers on the characters of a text, and what there is to tell as it goes."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from model import masks
from model.attention import attention_stages
from model.sampling import Sampling, choose
from model.transformer import Transformer, TransformerConfig
from model.why_causal.optimization import Rates, new_optimizers, new_transformer, rate_at, token_losses, update

CONTEXT, ROWS = 64, 16  # characters a row, and rows a step
MOST_DIFFERENT = 120  # characters in the vocabulary; the rarest of a text that has more count as one
OTHER = "□"
LAYERS, HEADS, WIDTH = 2, 4, 64  # small enough for hundreds of steps in seconds
RATES = Rates(matrix_rate=1e-2, other_rate=6e-3)
LOUDER = 5.0  # times the usual initial positions: "the next place" is then found in tens of steps, not in thousands
REPORT_EVERY, WRITE_EVERY = 5, 100  # steps
PROMPT, WRITTEN = 20, 120  # characters: the beginning of the text, and what it writes on
WARMTH = Sampling(temperature=0.8)  # what it is written with


class Alphabet:
    """A text's characters as ids, the commonest first."""

    def __init__(self, text: str) -> None:
        self.characters = [character for character, _ in Counter(text).most_common(MOST_DIFFERENT)] + [OTHER]
        self._id_of = {character: number for number, character in enumerate(self.characters)}

    def encode(self, text: str) -> Tensor:
        """int64 [T]."""
        other = len(self.characters) - 1
        return torch.tensor([self._id_of.get(character, other) for character in text])

    def decode(self, ids: list[int]) -> str:
        """The characters in a row."""
        return "".join(self.characters[number] for number in ids)


def train(text: str, causal: bool, steps: int, seed: int) -> Iterator[dict[str, Any]]:
    """Train on rows of the text, longer than CONTEXT; what there is to tell as it goes.

    After every REPORT_EVERY steps {"step", "loss", "last"}: the mean training loss since the last report, of all
    targets and of each row's last one, in nats a character; between them {"step", "text"}: what it writes. At the end
    {"step", "with", "without"}: the loss under either mask; {"copy"}: each head's mean weight on the next character.
    """
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
    """Inputs and targets [ROWS, CONTEXT], the next character of each, from anywhere in ids."""
    begins = torch.randint(0, len(ids) - CONTEXT, (ROWS, 1), generator=generator)
    windows = ids[begins + torch.arange(CONTEXT + 1)]
    return windows[:, :-1], windows[:, 1:]


@torch.inference_mode()
def measured(model: Transformer, ids: Tensor, targets: Tensor, causal: bool) -> dict[str, Any]:
    """The loss under either mask, and each head's copy score [L][H] under the one it was trained with."""
    allowed = masks.causal(CONTEXT, CONTEXT)[None, None] if causal else None
    _, qkvs = model(ids, torch.arange(CONTEXT), allowed)
    weights = torch.stack([attention_stages(q, k, v, allowed).weights for q, k, v in qkvs])  # [L,B,H,T,T]
    copied = weights.diagonal(1, dim1=-2, dim2=-1).mean((1, 3))  # [L,H]
    losses = {name: float(token_losses(model, ids, targets, way).mean()) for name, way in WAYS.items()}
    return losses | {"copy": copied.tolist()}


WAYS = {"with": True, "without": False}


@torch.inference_mode()
def write(model: Transformer, ids: list[int], causal: bool, generator: torch.Generator) -> list[int]:
    """ids and WRITTEN more, drawn one after the other, each from what is before it, a context at most."""
    written = list(ids)
    for _ in range(WRITTEN):
        seen = torch.tensor([written[-CONTEXT:]])
        length = seen.shape[1]
        allowed = masks.causal(length, length)[None, None] if causal else None
        states, _ = model(seen, torch.arange(length), allowed)
        written.append(choose(model.logits(states[0, -1]), WARMTH, generator).token)
    return written
