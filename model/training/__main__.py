"""The command line that trains the models that ship.

python -m model.training NAME [--minutes M] [--out FOLDER] …   without text: dates, digits, captioner, induction
python -m model.training NAME --text DIR …                     on the books in DIR: story, twins
python -m model.training measure --text DIR [--out FOLDER]     print the numbers on the story model's card"""

import argparse
import dataclasses
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

FROM_BOOKS, ALONE = ("story", "twins"), ("dates", "digits", "captioner", "induction")  # each a module with `train`
CHECKPOINTS = Path(__file__).parents[1] / "checkpoints"


def _recipe(name: str) -> type:
    """Return the dataclass of a recipe's options: StoryRecipe for story."""
    recipe: type = getattr(import_module(f"{__package__}.{name}"), f"{name.capitalize()}Recipe")
    return recipe


def main(arguments: Sequence[str] | None = None) -> None:
    """Train the model that the arguments name; by default those of the command line."""
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}", description="Train a built-in model.")
    commands = parser.add_subparsers(dest="what", required=True)
    for name in (*FROM_BOOKS, *ALONE):
        one = commands.add_parser(name)
        one.add_argument("--out", type=Path, default=CHECKPOINTS / name)
        if name in FROM_BOOKS:
            one.add_argument("--text", type=Path, required=True, help="the folder of books")
        for field in dataclasses.fields(_recipe(name)):
            kind, choices = type(field.default), field.metadata.get("choices")
            one.add_argument("--" + field.name.replace("_", "-"), type=kind, default=field.default, choices=choices)
    measure = commands.add_parser("measure")
    measure.add_argument("--text", type=Path, required=True, help="the folder of books")
    measure.add_argument("--out", type=Path, default=CHECKPOINTS / "story")
    given = vars(parser.parse_args(arguments))
    what, out = given.pop("what"), given.pop("out")
    for name in ("steps", "minutes", "rows"):
        if not given.get(name, 1) > 0:  # also rejects NaN
            parser.error(f"expected --{name} above 0, got {given[name]}")
    if what == "measure":
        from model.training.story import read_books, report

        print(report(out, read_books(given["text"]).held_out))
        return
    module, books = import_module(f"{__package__}.{what}"), given.pop("text", None)
    recipe = _recipe(what)(**given)
    module.train(out, recipe) if books is None else module.train(books, out, recipe)


if __name__ == "__main__":
    main()
