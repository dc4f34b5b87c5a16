"""The clinic's questions, with a bug by its key: what can be asked of a model that is in another process."""

from model.base import Model
from model.bug_clinic.bugs import BY_KEY
from model.bug_clinic.examination import Examination, examine
from model.trace import Trace


def examined(model: Model, trace: Trace, row: int, bug: str, layer: int) -> Examination:
    """The bug of this key on one row of a run; see examine."""
    return examine(model, trace, BY_KEY[bug], layer, row)
