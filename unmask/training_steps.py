"""Training checkpoints in Python: loaded one after another, and measured on a text."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from model import catalog
from model.heads.survey import step_measures
from model.masks import MaskSpec
from unmask.notebook import LoadedModel, load


@dataclass(frozen=True, eq=False, repr=False)
class Checkpoints:
    """A folder's checkpoints (`checkpoint-*`, as Hugging Face's Trainer writes them), by their training steps."""

    folder: str
    steps: tuple[int, ...]

    def load(self, step: int, **options: Any) -> LoadedModel:
        """The model after this step. options: as for unmask.load. Raises ValueError for a step that is not there."""
        return load(self.folder, step=step, **options)

    def models(self, **options: Any) -> Iterator[tuple[int, LoadedModel]]:
        """(step, model) in order; one is in memory at a time if you keep none."""
        for step in self.steps:
            yield step, self.load(step, **options)

    def measure(self, text: str, *, masks: MaskSpec | dict[str, Any] | None = None, **options: Any) -> "OverSteps":
        """The loss and every head's patterns on a text after each step. Loads the checkpoints one after another."""
        found = []
        for _, model in self.models(**options):
            run = model.run(text, masks=masks)
            found.append(step_measures(run.trace, run.row, run.masks, run.predicts))
        sizes = list(dict.fromkeys(one.shares["first"].shape for one in found))
        if len(sizes) > 1:
            raise ValueError(f"expected checkpoints of as many layers and heads, got {sizes}")
        shares = {name: np.stack([one.shares[name] for one in found]) for name in found[0].shares}
        losses = np.array([one.loss for one in found], np.float32)
        return OverSteps(self.folder, self.steps, losses, shares, catalog.logged_losses(self.folder))

    def __repr__(self) -> str:
        some = self.steps
        steps = ", ".join(map(str, some)) if len(some) <= 8 else f"{some[0]}, {some[1]} … {some[-1]}"
        return f"{self.folder}: {len(some)} checkpoints, steps {steps}"


@dataclass(frozen=True, eq=False, repr=False)
class OverSteps:
    """What one text measures after each of S steps. loss: mean nats per token, float32 [S]. shares: of each head's
    attention by its name ("previous", "induction" …), 0 to 1, float32 [S,L,H]. logged: what Hugging Face's Trainer
    logged, (step, loss), by "loss" and "eval_loss"."""

    folder: str
    steps: tuple[int, ...]
    loss: np.ndarray
    shares: dict[str, np.ndarray]
    logged: dict[str, list[tuple[int, float]]] = field(default_factory=dict)

    def numpy(self) -> np.ndarray:
        return self.loss

    def head(self, layer: int, head: int) -> Any:
        """The loss and one head's patterns as a Plotly figure."""
        from viz.heads.overview import steps_figure

        of_head = {name: shares[:, layer, head] for name, shares in self.shares.items()}
        return steps_figure(self.steps, self.loss, of_head, None, self.logged)

    def to_dataframe(self) -> Any:
        """A row for each step: its loss, and the largest share of any head by each name, NaN where no query of the text
        is asked about."""
        import pandas as pd  # takes a second to import

        largest = {name: np.fmax.reduce(shares, (1, 2)) for name, shares in self.shares.items()}
        return pd.DataFrame({"step": self.steps, "loss": self.loss, **largest}).set_index("step")

    def _repr_html_(self) -> str:
        return str(self.to_dataframe().to_html(float_format="{:.3f}".format))

    def __repr__(self) -> str:
        return f"{self.folder}: loss {self.loss[0]:.2f} to {self.loss[-1]:.2f} nats over {len(self.steps)} checkpoints"


def checkpoints(folder: str) -> Checkpoints:
    """The checkpoints in a folder. Raises ValueError where there are none."""
    steps = tuple(step for step in catalog.steps(str(folder)).values() if step is not None)
    if not steps:
        raise ValueError(f"expected a folder of checkpoints (checkpoint-100 …), got {str(folder)!r:.200}")
    return Checkpoints(str(folder), steps)
