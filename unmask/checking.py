"""check(module) for Python, notebooks and tests: a report that prints and draws itself."""

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from model.obey import formats
from model.obey.check import SECONDS
from model.obey.check import check as _check
from model.obey.declared import Mask
from model.obey.findings import CannotCheck
from model.obey.findings import Report as _Report
from viz.obey import report_html, view_of

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["CannotCheck", "Report", "assert_causal", "check"]


class Report(_Report):
    """What was found, see `findings`; `print` shows it as text, a notebook as a picture and a table."""

    def __str__(self) -> str:
        return formats.as_text(self)

    __repr__ = __str__

    def numpy(self) -> np.ndarray:
        """What was measured of the mask, [T,T]: by how much each output (row) moves when each token is changed.

        Raises ValueError where that could not be measured.
        """
        if self.mask is None:
            raise ValueError(f"expected a measured mask; of {self.name} there is none: see .findings")
        return self.mask.moved

    def _repr_html_(self) -> str:
        return report_html(view_of(self))


def check(
    module: "nn.Module",
    *,
    ids: "Tensor | Sequence[int] | None" = None,
    text: str | None = None,
    tokenizer: Any = None,
    mask: Mask = None,
    seed: int = 0,
    seconds: float | None = SECONDS,
    kernels: tuple[str, ...] | None = None,
) -> Report:
    """Measure what really reaches what in a module, by its own forward and its own kernels.

    module: called with input_ids [B,T], and with attention_mask, position_ids, past_key_values if it takes them;
    returns logits [B,T,V], or something that has .logits. It is left as it was.
    ids [T], or a text and a tokenizer called as transformers' are: what it reads; random ids unless given.
    mask: what it should obey: None (its configuration says; without one: causal), "causal", "full", "window:W",
    "chunk:C", "prefix:P", or bool [T,T], True = may attend.
    kernels: the attention kernels to compare, by transformers' names.

    Raises CannotCheck where it cannot be called, gives no numbers, or takes more than `seconds`.
    """
    pieces = None
    if text is not None:
        if tokenizer is None or ids is not None:
            raise CannotCheck("expected a text with its tokenizer, or ids")
        ids = list(tokenizer(text)["input_ids"])
        pieces = [tokenizer.decode([one]) for one in ids]
    found = _check(module, ids=ids, pieces=pieces, mask=mask, seed=seed, seconds=seconds, kernel_names=kernels)
    return Report(**{one.name: getattr(found, one.name) for one in fields(found)})


def assert_causal(module: "nn.Module", **options: Any) -> Report:
    """For tests: fails with the whole report unless the module is causal and obeys every law that applies to it.

    options: those of `check`. The mask is causal whatever the configuration says, unless one is given.
    """
    report = check(module, **({"mask": "causal"} | options))
    assert report.obeys, f"\n{report}"
    return report
