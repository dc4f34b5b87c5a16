"""A model in Python and notebooks: unmask.load(…).run(text)."""

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from model import catalog
from model.base import Model
from model.masks import MaskSpec
from model.text import cut_words
from unmask.runs import Run, check_of


def load(model: Any, tokenizer: Any = None, *, name: str | None = None) -> "LoadedModel":
    """A model by its name in the catalog ("story", "gpt2"), its id on the hub or its folder; or one of transformers in
    memory with its tokenizer, which is left as it is. name: what to call that one.

    Raises NotAvailable (an OSError) when its files cannot be had, ValueError when they, or the network, cannot be used.
    """
    if isinstance(model, str | Path):
        if tokenizer is not None:
            raise ValueError(f"expected a tokenizer with a network alone, got one with the name {str(model)!r}")
        return LoadedModel(catalog.load(str(model)))
    if tokenizer is None:
        raise ValueError(f"expected a network with its tokenizer, got {type(model).__name__} alone")
    from model.huggingface import adapter  # takes seconds to import

    return LoadedModel(adapter.from_network(model, tokenizer, name), model)


@dataclass(frozen=True, eq=False, repr=False)
class LoadedModel:
    """A model with its tokenizer. network: transformers' own, where it was given in memory."""

    model: Model
    network: Any = None

    def run(
        self,
        text: str | Sequence[str],
        *,
        causal: bool | None = None,
        padding: bool | None = None,
        masks: MaskSpec | dict[str, Any] | None = None,
        row: int = 0,
        pad_side: str = "right",
        target: str | Sequence[str] | None = None,
    ) -> Run:
        """One forward pass. text: one row, or several, padded on pad_side, of which `row` is shown.

        causal, padding: None is as the model was trained. masks: a whole MaskSpec, or some of its fields by name, the
        others as the model was trained: {"sliding": 4, "layers": [2]}. target: an encoder-decoder's, one for each text;
        without, it writes its own. Warns where the model's context has no room for all of the row's text: `Run.cut`
        is the rest. Raises ValueError for what is none of this.
        """
        texts = [text] if isinstance(text, str) else list(text)
        if not texts or not all(isinstance(one, str) and one.strip() for one in texts):
            raise ValueError(f"expected a text, or several, got {text!r}")
        if pad_side not in ("left", "right"):
            raise ValueError(f"expected padding on the left or right, got {pad_side!r}")
        if not 0 <= row < len(texts):
            raise ValueError(f"expected a row from 0 to {len(texts) - 1}, got {row}")
        targets = [target] if isinstance(target, str) else target if target is None else list(target)
        batch = self.model.encode(texts, pad_side, targets)
        spec = spec_of(self.model.standard, masks, causal=causal, padding=padding)
        run = Run(self.model, self.model.run(batch, spec), row, self.network)
        if run.cut:
            warnings.warn(cut_words(run.cut, self.model.context), stacklevel=2)
        return run

    @property
    def first_head(self) -> tuple[int, int]:
        """A layer and head worth seeing first."""
        return catalog.first_head(self.model)

    def check(self, **options: Any) -> Any:
        """Does the model's own code obey its mask? unmask.check of its network, with the options of that."""
        return check_of(self.model, self.network, **options)

    def __repr__(self) -> str:
        found = self.model.describe()
        layers = ", ".join(f"{count} layers" + (f" ({part})" if part != "self" else "")
                           for part, count in found.layers.items())  # fmt: skip
        return f"{self.model.name}: {found.architecture}, {found.kind}, {layers}, {found.heads} heads"


def spec_of(
    standard: MaskSpec, masks: MaskSpec | dict[str, Any] | None, *, causal: bool | None, padding: bool | None
) -> MaskSpec:
    """The masks asked for. Raises ValueError for fields that are not there, and values that they do not take."""
    if isinstance(masks, dict):
        spec = MaskSpec.from_json(json.dumps(json.loads(standard.to_json()) | masks))
    elif masks is None or isinstance(masks, MaskSpec):
        spec = masks or standard
    else:
        raise ValueError(f"expected masks as a MaskSpec or a dict of its fields, got {type(masks).__name__}")
    return replace(
        spec,
        causal=spec.causal if causal is None else causal,
        padding=spec.padding if padding is None else padding,
    )
