"""One run of a model: every object that it gives shows itself, and gives numpy."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from model import catalog
from model.base import Model
from model.heads.every import changes, every_weight
from model.heads.shown import shown_head
from model.heads.survey import Survey, survey
from model.masks import MaskSpec
from model.predictions import next_tokens
from model.text import TokenBatch
from model.trace import Trace
from unmask.every_head import Difference, Leak
from unmask.live import LiveHead
from unmask.mask import Mask, mask_of
from unmask.shown import MOST_TOKENS, Predicted
from unmask.sources import HELD_CELLS, HeadSource
from viz.heads.picture import changed
from viz.leaks import leak_notes
from viz.loss_words import loss_words
from viz.numbers import TOP, Candidate
from viz.view import HeadView

MOST_CHECKED = 24  # tokens of a run that `check` reads: each takes a forward of its own


@dataclass(frozen=True, eq=False, repr=False)
class Run(HeadSource):
    """One forward pass, of which one row is shown. trace: all that it left (model.trace.Trace). network:
    transformers' own, where the model was given in memory."""

    model: Model
    trace: Trace
    row: int = 0
    network: Any = None

    @property
    def title(self) -> str:  # type: ignore[override]
        """The model, how many tokens it read, whether that was all of the text, and the masks that were on."""
        masks = " and ".join(self.mask_names) or "no"
        mask = "masks" if len(self.mask_names) > 1 else "mask"
        longer = " of a longer text" if self.cut else ""
        return f"{self.model.name}, {len(self.labels)} tokens{longer}, {masks} {mask}"

    @property
    def mask_names(self) -> list[str]:
        """The masks that are on, in one layer at least."""
        layers = range(self.trace.num_layers)
        return list(dict.fromkeys(name for layer in layers for name in self.trace.blocked_by(layer, self.row)))

    @property
    def query(self) -> int:  # type: ignore[override]
        """The row's last real token."""
        return self.trace.queries.real(self.row).stop - 1

    @property
    def across(self) -> bool:  # type: ignore[override]
        """Whether a target looks at its source."""
        return self.trace.name == "cross"

    @property
    def numbers(self) -> Sequence[int]:  # type: ignore[override]
        """Of each layer in the network, where these are not 0, 1, 2 …"""
        return self.model.describe().layer_numbers.get(self.trace.name, ())

    @property
    def predicts(self) -> bool:
        """Whether it has losses and next tokens: an encoder reads a whole text at once."""
        return self.model.kind != "encoder" and self.model.predicts

    @cached_property
    def survey(self) -> Survey:
        """All heads in one pass: thumbnails, and shares of attention on later tokens and on padding."""
        return survey(self.trace, self.row)

    def notes(self) -> list[list[str]]:
        """Each head's leak."""
        return leak_notes(self.survey.future, self.survey.padding)

    def measures(self) -> dict[str, np.ndarray]:
        """What each head does, in shares of its attention, 0 to 1, [L,H]: "previous", "first", "induction" …"""
        return self.survey.measures()

    def attention(self, name: str) -> "Run":
        """The same run, showing another of its attentions: "encoder", "decoder" or "cross" of an encoder-decoder."""
        return replace(self, trace=self.trace.select(name))

    def under(self, masks: MaskSpec) -> "Run":
        """The same texts run again under other masks. Raises ValueError for masks that do not fit the model."""
        return replace(self, trace=self.model.run(self.trace.batch, masks).select(self.trace.name))

    @property
    def masks(self) -> MaskSpec:
        """The masks that it ran under."""
        return self.trace.spec

    @property
    def text(self) -> str:
        """What was read of the row, an encoder-decoder's text before its target."""
        return "\n→ ".join(one.read(self.row) for one in self._batches)

    @property
    def cut(self) -> str:
        """The end of the row's text, which did not fit into the model's context; "" where all of it was read."""
        return "\n→ ".join(one.cut[self.row] for one in self._batches if one.cut and one.cut[self.row])

    @property
    def _batches(self) -> list[TokenBatch]:
        return [one for one in (self.trace.batch.source, self.trace.batch) if one is not None]

    @property
    def labels(self) -> list[str]:
        """What is shown of each token that looks."""
        return list(self.trace.queries.pieces[self.row])

    @property
    def losses(self) -> np.ndarray:
        """float32 [T], nats: -log of the probability that each token was given, NaN where there is none.

        Raises ValueError for a model that predicts no next token.
        """
        self._expect_predictions()
        return self.trace.losses(self.row).numpy()

    def next_token(self, query: int | None = None, most: int = TOP) -> Predicted:
        """The likeliest tokens after the one at position query, the row's last one unless given."""
        self._expect_predictions()
        found = next_tokens(self.trace, self.row, query, most)
        pairs = zip(found.tokens.tolist(), found.probabilities.tolist(), strict=True)
        after = self.labels[self.query if query is None else query]
        return Predicted(f"after {after}", [Candidate(self.model.label(token), chance) for token, chance in pairs])

    def numpy(self) -> np.ndarray:
        """Every weight, float32 [L,H,Q,K]: of a long text these are many."""
        return every_weight(self.trace, self.row)

    def view(self, layer: int, head: int) -> HeadView:
        """One head as arrays with its labels."""
        found = shown_head(self.trace, self.row, self.masks, layer, head)
        queries, keys = (list(batch.pieces[self.row]) for batch in (self.trace.queries, self.trace.keys))
        return HeadView(found.weights, found.scaled, found.blocked, queries, keys)

    def mask(self, layer: int, head: int) -> Mask:
        """All masks of one head together. Raises ValueError for cross-attention."""
        return mask_of(self.trace, self.row, layer, head, self.named(layer, head), self.query)

    def live(self, layer: int, head: int) -> LiveHead:
        """A head's mask to draw on, and the head, which follows: live widgets. Needs `pip install unmask[notebook]`."""
        return LiveHead(self, layer, head)

    def glance(self) -> tuple[np.ndarray, np.ndarray]:
        """Thumbnails, and the patches that are blocked as a whole."""
        return self.survey.thumbnails, self.survey.blocked

    def difference(self, other: "Run") -> Difference:
        """Every weight less another run's on the same tokens. Raises ValueError for other tokens."""
        found = changes(self.trace, other.trace, self.row)
        layer, head = (int(place) for place in np.unravel_index(found.largest.argmax(), found.largest.shape))
        every = self.all_heads([(layer, head)], HELD_CELLS, MOST_TOKENS)
        parts = other.all_heads([(layer, head)], HELD_CELLS, MOST_TOKENS)
        drawn = replace(
            every,
            thumbnails=found.thumbnails,
            blocked=every.blocked & parts.blocked,
            heads={place: changed(view, parts.heads[place]) for place, view in every.heads.items()},
            notes=(),
            measures={},
        )
        words = loss_words(self.losses, other.losses, self.labels) if self.predicts and other.predicts else ""
        return Difference(f"{self.title} − {other.title}", drawn, found.largest, words)

    def leak(self) -> Leak:
        """What every head gives to later tokens and to padding."""
        layers, heads = self.survey.future.shape
        names = [[self.named(layer, head) for head in range(heads)] for layer in range(layers)]
        return Leak(self.title, self.survey.future, self.survey.padding, names)

    def check(self, **options: Any) -> Any:
        """Does the model's own code obey its mask on the beginning of this text? As unmask.check."""
        ids = self.trace.batch.ids[self.row, self.trace.batch.real(self.row)][:MOST_CHECKED]
        return check_of(self.model, self.network, **({"ids": ids} | options))

    def first_head(self) -> tuple[int, int]:
        """The one to show first."""
        return catalog.first_head(self.model) if self.trace.name == self.trace.attentions[0] else (0, 0)

    def _expect_predictions(self) -> None:
        if not self.predicts:
            raise ValueError(f"expected a model that predicts next tokens, got {self.model.name}, {self.model.kind}")

    def __repr__(self) -> str:
        return self.title


def check_of(model: Model, network: Any, **options: Any) -> Any:
    """unmask.check of a model's network: the one given in memory, or what transformers makes of its files."""
    from unmask.checking import check

    if network is None:
        from model.huggingface import own_network
        from model.settings import Settings

        settings = Settings.from_environment()
        network = own_network.load(model.name, own_network.find(model.name, settings), settings)
    return check(network, **options)
