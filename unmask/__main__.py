"""The command line, `unmask` or `python -m unmask`: open the app, or run a command without it."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MAX_SECONDS = 1_000_000
NAME = "unmask" if Path(sys.argv[0]).stem == "unmask" else "python -m unmask"

EPILOG = f"""\
exit status: 0 the model obeys its mask, 1 a property is violated, 2 the check could not run or, with no property
violated, could not write its report.

examples:
  {NAME} check story
  {NAME} check ./my-model --dtype bfloat16 --junit obeys.xml
  {NAME} check Qwen/Qwen3-0.6B --download
  {NAME} check model.py:GPT --thorough
  {NAME} check sample:sdpa --picture        ({NAME} samples lists them)
"""

REPORT_EPILOG = f"""\
examples:
  {NAME} report --text "Once upon a time" -o report.html
  {NAME} report --model gpt2 --text "Hello world" --masks none --head 5,1 --head 0,3

L counts the layers with attention: see "Layers of a hybrid" in docs/notebook.md.
"""

PAGE_EPILOG = f"""\
The model has GPT-2's layout and at most 30 million parameters. The page makes no network request.

examples:
  {NAME} page -o attention.html
  {NAME} page --model ./my-gpt2 --text "Once upon a time" --lang zh
"""


def seconds(text: str) -> float:
    """Parse a time limit in seconds. Raises ValueError or ArgumentTypeError, of which argparse makes a sentence."""
    found = float(text)
    if not 0 < found <= MAX_SECONDS:
        raise argparse.ArgumentTypeError(f"expected more than 0 and at most {MAX_SECONDS:,}, got {text[:20]}")
    return found


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    main = argparse.ArgumentParser(NAME, description="Without a command: open the app in the browser.")
    commands = main.add_subparsers(dest="command", metavar="command")
    about = "Run a model's own code with its own kernels, and measure which token influences which output."
    raw: Any = {"formatter_class": argparse.RawDescriptionHelpFormatter}
    check = commands.add_parser("check", help="does a model obey its mask?", description=about, epilog=EPILOG, **raw)
    check.add_argument("model", nargs="?", help="a folder, Hub id, model name of the app, FILE.py:NAME or sample:NAME")
    check.add_argument("--explain", metavar="CHECK", help="print what a check measures, its tolerance and its limits")
    check.add_argument("--json", action="store_true", help="print the report as JSON")
    check.add_argument("--junit", metavar="FILE", help="also write the report as JUnit XML")
    check.add_argument("--picture", action="store_true", help="print the measured mask")
    check.add_argument("--mask", help="causal, full, window:W, chunk:C or prefix:P, instead of the declared one")
    check.add_argument("--dtype", default="float32", choices=("float32", "bfloat16", "float16", "float64"))
    check.add_argument("--length", type=int, help="number of tokens (24, or enough to exceed its window)")
    check.add_argument("--tokens", type=int, help="longest of the longer rows (520, or fewer for a large model)")
    check.add_argument("--thorough", action="store_true", help="change all tokens of longer rows; try torch.compile")
    check.add_argument("--packing", choices=("position_ids",), help="documents are separated by position_ids")
    check.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
    check.add_argument("--seconds", type=seconds, default=120.0, help="time limit in seconds (default: 120)")
    check.add_argument("--flex", action="store_true", help="also compare FlexAttention (a minute to compile)")
    check.add_argument("--download", action="store_true", help="download a Hub id that is not on this machine")
    about = "write a run as one HTML file that works offline"
    report = commands.add_parser("report", help=about, epilog=REPORT_EPILOG, **raw)
    report.add_argument("--model", default="story", help="a folder, a Hub id, or a model name of the app (story)")
    report.add_argument("--text", required=True, help="the input text")
    report.add_argument("--target", help="target text of an encoder-decoder; generated if not given")
    report.add_argument("--image", metavar="FILE", help="an image for an image-text model")
    report.add_argument("--masks", help="masks to apply: comma-separated names, none, or JSON")
    report.add_argument("--head", action="append", default=[], metavar="L,H", help="head to show first; repeatable")
    report.add_argument("--by", choices=("tokens", "words", "sentences"), default="tokens", help="merge tokens")
    report.add_argument("-o", "--output", default="report.html", metavar="FILE", help="output file (report.html)")
    about = "write one HTML file that runs a small model offline"
    page = commands.add_parser("page", help=about, epilog=PAGE_EPILOG, **raw)
    page.add_argument("--model", default="story", help="a folder or a model name of the app (story)")
    page.add_argument("--text", help="the initial text")
    page.add_argument("--masks", help="initial masks: comma-separated names, none, or JSON")
    page.add_argument("--lang", default="en", help="the page's language: en (default) or zh")
    page.add_argument("-o", "--output", default="attention.html", metavar="FILE", help="output file (attention.html)")
    course = commands.add_parser("course", help="write the lessons as web pages that run their models in the browser")
    course.add_argument("--lessons", metavar="FOLDER", help="a folder of your own lessons, name.en.md or name.zh.md")
    course.add_argument("-o", "--output", default="site", metavar="FOLDER", help="output folder (site)")
    for one in (report, page, course):
        one.add_argument("--download", action="store_true", help="download a model that is not on this machine")
    commands.add_parser("samples", help="list the sample modules, correct and broken")
    commands.add_parser("train", help="retrain a built-in model", add_help=False)
    return main


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line. Returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    given[:1] = ["samples"] if given[:1] == ["patients"] else given[:1]  # the command's old name
    args, rest = parser().parse_known_args(given)
    if rest and args.command != "train":  # `train` parses its own arguments
        parser().error(f"unrecognized arguments: {' '.join(rest)}")
    from unmask import command  # torch takes a second, which --help does without

    if args.command == "train":
        return command.train(rest)
    status: int = getattr(command, args.command or "open_app")(args)
    return status


if __name__ == "__main__":
    sys.exit(main())
