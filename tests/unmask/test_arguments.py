"""Tests of what methods of a run accept besides what their tables list, and of their errors otherwise."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import unmask
from model.inference.calls import continuation_ids
from model.masks import MaskSpec
from tests.model.huggingface.families import random_network, save, word_tokenizer
from unmask import analyses
from unmask.notebook import LoadedModel
from unmask.runs import Run

TEXT = "The little cat saw the big dog, and the little cat saw the big dog"


@pytest.fixture(scope="module")
def run(story: LoadedModel) -> Run:
    return story.run(TEXT)


def test_ids_of_a_run_are_run_again_and_have_no_text(story: LoadedModel, run: Run) -> None:
    again = story.run(ids=run.ids)
    assert run.ids.tolist() == again.ids.tolist() == run.trace.batch.ids[0].tolist()
    np.testing.assert_array_equal(again.losses, run.losses)
    with pytest.raises(ValueError, match="got one on ids"):
        _ = again.text
    unmask.report(again).page()


@pytest.mark.parametrize("side", ["left", "right"])
def test_ids_of_a_padded_row_are_those_of_its_text(story: LoadedModel, side: str) -> None:
    texts = ["Once upon a time there was", "The king"]
    padded, alone = story.run(texts, row=1, pad_side=side), story.run(texts[1])
    assert padded.ids.tolist() == alone.ids.tolist()
    np.testing.assert_array_equal(story.run(ids=padded.ids).losses, alone.losses)


def test_device_and_precision_as_torch_has_them(tmp_path: Path) -> None:
    folder = save("llama", tmp_path)
    loaded = unmask.load(folder, device=torch.device("cpu"), precision=torch.float32)
    assert "float32 on CPU" in repr(loaded)


def test_a_target_is_a_text_too(story: LoadedModel, run: Run) -> None:
    token = continuation_ids(story.model, " ball")[0][0]
    by_text, by_id = (run.ablate([(4, 0)], target=target) for target in (" ball", token))
    assert by_text.line == by_id.line
    np.testing.assert_array_equal(run.ablation(target=" ball").numpy(), run.ablation(target=token).numpy())


def test_the_loss_of_a_certain_target_has_no_minus(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("answer", "outcome"):
        analysis = getattr(analyses, name)
        monkeypatch.setattr(analyses, name, lambda *given, ask=analysis: replace(ask(*given), log_probability=0.0))
    assert repr(run.ablate([(4, 0)])).endswith(" 0.00 → 0.00 nats")


@pytest.mark.parametrize(
    "ask",
    [
        lambda run: run.ablate([(0, 1)], target=""),
        lambda run: run.ablation(target=""),
        lambda run: run.patch(run, answer=""),
        lambda run: run.patch(run, answer=" dog", instead_of=""),
    ],
)
def test_a_text_without_a_token_is_no_target_and_no_answer(run: Run, ask: Callable[[Run], object]) -> None:
    with pytest.raises(ValueError, match="expected a text of at least one token, got ''"):
        ask(run)


def test_another_mask_is_a_dict_too(run: Run) -> None:
    by_dict, by_spec = (
        run.ablate([(4, 0)], "mask", mask=mask).numpy() for mask in ({"sliding": 2}, MaskSpec(sliding=2))
    )
    np.testing.assert_array_equal(by_dict, by_spec)
    assert not np.array_equal(by_dict, run.ablate([(4, 0)], "mask").numpy(), equal_nan=True)
    with pytest.raises(ValueError, match=r"got ndarray: unmask\.name_mask"):
        run.under(np.tri(5, dtype=bool))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"pairs \(layer, head\), got \(4, 0\)"):
        run.ablate((4, 0))  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch.compile uses it
def test_a_module_of_another_kind_is_captured_and_not_loaded() -> None:
    with pytest.raises(ValueError, match=r"got Linear: .*; unmask\.capture"):
        unmask.load(torch.nn.Linear(2, 3), object())
    network = random_network("llama")
    for wrapped, inside in ((torch.compile(network), "_orig_mod"), (torch.nn.DataParallel(network), "module")):
        with pytest.raises(ValueError, match=rf"got {type(wrapped).__name__}: pass the one that .*\(its \.{inside}\)"):
            unmask.load(wrapped, word_tokenizer())
        within = unmask.load(getattr(wrapped, inside), word_tokenizer()).run("the cat")
        np.testing.assert_array_equal(within.losses, unmask.load(network, word_tokenizer()).run("the cat").losses)


def test_a_picture_is_an_array(run: Run) -> None:
    head = run.head(4, 0)
    np.testing.assert_array_equal(np.asarray(head), head.numpy())
    assert np.asarray(head, np.float64).dtype == np.float64


def test_the_logit_lens_ends_at_the_last_token(story: LoadedModel) -> None:
    with pytest.warns(UserWarning, match="reads at most"):
        long = story.run("the cat " * 200)
    ends = [list(long.logit_lens(*part).axes["position"]) for part in ((), (3, 9), (250, None), (None, 140))]
    last = len(long.labels)
    assert ends == [[*range(last - 128, last)], [*range(3, 9)], [*range(250, last)], [*range(12, 140)]]


def test_an_encoder_s_attention_has_no_numbers_of_the_decoder_s(tmp_path: Path) -> None:
    run = unmask.load(save("t5", tmp_path)).run("the cat sat on a mat", target="a big ball")
    assert len(run.attention("cross").residual(0)) == len(run.attention("cross").labels)
    with pytest.raises(ValueError, match="got the encoder's"):
        run.attention("encoder").residual(0)
    for name in ("decoder", "cross"):
        same = run.attention(name)
        assert len(same.labels) == len(same.losses) == len(same.logits)
        assert repr(same.next_token()) == repr(run.next_token())
    for numbers in (lambda shown: shown.losses, lambda shown: shown.logits, lambda shown: shown.next_token()):
        with pytest.raises(
            ValueError, match=r"expected the decoder's or cross attention for its .*, got the encoder's"
        ):
            numbers(run.attention("encoder"))
    assert "nats" in str(unmask.report(run.attention("encoder"))._repr_html_())
    both = [run.attention("encoder"), run.under({"padding": False}).attention("encoder")]
    assert repr(both[0].difference(both[1]))


def test_a_finding_alone_prints_its_sentence() -> None:
    def fn(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.nn.functional.one_hot(batch["labels"], 7).float().sum(-1)

    found = unmask.check_loss(fn, {"labels": torch.tensor([[1, 2, 3, 4, 5]])}, vocabulary=7)
    assert repr(found) == str(found)
    assert found.name == ""


def test_a_comparison_of_calls_prints_no_size_of_logits(run: Run) -> None:
    assert "size" not in repr(run.served(chunks=4))


def test_captured_masks_are_named_where_they_are_known() -> None:
    class Attends(torch.nn.Module):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.scaled_dot_product_attention(x, x, x, mask)

    count = 7
    x, near = torch.randn(1, 2, count, 5), torch.ones(count, count, dtype=torch.bool).tril().triu(-2)
    padded = near.clone()
    padded[:, 5:] = False
    between = near.clone()
    between[:, 3] = False
    holed = near.clone()
    holed[6, 4] = False
    later, distance = np.triu(np.ones((count, count), bool), 1), np.abs(np.subtract.outer(*[np.arange(count)] * 2))
    for mask, names in ((near, ["causal", "sliding"]), (padded, ["causal", "padding", "sliding"])):
        blocked = unmask.capture(Attends(), x, mask).head(0, 0).blocked
        assert list(blocked) == names
        np.testing.assert_array_equal(blocked["causal"], later)
        np.testing.assert_array_equal(blocked["sliding"], distance >= 3)
    np.testing.assert_array_equal(blocked["padding"], np.isin(np.arange(count), [5, 6])[None].repeat(count, 0))
    for mask in (holed, between):
        blocked = unmask.capture(Attends(), x, mask).head(0, 0).blocked
        assert list(blocked) == ["causal", "drawn"]
        np.testing.assert_array_equal(blocked["causal"] | blocked["drawn"], ~mask.numpy())


def test_other_masks_of_layers_are_given_as_a_list(story: LoadedModel) -> None:
    assert story.run(TEXT, masks={"sliding": 2, "layers": [2]}).masks == MaskSpec(sliding=2, layers=(2,))
