"""Who says which digit it is: plain scikit-learn classifiers that were trained on real digits only.

scikit-learn is imported only when one is asked for.
"""

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from model.pixels.digits import to_values
from model.pixels.real_digits import Digits, real_digits

if TYPE_CHECKING:
    from sklearn.base import ClassifierMixin

Kind = Literal["svc", "logistic"]
TITLES: dict[Kind, str] = {"svc": "support vector classifier", "logistic": "logistic regression"}


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
