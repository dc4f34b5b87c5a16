"""A text as the Bug clinic reads it, and the bugs that its heatmaps do not show."""

from model.base import Model, tokenize
from model.bug_clinic import comparison
from model.trace import Trace

TEXT = "The old woman gave the princess a cake, and the princess gave the old woman a cake."
CRASHES = {"float-width", "narrow-output", "half-fill", "if-mask"}
UNSEEN = {"in-place", "targets"}  # their outputs are right


def read(model: Model, text: str) -> Trace:
    """Its run under the masks that the clinic takes, padded on the left."""
    read_of = comparison.prepare_text(model, text)
    reading = tokenize(model, "\n".join(read_of.lines), "left", comparison.targets_for(model, read_of))
    return model.run(reading.batch, comparison.masks_for(model)).select(comparison.attention_for(model))
