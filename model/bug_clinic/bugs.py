"""All bugs, in the order in which a page shows them."""

from model.bug_clinic.masks import MASKS
from model.bug_clinic.modules import AROUND, TARGETS
from model.bug_clinic.scores import SCORES

BUGS = (*AROUND, *SCORES, *MASKS, TARGETS)
BY_KEY = {bug.key: bug for bug in BUGS}
TITLES = tuple(dict.fromkeys(bug.title for bug in BUGS))
