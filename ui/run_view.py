"""Views of runs: one row of a batch, under the chosen and under the standard masks.

A view holds only plain data that identify a run. What is drawn of it is computed by a job, wherever the run's trace is,
and cached (results.py). A rerun with nothing changed computes nothing.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from model import base
from model.base import Model, TokenizedText
from model.heads.merging import By, groups_of, merged_head, merged_labels
from model.heads.survey import Survey, survey
from model.heads.view import HeadView, head_name, head_view
from model.masks import MaskSpec
from model.sampling import NextTokens, next_tokens, predictions
from model.text import TokenBatch
from serving.job import ModelRef, RunRef, digest
from serving.settings import Settings
from ui import results
from viz.numbers import TOP, Candidate

Made = TypeVar("Made")


@dataclass(frozen=True, eq=False)
class RowPredictions:
    """A run's predictions for one row: losses in nats [T], NaN where there is none, and the likeliest next tokens."""

    losses: np.ndarray
    candidates: list[Candidate]


@dataclass(frozen=True, eq=False)
class RunView:
    """A run, and the masks its weights are shown under: the run's own, or others on this layer only.

    by: what its tokens are merged into. Positions count tokens, words or sentences accordingly.
    """

    model: Model
    run: RunRef
    masks: MaskSpec
    row: int
    by: By = "tokens"

    @property
    def tokens(self) -> tuple[str, ...]:
        """A label for each query position of the row."""
        return self._labels(self.run.queries.pieces[self.row], keys=False)

    @property
    def key_tokens(self) -> tuple[str, ...]:
        """A label for each key position of the row."""
        return self._labels(self.run.keys.pieces[self.row], keys=True)

    def _labels(self, pieces: tuple[str, ...], *, keys: bool) -> tuple[str, ...]:
        return pieces if self.by == "tokens" else tuple(merged_labels(pieces, self.begins(keys=keys)))

    @property
    def real(self) -> slice:
        """The positions of the row's queries that are not padding."""
        real = np.flatnonzero(self.keep(keys=False))
        return slice(int(real[0]), int(real[-1]) + 1)

    def keep(self, *, keys: bool = True) -> np.ndarray:
        """Return which key positions are not padding, bool [K]; with keys=False, which query positions, bool [Q]."""
        batch = self.run.keys if keys else self.run.queries
        own: np.ndarray = batch.kept[self.row]
        return own if self.by == "tokens" else np.logical_or.reduceat(own, self.begins(keys=keys))

    def begins(self, *, keys: bool = False) -> np.ndarray:
        """Return the first token of each query position; with keys=True, of each key position."""
        batch = self.run.keys if keys else self.run.queries
        return self.cached(("groups", keys), lambda: groups_of(batch, self.row, self.by))

    def position_of(self, token: int) -> int:
        """Return the query position that contains a token."""
        return int(np.searchsorted(self.begins(), token, side="right")) - 1

    def last_token(self, query: int) -> int:
        """Return the last token of a query position."""
        return int(np.append(self.begins()[1:], len(self.run.queries.pieces[self.row]))[query]) - 1

    def ask(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Return function(trace, row, masks, *arguments, **options), of model/, cached. Raises as results.ask."""
        return results.ask(function, self.run, self.row, self.masks, *arguments, **options)

    def head(self, layer: int, head: int) -> HeadView:
        """Return the head's weights and labels, ready to be drawn."""
        merge = () if self.by == "tokens" else (self.by,)
        found: HeadView = self.ask(merged_head if merge else head_view, layer, head, *merge)
        return found

    def name(self, layer: int, head: int | None = None) -> str:
        """Return the name of the head, or of its layer: "L3 H2", "L3", numbered as in the network."""
        return name_of(self.model, self.run.attention, layer, head)

    def number(self, layer: int) -> int:
        """Return the layer's number in the network, which also counts layers without attention."""
        return self.model.describe().layer_number(self.run.attention, layer)

    @property
    def layer_numbers(self) -> tuple[int, ...]:
        """Each layer's number in the network, if these are not 0, 1, 2 …; else empty."""
        return self.model.describe().layer_numbers.get(self.run.attention, ())

    def survey(self) -> Survey:
        """Survey all heads. Masks for one layer apply only to that layer's heads, the run's own to all others."""
        if self.masks == self.run.spec or len(self.masks.layers) != 1:
            return self.ask(survey, **({} if self.by == "tokens" else {"by": self.by}))
        run, lifted = (replace(self, masks=masks) for masks in (self.run.spec, replace(self.masks, layers=())))
        return run.survey().with_layer(self.masks.layers[0], lifted.survey())

    def predictions(self, query: int | None = None) -> RowPredictions | None:
        """Return the prediction after the token at `query`, by default the row's last; None if the model has none."""
        if self.model.kind == "encoder" or not self.model.predicts:
            return None
        found = results.ask(predictions, self.run, self.row, None, TOP)
        top: NextTokens = found
        if query not in (None, self.run.batch.real(self.row).stop - 1):  # the losses are the same at every query
            top = results.ask(next_tokens, self.run, self.row, query, TOP)
        pairs = zip(top.tokens.tolist(), top.probabilities.tolist(), strict=True)
        return RowPredictions(found.losses, [Candidate(self.model.label(token), chance) for token, chance in pairs])

    def cached(self, what: Hashable, make: Callable[[], Made]) -> Made:
        """Return the result of make() for this view, cached under the key `what`."""
        return results.cached((what, self.run.key, digest(self.masks.to_json()), self.row, self.by), make)


def shape(model: Model, attention: str) -> tuple[int, int]:
    """Return how many layers and heads an attention of the model has."""
    return model.describe().shape(attention)


def name_of(model: Model, attention: str, layer: int, head: int | None = None) -> str:
    """Return the name of a head, or of its layer, in an attention: "L3 H2", "L3", numbered as in the network."""
    return head_name(model.describe().layer_number(attention, layer), head)


def layer_names(model: Model, attention: str) -> list[str]:
    return [name_of(model, attention, layer) for layer in range(shape(model, attention)[0])]


def shape_of(now: RunView) -> tuple[int, int]:
    return shape(now.model, now.run.attention)


def tokenize(
    model: Model, text: str, pad_side: str, targets: list[str] | None, most_rows: int | None = None
) -> TokenizedText:
    """Tokenize a text, cached because a model may have to generate its own target, which takes several runs. most_rows:
    by default UNMASK_ROWS."""
    given = text, pad_side, None if targets is None else tuple(targets)
    rows = most_rows or Settings.from_environment().rows
    if model.kind == "encoder-decoder" and targets is None:
        return results.ask(base.tokenize, ModelRef.of(model), *given, most_rows=rows)
    key = ("tokens", model.key, digest(given), rows)
    return results.cached(key, lambda: base.tokenize(model, *given, most_rows=rows))


def run_pair(
    model: Model,
    batch: TokenBatch,
    spec: MaskSpec,
    row: int,
    attention: str,
    *,
    only_layer: int | None = None,
    by: By = "tokens",
) -> tuple[RunView, RunView]:
    """Return the view under the masks of spec, and the view under the model's standard masks.

    only_layer: the layer whose weights alone are recomputed under spec, from the queries and keys of the standard run;
    None re-runs the model. by: what tokens are merged into.
    """

    def under(run: MaskSpec, masks: MaskSpec) -> RunView:
        return RunView(model, RunRef(ModelRef.of(model), batch, run, attention), masks, row, by)

    standard = under(model.standard, model.standard)
    if only_layer is None:
        return under(spec, spec), standard
    return under(model.standard, replace(spec, layers=(only_layer,))), standard
