"""Tests of the alignment: each line's position and opacity, the source row, the strip of probabilities, the words."""

import re
from datetime import date

import numpy as np
import plotly.graph_objects as go
import pytest

from viz.cross_attention import (
    FAINTEST,
    MAX_LINES_PER_STEP,
    Alignment,
    MaskChoiceRow,
    WrittenAnswer,
    alignment_alt,
    alignment_figure,
    judgement,
    lifted_words,
    mask_choices_table,
    step_words,
    verdict,
)
from viz.palette import MASK_COLOURS, NOW, STANDARD, rgb

WEIGHTS = np.array([[0.7, 0.2, 0.1, 0.0], [0.0, 0.005, 0.995, 0.0]], np.float32)


def alignment(step: int = 0, **changes: object) -> Alignment:
    """Return an alignment of two outputs with three source tokens and one of padding, which is blocked."""
    blocked = np.zeros((2, 4), bool)
    blocked[:, 3] = True
    fields: dict = {
        "source": ["a", "<b>", "c", "▢"],
        "outputs": ["x", "<i>"],
        "weights": WEIGHTS,
        "padding": np.array([False, False, False, True]),
        "blocked": blocked,
        "probabilities": np.array([0.9999, 0.25]),
        "step": step,
    }
    return Alignment(**fields | changes)


def lines(found: Alignment) -> list[tuple[float, float, str]]:
    """Return (x above, x below, colour) of every line, in drawing order."""
    return [(line.x0, line.x1, line.line.color) for line in alignment_figure(found).layout.shapes]


class TestLines:
    def test_each_goes_from_its_source_to_its_output_as_opaque_as_its_weight(self) -> None:
        red, blue = (",".join(map(str, rgb(colour))) for colour in (NOW, STANDARD))
        assert lines(alignment()) == [
            (0.625, 0.75, f"rgba({blue},0.9950)"),  # the chosen step's come last, on top
            (0.125, 0.25, f"rgba({red},0.7000)"),
            (0.375, 0.25, f"rgba({red},0.2000)"),
            (0.625, 0.25, f"rgba({red},0.1000)"),
        ]

    def test_a_weight_too_faint_to_see_and_a_blocked_one_have_none(self) -> None:
        assert WEIGHTS[1, 1] < FAINTEST
        assert len(lines(alignment())) == 4

    def test_of_many_the_heaviest_of_each_step(self) -> None:
        weights = np.tile(np.linspace(0.02, 0.05, 30, dtype=np.float32), (2, 1))
        found = alignment(
            source=["s"] * 30, weights=weights, blocked=np.zeros((2, 30), bool), padding=np.zeros(30, bool)
        )
        assert len(lines(found)) == 2 * MAX_LINES_PER_STEP
        assert min(float(colour.split(",")[-1][:-1]) for _, _, colour in lines(found)) >= 0.038

    @pytest.mark.parametrize("step", [0, 1])
    def test_the_source_row_is_the_chosen_steps(self, step: int) -> None:
        figure = alignment_figure(alignment(step))
        go.Figure(figure.to_dict())  # not validated before; raises ValueError
        (bars,) = [trace for trace in figure.data if trace.name == "source row"]
        assert np.allclose(bars.y, WEIGHTS[step])
        assert list(bars.marker.color) == [NOW, NOW, NOW, MASK_COLOURS["padding"]]
        assert bars.customdata[3] == "3: ▢ (padding)<br>blocked"

    def test_labels_are_escaped_and_the_chosen_one_is_bold(self) -> None:
        figure = alignment_figure(alignment(1))
        assert list(figure.layout.xaxis.ticktext) == ["a", "&lt;b&gt;", "c", "▢"]
        assert list(figure.layout.xaxis2.ticktext) == ["x", "<b>&lt;i&gt;</b>"]
        points = figure.data[1].customdata
        assert points[1].startswith("step 2 writes <b>&lt;i&gt;</b>, 25.0%<br>attends most to 2: c, 0.9950")

    def test_of_very_many_tokens_every_so_many_has_a_label(self) -> None:
        found = alignment(
            source=["word"] * 500,
            weights=np.full((2, 500), 0.002, np.float32),
            blocked=np.zeros((2, 500), bool),
            padding=np.zeros(500, bool),
        )
        assert len(alignment_figure(found).layout.xaxis.tickvals) <= 72
        assert not lines(found)

    def test_the_alternative_text_says_what_each_looks_at(self) -> None:
        assert (
            "the outputs (2) with the source tokens (4). x at a (position 0, 0.70); <i> at c (position 2"
            in alignment_alt(alignment())
        )


class TestWords:
    def answer(self, **changes: object) -> str:
        fields: dict = {"meant": (date(2021, 3, 3),), "chances": (0.95,), "wrote": "2021-03-03",
                        "chance": 0.95, "least": 0.975, "at": "3 (character 10)"}  # fmt: skip
        return re.sub("<.*?>", "", verdict(WrittenAnswer(**fields | changes)))

    def test_right(self) -> None:
        assert self.answer() == (
            "Under the standard masks the model writes 2021-03-03, which is correct: the text means 3 March 2021. "
            "This answer as a whole has a probability of 95.0%; its least certain character is 3 (character 10), with "
            "97.5%."
        )

    @pytest.mark.parametrize(
        ("wrote", "judged"),
        [
            ("2021-04-03", "the reading with the day first"),
            ("2021-03-04", "the reading with the month first"),
            ("2021-03-03", "wrong"),
            ("none", "wrong"),
        ],
    )
    def test_two_readings_have_their_probabilities(self, wrote: str, judged: str) -> None:
        both = {"meant": (date(2021, 4, 3), date(2021, 3, 4)), "chances": (0.71, 0.27), "chance": 0.71}
        text = self.answer(**both, wrote=wrote)
        assert text.startswith(
            f"Under the standard masks the model writes {wrote}, which is {judged}. The text could mean 3 April 2021 "
            "or, the month first, 4 March 2021, and nothing in it says which: the model gives the two a probability of "
            "71.0% and 27.0%."
        )

    def test_another_day_than_the_text_means_is_wrong_however_real_it_is(self) -> None:
        text = self.answer(lifted="without both masks", now="2020-03-03")
        assert text.endswith("it writes 2020-03-03, which is wrong.")
        assert judgement((date(2021, 3, 3),), "2020-03-03") == "which is wrong"

    def test_a_step(self) -> None:
        text = re.sub("<.*?>", "", step_words(alignment()))
        assert text == (
            "Step 1 writes x with &gt;99.9% and attends most to a (position 0), with a weight of 0.70. "
            "0% of the row is on padding."
        )
        nothing = alignment(weights=np.zeros((2, 4), np.float32))
        assert "nothing to attend to" in step_words(nothing)

    def test_the_table_of_what_breaks_frames_the_masks_on_screen(self) -> None:
        rows = [
            MaskChoiceRow("standard masks", "2021-03-03", "right", 1.0, 0.995, 0.99),
            MaskChoiceRow("without both", "<b>", "wrong", 0.25, 0.5, 0.4),
        ]
        table = mask_choices_table(rows, "without both", 80)
        assert "80 held-out dates" in table
        framed = re.findall(r'<tr aria-current="true">(.*?)</tr>', table)
        assert [re.findall("<td.*?>(.*?)</td>", row) for row in framed] == [
            ["without both", "&lt;b&gt;", "wrong", "25.0%", "50.0%", "40.0%"]
        ]

    def test_the_words_on_what_breaks_are_the_tables_numbers(self) -> None:
        rows = [
            MaskChoiceRow("m", "w", "right", exact, characters, 0.5)
            for exact, characters in ((1, 0.99), (0.3, 0.8), (0.9, 0.6))
        ]
        assert re.findall(r"[\d.]+%", lifted_words(*rows)) == ["30.0%", "100%", "60.0%", "99.0%", "90.0%", "100%"]
