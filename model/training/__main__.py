"""python -m model.training story --text DIR [--minutes 85] [--out FOLDER]     train the story model
python -m model.training measure --text DIR [--out FOLDER]                  print the numbers on its card"""

import argparse
import dataclasses
from pathlib import Path

from model.training import story
from model.training.corpus import read_books
from model.training.evaluate import report


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m model.training", description="Train a model that ships.")
    parser.add_argument("what", choices=["story", "measure"], help="train the story model, or measure it")
    parser.add_argument("--text", type=Path, required=True, help="the folder of books")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "checkpoints" / "story")
    for field in dataclasses.fields(story.Recipe):
        parser.add_argument("--" + field.name.replace("_", "-"), type=type(field.default), default=field.default)
    given = vars(parser.parse_args())
    if given["what"] == "measure":
        print(report(given["out"], read_books(given["text"]).held_out))
        return
    recipe = story.Recipe(**{field.name: given[field.name] for field in dataclasses.fields(story.Recipe)})
    story.train(given["text"], given["out"], recipe)


if __name__ == "__main__":
    main()
