"""unmask.check and unmask.assert_causal, as somebody uses them on the model that they are writing.

python -m pytest tests/unmask/test_checking.py
"""

import pytest
import torch
from torch import nn

import unmask
from model.obey.patients import LeaksUnderSdpa, SeesTheFuture
from model.obey.small import SmallConfig, SmallDecoder
from tests.model.huggingface.families import word_tokenizer


class Written(nn.Module):
    """What a person writes first: PyTorch's own layer, with its convention of a mask."""

    def __init__(self, *, masked: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(31, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.head = nn.Linear(16, 31)
        self.masked = masked

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        later = nn.Transformer.generate_square_subsequent_mask(input_ids.shape[1])
        return self.head(self.layer(self.embedding(input_ids), src_mask=later if self.masked else None))


def test_a_module_that_somebody_writes() -> None:
    assert unmask.check(Written(masked=True)).obeys
    report = unmask.check(Written(masked=False))
    assert not report.obeys
    assert [finding.law for finding in report.broken] == ["reach", "gradients"]
    assert report.findings[0].pair == (0, 1)


def test_assert_causal() -> None:
    assert unmask.assert_causal(Written(masked=True)).obeys
    with pytest.raises(AssertionError, match=r"output 0 moves by .* when token 1 is changed"):
        unmask.assert_causal(SeesTheFuture())


def test_assert_causal_asks_for_causal_whatever_is_declared() -> None:
    encoder = SmallDecoder(SmallConfig(is_causal=False))
    assert unmask.check(encoder).obeys
    with pytest.raises(AssertionError):
        unmask.assert_causal(encoder)


def test_a_text_with_its_tokenizer() -> None:
    words = word_tokenizer()

    class Tokenizer:
        def __call__(self, text: str) -> dict[str, list[int]]:
            return {"input_ids": words.encode(text).ids}

        def decode(self, ids: list[int]) -> str:
            return words.decode(ids)

    report = unmask.check(SmallDecoder(), text="the cat sat on a mat", tokenizer=Tokenizer())
    assert report.pieces == ("the", "cat", "sat", "on", "a", "mat")
    with pytest.raises(unmask.CannotCheck, match="a text with its tokenizer"):
        unmask.check(SmallDecoder(), text="the cat")


def test_it_prints_and_draws_itself() -> None:
    report = unmask.check(LeaksUnderSdpa(SmallConfig(_attn_implementation="sdpa")))
    assert str(report).splitlines()[-1].startswith("It does not obey its mask on the 24 tokens checked.")
    page = report._repr_html_()
    assert page.count("<svg") == 2
    assert "<script" not in page
    assert "Attention kernels" in page


def test_kernels_by_name() -> None:
    assert unmask.check(SmallDecoder(), kernels=("eager", "sdpa")).finding("kernels").words == "eager and sdpa agree."
