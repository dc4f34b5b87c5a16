"""The clinic's questions, with a bug by its key: what can be asked of a model that is in another process."""

from model.base import Model
from model.bug_clinic.bugs import BY_KEY
from model.bug_clinic.comparison import BugComparison, compare
from model.bug_clinic.examination import Examination, examine
from model.trace import Trace


def compared(model: Model, trace: Trace, row: int, bug: str, layer: int) -> BugComparison:
    """The bug of this key beside its right version on one row of a run; see compare."""
    return compare(model, trace, BY_KEY[bug], layer, row)


def examined(model: Model, trace: Trace, row: int, bug: str, layer: int) -> Examination:
    """What the bug of this key breaks on one row of a run; see examine."""
    return examine(model, trace, BY_KEY[bug], layer, row)
