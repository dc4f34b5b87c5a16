"""Scenes of one to three shapes, rendered as small images and described by captions with a small grammar.

An image is SIDE × SIDE pixels, RGB. A caption names the shapes in the order that its prompt requests: "across", from
left to right, or "down", from top to bottom.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from i18n import msg
from model.images.patches import Box

SIDE = 48
COLOURS = {
    "red": (214, 40, 40), "green": (46, 150, 60), "blue": (40, 80, 205),
    "yellow": (242, 204, 30), "purple": (140, 50, 165), "orange": (246, 130, 28),
}  # fmt: skip
BACKGROUNDS = {"white": (250, 250, 250), "grey": (150, 150, 150), "sky": (190, 216, 240), "night": (26, 28, 42)}
SHAPES = ("square", "circle", "triangle", "cross")
SIZES = {"small": 4, "large": 8}  # from the centre to a side, in pixels
MAX_SHAPES, GAP = 3, 8  # least pixels between centres on either axis, so that each order is unambiguous
PROMPTS = {"across": ("x", ("left", "of")), "down": ("y", ("above",))}  # the axis that orders shapes, words between
UNSEEN = (("green", "circle"), ("purple", "triangle"), ("orange", "cross"))  # pairs that occur in no training scene
_SHAPE = re.compile(rf"({'|'.join(SHAPES)})-({'|'.join(COLOURS)})-({'|'.join(SIZES)})-(\d\d?)-(\d\d?)")


@dataclass(frozen=True)
class SceneShape:
    """A shape of a scene. x, y: its centre, in pixels from the top left."""

    shape: str
    colour: str
    size: str
    x: int
    y: int

    @property
    def box(self) -> Box:
        half = SIZES[self.size]
        return self.x - half, self.y - half, self.x + half, self.y + half

    def apart_from(self, other: "SceneShape", gap: int = 0) -> bool:
        """Whether the two do not touch, and their centres are at least `gap` pixels apart on both axes."""
        across, down = abs(self.x - other.x), abs(self.y - other.y)
        return min(across, down) >= gap and max(across, down) > SIZES[self.size] + SIZES[other.size]


@dataclass(frozen=True)
class Scene:
    """A scene. held_out: never trained on, one in eight. unseen: a shape has a colour that it never has in training."""

    shapes: tuple[SceneShape, ...]
    background: str = "white"

    @property
    def held_out(self) -> bool:
        return sum(3 * one.x + one.y for one in self.shapes) % 8 == 0

    @property
    def unseen(self) -> bool:
        return any((one.colour, one.shape) in UNSEEN for one in self.shapes)

    def text(self) -> str:
        """Return the scene as it is in a link: "white_square-red-small-10-20_…"."""
        shapes = (f"{one.shape}-{one.colour}-{one.size}-{one.x}-{one.y}" for one in self.shapes)
        return "_".join([self.background, *shapes])


def scene_of(text: str) -> Scene:
    """Parse the result of Scene.text. Raises ValueError for anything else, and for shapes outside the image."""
    background, *parts = text[:200].split("_")
    found = [match.groups() for match in map(_SHAPE.fullmatch, parts) if match]
    shapes = tuple(SceneShape(shape, colour, size, int(x), int(y)) for shape, colour, size, x, y in found)
    inside = all(min(one.box) >= 0 and max(one.box) <= SIDE for one in shapes)
    if background not in BACKGROUNDS or not inside or not len(shapes) == len(parts) <= MAX_SHAPES:
        raise ValueError(msg("expected a scene, as a link of the page Images has it, got {text}", text=text[:200]))
    return Scene(shapes, background)


def caption(scene: Scene, prompt: str) -> list[tuple[str, int | None]]:
    """Return each word with the index of the shape that it describes; None for a word between two shapes. Raises
    KeyError for a prompt that is not in PROMPTS."""
    axis, between = PROMPTS[prompt]
    words: list[tuple[str, int | None]] = []
    for number in sorted(range(len(scene.shapes)), key=lambda one: getattr(scene.shapes[one], axis)):
        one = scene.shapes[number]
        words += [(text, None) for text in between] if words else []
        words += [(text, number) for text in ("a", one.size, one.colour, one.shape)]
    return words


def is_ordered(scene: Scene, prompt: str) -> bool:
    """Whether no two shapes have the same coordinate on the prompt's axis."""
    return len({getattr(one, PROMPTS[prompt][0]) for one in scene.shapes}) == len(scene.shapes)


def random_scene(
    draw: random.Random, *, held_out: bool, count: int | None = None, pair: tuple[str, str] | None = None
) -> Scene:
    """Draw a scene, held out or not. pair: one of UNSEEN, for the first shape; no other shape has one of these."""
    while True:
        wanted, shapes = count or draw.randint(1, MAX_SHAPES), list[SceneShape]()
        while not shapes or not all(one.apart_from(other, GAP) for one, other in combinations(shapes, 2)):
            shapes = [_random_shape(draw, None if shape else pair) for shape in range(wanted)]
        scene = Scene(tuple(shapes), draw.choice(tuple(BACKGROUNDS)))
        if scene.held_out == held_out and scene.unseen == (pair is not None):
            return scene


def held_out_scenes(count: int, *, unseen: bool = False) -> list[tuple[Scene, str]]:
    """Return the same `count` scenes each time, each with a prompt. unseen: with a shape of a pair in UNSEEN."""
    draw, prompts = random.Random("card"), tuple(PROMPTS)
    pairs = (draw.choice(UNSEEN) if unseen else None for _ in range(count))
    return [(random_scene(draw, held_out=True, pair=pair), prompts[n % 2]) for n, pair in enumerate(pairs)]


def _random_shape(draw: random.Random, pair: tuple[str, str] | None) -> SceneShape:
    colour, shape = pair or (draw.choice(tuple(COLOURS)), draw.choice(SHAPES))
    size = draw.choice(tuple(SIZES))
    room = SIZES[size], SIDE - SIZES[size]
    return SceneShape(shape, colour, size, draw.randint(*room), draw.randint(*room))


def render(scenes: Sequence[Scene], jitter: np.random.Generator | None = None) -> np.ndarray:
    """Render scenes: uint8 [N,SIDE,SIDE,3]. jitter: changes each colour slightly, and adds noise."""

    def colours_of(some: list[tuple[int, int, int]]) -> np.ndarray:
        colours = np.array(some, np.float32)
        moved = 0 if jitter is None else jitter.uniform(-16, 16, colours.shape).astype(np.float32)
        return (colours + moved)[:, None, None]

    grounds = colours_of([BACKGROUNDS[scene.background] for scene in scenes])
    pictures = np.broadcast_to(grounds, (len(scenes), SIDE, SIDE, 3)).copy()
    for nth in range(MAX_SHAPES):
        some = [number for number, scene in enumerate(scenes) if len(scene.shapes) > nth]
        if some:
            shapes = [scenes[number].shapes[nth] for number in some]
            colours = colours_of([COLOURS[one.colour] for one in shapes])
            pictures[some] = np.where(_inside(shapes)[..., None], colours, pictures[some])
    if jitter is not None:
        pictures += jitter.normal(0, 5, pictures.shape)
    return np.asarray(np.clip(np.rint(pictures), 0, 255), np.uint8)


def _inside(shapes: Sequence[SceneShape]) -> np.ndarray:
    """Return which pixels belong to each shape: bool [N,SIDE,SIDE]."""
    half, x, y = np.array([(SIZES[one.size], one.x, one.y) for one in shapes]).T[..., None, None]
    axis = np.arange(SIDE) + 0.5
    u, v = (axis - x) / half, (axis[:, None] - y) / half
    far = np.maximum(abs(u), abs(v))  # 1 on the edges of its box
    found = {
        "square": far <= 1,
        "circle": u**2 + v**2 <= 1,
        "triangle": (far <= 1) & (2 * abs(u) <= v + 1),
        "cross": (far <= 1) & (np.minimum(abs(u), abs(v)) <= 0.34),
    }
    kinds = np.array([one.shape for one in shapes])[:, None, None]
    return np.select([kinds == name for name in found], list(found.values()))
