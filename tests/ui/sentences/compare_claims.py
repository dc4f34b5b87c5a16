"""Checks of the sentences of Compare and of Images, as in claims.py: A is the standard run, B the other."""

# ruff: noqa: E501 - each sentence on one line, so that a search finds it

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from model.images.captioner import END, GRID, ID_OF, PATCHES, WORDS, CaptionerModel, encode
from model.images.scenes import Scene, caption, render
from model.masks import MaskSpec
from tests.ui.sentences.claims import Claim, Said, same
from tests.ui.sentences.facts import Facts


def _most(said: Said, facts: Facts) -> bool:
    cell = facts.position_of(said["query"], said["query_at"]), facts.position_of(said["key"], said["key_at"])
    most = abs(facts.w - facts.w0).max()
    right = all(abs(float(said[name]) - one[cell]) < 0.000501 for name, one in (("a", facts.w0), ("b", facts.w)))
    return right and abs(abs(facts.w - facts.w0)[cell] - most) < 1e-6


def _agree(said: Said, facts: Facts) -> bool:
    rows = [(old, new) for old, new in zip(facts.w0, facts.w, strict=True) if old.any() and new.any()]
    count = sum(old.argmax() == new.argmax() for old, new in rows)
    return int(said["same"]) == count and int(said["queries"]) == len(facts.w)


def _next(said: Said, facts: Facts) -> bool:
    label, chances = facts.now.model.label, {}
    for name, share, logs in (("one", "a", facts.logs0[facts.at]), ("other", "b", facts.logs[facts.at])):
        chances[share] = said[name] == label(int(logs.argmax())) and same(
            said[share], min(np.exp(logs.max()), 1 - 1e-9), 1e-4
        )
    return all(chances.values())


COMPARE_CLAIMS: dict[str, Claim] = {
    "A and B differ most where “{query}” ({query_at}) attends to “{key}” ({key_at}): {a:.3f} in A, {b:.3f} in B.": _most,
    "Queries that attend most to the same position in both: {same:,} of {queries:,}.": _agree,
    "No weight differs by {least} or more between A and B.": lambda said, facts: (
        abs(facts.w - facts.w0).max() < float(said["least"]) + 1e-7
    ),
    "Next, A predicts “{one}” ({a}), B “{other}” ({b}).": _next,
}


@dataclass(frozen=True)
class ImageFacts:
    """A scene under a mask, captioned word by word by the network's own logits."""

    model: CaptionerModel
    scene: Scene
    prompt: str
    spec: MaskSpec

    def written(self, spec: MaskSpec) -> str:
        words: list[str] = []
        while len(words) < 17:
            trace = self.model.run(encode(render([self.scene]), self.prompt, words), spec)
            best = int(trace.logits[0, -1].numpy().argmax())
            if best == END:
                break
            words.append(WORDS[best])
        return " ".join(words)

    @property
    def true(self) -> str:
        return " ".join(text for text, _ in caption(self.scene, self.prompt))

    @cached_property
    def shares(self) -> dict[str, tuple[float, float, float, float]]:
        """By head: localization and its chance level by patches, then localization and its maximum by pixels."""
        words = caption(self.scene, self.prompt)
        trace = self.model.run(encode(render([self.scene]), self.prompt, [text for text, _ in words]), self.spec)
        found: dict[str, list[tuple[float, ...]]] = {}
        for position, (text, about) in enumerate(words):
            if about is None or text == "a":
                continue
            left, top, right, bottom = map(int, self.scene.shapes[about].box)
            pixels = np.zeros((48, 48))
            pixels[top:bottom, left:right] = 1
            area = pixels.reshape(GRID, 8, GRID, 8).mean((1, 3)).ravel()
            for layer, head in np.ndindex(3, 4):
                weights = trace.weights(layer, head)[PATCHES + position, :PATCHES].double().numpy()
                seen = trace.allowed(layer)[PATCHES + position, :PATCHES].numpy()
                each = ((weights * inside).sum() / max(weights.sum(), 1e-9) for inside in (area > 0, area))
                touching, by_area = each
                found.setdefault(f"L{layer} H{head}", []).append(
                    (touching, (area > 0)[seen].mean(), by_area, area[seen].max())
                )
        return {name: tuple(np.mean(some, axis=0)) for name, some in found.items()}


def _locates(said: Said, facts: ImageFacts) -> bool:
    shares, best = facts.shares[said["head"]], max(one[0] for one in facts.shares.values())
    stated = [said[name] for name in ("share", "chance", "area", "most")]
    return shares[0] > best - 1e-5 and all(same(*pair) for pair in zip(stated, shares, strict=True))


IMAGE_CLAIMS = {
    "The model writes “{caption}”.": lambda said, facts: said["caption"] == facts.written(facts.spec),
    "Under its own mask, with all patches, the model writes “{caption}”.": lambda said, facts: (
        said["caption"] == facts.written(facts.model.standard) != facts.written(facts.spec)
    ),
    "That is the scene's caption.": lambda said, facts: facts.written(facts.spec) == facts.true,
    "Two shapes have the same position in the prompt's direction: neither order is right.": lambda said, facts: (
        len({one.x if facts.prompt == "across" else one.y for one in facts.scene.shapes}) < len(facts.scene.shapes)
    ),
    "The scene's caption is “{caption}”.": lambda said, facts: (
        said["caption"] == facts.true != facts.written(facts.spec) and all(word in ID_OF for word in facts.true.split())
    ),
    "Over the words of the scene's caption that name a size, a colour or a shape, {head} puts on average {share} of its attention on the image on patches that touch the box of the shape described (its localization); spread evenly, it would be {chance}. With each patch weighed by its area in the box it is {area}, of at most {most}.": _locates,
}
