"""Scenes of one to three shapes, drawn as small pictures and described by captions of a small grammar.

A picture is SIDE × SIDE pixels, RGB. A caption names the shapes in the order that its prompt asks for: "across", from
left to right, or "down", from top to bottom.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from model.images.patches import Box

SIDE = 48
COLOURS = {
    "red": (214, 40, 40), "green": (46, 150, 60), "blue": (40, 80, 205),
    "yellow": (242, 204, 30), "purple": (140, 50, 165), "orange": (246, 130, 28),
}  # fmt: skip
BACKGROUNDS = {"white": (250, 250, 250), "grey": (150, 150, 150), "sky": (190, 216, 240), "night": (26, 28, 42)}
SHAPES = ("square", "circle", "triangle", "cross")
SIZES = {"small": 4, "large": 8}  # from the centre to a side, in pixels
MOST_SHAPES = 3
GAP = 8  # pixels between the centres of two shapes, across and down at the least: each order is then plain
PROMPTS = {"across": ("x", ("left", "of")), "down": ("y", ("above",))}  # what orders the shapes, what is said between
UNSEEN = (("green", "circle"), ("purple", "triangle"), ("orange", "cross"))  # of these pairs no scene is trained on


@dataclass(frozen=True)
class SceneShape:
    """x, y: its centre, in pixels from the top left."""

    shape: str
    colour: str
    size: str
    x: int
    y: int

    @property
    def box(self) -> Box:
        half = SIZES[self.size]
        return self.x - half, self.y - half, self.x + half, self.y + half

    def fits(self) -> bool:
        """Whether all of it is in the picture."""
        return min(self.box) >= 0 and max(self.box) <= SIDE

    def apart_from(self, other: "SceneShape", gap: int = 0) -> bool:
        """Whether the two do not touch, and their centres are so many pixels apart, across and down."""
        across, down = abs(self.x - other.x), abs(self.y - other.y)
        return min(across, down) >= gap and max(across, down) > SIZES[self.size] + SIZES[other.size]


@dataclass(frozen=True)
class Scene:
    shapes: tuple[SceneShape, ...]
    background: str = "white"

    @property
    def held_out(self) -> bool:
        """Never trained on, wherever its shapes come from: one scene of eight."""
        return sum(3 * one.x + one.y for one in self.shapes) % 8 == 0

    @property
    def unseen(self) -> bool:
        """Whether one of its shapes has a colour that this shape never had in training."""
        return any((one.colour, one.shape) in UNSEEN for one in self.shapes)


@dataclass(frozen=True)
class Word:
    """A word of a caption. about: which of the scene's shapes it describes; None for a word between two."""

    text: str
    about: int | None


def caption(scene: Scene, prompt: str) -> list[Word]:
    """Raises KeyError for another prompt than those of PROMPTS."""
    axis, between = PROMPTS[prompt]
    words: list[Word] = []
    for number in sorted(range(len(scene.shapes)), key=lambda one: getattr(scene.shapes[one], axis)):
        one = scene.shapes[number]
        words += [Word(text, None) for text in between] if words else []
        words += [Word(text, number) for text in ("a", one.size, one.colour, one.shape)]
    return words


def random_scene(draw: random.Random, count: int | None = None, pair: tuple[str, str] | None = None) -> Scene:
    """Of so many shapes, one to three unless given; the first of them with this colour and shape."""
    wanted = count or draw.randint(1, MOST_SHAPES)
    while True:
        shapes = [_random_shape(draw, None if shape else pair) for shape in range(wanted)]
        if all(one.apart_from(other, GAP) for one, other in combinations(shapes, 2)):
            return Scene(tuple(shapes), draw.choice(tuple(BACKGROUNDS)))


def next_scene(
    draw: random.Random, *, held_out: bool, count: int | None = None, pair: tuple[str, str] | None = None
) -> Scene:
    """One that is held out, or not. pair: of UNSEEN, which one of its shapes has; else none has any of those."""
    while True:
        scene = random_scene(draw, count, pair)
        if scene.held_out == held_out and scene.unseen == (pair is not None):
            return scene


def held_out_scenes(count: int, *, unseen: bool = False) -> list[Scene]:
    """The same each time. unseen: each has a shape in a colour that it never had in training."""
    draw = random.Random("card")
    return [next_scene(draw, held_out=True, pair=draw.choice(UNSEEN) if unseen else None) for _ in range(count)]


def scene_text(scene: Scene) -> str:
    """For a link: "white_small-red-square-10-20_…"."""
    shapes = (f"{one.size}-{one.colour}-{one.shape}-{one.x}-{one.y}" for one in scene.shapes)
    return "_".join([scene.background, *shapes])


def scene_of(text: str) -> Scene:
    """Of what scene_text wrote. Raises ValueError for anything else, and for shapes beyond the picture."""
    background, *shapes = text[:200].split("_")
    found = []
    for one in shapes[: MOST_SHAPES + 1]:
        size, colour, shape, x, y = one.split("-")
        if size not in SIZES or colour not in COLOURS or shape not in SHAPES:
            raise ValueError(f"expected a shape, got {one}")  # not shown
        found.append(SceneShape(shape, colour, size, int(x), int(y)))
    if background not in BACKGROUNDS or len(found) > MOST_SHAPES or not all(one.fits() for one in found):
        raise ValueError(f"expected a scene, got {text[:200]}")  # not shown
    return Scene(tuple(found), background)


def _random_shape(draw: random.Random, pair: tuple[str, str] | None) -> SceneShape:
    colour, shape = pair or (draw.choice(tuple(COLOURS)), draw.choice(SHAPES))
    size = draw.choice(tuple(SIZES))
    room = SIZES[size], SIDE - SIZES[size]
    return SceneShape(shape, colour, size, draw.randint(*room), draw.randint(*room))


def render(scenes: Sequence[Scene], jitter: np.random.Generator | None = None) -> np.ndarray:
    """Pictures, uint8 [N,SIDE,SIDE,3]. jitter: changes each colour a little, and adds noise."""
    pictures = np.array([BACKGROUNDS[scene.background] for scene in scenes], np.float32)[:, None, None]
    pictures = np.broadcast_to(_moved(pictures, jitter), (len(scenes), SIDE, SIDE, 3)).copy()
    for nth in range(MOST_SHAPES):
        some = [number for number, scene in enumerate(scenes) if len(scene.shapes) > nth]
        if some:
            shapes = [scenes[number].shapes[nth] for number in some]
            colours = _moved(np.array([COLOURS[one.colour] for one in shapes], np.float32), jitter)
            inside = _inside(shapes)[..., None]
            pictures[some] = np.where(inside, colours[:, None, None], pictures[some])
    if jitter is not None:
        pictures += jitter.normal(0, 5, pictures.shape)
    return np.clip(np.rint(pictures), 0, 255).astype(np.uint8)


def _moved(colours: np.ndarray, jitter: np.random.Generator | None) -> np.ndarray:
    return colours if jitter is None else colours + jitter.uniform(-16, 16, colours.shape).astype(np.float32)


def _inside(shapes: Sequence[SceneShape]) -> np.ndarray:
    """Which pixels are the shape's: bool [N,SIDE,SIDE]."""
    half = np.array([SIZES[one.size] for one in shapes])[:, None, None]
    centre = np.array([(one.x, one.y) for one in shapes])[:, :, None, None]
    place = np.arange(SIDE) + 0.5
    u, v = (place[None, None] - centre[:, 0]) / half, (place[None, :, None] - centre[:, 1]) / half
    far = np.maximum(abs(u), abs(v))  # 1 on the sides of its box
    found = {
        "square": far <= 1,
        "circle": u**2 + v**2 <= 1,
        "triangle": (far <= 1) & (2 * abs(u) <= v + 1),
        "cross": (far <= 1) & (np.minimum(abs(u), abs(v)) <= 0.34),
    }
    kinds = np.array([one.shape for one in shapes])[:, None, None]
    return np.select([kinds == name for name in found], list(found.values()))
