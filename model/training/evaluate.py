"""The numbers on a model card: bits per character on held-out text, induction and previous-token scores."""

from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from model import masks
from model.attention import attention_stages
from model.gpt2 import load_transformer
from model.heads import measures
from model.text import FIRST_ID, START_ID
from model.transformer import Transformer


@torch.inference_mode()
def held_out_bits(model: Transformer, tokenizer: Tokenizer, start: int, texts: list[str], batch: int = 16) -> float:
    """Bits per character over whole texts: windows of the full context, every second half predicted.

    Each window begins with the start token and overlaps the one before by half, so that every token but a text's first
    half window is predicted from at least half a context.
    """
    context = model.config.context
    step = context // 2
    nats, characters = 0.0, 0
    for text in texts:
        ids = torch.tensor(tokenizer.encode(text).ids)
        characters += len(text)
        windows, targets = [], []
        for begin in range(0, max(len(ids) - step, 1), step):
            row = torch.full((context + 1,), start)
            target = torch.full((context,), -100)
            piece = ids[begin : begin + context]
            row[1 : len(piece) + 1] = piece
            fresh = 0 if begin == 0 else context - step
            target[fresh : len(piece)] = piece[fresh:]
            windows.append(row[:context])
            targets.append(target)
        for rows, wanted in zip(torch.stack(windows).split(batch), torch.stack(targets).split(batch), strict=True):
            nats += float(_loss(model, rows, wanted))
    return measures.bits_per_character(nats, characters)


@torch.inference_mode()
def head_scores(
    model: Transformer, start: int, first_id: int, *, rows: int = 16, span: int = 50
) -> tuple[Tensor, Tensor]:
    """Induction and previous-token scores [L,H] on random repeated sequences (fixed seed)."""
    ids = measures.repeated_tokens(
        rows, span, range(first_id, model.config.vocabulary), start, torch.Generator().manual_seed(0)
    )
    allowed = _causal(ids)
    _, qkvs = model(ids, torch.arange(ids.shape[1]), allowed)
    weights = torch.stack([attention_stages(q, k, v, allowed).weights for q, k, v in qkvs])  # [L,B,H,T,T]
    after_start = torch.arange(ids.shape[1]) > 0
    second = torch.arange(ids.shape[1]) > span
    induction = torch.stack([measures.induction(weights[:, row], ids[row], second) for row in range(rows)])
    previous = measures.previous_token(weights, after_start)
    return induction.mean(0), previous.mean(1)


def report(folder: Path, held_out: list[str]) -> str:
    """The measured numbers of the checkpoint in folder, as the card has them."""
    model, tokenizer = load_transformer(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))
    induction, previous = head_scores(model, START_ID, FIRST_ID)
    size = sum(path.stat().st_size for path in folder.iterdir())
    lines = [
        f"size: {size / 2**20:.2f} MiB in all",
        f"held-out text: {held_out_bits(model, tokenizer, START_ID, held_out):.4f} bits per character "
        f"({sum(map(len, held_out)):,} characters)",
        f"heads with an induction score of at least 0.5: {int((induction >= 0.5).sum())}",
        f"heads with a previous-token score of at least 0.3: {int((previous >= 0.3).sum())}",
    ]
    for name, scores in (("induction", induction), ("previous-token", previous)):
        layer, head = divmod(int(scores.argmax()), scores.shape[1])
        lines.append(f"best {name} head: layer {layer}, head {head}: {scores.max():.3f}")
    return "\n".join(lines)


def _loss(model: Transformer, ids: Tensor, targets: Tensor) -> Tensor:
    states, _ = model(ids, torch.arange(ids.shape[1]), _causal(ids))
    return F.cross_entropy(model.logits(states).flatten(0, 1).float(), targets.flatten(), reduction="sum")


def _causal(ids: Tensor) -> Tensor:
    return masks.causal(ids.shape[1], ids.shape[1])[None, None]
