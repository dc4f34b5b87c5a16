"""Tests of the packet of all heads: what a reader of its bytes finds in it, its size, and what counts as blocked.

The packet is read as viz/components/packet.js reads it (tests/viz/packet.py).
"""

import numpy as np
import pytest

from model.base import Model
from model.heads.survey import blocked_thumbnail, thumbnail_size
from model.masks import MaskSpec
from tests.viz.packet import read, read_measures
from viz.components import source, words
from viz.hatch import ink
from viz.heads.overview import BLOCKED, TITLES, overview_packet
from viz.palette import stops

MAX_BYTES = 600_000
TEXTS = ["the cat sat on the mat and the cat sat still on the mat", "a cat"]


class TestPacket:
    def test_its_header_says_the_sizes_and_the_chosen_head(self) -> None:
        packet = overview_packet(np.zeros((2, 3, 5, 7)), np.zeros((2, 1, 5, 7), bool), layer=1, head=2)
        header, palette, _ = read(packet)
        assert header.pop("hatch")["lines"] == ink("causal")["lines"]
        assert (header.pop("measures"), header.pop("clear")) == ([], 0.5)
        assert header.pop("words") == words("overview")
        assert header.pop("by") is None
        assert header == {"layers": 2, "heads": 3, "tall": 5, "wide": 7, "layer": 1, "head": 2, "numbers": [0, 1]}
        assert palette.tobytes() == stops(255).tobytes()

    def test_layers_are_named_by_their_numbers_in_the_network(self) -> None:
        none = np.zeros((2, 1, 5, 7), bool)
        header, _, _ = read(overview_packet(np.zeros((2, 3, 5, 7)), none, layer=1, head=2, numbers=(3, 7)))
        assert header["numbers"] == [3, 7]

    def test_a_pixels_square_is_its_weight_to_within_half_a_step(self) -> None:
        weights = np.random.default_rng(1).random((2, 3, 5, 7), np.float32)
        _, _, pixels = read(overview_packet(weights, np.zeros((2, 1, 5, 7), bool), layer=0, head=0))
        assert pixels.max() < BLOCKED
        assert np.abs(pixels / 254 - np.sqrt(weights)).max() <= 0.5 / 254 + 1e-6

    @pytest.mark.parametrize("heads", [1, 3])
    def test_blocked_pixels_are_those_given_for_the_head_and_no_weight_looks_blocked(self, heads: int) -> None:
        blocked = np.random.default_rng(2).random((2, heads, 5, 7)) < 0.4
        weights = np.where(blocked, 0.0, 1.0) * np.ones((2, 3, 5, 7))
        _, _, pixels = read(overview_packet(weights, blocked, layer=0, head=0))
        np.testing.assert_array_equal(pixels == BLOCKED, np.broadcast_to(blocked, pixels.shape))

    def test_measures_follow_the_pixels_and_those_of_nothing_are_left_out(self) -> None:
        shares = np.array([[0.0, 4.5e-6, 1.0], [np.nan, 0.7063, 0.99999976]], np.float32)
        measures = {"induction": shares, "padding": np.zeros((2, 3)), "duplicate": np.full((2, 3), np.nan)}
        none = np.zeros((2, 1, 5, 7), bool)
        packet = overview_packet(np.zeros((2, 3, 5, 7)), none, layer=0, head=0, measures=measures)
        header, _, pixels = read(packet)
        assert pixels.shape == (2, 3, 5, 7)
        assert header["measures"] == [{"name": "induction", "title": "induction", "tag": "I"}]
        np.testing.assert_array_equal(read_measures(packet)["induction"], shares)

    def test_weights_a_little_beyond_0_and_1_are_the_ends_of_the_scale(self) -> None:
        weights = np.array([-1e-7, 1 + 1e-6]).reshape(1, 1, 1, 2)
        _, _, pixels = read(overview_packet(weights, np.zeros((1, 1, 1, 2), bool), layer=0, head=0))
        assert pixels.ravel().tolist() == [0, 254]


class TestSize:
    @pytest.mark.parametrize(("layers", "heads"), [(1, 1), (6, 6), (12, 12), (24, 16), (36, 20), (48, 25), (80, 64)])
    def test_weights_that_cannot_be_compressed_take_at_most_600_000_bytes(self, layers: int, heads: int) -> None:
        size = thumbnail_size(layers, heads)
        assert size >= 4
        weights = np.random.default_rng(3).random((layers, heads, size, size), np.float32)
        measures = dict(zip(TITLES, np.random.default_rng(4).random((len(TITLES), layers, heads)), strict=True))
        packet = overview_packet(weights, np.zeros((layers, 1, size, size), bool), layer=0, head=0, measures=measures)
        assert len(packet) <= MAX_BYTES


class TestBlocked:
    @pytest.mark.parametrize("size", [3, 5, 8, 64])
    @pytest.mark.parametrize("spec", [MaskSpec(), MaskSpec(causal=False), MaskSpec(padding=False)])
    def test_in_a_run_only_blocked_pixels_lack_weight(self, tiny: Model, spec: MaskSpec, size: int) -> None:
        trace = tiny.run(tiny.encode(TEXTS, "left"), spec)
        for row in range(2):
            weights = trace.overview(row, size).numpy()
            mask = ~trace.allowed(0, row).numpy()
            small = blocked_thumbnail(mask, *weights.shape[2:])
            assert (weights[:, :, small] == 0).all()
            assert (weights[:, :, ~small] > 0).all()
            _, _, pixels = read(overview_packet(weights, np.stack([small[None]] * len(weights)), layer=0, head=0))
            assert (pixels == BLOCKED).mean() == small.mean()


class TestComponent:
    def test_the_browsers_reader_agrees_on_the_numbers_of_the_format(self) -> None:
        script = source("overview.js")
        assert f"BLOCKED = {BLOCKED};" in script
        assert "subarray(0, 3 * 255)" in script
        assert "getUint32(0, true)" in source("packet.js")

    def test_it_names_itself_before_its_data_comes(self) -> None:
        assert 'data-label="name"' in source("overview.js")  # from its header, read before the rest is unpacked
        assert "name" in words("overview")
        assert 'tabindex="0"' in source("overview.js")
