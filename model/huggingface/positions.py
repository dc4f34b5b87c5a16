"""How networks of transformers' number a text's tokens by themselves. Imports nothing of transformers."""

from torch import nn

USUAL = (0, 1, 2)  # the first token's number; 2 in the embeddings of RoBERTa's kind, where 1 is padding


def counts_by_ids(module: nn.Module) -> bool:
    """Whether a module, a part of a network's, numbers tokens by which ids are padding: RoBERTa's kind, M2M-100."""
    table = getattr(module, "position_embeddings", None)
    numbered_from_padding = isinstance(table, nn.Embedding) and table.padding_idx is not None
    return hasattr(module, "create_position_ids_from_input_ids") or numbered_from_padding
