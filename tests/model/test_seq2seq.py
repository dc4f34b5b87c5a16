"""Tests of the encoder and the decoder with cross-attention: masks, shapes, and what must not be visible."""

import pytest
import torch
from torch import Tensor

from model.attention import attention_stages
from model.blocks import sinusoids
from model.transformer import Decoder, Encoder, EncoderDecoder, EncoderDecoderConfig, padding_mask, sequence_mask
from tests.tensors import assert_near

SIZES = {"vocabulary": 29, "context": 17, "layers": 2, "heads": 3, "width": 12, "mlp_width": 19}
SOURCE = torch.tensor([[5, 6, 7, 8, 9, 10, 11], [12, 13, 14, 15, 0, 0, 0]])  # [B,S] = [2,7]
TARGET = torch.tensor([[1, 3, 4, 5, 6], [1, 7, 8, 0, 0]])  # [B,T] = [2,5]


@pytest.fixture(scope="module", params=["sinusoidal", "learned"])
def stacks(request: pytest.FixtureRequest) -> tuple[Encoder, Decoder]:
    torch.manual_seed(3)
    encoder = Encoder(**SIZES, positions=request.param)
    decoder = Decoder(**SIZES, positions=request.param)
    return encoder.eval().requires_grad_(False), decoder.eval().requires_grad_(False)


def decoded(stacks: tuple[Encoder, Decoder], source: Tensor, target: Tensor) -> tuple[Tensor, list, list]:
    encoder, decoder = stacks
    memory, _ = encoder(source)
    return decoder(target, memory, padding_mask(source, target))


class TestMasks:
    def test_a_sequence_mask_lets_a_token_see_itself_and_what_came_before(self) -> None:
        found = sequence_mask(torch.tensor([[4, 5, 6], [7, 8, 0]]))
        assert found.dtype == torch.bool
        assert found.tolist() == [[[True, False, False], [True, True, False], [True, True, True]]] * 2

    def test_a_sequence_mask_takes_states_too(self) -> None:
        assert sequence_mask(torch.zeros(2, 3, 8)).shape == (2, 3, 3)

    def test_a_padding_mask_lets_nobody_see_the_pad_id(self) -> None:
        found = padding_mask(torch.tensor([[4, 0], [5, 6]]), torch.tensor([[1, 2, 3], [1, 2, 0]]))
        assert found.dtype == torch.bool
        assert found.tolist() == [[[True, False]] * 3, [[True, True]] * 3]

    def test_the_pad_id_is_a_parameter(self) -> None:
        found = padding_mask(torch.tensor([[0, 9]]), torch.tensor([[1]]), pad=9)
        assert found.tolist() == [[[True, False]]]

    def test_both_together_are_the_decoders_own_mask(self, stacks: tuple[Encoder, Decoder]) -> None:
        _, own, _ = decoded(stacks, SOURCE, TARGET)
        allowed = padding_mask(TARGET, TARGET) & sequence_mask(TARGET)
        for weights in own:
            assert (weights[~allowed[:, None].expand_as(weights)] == 0).all()
            assert (weights[allowed[:, None].expand_as(weights)] > 0).all()

    @pytest.mark.parametrize("wrong", [torch.zeros(3), torch.tensor(1)])
    def test_a_sequence_of_no_rows_is_refused(self, wrong: Tensor) -> None:
        with pytest.raises(ValueError, match=r"expected a sequence \[B,T\]"):
            sequence_mask(wrong)

    def test_keys_that_are_no_ids_are_refused(self) -> None:
        with pytest.raises(ValueError, match="whole numbers"):
            padding_mask(torch.zeros(2, 3), torch.zeros(2, 3))
        with pytest.raises(ValueError, match="expected queries of 2 rows"):
            padding_mask(SOURCE, TARGET[:1])


class TestShapes:
    def test_both_together_are_what_its_stacks_are(self) -> None:
        config = EncoderDecoderConfig(vocabulary=29, context=17, encoder_layers=1, decoder_layers=2, heads=3, width=12)
        model = EncoderDecoder(config)
        memory, _ = model.encoder(SOURCE)
        output, _, _ = model.decoder(TARGET, memory, padding_mask(SOURCE, TARGET))
        assert_near(model(SOURCE, TARGET), model.logits(output), 1e-5, "logits")


class TestWhatIsSeen:
    def test_padding_of_the_source_gets_nothing(self, stacks: tuple[Encoder, Decoder]) -> None:
        _, _, context = decoded(stacks, SOURCE, TARGET)
        for weights in context:
            assert_near(weights.sum(-1), torch.ones(2, 3, 5), 1e-6, "sums")
            assert (weights[1, :, :, 4:] == 0).all()

    def test_a_later_target_token_changes_nothing_before_it(self, stacks: tuple[Encoder, Decoder]) -> None:
        other = TARGET.clone()
        other[0, 3] = 20
        before, after = decoded(stacks, SOURCE, TARGET)[0], decoded(stacks, SOURCE, other)[0]
        assert_near(after[0, :3], before[0, :3], 1e-6, "before it")
        assert (after[0, 3] - before[0, 3]).abs().max() > 1e-3

    def test_without_the_causal_mask_it_does(self, stacks: tuple[Encoder, Decoder]) -> None:
        encoder, decoder = stacks
        memory, other = encoder(SOURCE)[0], TARGET.clone()
        other[0, 3] = 20
        own = padding_mask(TARGET, TARGET)
        before, after = decoder(TARGET, memory, None, own)[0], decoder(other, memory, None, own)[0]
        assert (after[0, 0] - before[0, 0]).abs().max() > 1e-3

    def test_a_padded_row_is_what_it_is_alone(self, stacks: tuple[Encoder, Decoder]) -> None:
        padded = decoded(stacks, SOURCE, TARGET)[0][1, :3]
        alone = decoded(stacks, SOURCE[1:, :4], TARGET[1:, :3])[0][0]
        assert_near(padded, alone, 1e-5, "the row alone")

    def test_without_the_context_mask_padding_is_seen(self, stacks: tuple[Encoder, Decoder]) -> None:
        encoder, decoder = stacks
        _, _, context = decoder(TARGET, encoder(SOURCE)[0])
        assert all((weights[1, :, :, 4:] > 0).all() for weights in context)

    def test_weights_are_the_cores_own(self, stacks: tuple[Encoder, Decoder]) -> None:
        encoder, decoder = stacks
        memory, allowed = encoder(SOURCE)[0], padding_mask(SOURCE, TARGET)[:, None]
        _, _, context = decoder(TARGET, memory, allowed[:, 0])
        own = (padding_mask(TARGET, TARGET) & sequence_mask(TARGET))[:, None]
        _, _, heads = decoder.states(TARGET, decoder.positions(TARGET), memory, [own] * 2, [allowed] * 2)
        for weights, (q, k, v) in zip(context, heads, strict=True):
            assert_near(weights, attention_stages(q, k, v, allowed).weights, 1e-6, "weights")

    def test_a_mask_may_differ_by_head(self, stacks: tuple[Encoder, Decoder]) -> None:
        encoder, decoder = stacks
        by_head = padding_mask(SOURCE, TARGET)[:, None].repeat(1, 3, 1, 1)
        by_head[:, 2, :, 0] = False
        _, _, context = decoder(TARGET, encoder(SOURCE)[0], by_head)
        assert (context[0][:, 2, :, 0] == 0).all()
        assert (context[0][:, :2, :, 0] > 0).all()

    def test_a_source_of_nothing_but_padding_is_nothing_to_attend_to(self, stacks: tuple[Encoder, Decoder]) -> None:
        output, _, context = decoded(stacks, torch.zeros(2, 7, dtype=torch.long), TARGET)
        assert output.isfinite().all()
        assert all((weights == 0).all() for weights in context)


class TestRefusals:
    @pytest.mark.parametrize(
        ("target", "memory", "message"),
        [
            (
                TARGET,
                torch.zeros(2, 7, 11),
                r"expected enc_output \[B,S,W\] with 2 rows and width 12, got \[2, 7, 11\]",
            ),
            (TARGET, torch.zeros(1, 7, 12), "with 2 rows"),
            (TARGET, torch.zeros(2, 0, 12), "at least one source token"),
            (TARGET[0], torch.zeros(2, 7, 12), r"expected ids \[B,T\]"),
            (torch.full((2, 5), 29), torch.zeros(2, 7, 12), "expected ids from 0 to 28, got 29 to 29"),
            (torch.ones(2, 18, dtype=torch.long), torch.zeros(2, 7, 12), r"at most 17 tokens \(the context\), got 18"),
        ],
    )
    def test_inputs_that_do_not_fit(
        self, stacks: tuple[Encoder, Decoder], target: Tensor, memory: Tensor, message: str
    ) -> None:
        with pytest.raises(ValueError, match=message):
            stacks[1](target, memory)

    @pytest.mark.parametrize(
        "mask", [torch.ones(2, 5, 6) > 0, torch.ones(2, 7) > 0, torch.ones(2, 5, 7), torch.ones(3, 5, 7) > 0]
    )
    def test_a_context_mask_that_does_not_fit(self, stacks: tuple[Encoder, Decoder], mask: Tensor) -> None:
        with pytest.raises(ValueError, match=r"expected context_mask .* B 2, Q 5 and K 7, boolean"):
            stacks[1](TARGET, torch.zeros(2, 7, 12), mask)

    def test_sizes_that_make_no_model(self) -> None:
        with pytest.raises(ValueError, match="multiple of the heads"):
            Decoder(**SIZES | {"heads": 5})
        with pytest.raises(ValueError, match="even width"):
            Encoder(**SIZES | {"width": 9})
        with pytest.raises(ValueError, match='"sinusoidal" or "learned", got'):
            Encoder(**SIZES, positions="rotary")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="layers of at least 1, got 0"):
            Decoder(**SIZES | {"layers": 0})
        with pytest.raises(TypeError):
            Decoder(29, 17, 2, 3, 12)  # type: ignore[misc]  # sizes are keyword arguments


class TestPositions:
    def test_sines_and_cosines_by_hand(self) -> None:
        table = sinusoids(3, 4)
        assert_near(table[0], torch.tensor([0.0, 1.0, 0.0, 1.0]), 1e-7, "position 0")
        expected = torch.tensor([2.0, 2.0, 0.02, 0.02]).double()
        expected = torch.stack([expected[0].sin(), expected[1].cos(), expected[2].sin(), expected[3].cos()]).float()
        assert_near(table[2], expected, 1e-6, "position 2")

    def test_they_are_no_parameters_and_in_no_checkpoint(self) -> None:
        assert not [name for name in Encoder(**SIZES).state_dict() if "position" in name]
        assert "position_embedding.weight" in Encoder(**SIZES, positions="learned").state_dict()
