"""Tests of unmask.attentions: weights that transformers returned, of one forward pass or of generate."""

import warnings

import numpy as np
import pytest
import torch
import transformers as hf

import unmask
from tests.model.huggingface.families import random_network, word_tokenizer


def test_what_transformers_gives() -> None:
    network = random_network("gpt2")
    ids = torch.tensor([[4, 5, 6, 7, 8, 9, 10], [6, 4, 5, 9, 11, 12, 13]])
    with torch.inference_mode():
        given = network(input_ids=ids, output_attentions=True).attentions
    tokens = [f"t{number}" for number in range(7)]
    heads = unmask.attentions(given, tokens, row=1)
    assert heads.numpy().shape == (3, 4, 7, 7)
    for layer, head in ((0, 0), (2, 3)):
        np.testing.assert_array_equal(heads.head(layer, head).numpy(), given[layer][1, head].numpy())
    np.testing.assert_array_equal(heads.heads().numpy(), heads.numpy())  # short enough for a pixel per cell
    assert heads.head(0, 0).blocked == {}
    causal = ~np.tri(7, dtype=bool)
    known = unmask.attentions(given, tokens, blocked={"causal": causal})
    np.testing.assert_array_equal(known.head(0, 0).blocked["causal"], causal)
    np.testing.assert_array_equal(known.heads().view.blocked[2, 3], causal)
    for arguments, words in (
        (((), tokens), "expected a tuple of a tensor"),
        (((None, None), tokens), "expected a tuple of a tensor .*, got 2 of NoneType"),
        ((given[0], tokens), "expected a tuple of a tensor .*, got Tensor"),
        ((given, tokens[:5]), "expected a label for each token, 7 for the queries and 7 for the keys, got 5 .* and 5"),
        (([one[0] for one in given], tokens), r"expected one shape \[B,H,Q,K\]"),
        (([one * 3 for one in given], tokens), "expected weights from 0 to 1"),
    ):
        with pytest.raises(ValueError, match=words):
            unmask.attentions(*arguments)
    with pytest.raises(ValueError, match="expected a row from 0 to 1, got 2"):
        unmask.attentions(given, tokens, row=2)
    for wrong in (causal, [], "causal"):
        with pytest.raises(ValueError, match="expected blocked cells as a dict by the name of a mask, got"):
            unmask.attentions(given, tokens, blocked=wrong)
    with pytest.raises(ValueError, match=r"expected bool \[7, 7\] by a name out of .*, got bool \[6, 6\] by 'causal'"):
        unmask.attentions(given, tokens, blocked={"causal": causal[1:, 1:]})


@pytest.mark.parametrize(
    ("family", "use_cache"), [("gpt2", True), ("gpt2", False), ("mistral", True), ("gemma3", True)]
)
def test_what_generate_gives(family: str, use_cache: bool) -> None:
    """Reference: one forward pass over all tokens. Mistral's cache drops what its window of 3 hides, Gemma 3's in two
    layers.
    """
    network = random_network(family)
    ids = torch.tensor([[4, 5, 6, 7, 8], [6, 4, 5, 9, 11]])
    how = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "pad_token_id": 0, "use_cache": use_cache}
    found = network.generate(ids, **how, output_attentions=True, return_dict_in_generate=True)
    with torch.inference_mode():
        whole = network(input_ids=found.sequences[:, :-1], output_attentions=True).attentions
    tokens = [f"t{number}" for number in range(11)]
    for given, labels in ((found, tokens), (found.attentions, tokens[:-1])):
        heads = unmask.attentions(given, labels, row=1)
        expected = np.stack([layer[1].numpy() for layer in whole])
        np.testing.assert_allclose(heads.numpy(), expected, atol=1e-5)  # sums over cached keys have another order
        assert heads.queries == heads.keys == tokens[:-1]
    np.testing.assert_allclose(unmask.attentions(network(ids, output_attentions=True), tokens[:5]).numpy().sum(-1), 1,
                               atol=1e-5)  # fmt: skip
    with pytest.raises(ValueError, match=r"expected a label for each token, 10 for the queries .*, got 12"):
        unmask.attentions(found, [*tokens, "more"])
    beams = network.generate(ids, **how, num_beams=2, output_attentions=True, return_dict_in_generate=True)
    with pytest.raises(ValueError, match=r"got those of a beam search: generate with num_beams=1$"):
        unmask.attentions(beams, tokens)


def test_what_an_encoder_decoder_generates() -> None:
    network = random_network("t5")
    ids = torch.tensor([[4, 5, 6, 7]])
    found = network.generate(ids, max_new_tokens=5, min_new_tokens=5, do_sample=False, output_attentions=True,
                             return_dict_in_generate=True)  # fmt: skip
    tokens, source = [f"t{number}" for number in range(5)], ["a", "b", "c", "d"]
    crossed = unmask.attentions(found.cross_attentions, tokens, keys=source)
    assert crossed.numpy().shape[2:] == (5, 4)
    np.testing.assert_allclose(crossed.numpy()[:, :, 3], [step[0, :, 0] for step in found.cross_attentions[3]])
    assert not np.triu(unmask.attentions(found.decoder_attentions, tokens).numpy(), 1).any()
    with pytest.raises(ValueError, match="expected one attention of an encoder-decoder, its output's decoder_att"):
        unmask.attentions(found, tokens)


def test_to_ask_a_network_for_its_weights_is_no_change_of_it() -> None:
    """transformers leaves the hooks that it installs for this in place."""
    network = random_network("gpt2")
    tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=word_tokenizer(), pad_token="<pad>")
    model = unmask.load(network, tokenizer)
    network(torch.tensor([[4, 5]]), output_attentions=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.run("the cat sat")


def test_a_rotary_network_in_float64_is_shown() -> None:
    """With padding on the left, transformers' own eager attention gives NaN there."""
    network = random_network("llama").double()
    tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=word_tokenizer(), pad_token="<pad>", unk_token="<unk>")
    run = unmask.load(network, tokenizer).run("the cat sat on a mat")
    with torch.no_grad():
        own = network(**tokenizer("the cat sat on a mat", return_tensors="pt"), output_attentions=True).attentions
    np.testing.assert_allclose(run.head(1, 0).numpy(), own[1][0, 0], atol=1e-6)


def test_a_sum_of_queries_says_which_share_of_it_lies_outside() -> None:
    """All keys have the same weight: 44 of 300 keys are not shown, for one query and for the sum of eight."""
    found = unmask.attentions([torch.full((1, 1, 300, 300), 1 / 300)], [f"t{index}" for index in range(300)])
    for how in ("mean", "sum"):
        assert "14.7% of the query" in found.head(0, 0).queries(range(8), how).page()


def test_numbers_that_are_thumbnails_are_called_so() -> None:
    run = unmask.load("story").run("the cat sat on a mat " * 20)
    assert repr(run.heads()).endswith(": 6 layers × 6 heads (thumbnails of 64 × 64)")
    assert repr(run.merged("sentences").heads()).endswith(": 6 layers × 6 heads")
    assert repr(unmask.attentions(list(run.numpy()[:, None]), run.labels).heads()).endswith(
        "6 heads (thumbnails of 64 × 64)"
    )
