"""python -m model.training story --text DIR [--minutes 90] [--out FOLDER]"""

import argparse
import dataclasses
from pathlib import Path

from model.training import story


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m model.training", description="Train a model that ships.")
    parser.add_argument("name", choices=["story"])
    parser.add_argument("--text", type=Path, required=True, help="the folder of books")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "checkpoints" / "story")
    for field in dataclasses.fields(story.Recipe):
        parser.add_argument("--" + field.name.replace("_", "-"), type=type(field.default), default=field.default)
    given = vars(parser.parse_args())
    recipe = story.Recipe(**{field.name: given[field.name] for field in dataclasses.fields(story.Recipe)})
    story.train(given["text"], given["out"], recipe)


if __name__ == "__main__":
    main()
