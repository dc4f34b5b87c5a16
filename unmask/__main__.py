"""python -m unmask check MODEL"""

import argparse
import sys
from collections.abc import Sequence

EPILOG = """\
exit status: 0 it obeys, 1 a law is broken, 2 it could not be checked.

examples:
  python -m unmask check story
  python -m unmask check ./my-model --dtype bfloat16 --junit obeys.xml
  python -m unmask check Qwen/Qwen3-0.6B --download
  python -m unmask check patient:sdpa --picture        (python -m unmask patients lists them)
"""


def parser() -> argparse.ArgumentParser:
    """What can be asked for on the command line."""
    main = argparse.ArgumentParser("python -m unmask", description="What Unmask can do without its app.")
    commands = main.add_subparsers(dest="command", required=True)
    check = commands.add_parser(
        "check",
        help="does a model obey its mask?",
        description="Run a model's own code with its own kernels, and measure what really reaches what.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    check.add_argument("model", help="a folder, a hub id, a name of the app's, or patient:NAME")
    check.add_argument("--json", action="store_true", help="print the report as JSON")
    check.add_argument("--junit", metavar="FILE", help="write the report as JUnit's XML too")
    check.add_argument("--picture", action="store_true", help="print the measured mask")
    check.add_argument("--mask", help="causal, full, window:W, chunk:C or prefix:P, in place of what it declares")
    check.add_argument("--dtype", default="float32", choices=("float32", "bfloat16", "float16", "float64"))
    check.add_argument("--length", type=int, help="how many tokens it reads (24, or enough to see past its window)")
    check.add_argument("--seed", type=int, default=0, help="of the ids and all else that is drawn (0)")
    check.add_argument("--seconds", type=float, default=120.0, help="the most that it may take (120)")
    check.add_argument("--flex", action="store_true", help="compare FlexAttention too; compiled, which takes a minute")
    check.add_argument("--download", action="store_true", help="fetch a hub id that is not on this machine")
    commands.add_parser("patients", help="list the small modules, sound and broken, that can be checked")
    return main


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    asked = parser().parse_args(arguments)
    from unmask import command  # torch takes a second, which --help does without

    return command.patients() if asked.command == "patients" else command.check(asked)


if __name__ == "__main__":
    sys.exit(main())
