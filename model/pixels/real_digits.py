"""Real digits: scikit-learn's 1,797 pictures (UCI, Alpaydin and Kaynak 1998), in our grey levels and three parts; and
who says which digit a picture shows: plain scikit-learn classifiers, trained on real digits only.

scikit-learn takes a second to import: only who asks for a classifier waits for it. Its file of digits is read without.
"""

from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from i18n import N_
from model.pixels.digits import to_levels, to_values

if TYPE_CHECKING:
    from sklearn.base import ClassifierMixin

DIGITS_FILE = "datasets/data/digits.csv.gz"  # in scikit-learn's package: 64 pixels and the class a line
VALIDATION, TEST = 8, 9  # of every ten digits of a class, in scikit-learn's order from 0, these are never trained on
Kind = Literal["svc", "logistic"]
TITLES: dict[Kind, str] = {"svc": N_("support vector classifier"), "logistic": N_("logistic regression")}


@dataclass(frozen=True, eq=False)
class Digits:
    """levels uint8 [N,64], 0 to 7; classes int [N], 0 to 9. Read-only."""

    levels: np.ndarray
    classes: np.ndarray


@dataclass(frozen=True, eq=False)
class RealDigits:
    """train teaches the model and the recogniser, validation picks the weights to keep, test is only measured on."""

    train: Digits
    validation: Digits
    test: Digits


@cache
def real_digits() -> RealDigits:
    """The three parts: 1,444, 177 and 176 digits."""
    package = cast(ModuleSpec, find_spec("sklearn"))
    table = np.loadtxt(Path(str(package.origin)).parent / DIGITS_FILE, delimiter=",")  # as its load_digits does
    levels, classes = to_levels(table[:, :-1]), table[:, -1].astype(int)
    part = np.zeros(len(classes), int)
    for one in np.unique(classes):
        part[classes == one] = np.arange((classes == one).sum()) % 10

    def some(which: np.ndarray) -> Digits:
        chosen = Digits(levels[which], classes[which])
        chosen.levels.setflags(write=False)
        chosen.classes.setflags(write=False)
        return chosen

    return RealDigits(some(part < VALIDATION), some(part == VALIDATION), some(part == TEST))


@dataclass(frozen=True, eq=False)
class Recogniser:
    """A trained classifier of pictures; read-only. accuracy: its share of real test digits named right, 0 to 1."""

    kind: Kind
    classifier: "ClassifierMixin"
    accuracy: float

    def read(self, levels: np.ndarray) -> np.ndarray:
        """Pictures [N,64] in grey levels -> the classes [N] they are taken for."""
        return self.classifier.predict(to_values(levels)) if len(levels) else np.zeros(0, int)

    def rate(self, some: Digits) -> float:
        """The share of pictures, 0 to 1, that are taken for their class."""
        return float((self.read(some.levels) == some.classes).mean())


@cache
def recogniser(kind: Kind = "svc") -> Recogniser:
    """Trained on the real training digits, with scikit-learn's own settings (gamma="scale", C=1)."""
    data = real_digits()
    if kind == "svc":
        from sklearn.svm import SVC

        classifier = SVC()
    else:
        from sklearn.linear_model import LogisticRegression

        classifier = LogisticRegression(max_iter=5000)
    classifier.fit(to_values(data.train.levels), data.train.classes)
    untested = Recogniser(kind, classifier, float("nan"))
    return Recogniser(kind, classifier, untested.rate(data.test))
