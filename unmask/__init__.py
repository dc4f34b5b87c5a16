"""The Python interface of Unmask, for notebooks, tests and scripts; on the command line, `python -m unmask --help`.

run = unmask.load("story").run("Once upon a time", causal=False)    # run.heads(), run.head(4, 0), run.leak() …
unmask.attentions(outputs.attentions, tokens)                       # weights returned by transformers
unmask.capture(module, ids), unmask.from_transformer_lens(cache)    # your own nn.Module; TransformerLens
unmask.digit(levels, 3).pixels(2, 1, 18)                            # a picture of 8×8 pixels, and where a pixel attends
unmask.check(module), unmask.assert_causal(module)                  # does it obey its mask?
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mask_check.loss import check_loss
    from model.inference.cost import cost
    from model.mask_lab.recognize import name_mask
    from model.spec import MaskSpec
    from unmask.captured import capture, from_transformer_lens
    from unmask.checking import CannotCheck, Report, assert_causal, check, lightning_callback, trainer_callback
    from unmask.digits import digit
    from unmask.notebook import checkpoints, load
    from unmask.report_request import report
    from unmask.sources import attentions

CHECKING = ("CannotCheck", "Report", "assert_causal", "check", "check_loss", "lightning_callback", "trainer_callback")
NOTEBOOK = ("MaskSpec", "checkpoints", "cost", "load", "name_mask")
HOMES = dict.fromkeys(CHECKING, "unmask.checking") | dict.fromkeys(NOTEBOOK, "unmask.notebook")
HOMES |= {  # all in unmask/: in a wheel the other folders have other names
    "attentions": "unmask.sources",
    "capture": "unmask.captured",
    "digit": "unmask.digits",
    "from_transformer_lens": "unmask.captured",
    "report": "unmask.report_request",
}
__all__ = [
    "CannotCheck", "MaskSpec", "Report", "assert_causal", "attentions", "capture", "check", "check_loss",
    "checkpoints", "cost", "digit", "from_transformer_lens", "lightning_callback", "load", "name_mask", "report",
    "trainer_callback",
]  # fmt: skip


def __dir__() -> list[str]:
    """Return the public names, which `dir` and `help` list before they are imported."""
    return sorted([*(name for name in globals() if name.startswith("__")), *__all__])


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: torch takes a second, which --help does without."""
    if name not in HOMES:
        raise AttributeError(f"module 'unmask' has no attribute {name!r}")
    return getattr(import_module(HOMES[name]), name)
