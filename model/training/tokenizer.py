"""A byte-level BPE tokenizer with a pad and a start token."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

PAD, START = "<pad>", "<start>"  # in this order they get the ids PAD_ID and START_ID of model.text


def train_tokenizer(texts: list[str], entries: int) -> Tokenizer:
    """Byte-level BPE (Radford et al. 2019): any text can be written, nothing is unknown. <pad> is 0, <start> is 1."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=entries,
        special_tokens=[PAD, START],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer
