"""Tests of bugs and the laws that catch them: a bug breaks its law by a known amount, the core breaks none.

Sizes are different primes, so that a swapped axis cannot pass.
"""

import itertools
import math
import re
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from model.attention import AttentionStages, MultiHeadAttention, ScoreTerms, attention_stages
from model.bug_clinic import bugs
from model.bug_clinic.bugs import BUGS, BY_KEY, TITLES, AttentionCase, Bug, Crash
from model.bug_clinic.laws import LAWS, AttentionTrial, judge
from tests.tensors import assert_near

B, H, T, D = 2, 3, 7, 5
KEEP = torch.tensor([[False, False, True, True, True, True, True], [True] * T])  # padded on the left; no padding
TRIANGLE = torch.ones(T, T, dtype=torch.bool).tril()
EVERY = torch.ones(1, 1, dtype=torch.bool)
ALLOWED = TRIANGLE & KEEP[:, None, None, :]


def some_case(
    *, heads: int = H, shared: int = H, keep: Tensor = KEEP, terms: ScoreTerms | None = None, size: float = 1.0
) -> AttentionCase:
    random = torch.Generator().manual_seed(11)
    q, x = (torch.randn(B, heads, T, D, generator=random) * size for _ in range(2))
    k, v = (torch.randn(B, shared, T, D, generator=random) * size for _ in range(2))
    others = tuple(torch.randn(part.shape, generator=random) * size for part in (q, k, v))
    allowed = TRIANGLE & keep[:, None, None, :]
    own = {"inputs": x, "others": others, "masks": bugs.repeated(allowed, heads)}
    return AttentionCase(q, k, v, allowed, keep, terms=terms or ScoreTerms(), **own)


CASES = {
    "left padding": some_case(),
    "right padding": some_case(keep=KEEP.flip(1)),
    "shared keys": some_case(heads=6, shared=2),
    "large scores": some_case(size=4.0),
    "bias and soft-cap": some_case(
        terms=ScoreTerms(softcap=3.0, bias=torch.randn(1, H, T, T, generator=torch.Generator().manual_seed(2)))
    ),
    "sinks": some_case(terms=ScoreTerms(sinks=torch.tensor([0.5, -1.0, 2.0]))),
    "a sink for each query": some_case(
        terms=ScoreTerms(sinks=torch.randn(B, H, T, 1, generator=torch.Generator().manual_seed(3)))
    ),
}


CRASHES = {"float-width", "narrow-output", "half-fill", "if-mask"}  # these raise an error


@pytest.fixture(params=BUGS, ids=lambda bug: bug.key)
def bug(request: pytest.FixtureRequest) -> Bug:
    return request.param


class TestEachBug:
    def test_breaks_its_law(self, bug: Bug) -> None:
        assert judge(
            LAWS[bug.law], AttentionTrial(bug.function, replace(some_case(), ahead=bug.ahead).to(bug.dtype))
        ).broken

    @pytest.mark.parametrize("case", CASES.values(), ids=CASES)
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
    def test_the_right_version_breaks_none(self, case: AttentionCase, dtype: torch.dtype) -> None:
        found = {key: judge(law, AttentionTrial(AttentionCase.stages, case.to(dtype))) for key, law in LAWS.items()}
        assert {key: verdict.amount for key, verdict in found.items() if verdict.broken} == {}
        measured = [key for key, verdict in found.items() if not math.isnan(verdict.amount)]
        assert set(LAWS) - {"empty"} <= set(measured), "a law that measures nothing holds for anything"

    def test_leaves_what_it_was_given_alone(self, bug: Bug) -> None:
        if bug.key in CRASHES:
            return
        case = some_case()
        before = [tensor.clone() for tensor in (case.q, case.k, case.v, case.allowed)]
        case.run(bug.function)
        for old, now in zip(before, (case.q, case.k, case.v, case.allowed), strict=True):
            assert torch.equal(old, now)

    def test_takes_what_the_core_takes(self, bug: Bug) -> None:
        if bug.key in CRASHES:
            return
        q, k, v = (torch.randn(B, H, T, D, generator=torch.Generator().manual_seed(n)) for n in range(3))
        for allowed in (TRIANGLE | True, TRIANGLE, ALLOWED):
            stages = bug.stages(q, k, v, allowed)
            core = attention_stages(q, k, v, allowed)
            assert isinstance(stages, AttentionStages)
            for name in vars(core):
                assert getattr(stages, name).shape == getattr(core, name).shape, name

    def test_has_all_that_a_page_says_of_it(self, bug: Bug) -> None:
        assert bug.law in LAWS
        assert bug.wrong != bug.right
        assert min(map(len, (bug.signs, bug.wrong, bug.right))) > 8
        assert bug.needs
        assert len(bug.wrong.splitlines()) == len(bug.right.splitlines())


def test_keys_differ_and_variants_stand_together() -> None:
    assert len(BY_KEY) == len(BUGS)
    assert [title for title, _ in itertools.groupby(bug.title for bug in BUGS)] == list(TITLES)
    for bug in BUGS:
        assert bool(bug.variant) == ([other.title for other in BUGS].count(bug.title) > 1)


class TestAgainstTheWrongLineItself:
    """Each bug's function of q, k and v gives what its wrong line, where a module usually has it, gives of x."""

    @pytest.fixture
    def module(self) -> MultiHeadAttention:
        torch.manual_seed(3)
        return MultiHeadAttention(H * D, H)

    @pytest.fixture
    def x(self) -> Tensor:
        return torch.randn(B, T, H * D, generator=torch.Generator().manual_seed(5))

    def test_view_shows_a_head_one_stretch(self, module: MultiHeadAttention, x: Tensor) -> None:
        q, k, v = module.project(x, x, x)
        for head in range(H):
            first, last = bugs.stretch(head, H, T)
            assert abs(last - first + 1 - T / H) < 2, "about T / heads tokens"
            others = [token for token in range(T) if not first <= token <= last]
            changed_k = k.clone()
            changed_k[:, :, others] = 0
            view = BY_KEY["view"]
            same = view.stages(q, k, v, EVERY).raw[:, head]
            assert torch.equal(view.stages(q, changed_k, v, EVERY).raw[:, head], same)
            changed_k[:, :, last] = 0
            assert not torch.equal(view.stages(q, changed_k, v, EVERY).raw[:, head], same)

    def test_view_fills_heads_with_all_parts_of_one_token_before_the_next_ones(self) -> None:
        filled = [bugs.token_in_view_split(head, position, H, T) for head in range(H) for position in range(T)]
        assert filled == [(token, part) for token in range(T) for part in range(H)]

    def test_a_mask_without_an_order_is_taken_apart_too(self) -> None:
        case = replace(some_case(), allowed=KEEP[:, None, None, :].expand(B, 1, T, T))
        expected = attention_stages(case.q, case.k, case.v, KEEP[:, None, :, None].expand(B, 1, T, T))
        assert_near(case.run(BY_KEY["wrong-axis"].function).output, expected.output, 1e-5, "an encoder's mask")


class TestByHand:
    """Two tokens and heads of width 2; the scores after scaling are 0 and ln 3 in each row."""

    q = torch.tensor([[[[math.sqrt(2), 0.0], [math.sqrt(2), 0.0]]]])
    k = torch.tensor([[[[0.0, 1.0], [math.log(3), 1.0]]]])
    v = torch.tensor([[[[4.0, 0.0], [0.0, 8.0]]]])
    triangle = torch.ones(2, 2, dtype=torch.bool).tril()

    def test_violations(self) -> None:
        case = AttentionCase(self.q, self.k, self.v, self.triangle[None, None], torch.ones(1, 2, dtype=torch.bool))
        found = {
            ("after-softmax", "rows"): 3 / 4,  # the first row sums to 1/4
            ("query-axis", "rows"): 1 / 2,  # the rows sum to 1/2 and 3/2
            ("or", "blocked"): 3 / 4,
            ("in-place", "kept"): 1.0,
            ("diagonal", "rows"): 1.0,
            ("unprojected", "projected"): 2.0,  # with q standing in for the inputs, k and v are ignored
        }
        for (key, law), amount in found.items():
            assert LAWS[law].measure(AttentionTrial(BY_KEY[key].function, case)) == pytest.approx(amount, abs=1e-6), (
                key,
                law,
            )
        # the last token's k and v, negated, give score -ln 3 and value -8: the first output (1, 6) becomes (3, -2)
        assert LAWS["causal"].measure(AttentionTrial(BY_KEY["or"].function, case)) == pytest.approx(8.0, abs=1e-5)

    def test_scales(self) -> None:
        """For width 2·3 and heads of width 2, scores are divided by √6, √(2/3) or 1 instead of √2."""
        q = torch.ones(1, 3, 1, 2)
        for key, scale in (("scale-width", 6**-0.5), ("scale-divided", 1.5**0.5), ("scale-none", 1.0)):
            assert_near(BY_KEY[key].stages(q, q, q, EVERY).scaled, torch.full((1, 3, 1, 1), 2 * scale), 1e-6, key)

    @pytest.mark.parametrize("key", [bug.key for bug in BUGS if bug.law == "scaled"])
    def test_a_wrong_scale_needs_a_model_that_divides_by_the_root_of_the_width(self, key: str) -> None:
        bug, usual = BY_KEY[key], replace(some_case(), scale=D**-0.5)
        assert judge(LAWS["scaled"], AttentionTrial(bug.function, usual)).broken
        own = replace(usual, scale=1.0)
        assert torch.equal(own.run(bug.function).weights, own.stages().weights)
        for attention in (bug.function, AttentionCase.stages):
            assert math.isnan(LAWS["scaled"].measure(AttentionTrial(attention, own))), (
                "the law is about the usual scale"
            )


def test_over_queries_the_last_token_is_alone_in_its_column_only_where_no_padding_follows() -> None:
    assert "the last token from itself where no padding follows" in BY_KEY["query-axis"].signs
    for side, keep in (("left", KEEP), ("right", KEEP.flip(1))):
        case = some_case(keep=keep)
        weights, last = case.run(BY_KEY["query-axis"].function).weights, case.real(0).stop - 1
        alone = (case.allowed.sum(-2) == 1).expand(B, H, T)
        assert_near(weights.sum(-2)[alone], torch.ones(int(alone.sum())), 1e-6, side)
        assert bool((weights[0, :, last, last] > 0.999).all()) == (side == "left")


class TestHalfPrecision:
    def test_pytorch_refuses_to_fill_with_it(self) -> None:
        verdict = judge(LAWS["runs"], AttentionTrial(BY_KEY["half-fill"].function, some_case().to(torch.float16)))
        assert "without overflow" in verdict.error
        assert verdict.amount == math.inf
        assert not judge(LAWS["same"], AttentionTrial(BY_KEY["half-fill"].function, some_case(keep=KEEP | True))).broken

    def test_added_it_becomes_infinite_and_an_empty_row_no_number(self) -> None:
        stages = some_case().to(torch.float16).run(BY_KEY["half-added"].function)
        empty = ~ALLOWED.any(-1).expand(B, H, T)
        assert torch.equal(stages.weights.isnan().all(-1), empty)
        assert torch.equal(stages.weights.isnan().any(-1), empty)
        beside_sinks = CASES["sinks"].to(torch.float16)  # a row of -inf gives its sink all the weight
        found = beside_sinks.run(BY_KEY["half-added"].function).weights
        assert_near(found, beside_sinks.stages().weights, 1e-3, "a sink in each row, no harm")
        whole = some_case(keep=KEEP | True).to(torch.float16)
        expected = whole.run(AttentionCase.stages).weights
        assert_near(whole.run(BY_KEY["half-added"].function).weights, expected, 1e-3, "no empty row, no harm")


class TestMasksOfOtherRows:
    def test_two_rows_and_four_heads_get_0101_where_0011_is_wanted(self) -> None:
        """Each row's mask holds the row's number: repeat gives 0, 1, 0, 1 …"""
        numbers = torch.arange(2)[:, None, None, None]
        assert bugs.repeated(numbers, 4).flatten().tolist() == [0, 1, 0, 1, 0, 1, 0, 1]
        assert bugs.repeated(torch.arange(3)[:, None, None, None], 2).flatten().tolist() == [0, 1, 2, 0, 1, 2]
        whose = [bugs.row_repeated(row, head, 3, 2) for row in range(3) for head in range(2)]
        assert whose == [0, 1, 2, 0, 1, 2]

    def test_alone_a_row_gets_its_own(self) -> None:
        alone = some_case().text_alone(0)
        assert_near(alone.run(BY_KEY["repeat"].function).output, alone.run(AttentionCase.stages).output, 1e-6, "output")


class TestCrashes:
    @pytest.mark.parametrize(
        ("key", "message"),
        [
            ("float-width", "got float"),
            ("narrow-output", "(14x15 and 5x15)"),  # two rows of 7 tokens, 3 heads of width 5
            ("if-mask", "ambiguous"),
            ("half-fill", "without overflow"),
        ],
    )
    def test_are_told_in_pytorchs_own_words(self, key: str, message: str) -> None:
        bug = BY_KEY[key]
        case = some_case().to(bug.dtype)
        with pytest.raises(Crash, match=re.escape(message)):
            case.run(bug.function)
        found = {name: judge(law, AttentionTrial(bug.function, case)) for name, law in LAWS.items()}
        assert message in found["runs"].error
        assert [name for name, verdict in found.items() if verdict.broken] == ["runs"]
        assert [name for name, verdict in found.items() if not math.isnan(verdict.amount)] == ["runs"]

    def test_are_those_that_are_listed(self) -> None:
        found = {
            bug.key
            for bug in BUGS
            if judge(LAWS["runs"], AttentionTrial(bug.function, some_case().to(bug.dtype))).broken
        }
        assert found == CRASHES

    def test_one_head_or_one_cell_does_not_crash(self) -> None:
        one = torch.ones(1, 1, 3, 5)
        assert BY_KEY["narrow-output"].stages(one, one, one, EVERY).output.shape == (1, 1, 3, 5)
        assert float(BY_KEY["if-mask"].stages(one[:, :, :1], one[:, :, :1], one[:, :, :1], EVERY).weights) == 1


class TestTheTarget:
    def test_is_the_next_token_unless_the_targets_are_not_shifted(self) -> None:
        case = some_case()
        assert judge(LAWS["target"], AttentionTrial(AttentionCase.stages, case)).amount == 0
        assert judge(
            LAWS["target"], AttentionTrial(AttentionCase.stages, replace(case, ahead=BY_KEY["targets"].ahead))
        ).broken

    def test_a_later_token_that_is_not_the_target_breaks_the_causal_law_alone(self) -> None:
        def far(case: AttentionCase) -> AttentionStages:
            opened = torch.zeros(T, T, dtype=torch.bool)
            opened[3, 5] = True
            return replace(case, allowed=case.allowed | opened).stages()

        assert judge(LAWS["causal"], AttentionTrial(far, some_case())).broken
        assert not judge(LAWS["target"], AttentionTrial(far, some_case())).broken


class TestLaws:
    def test_say_nothing_where_a_case_cannot_tell(self) -> None:
        one = torch.ones(1, 1, 1, 3)
        case = AttentionCase(
            one, one, one, torch.ones(1, 1, 1, 1, dtype=torch.bool), torch.ones(1, 1, dtype=torch.bool)
        )
        silent = {
            key for key, law in LAWS.items() if math.isnan(law.measure(AttentionTrial(AttentionCase.stages, case)))
        }
        assert silent == {"empty", "causal", "target", "padded", "heads", "projected"}
        assert not any(judge(law, AttentionTrial(AttentionCase.stages, case)).broken for law in LAWS.values())
        open_case = replace(some_case(), allowed=KEEP[:, None, None, :].expand(B, 1, T, T))
        assert math.isnan(LAWS["causal"].measure(AttentionTrial(AttentionCase.stages, open_case)))

    def test_a_row_sums_to_1_together_with_its_sink(self) -> None:
        case, sinks = CASES["sinks"], CASES["sinks"].terms.sinks
        stages, looks = case.stages(), case.allowed.any(-1).expand(B, H, T)
        together = torch.cat([stages.masked, sinks.view(H, 1, 1).expand(B, H, T, 1)], -1).softmax(-1)
        assert_near(stages.weights[looks], together[looks][:, :-1], 1e-6, "what the sink leaves")
        assert float(stages.weights.sum(-1)[looks].max()) < 1
        assert LAWS["rows"].measure(AttentionTrial(AttentionCase.stages, case)) < 1e-6
        assert "sum to 1 (together with the head's sink, where a model has sinks)" in LAWS["rows"].words

    def test_a_number_that_is_none_counts_as_the_largest_violation(self) -> None:
        def broken(case: AttentionCase) -> AttentionStages:
            stages = case.stages()
            return replace(stages, weights=stages.weights * math.nan, output=stages.output * math.nan)

        for key in ("blocked", "rows", "empty", "causal", "padded", "same", "heads"):
            assert judge(LAWS[key], AttentionTrial(broken, some_case())).amount == math.inf, key
