"""What the page Why causal computes of a text: four runs, what they write, what a changed token changes."""

from model.masks import MaskSpec
from model.text import TokenBatch
from model.why_causal import twins
from model.why_causal.twins import COMBINATIONS, Change, Combination, Curves, TwinOutcome, TwinPair
from serving.job import ModelRef
from serving.result_cache import once
from ui import results, run_view
from ui.run_view import RunView
from viz.why_causal.charts import TwinCard


@once
def pair() -> TwinPair:
    """Both models, loaded once for everybody. Raises CheckpointError."""
    return twins.load()


@once
def curves() -> Curves:
    return twins.curves()


def run_all(found: TwinPair, batch: TokenBatch) -> dict[Combination, RunView]:
    """Both twins on the text, with the mask and without; nothing runs until it is asked for."""
    runs: dict[Combination, RunView] = {}
    for trained, model in found.models.items():
        lifted, own = run_view.run_pair(model, batch, MaskSpec(causal=not trained), 0, "self")
        runs |= {Combination(trained, trained): own, Combination(trained, not trained): lifted}
    return {one: runs[one] for one in COMBINATIONS}


def outcomes(looks: dict[Combination, RunView]) -> dict[Combination, TwinOutcome]:
    return {one: results.ask(twins.outcome, look.run) for one, look in looks.items()}


def change(found: TwinPair, batch: TokenBatch, trained: bool, position: int, token: int) -> dict[bool, Change]:
    """What another token at a position moves, with the mask (True) and without."""
    ref = ModelRef.of(found.models[trained])
    return {run: results.ask(twins.change, ref, batch, position, token, causal=run) for run in (True, False)}


def cards(
    found: TwinPair, batch: TokenBatch, outcomes: dict[Combination, TwinOutcome], seed: int | None
) -> list[TwinCard]:
    """The four combinations: what they predict of the text, and what they write on after its beginning.

    seed: of what is drawn at random; None for the likeliest token each time.
    """
    given = batch.ids[0, : twins.PROMPT].tolist()
    result = []
    for one in COMBINATIONS:
        ref = ModelRef.of(found.models[one.trained])
        ids = results.ask(twins.write, ref, tuple(given), causal=one.run, seed=seed)
        new = ids[len(given) :]
        before, whole = found.decode(given), found.decode(ids)
        measured = outcomes[one].loss, outcomes[one].accuracy
        result.append(TwinCard(one.trained, one.run, *measured, before, whole[len(before) :], len(set(new)), len(new)))
    return result
