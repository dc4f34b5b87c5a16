"""Activation patching on Compare, without a browser."""

import numpy as np

from model.base import Model
from model.circuits.patching import Asked, measured
from model.inference.calls import continuation_ids
from tests.model.circuits.test_patching import head_effects
from tests.pages.explore import array
from tests.pages.test_compare import Compare
from ui.circuits.patching import PAIR

TEXTS = {name: PAIR[name] for name in ("text", "b_text", "differs", "patch_answer", "patch_instead")}


class Patching(Compare):
    def effects(self) -> np.ndarray:
        return array(self.figures()["patch_map"]["data"][0]["z"])


def pair(story: Model) -> tuple[tuple, Asked]:
    a, b = (story.run(story.encode([PAIR[name]])) for name in ("text", "b_text"))
    ids = [continuation_ids(story, PAIR[name])[0][0] for name in ("patch_answer", "patch_instead")]
    return (a, 0, b, 0), Asked(b.batch.ids.shape[1] - 1, *ids)


def test_every_head_is_patched_into_b_and_the_other_way(story: Model) -> None:
    page = Patching(patching="true", **TEXTS)
    traces, asked = pair(story)
    expected = np.stack([head_effects(story, *traces, asked, layer) for layer in range(6)])
    np.testing.assert_allclose(page.effects(), expected, atol=1e-4)
    a, b = measured(story, *traces, asked)
    said = " ".join(page.said("markdown"))
    assert f"Measured in A: {a:.2f}, in B: {b:.2f}".replace("-", "−") in said
    page.set(patch_into="a")
    back = np.stack([head_effects(story, *traces[2:], *traces[:2], asked, layer) for layer in range(6)])
    np.testing.assert_allclose(page.effects(), back, atol=1e-4)
    assert page.url["patch_into"] == "a"
